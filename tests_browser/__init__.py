"""Tests in a real browser; see `make test-browser`."""
