"""Refuse what cannot be covered, with the value and the way out in the message.

First check by check, then all that `mob` is asked for at once: tokens, masks and counts of every
sample of a batch (`check_samples`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import SupportsIndex

import torch
from torch import Tensor

from tokencover.covering.exact import find_float64_device
from tokencover.errors import InputError

Count = int | Sequence[int]
"""One number for every sample, or one number each."""


def check_pair(visual: Tensor, prompt: Tensor, ranks: tuple[int, ...]) -> None:
    """Two sets of tokens that can be compared with each other."""
    check_tokens("visual", visual, ranks)
    check_tokens("prompt", prompt, ranks)
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
            "move one with .to(device) so that both are in one place."
        )


def check_tokens(name: str, tokens: Tensor, ranks: tuple[int, ...] = (2,)) -> None:
    """A tensor of token vectors of one of the given ranks."""
    if not isinstance(tokens, Tensor):
        raise InputError(f"{name} must be a torch.Tensor, got {type(tokens).__name__}.")
    shapes = {2: "(tokens, width)", 3: "(batch, tokens, width)"}
    if tokens.dim() not in ranks:
        expected = " or ".join(shapes[rank] for rank in ranks)
        raise InputError(f"{name} must be {expected}, got shape {tuple(tokens.shape)}.")
    if not tokens.is_floating_point():
        raise InputError(
            f"{name} must hold floating-point vectors, got {tokens.dtype}. Pass the hidden "
            "states of the tokens, not their ids."
        )
    if tokens.shape[-1] == 0:
        raise InputError(f"{name} has vectors of width 0, shape {tuple(tokens.shape)}.")
    if name != "prompt" and tokens.shape[-2] == 0:
        raise InputError(
            f"{name} is empty, shape {tuple(tokens.shape)}: there is nothing to choose from. "
            "Skip samples without a picture."
        )
    if tokens.dim() == 3 and tokens.shape[0] == 0:
        raise InputError(f"{name} is a batch of no samples, shape {tuple(tokens.shape)}.")


def check_finite(name: str, tokens: Tensor) -> None:
    """No NaN and no infinity; the first one is named."""
    # A sum with NaN or infinity in it is not finite: one quick reading tells, but for overflow.
    if math.isfinite(tokens.sum(dtype=torch.promote_types(tokens.dtype, torch.float32))):
        return
    finite = torch.isfinite(tokens)
    if bool(finite.all()):
        return
    place = (~finite).nonzero()[0].tolist()
    raise InputError(
        f"{name} holds {float(tokens[tuple(place)])} at {place}. Look for an overflow in half "
        "precision before this layer, or leave such tokens out with a mask."
    )


def check_mask(name: str, mask: Tensor | None, tokens: Tensor) -> None:
    """A boolean for each token, or no mask at all."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(
            f"{name} must be a tensor of torch.bool, True where a token counts; got {kind}."
        )
    if mask.shape != tokens.shape[:-1]:
        raise InputError(
            f"{name} has shape {tuple(mask.shape)}, but the tokens it belongs to have shape "
            f"{tuple(tokens.shape)}: it must be {tuple(tokens.shape[:-1])}."
        )


def check_count(name: str, value: SupportsIndex, least: int) -> int:
    """An integer that is large enough."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InputError(f"{name} must be an integer, got {value!r}.")
    if index(value) < least:
        raise InputError(f"{name} must be at least {least}, got {index(value)}.")
    return index(value)


def check_counts(name: str, value: Count, least: int, samples: int) -> list[int]:
    """The same count for every sample, or one each."""
    if isinstance(value, Sequence):
        if len(value) != samples:
            raise InputError(f"{name} lists {len(value)} counts for {samples} samples.")
        return [check_count(name, each, least) for each in value]
    return [check_count(name, value, least)] * samples


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """K, Kp and k of one sample, K and Kp no more than the tokens it has."""

    budget: int
    prompt_budget: int
    fold: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample without what its masks leave out.

    Attributes
    ----------
    visual, prompt : Tensor
        ``(n, d)`` and ``(l, d)`` float32.
    places : Tensor
        ``(n,)`` int64, where its visual tokens stand in the batch.
    counts : SampleCounts
        How many to choose.
    """

    visual: Tensor
    prompt: Tensor
    places: Tensor
    counts: SampleCounts


@dataclass(frozen=True, slots=True)
class Samples:
    """A batch, on a device that has float64.

    Attributes
    ----------
    visual, prompt : Tensor
        ``(b, n, d)`` and ``(b, l, d)``, any floating dtype, without history.
    visual_mask, prompt_mask : Tensor or None
        ``(b, n)`` and ``(b, l)`` bool, which tokens exist; None if all do.
    counts : list of SampleCounts
        How many to choose of each sample, as they were asked for.
    """

    visual: Tensor
    prompt: Tensor
    visual_mask: Tensor | None
    prompt_mask: Tensor | None
    counts: list[SampleCounts]

    def __iter__(self) -> Iterator[Sample]:
        mask = self.visual_mask
        sizes = [self.visual.shape[1]] * len(self.visual) if mask is None else mask.sum(-1).tolist()
        for sample, counts in enumerate(self.cut_counts(sizes)):
            visual, places = _leave_out(self.visual[sample], self._take_mask(mask, sample))
            prompt, _ = _leave_out(self.prompt[sample], self._take_mask(self.prompt_mask, sample))
            yield Sample(visual.float(), prompt.float(), places, counts)

    @staticmethod
    def _take_mask(mask: Tensor | None, sample: int) -> Tensor | None:
        return None if mask is None else mask[sample]

    def cut_counts(self, sizes: list[int]) -> list[SampleCounts]:
        """The counts, no more than there are visual tokens; a sample must have one."""
        if 0 in sizes:
            raise InputError(
                f"visual_mask leaves sample {sizes.index(0)} without a visual token: "
                "there is nothing to choose from. Skip samples without a picture."
            )
        return [
            SampleCounts(min(each.budget, size), min(each.prompt_budget, size), each.fold)
            for each, size in zip(self.counts, sizes, strict=True)
        ]


def _leave_out(tokens: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The tokens that exist, and where they stand."""
    if mask is None:
        return tokens, torch.arange(len(tokens), device=tokens.device)
    places = mask.nonzero().squeeze(-1)
    return tokens if len(places) == len(tokens) else tokens[places], places


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
    """Refuse what cannot be covered, as far as that is seen without reading values; see `mob`."""
    check_pair(visual, prompt, ranks=(3,))
    check_mask("visual_mask", visual_mask, visual)
    check_mask("prompt_mask", prompt_mask, prompt)
    counts = _check_sample_counts(len(visual), budget, prompt_budget, fold)
    place = find_float64_device(visual.device)
    return Samples(
        visual.detach().to(place),
        prompt.detach().to(place),
        None if visual_mask is None else visual_mask.to(place),
        None if prompt_mask is None else prompt_mask.to(place),
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
                "prompt centres are part of the budget."
            )
    return [SampleCounts(*each) for each in zip(budgets, prompt_budgets, folds, strict=True)]
