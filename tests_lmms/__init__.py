"""Tests that need lmms-eval, in a separate environment: ``make test-lmms``."""
