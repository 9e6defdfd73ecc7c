"""What can go wrong, said so that the reader knows the value and the way out."""


class TokenCoverError(Exception):
    """Base of every error tokencover raises on purpose."""


class InputError(TokenCoverError, ValueError):
    """A value the caller passed cannot be used."""


class BudgetError(InputError):
    """A budget that a method cannot meet; for some inputs it may, and not for others."""


class UserNote(UserWarning):
    """Something that works, and that the user may want to know."""
