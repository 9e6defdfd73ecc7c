"""What can go wrong, said so that the reader knows the value and the way out.

The command line exits with code 2 for an `InputError`, and with code 1 for every other error.
"""


class TokenCoverError(Exception):
    """Base of every error tokencover raises on purpose."""


class InputError(TokenCoverError, ValueError):
    """A value the caller passed cannot be used."""


class BudgetError(InputError):
    """A budget that a method cannot meet; for some inputs it may, and not for others."""


class MissingPackageError(TokenCoverError, ImportError):
    """A package that only some features need is not installed."""


class LoadError(TokenCoverError):
    """A model or dataset cannot be downloaded, or its files are damaged."""


class InternalsError(TokenCoverError, RuntimeError):
    """The installed transformers or torch lacks a name that pruning relies on."""


class WriteError(TokenCoverError, OSError):
    """A file cannot be written; the message names it."""


class TokenCoverWarning(UserWarning):
    """Something that works, and that the user may want to know."""
