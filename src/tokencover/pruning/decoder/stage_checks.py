"""Where in the decoder a method acts, and where it cannot: blocks that share earlier keys."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from tokencover.errors import InputError
from tokencover.methods import Method


def check_shared_keys(method: Method, blocks: Sequence[nn.Module], stages: Sequence[int]) -> None:
    """Refuse to drop tokens between a block and those that share its keys.

    Parameters
    ----------
    method : Method
        Who wants to drop, for the message.
    blocks : sequence of nn.Module
        All decoder blocks.
    stages : sequence of int
        The blocks before which it acts.
    """
    sharing = [number for number, block in enumerate(blocks) if _has(block, "is_kv_shared_layer")]
    if not sharing:
        return
    shared = [number for number, block in enumerate(blocks) if _has(block, "store_full_length_kv")]
    late = [stage for stage in stages if stage > min(shared)]
    if late:
        raise InputError(
            f"{type(method).__name__} acts before block {late[0]}, but blocks {sharing[0]} to "
            f"{sharing[-1]} of this model attend to keys of block {min(shared)}, where the tokens "
            f"would still be: let it act before block {min(shared)} or earlier."
        )


def _has(block: nn.Module, name: str) -> bool:
    return bool(getattr(getattr(block, "self_attn", None), name, False))


def find_stages(method: Method, depth: int) -> tuple[int, ...]:
    """The decoder blocks before which the method acts, checked."""
    stages = tuple(method.pruning_layers(depth))
    if list(stages) != sorted(set(stages)) or any(not 0 <= each < depth for each in stages):
        raise InputError(
            f"{type(method).__name__} wants to act before blocks {stages}: they must ascend and "
            f"lie between 0 and {depth - 1} in this model."
        )
    return stages
