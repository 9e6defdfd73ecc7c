"""Prompt-visual coupling: the Hausdorff distance eta (Algorithm 2 of the paper).

Tokens are normalised, so the distance of two is sqrt(2 - 2 cos). A zero token stays zero: its
distance to a unit vector is 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tokencover.covering.checks import check_mask, check_pair
from tokencover.covering.exact import keep_precision, on_cpu, square_distance, to_float32
from tokencover.covering.search.scratch import on_one_thread
from tokencover.covering.search.vectors import CosineEstimates, Vectors
from tokencover.covering.together import (
    Directions,
    keep_float32,
    measure_all_pairs,
    measure_hausdorff,
    read_together,
)
from tokencover.errors import InputError


def coupling(
    visual: Tensor,
    prompt: Tensor,
    *,
    visual_mask: Tensor | None = None,
    prompt_mask: Tensor | None = None,
) -> Tensor:
    """Hausdorff distance eta between visual and prompt tokens.

    eta = max(max over v of min over p of |v - p|, max over p of min over v of |v - p|). Large eta
    is *weak* coupling (a few patches matter), small eta is *strong* coupling (many do). Needs
    O(n l) memory, never O(n l d).

    Parameters
    ----------
    visual, prompt : Tensor
        ``(n, d)`` and ``(l, d)``, or batches of such.
    visual_mask, prompt_mask : Tensor, optional
        bool, False leaves a token out.

    Returns
    -------
    Tensor
        float64, a scalar or one value per sample.
    """
    check_pair(visual, prompt, ranks=(2, 3))
    check_mask("visual_mask", visual_mask, visual)
    check_mask("prompt_mask", prompt_mask, prompt)
    single = visual.dim() == 2
    if single:
        visual, prompt = visual[None], prompt[None]
        visual_mask = None if visual_mask is None else visual_mask[None]
        prompt_mask = None if prompt_mask is None else prompt_mask[None]
    eta = torch.maximum(*_measure(visual, prompt, visual_mask, prompt_mask))
    return eta[0] if single else eta


def hausdorff(first: Tensor, second: Tensor) -> Tensor:
    """Larger of the two directed distances of ``(n, d)`` and ``(m, d)``; a float64 scalar."""
    check_pair(first, second, ranks=(2,))
    return torch.maximum(*_measure(first[None], second[None], None, None))[0]


def directed_hausdorff(source: Tensor, target: Tensor) -> Tensor:
    """How far the worst token of `source` is from its nearest token of `target`."""
    check_pair(source, target, ranks=(2,))
    return _measure(source[None], target[None], None, None)[0][0]


def _measure(
    visual: Tensor, prompt: Tensor, visual_mask: Tensor | None, prompt_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Both directed distances of every sample of a batch, ``(b,)`` float64 each."""
    if prompt.shape[1] == 0:
        raise _build_empty_error("prompt", 0)
    with keep_precision(visual.device):
        if on_cpu(visual):
            samples = (
                _drop_masked("visual", visual, visual_mask),
                _drop_masked("prompt", prompt, prompt_mask),
            )
            squares = [_compare_few(*pair) for pair in zip(*samples, strict=True)]
            forth, back = (torch.stack(side) for side in zip(*squares, strict=True))
        else:
            with keep_float32():
                forth, back = _measure_together(
                    Directions.of(visual.detach(), visual_mask),
                    Directions.of(prompt.detach(), prompt_mask),
                )
        return forth.clamp_(min=0.0).sqrt_(), back.clamp_(min=0.0).sqrt_()


def _build_empty_error(name: str, sample: int) -> InputError:
    return InputError(
        f"{name} has no token left in sample {sample}: the distance to an empty set is not "
        f"defined. Skip such samples, or correct {name}_mask."
    )


def _drop_masked(name: str, tokens: Tensor, mask: Tensor | None) -> Iterator[Tensor]:
    """The tokens of each sample that count, float32."""
    for number, sample in enumerate(tokens):
        counted = sample if mask is None else sample[mask[number]]
        if len(counted) == 0:
            raise _build_empty_error(name, number)
        yield to_float32(counted)


def _measure_together(visual: Directions, prompt: Directions) -> tuple[Tensor, Tensor]:
    """Squared distances of a batch, on an accelerator."""
    forth, back, proven = measure_hausdorff(visual, prompt)
    present = [side.exists.any(-1) for side in (visual, prompt)]
    [fit], *sides, sure = read_together(visual.fit & prompt.fit, *present, proven)
    for name, has_tokens in zip(("visual", "prompt"), sides, strict=True):
        if 0 in has_tokens:
            raise _build_empty_error(name, has_tokens.index(0))
    if not fit:
        return _measure_together(visual.rescale("visual"), prompt.rescale("prompt"))
    for sample in [sample for sample, known in enumerate(sure) if not known]:
        alone = visual.sample(sample), prompt.sample(sample)
        forth[sample], back[sample] = measure_all_pairs(*alone)
    return forth, back


@on_one_thread
def _compare_few(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Exact squared distances of one sample, from the few pairs that may decide."""
    source, target = Vectors.of("visual", first), Vectors.of("prompt", second)
    estimates = CosineEstimates(source)
    table = estimates.estimate(target.get_directions()).mul_(-2.0)
    table += (source.inverse_norm > 0).float().unsqueeze(1)
    table += (target.inverse_norm > 0).float()
    margin = 4 * estimates.error + 1e-6
    forth = _select_worst_case(source, target, table, margin)
    return forth, _select_worst_case(target, source, table.T, margin)


def _select_worst_case(source: Vectors, target: Vectors, table: Tensor, margin: float) -> Tensor:
    """Largest over source of the smallest over target; estimates are within half the margin."""
    nearest = table.amin(1)
    rows = (nearest >= nearest.amax() - margin).nonzero().squeeze(-1)
    close = table[rows] <= nearest[rows].unsqueeze(1) + margin
    columns = close.any(0).nonzero().squeeze(-1)
    return square_distance(source.snap(rows), target.snap(columns)).amin(1).amax()
