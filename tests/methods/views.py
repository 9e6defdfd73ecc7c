"""Hand-made views: everything a method may see, from plain tensors, without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.budget import LayerCost
from tokencover.methods import View, VisionOutputs


def hand_made(
    states: Sequence[Tensor],
    *,
    before: int = 2,
    behind: int | Sequence[int] = 3,
    words: Sequence[Tensor] | None = None,
    block: int = 1,
    depth: int = 4,
    columns: int = 0,
    attention: Mapping[int, Sequence[Tensor]] | None = None,
    keys: Mapping[int, Sequence[Tensor]] | None = None,
    encoded: VisionOutputs | None = None,
    **changes: Any,
) -> View:
    """A view of samples that read: text, all visual tokens, text.

    Parameters
    ----------
    states
        For each sample ``(n_i, d)``, its visual tokens.
    before, behind
        Text tokens before and behind them; `behind` may differ between samples.
    words
        States ``(behind_i, d)`` of the text behind, which are the prompt tokens too; by default
        random ones.
    block, depth
        As in the view.
    columns
        Width of the image's grid; by default all tokens lie in one row.
    attention
        For each watched block and each sample a whole map ``(heads, s_i, s_i)``.
    keys
        For each watched block and each sample ``(kv_heads, s_i, head_dim)``, for all tokens;
        rotation leaves them as they are.
    encoded
        As in the view.
    **changes
        Fields of the view to set by hand.
    """
    sizes = [len(each) for each in states]
    tails = [behind] * len(states) if isinstance(behind, int) else list(behind)
    generator = torch.Generator().manual_seed(17)
    if words is None:
        width = states[0].shape[-1]
        words = [torch.randn(tail, width, generator=generator) for tail in tails]
    mask, shown = _stacked([torch.ones(size, dtype=torch.bool) for size in sizes]), _stacked(states)
    place = _stacked([torch.arange(size) for size in sizes], fill=0)
    text_mask = _stacked([torch.ones(tail, dtype=torch.bool) for tail in tails])
    text_places = [
        torch.arange(before + size, before + size + tail)
        for size, tail in zip(sizes, tails, strict=True)
    ]
    width = columns or max(sizes)

    def found_attention(number: int, queries: Tensor) -> Tensor:
        assert attention is not None
        maps = attention[number]
        heads = maps[0].shape[0]
        rows = torch.zeros(len(sizes), heads, queries.shape[1], max(sizes))
        for sample, size in enumerate(sizes):
            for number_, query in enumerate(queries[sample].tolist()):
                if query >= 0:
                    visual = slice(before, before + size)
                    rows[sample, :, number_, :size] = maps[sample][:, query, visual]
        return rows

    def found_keys(number: int, places: Tensor | None = None, *, rotated: bool = False) -> Tensor:
        assert keys is not None
        places = (place + before).masked_fill(~mask, -1) if places is None else places
        return torch.stack(
            [
                all_keys[:, chosen.clamp(min=0)] * (chosen >= 0).unsqueeze(-1)
                for all_keys, chosen in zip(keys[number], places, strict=True)
            ]
        )

    def no_blocks(blocks: Sequence[nn.Module], queries: Tensor) -> Tensor:
        raise AssertionError("this view has no blocks to run")

    zeros = torch.zeros_like(place)
    fields: dict[str, Any] = {
        "layer_idx": block,
        "num_layers": depth,
        "hidden_states": shown,
        "mask": mask,
        "prompt": _stacked(words),
        "prompt_mask": text_mask,
        "prompt_positions": _stacked(text_places, fill=-1),
        "text": _stacked(words),
        "text_mask": text_mask,
        "text_positions": _stacked(text_places, fill=-1),
        "last": torch.tensor([before + s + t - 1 for s, t in zip(sizes, tails, strict=True)]),
        "positions": place + before,
        "total": torch.tensor(sizes),
        "others": torch.tensor([before + tail for tail in tails]),
        "medium": zeros,
        "frame": zeros,
        "row": place // width,
        "column": place % width,
        "kind": zeros,
        "video": torch.zeros_like(mask),
        "keys": found_keys,
        "attention": found_attention,
        "ahead": no_blocks,
        "norm": lambda tokens: tokens,
        "cost": LayerCost(linear=1000, quadratic=10),
        "vision": encoded,
    }
    return View(**{**fields, **changes})


def _stacked(rows: Sequence[Tensor], fill: float = 0.0) -> Tensor:
    return nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=fill)
