"""The kinds of blocks that decoders with windows have in the zoo."""

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"

WINDOW = 9
"""Far shorter than the prompts, and than what the tests let models write."""


def choose_kinds(layers: int, windows: str = SLIDING) -> list[str]:
    """The last block sees all, so that every visual token matters; most others have windows."""
    return [windows, FULL, windows, windows, FULL][-layers:]
