"""MoB with other kinds of prompt centers: see docs/research/beyond.md."""
