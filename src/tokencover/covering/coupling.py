"""Prompt-visual coupling: the Hausdorff distance eta (Algorithm 2 of the paper).

Tokens are normalised, so the distance of two is sqrt(2 - 2 cos). A zero token stays zero: its
distance to a unit vector is 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tokencover.covering.checks import check_mask, check_pair
from tokencover.covering.exact import keep_precision, on_cpu, square_distance, to_float32
from tokencover.covering.search import Cloud, use_one_thread
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
    if not on_cpu(visual):
        if single:
            visual, prompt = visual[None], prompt[None]
            visual_mask = None if visual_mask is None else visual_mask[None]
            prompt_mask = None if prompt_mask is None else prompt_mask[None]
        both = _measure_together(visual, prompt, visual_mask, prompt_mask)
        return torch.maximum(*both)[0] if single else torch.maximum(*both)
    if single:
        return hausdorff(_apply_mask(visual, visual_mask), _apply_mask(prompt, prompt_mask))
    samples = range(len(visual))
    visuals = [
        _apply_mask(visual[i], None if visual_mask is None else visual_mask[i]) for i in samples
    ]
    prompts = [
        _apply_mask(prompt[i], None if prompt_mask is None else prompt_mask[i]) for i in samples
    ]
    return torch.stack([hausdorff(*pair) for pair in zip(visuals, prompts, strict=True)])


def hausdorff(first: Tensor, second: Tensor) -> Tensor:
    """Larger of the two directed distances of `directed_hausdorff`."""
    return torch.maximum(*_measure_both_ways(first, second))


def directed_hausdorff(source: Tensor, target: Tensor) -> Tensor:
    """How far the worst token of `source` is from its nearest token of `target`."""
    return _measure_both_ways(source, target)[0]


def _apply_mask(tokens: Tensor, mask: Tensor | None) -> Tensor:
    return tokens if mask is None else tokens[mask]


def _measure_both_ways(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    for name, tokens in (("visual", first), ("prompt", second)):
        if len(tokens) == 0:
            raise _tell_empty(name, tokens)
    if not on_cpu(first):
        forth, back = _measure_together(first[None], second[None], None, None)
        return forth[0], back[0]
    with keep_precision(first.device):
        with use_one_thread():
            squares = _compare_few(to_float32(first), to_float32(second))
        forth, back = (square.clamp(min=0.0).sqrt_() for square in squares)
    return forth, back


def _tell_empty(name: str, tokens: Tensor) -> InputError:
    return InputError(
        f"{name} has no token left, shape {tuple(tokens.shape)}: the distance to an empty "
        "set is not defined. Skip such samples."
    )


def _measure_together(
    visual: Tensor, prompt: Tensor, visual_mask: Tensor | None, prompt_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Both directed distances of every sample of a batch, on an accelerator."""
    if prompt.shape[1] == 0:
        raise _tell_empty("prompt", prompt)
    with keep_precision(visual.device), keep_float32():
        pair = (
            Directions.of(visual.detach(), visual_mask),
            Directions.of(prompt.detach(), prompt_mask),
        )
        forth, back = _measure_squares(*pair)
        return forth.clamp_(min=0.0).sqrt_(), back.clamp_(min=0.0).sqrt_()


def _measure_squares(visual: Directions, prompt: Directions) -> tuple[Tensor, Tensor]:
    forth, back, proven = measure_hausdorff(visual, prompt)
    present = torch.stack([each.exists.any(-1).all() for each in (visual, prompt)])
    [fit], there, sure = read_together(visual.fit & prompt.fit, present, proven)
    for name, cloud, some in zip(("visual", "prompt"), (visual, prompt), there, strict=True):
        if not some:
            raise _tell_empty(name, cloud.tokens[:, :0])
    if not fit:
        return _measure_squares(visual.rescale("visual"), prompt.rescale("prompt"))
    for sample in [sample for sample, known in enumerate(sure) if not known]:
        alone = visual.sample(sample), prompt.sample(sample)
        forth[sample], back[sample] = measure_all_pairs(*alone)
    return forth, back


def _compare_few(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Exact distances of the few pairs that may decide."""
    source, target = Cloud.of("visual", first), Cloud.of("prompt", second)
    table = source.estimate_cosines(target.find_directions()).mul_(-2.0)
    table += (source.inverse_norm > 0).float().unsqueeze(1)
    table += (target.inverse_norm > 0).float()
    margin = 4 * source.error + 1e-6
    return _find_worst_case(source, target, table, margin), _find_worst_case(
        target, source, table.T, margin
    )


def _find_worst_case(source: Cloud, target: Cloud, table: Tensor, margin: float) -> Tensor:
    """Largest over source of the smallest over target; estimates are within half the margin."""
    nearest = table.amin(1)
    rows = (nearest >= nearest.amax() - margin).nonzero().squeeze(-1)
    close = table[rows] <= nearest[rows].unsqueeze(1) + margin
    columns = close.any(0).nonzero().squeeze(-1)
    return square_distance(source.snap(rows), target.snap(columns)).amin(1).amax()
