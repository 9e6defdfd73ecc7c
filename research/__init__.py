"""Training, studies and experiments: not packaged. See README.md for the commands."""
