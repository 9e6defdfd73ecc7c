"""Training, studies and experiments: not packaged. See research/README.md for the commands."""
