"""The command line: one module per command, and the app that lists them."""
