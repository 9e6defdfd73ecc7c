"""Merges tokens between the blocks of a vision encoder.

| file | what it does |
|---|---|
| `merger` | wraps blocks and lets the method merge |
| `run` | one forward pass of an encoder with fewer tokens |
| `row` | which tokens exist, and which first tokens each stands for |
"""
