"""The paper's two approximations of the coupling eta, each with its stated error.

Exact coupling (`tokencover.coupling`) costs n * l * d multiply-adds, far less than the model's own
forward pass, so these are for very long prompts or very many tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering import check_count, check_pair, hausdorff
from tokencover.errors import InputError


@dataclass(frozen=True, slots=True)
class CouplingEstimate:
    """An approximate eta.

    Attributes
    ----------
    value : Tensor
        The estimate, a float64 scalar.
    error : float
        What the estimate may be off by; the function that made it says in which unit.
    confidence : float
        Probability, over the random choice, that the stated error holds.
    """

    value: Tensor
    error: float
    confidence: float


def sampled_coupling(
    visual: Tensor,
    prompt: Tensor,
    *,
    visual_count: int,
    prompt_count: int,
    seed: int = 0,
    confidence: float = 0.95,
) -> CouplingEstimate:
    """Coupling of random subsets V' of V and P' of P: n' * l' * d multiply-adds.

    The stated error is a *share*: with the given confidence, fewer than `error` of the tokens of V
    (and of P) are farther from the other subset than the estimate. Nothing is said about the
    distance of the tokens that are missed: one far token among many is not found by sampling.
    """
    check_pair(visual, prompt, ranks=(2,))
    _check_confidence(confidence)
    generator = torch.Generator().manual_seed(seed)
    subsets, missed = [], 0.0
    for name, tokens, wanted in (
        ("visual_count", visual, visual_count),
        ("prompt_count", prompt, prompt_count),
    ):
        count = min(check_count(name, wanted, 1), len(tokens))
        index = torch.randperm(len(tokens), generator=generator)[:count]
        subsets.append(tokens[index.to(tokens.device)])
        if count < len(tokens):
            # (1 - share)**count is the chance that a fraction of far tokens is missed entirely; the
            # two sides divide the allowed failure between them.
            missed = max(missed, 1 - ((1 - confidence) / 2) ** (1 / count))
    return CouplingEstimate(hausdorff(*subsets), missed, confidence)


def projected_coupling(
    visual: Tensor,
    prompt: Tensor,
    *,
    dimension: int,
    seed: int = 0,
    confidence: float = 0.95,
) -> CouplingEstimate:
    """Coupling after a Johnson-Lindenstrauss projection to `dimension` coordinates.

    Comparing costs n * l * d' instead of n * l * d, projecting n * d * d'; it pays when the prompt
    is longer than `dimension`. The stated error is *relative*: with the given confidence, the true
    eta is within ``value * (1 +- error)``. It is infinite where `dimension` is too small for the
    lemma to promise anything.
    """
    check_pair(visual, prompt, ranks=(2,))
    _check_confidence(confidence)
    dimension = check_count("dimension", dimension, 1)
    generator = torch.Generator().manual_seed(seed)
    projection = torch.randn(visual.shape[-1], dimension, generator=generator)
    projection = (projection / math.sqrt(dimension)).to(visual.device)
    units = [
        torch.nn.functional.normalize(tokens.detach().float(), dim=-1)
        for tokens in (visual, prompt)
    ]
    first, second = (tokens @ projection for tokens in units)
    table = torch.cdist(first, second)
    value = torch.maximum(table.amin(1).amax(), table.amin(0).amax()).double()
    distortion = _compute_distortion(len(visual) * len(prompt), dimension, 1 - confidence)
    error = 1 / math.sqrt(1 - distortion) - 1 if distortion < 1 else math.inf
    return CouplingEstimate(value, error, confidence)


def _compute_distortion(pairs: int, dimension: int, failure: float) -> float:
    """The e such that all squared distances keep within 1 +- e, by the lemma's union bound.

    2 * pairs * exp(-dimension / 2 * (e**2 / 2 - e**3 / 3)) = failure, solved by bisection.
    """
    needed = 2 * math.log(2 * pairs / failure) / dimension
    if needed >= 1 / 6:  # the left side's largest value on [0, 1]
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        enough = middle**2 / 2 - middle**3 / 3 >= needed
        low, high = (low, middle) if enough else (middle, high)
    return high


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie between 0 and 1, got {confidence}.")
