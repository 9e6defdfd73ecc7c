"""The settings of the other tests: one thread per process, no AMX."""

from tests import conftest

__all__ = ["conftest"]
