"""Experiments on the theory of the paper: see docs/research/theory.md and prediction.md."""
