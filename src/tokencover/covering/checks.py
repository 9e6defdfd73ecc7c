"""Input checks, with the value and the fix in the message; `check_samples` for all of `mob`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import SupportsIndex

import torch
from torch import Tensor

from tokencover.covering.exact import get_float64_device
from tokencover.errors import InputError

Count = int | Sequence[int]
"""One number for all samples, or a list with one number per sample."""


def check_pair(visual: Tensor, prompt: Tensor, ranks: tuple[int, ...]) -> None:
    """Raise unless these are two sets of tokens that can be compared with each other."""
    check_tokens("visual", visual, ranks)
    check_tokens("prompt", prompt, ranks, may_be_empty=True)
    if visual.shape[-1] != prompt.shape[-1]:
        raise InputError(
            f"visual and prompt tokens have different widths: {visual.shape[-1]} and "
            f"{prompt.shape[-1]}. Take both from the same layer of the same model."
        )
    if visual.dim() != prompt.dim() or visual.shape[:-2] != prompt.shape[:-2]:
        raise InputError(
            f"visual has shape {tuple(visual.shape)} and prompt {tuple(prompt.shape)}: both must "
            "be (tokens, width), or (batch, tokens, width) with the same batch size."
        )
    if visual.device != prompt.device:
        raise InputError(
            f"visual is on {visual.device} and prompt on {prompt.device}: "
            "move one of them with .to(device)."
        )


def check_tokens(
    name: str, tokens: Tensor, ranks: tuple[int, ...] = (2,), *, may_be_empty: bool = False
) -> None:
    """Raise unless this is a tensor of token vectors of one of the given ranks."""
    if not isinstance(tokens, Tensor):
        raise InputError(f"{name} must be a torch.Tensor, got {type(tokens).__name__}.")
    shapes = {2: "(tokens, width)", 3: "(batch, tokens, width)"}
    if tokens.dim() not in ranks:
        expected = " or ".join(shapes[rank] for rank in ranks)
        raise InputError(f"{name} must be {expected}, got shape {tuple(tokens.shape)}.")
    if not tokens.is_floating_point():
        raise InputError(
            f"{name} must contain floating-point vectors, got {tokens.dtype}. Pass the hidden "
            "states of the tokens, not their ids."
        )
    if tokens.shape[-1] == 0:
        raise InputError(f"{name} has vectors of width 0, shape {tuple(tokens.shape)}.")
    if tokens.shape[-2] == 0 and not may_be_empty:
        raise InputError(
            f"{name} is empty, shape {tuple(tokens.shape)}: there is nothing to choose from. "
            "Skip samples without an image."
        )
    if tokens.dim() == 3 and tokens.shape[0] == 0:
        raise InputError(f"{name} is a batch of no samples, shape {tuple(tokens.shape)}.")


def check_finite(name: str, tokens: Tensor) -> None:
    """Raise for NaN and infinity, with the index of the first one."""
    # A sum that contains NaN or infinity is not finite; it may also have overflowed.
    if math.isfinite(tokens.sum(dtype=torch.promote_types(tokens.dtype, torch.float32))):
        return
    finite = torch.isfinite(tokens)
    if bool(finite.all()):
        return
    first = (~finite).nonzero()[0].tolist()
    raise InputError(
        f"{name} holds {float(tokens[tuple(first)])} at {first}. Look for an overflow in half "
        "precision before this layer, or leave such tokens out with a mask."
    )


def check_mask(name: str, mask: Tensor | None, tokens: Tensor) -> None:
    """Raise unless this is a bool for each token, or None."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(
            f"{name} must be a tensor of torch.bool, True for a token that counts; got {kind}. "
            "Convert it with torch.as_tensor(mask).bool()."
        )
    if mask.shape != tokens.shape[:-1]:
        raise InputError(
            f"{name} has shape {tuple(mask.shape)}, but the tokens it belongs to have shape "
            f"{tuple(tokens.shape)}: it must be {tuple(tokens.shape[:-1])}."
        )


def check_indices(name: str, indices: Tensor | None, count: int) -> Tensor:
    """Int64 indices of some of `count` tokens; none for None. Raise for any others."""
    if indices is None:
        return torch.empty(0, dtype=torch.int64)
    if not isinstance(indices, Tensor):
        raise InputError(
            f"{name} must be a torch.Tensor of indices, got {type(indices).__name__}: "
            f"use torch.tensor({name})."
        )
    is_integer = not (indices.is_floating_point() or indices.is_complex())
    if indices.dim() != 1 or not is_integer or indices.dtype == torch.bool:
        raise InputError(
            f"{name} must be a list of token indices, (indices,) of integers; got "
            f"{indices.dtype} of shape {tuple(indices.shape)}. Convert a mask with "
            "mask.nonzero().squeeze(-1)."
        )
    if len(indices) and not 0 <= int(indices.amin()) <= int(indices.amax()) < count:
        raise InputError(
            f"{name} holds indices from {int(indices.amin())} to {int(indices.amax())}, but there "
            f"are {count} tokens: use indices from 0 to {count - 1}."
        )
    return indices.to(torch.int64)


