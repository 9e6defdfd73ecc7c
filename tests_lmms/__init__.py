"""Tests that need lmms-eval, in an environment of their own: ``make test-lmms``."""
