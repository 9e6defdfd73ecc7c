"""Settings shared by all tests."""

from hypothesis import settings

# The same examples on every run: a failure found once is found again.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=150)
settings.load_profile("repeatable")