def check_count(name: str, value: SupportsIndex, least: int) -> int:
    """Raise unless this is an integer of at least `least`; return it as int."""
    try:
        count = index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool):
        raise InputError(f"{name} must be an integer, got {value!r}.")
    if count < least:
        raise InputError(f"{name} must be at least {least}, got {count}.")
    return count


def check_counts(name: str, value: Count, least: int, number: int) -> list[int]:
    """As `check_count`, for `number` counts in a list, or one that stands for all of them."""
    if isinstance(value, Sequence):
        if len(value) != number:
            raise InputError(f"{name} has {len(value)} values, but must have {number}.")
        return [check_count(f"{name}[{i}]", count, least) for i, count in enumerate(value)]
    return [check_count(name, value, least)] * number


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """K, Kp and k of one sample; K and Kp are at most the number of its tokens."""

    budget: int
    prompt_budget: int
    fold: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample's tokens that count, float32, and the ``(n,)`` indices of its visual ones."""

    visual: Tensor
    prompt: Tensor
    indices: Tensor
    counts: SampleCounts


@dataclass(frozen=True, slots=True)
class Samples:
    """A batch, detached, on a device that has float64.

    `visual` and `prompt` are ``(b, n, d)`` and ``(b, l, d)`` of any floating dtype, the masks
    ``(b, n)`` and ``(b, l)`` bool, or None if all tokens count. `counts` are as requested.
    """

    visual: Tensor
    prompt: Tensor
    visual_mask: Tensor | None
    prompt_mask: Tensor | None
    counts: list[SampleCounts]

    def __iter__(self) -> Iterator[Sample]:
        mask = self.visual_mask
        sizes = [self.visual.shape[1]] * len(self.visual) if mask is None else mask.sum(-1).tolist()
        for i, counts in enumerate(self.cut_counts(sizes)):
            visual, indices = _drop_masked(self.visual[i], None if mask is None else mask[i])
            prompt_mask = None if self.prompt_mask is None else self.prompt_mask[i]
            prompt, _ = _drop_masked(self.prompt[i], prompt_mask)
            yield Sample(visual.float(), prompt.float(), indices, counts)

    def cut_counts(self, sizes: list[int]) -> list[SampleCounts]:
        """The counts, cut to the numbers of visual tokens; raise if a sample has none."""
        if 0 in sizes:
            raise InputError(
                f"visual_mask leaves sample {sizes.index(0)} without a visual token: "
                "there is nothing to choose from. Skip samples without an image."
            )
        return [
            SampleCounts(min(counts.budget, size), min(counts.prompt_budget, size), counts.fold)
            for counts, size in zip(self.counts, sizes, strict=True)
        ]


def _drop_masked(tokens: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The tokens that count, and their indices."""
    if mask is None:
        return tokens, torch.arange(len(tokens), device=tokens.device)
    indices = mask.nonzero().squeeze(-1)
    return tokens if len(indices) == len(tokens) else tokens[indices], indices


def check_samples(
    visual: Tensor,
    prompt: Tensor,
    *,
    budget: Count,
    prompt_budget: Count,
    fold: Count,
    visual_mask: Tensor | None,
    prompt_mask: Tensor | None,
) -> Samples:
    """Check the input of `mob` as far as possible without reading values of tokens and masks."""
    check_pair(visual, prompt, ranks=(3,))
    check_mask("visual_mask", visual_mask, visual)
    check_mask("prompt_mask", prompt_mask, prompt)
    counts = _check_sample_counts(len(visual), budget, prompt_budget, fold)
    device = get_float64_device(visual.device)
    return Samples(
        visual.detach().to(device),
        prompt.detach().to(device),
        None if visual_mask is None else visual_mask.to(device),
        None if prompt_mask is None else prompt_mask.to(device),
        counts,
    )


def _check_sample_counts(
    samples: int, budget: Count, prompt_budget: Count, fold: Count
) -> list[SampleCounts]:
    budgets = check_counts("budget", budget, 1, samples)
    prompt_budgets = check_counts("prompt_budget", prompt_budget, 0, samples)
    folds = check_counts("fold", fold, 1, samples)
    for total, part in zip(budgets, prompt_budgets, strict=True):
        if part > total:
            raise InputError(
                f"prompt_budget {part} is more than the whole budget {total}: "
                "prompt centers are part of the budget."
            )
    return [SampleCounts(*counts) for counts in zip(budgets, prompt_budgets, folds, strict=True)]
