"""The study of all methods on the test models: `run.py` asks, `tables.py` prints."""
