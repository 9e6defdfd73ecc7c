"""What the paper's theory says about one cover, every quantity computed from the tokens.

Lemma 1 and its relaxation bound the Hausdorff distance between all tokens and the kept ones, and
hold for any finite sets. Theorems 1 and 2 are *not* guarantees: steps of their proofs do not hold
as written (`docs/theory.md`), so a certificate says whether their inequalities held on this data.

All distances are Euclidean between unit vectors. Bounds are per unit of the model's Lipschitz
constant, which nothing here knows (`research.theory.lipschitz` estimates it from below).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering import (
    Cover,
    check_count,
    check_pair,
    cosine,
    count_before,
    hausdorff,
    keep_precision,
    snap,
    to_float32,
)
from tokencover.errors import InputError
from tokencover.theory.certificate_text import format_certificate
from tokencover.theory.covering_numbers import (
    CoveringNumbers,
    DimensionFit,
    Regularity,
    fit_dimension,
    regularity,
)
from tokencover.theory.theorems import CoveringShape, Cut, Theorem1, Theorem2, theorem1, theorem2

_LISTED = 6
"""Radii in the table of covering numbers."""


@dataclass(frozen=True, slots=True)
class Distances:
    """The Hausdorff distances of V, P, S = S_p + S_v, and of all tokens before and after pruning.

    Attributes
    ----------
    coupling : float
        eta = d_H(V, P).
    prompt_radius : float
        eps_p = d_H(S_p, P); infinite without prompt centres.
    visual_radius : float
        eps_v = d_H(S_v, V); infinite without visual centres.
    kept_to_prompt : float
        d_H(S, P).
    kept_to_visual : float
        d_H(S, V).
    pruned : float
        d_H(V + P, S + P): how far pruning moved the set of all tokens. Both lemmas bound this. As
        S is part of V it is at most eta whatever is kept, so a bound above eta tells nothing.
    """

    coupling: float
    prompt_radius: float
    visual_radius: float
    kept_to_prompt: float
    kept_to_visual: float
    pruned: float

    @property
    def lemma1(self) -> float:
        """max(min(d_H(S, V), eta), min(d_H(S, V), d_H(S, P))), at least `pruned`."""
        return min(self.kept_to_visual, max(self.coupling, self.kept_to_prompt))

    @property
    def relaxed(self) -> float:
        """max(eps_p, eps_v) + eta, at least `lemma1`."""
        return max(self.prompt_radius, self.visual_radius) + self.coupling


@dataclass(frozen=True, slots=True)
class CountsAt:
    """Bounds on the covering numbers at one radius: (least, most) for V and for P."""

    radius: float
    visual: tuple[int, int]
    prompt: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is known about one cover; ``print`` it to read it.

    Attributes
    ----------
    visual_tokens, prompt_tokens : int
        N and L.
    prompt_budget, visual_budget : int
        Kp and Kv; K is their sum.
    distances : Distances
        Radii, eta, and the bounds of Lemma 1 and its relaxation.
    counts : tuple of CountsAt
        Covering numbers over a range of radii.
    fit : DimensionFit
        The effective dimension d_eff that V and P share.
    prompt_regularity, visual_regularity : Regularity or None
        a, b of P and a', b' of V in Lemma 2, and for which radii they hold. None where a set has
        no positive radius, or no dimension could be fitted.
    fold : int
        k, the smallest with which the prompt could have proposed these prompt centres, or the
        given one.
    theorem1 : Theorem1 or None
        The product of both radii, and what Theorem 1 claims about it. None, as for Theorem 2, where
        a part has no centres or a radius of 0.
    theorem2 : Theorem2 or None
        The radii, and what Theorem 2 claims about them.
    """

    visual_tokens: int
    prompt_tokens: int
    prompt_budget: int
    visual_budget: int
    distances: Distances
    counts: tuple[CountsAt, ...]
    fit: DimensionFit
    prompt_regularity: Regularity | None
    visual_regularity: Regularity | None
    fold: int
    theorem1: Theorem1 | None
    theorem2: Theorem2 | None

    def __str__(self) -> str:
        return format_certificate(self)


def certify(
    visual: Tensor, prompt: Tensor, cover: Cover, *, fold: int | None = None
) -> Certificate:
    """Measure a cover, and compare it with every bound of the paper.

    Meant for study: O(N**2 d) for the covering numbers of V, far more than choosing the cover.

    Parameters
    ----------
    visual, prompt : Tensor
        V ``(n, d)`` and P ``(l, d)``, as they were given to `mob`; P not empty.
    cover : Cover
        Indices into `visual`.
    fold : int, optional
        k, for Theorem 2; by default the smallest that explains the prompt centres.
    """
    check_pair(visual, prompt, ranks=(2,))
    _check_cover(cover, visual)
    distances = _measure_distances(visual, prompt, cover)
    fold = (
        _find_smallest_fold(visual, prompt, cover) if fold is None else check_count("fold", fold, 1)
    )
    words, picture = CoveringNumbers.of(prompt), CoveringNumbers.of(visual)
    fit = fit_dimension([words, picture])
    of_prompt = _find_regularity(words, fit, distances.prompt_radius)
    of_visual = _find_regularity(picture, fit, distances.visual_radius)
    cut = Cut(
        prompt_budget=len(cover.prompt_centers),
        visual_budget=len(cover.visual_centers),
        prompt_radius=distances.prompt_radius,
        visual_radius=distances.visual_radius,
        coupling=distances.coupling,
        pruned=distances.pruned,
    )
    shape = _find_shape(cut, fit, of_prompt, of_visual)
    return Certificate(
        visual_tokens=len(visual),
        prompt_tokens=len(prompt),
        prompt_budget=cut.prompt_budget,
        visual_budget=cut.visual_budget,
        distances=distances,
        counts=_bound_counts(words, picture),
        fit=fit,
        prompt_regularity=of_prompt,
        visual_regularity=of_visual,
        fold=fold,
        theorem1=None if shape is None else theorem1(cut, shape, words, picture),
        theorem2=None if shape is None else theorem2(cut, shape, fold * len(prompt)),
    )


def _measure_distances(visual: Tensor, prompt: Tensor, cover: Cover) -> Distances:
    kept = visual[cover.indices]
    return Distances(
        coupling=float(hausdorff(visual, prompt)),
        prompt_radius=_measure_radius(visual[cover.prompt_centers], prompt),
        visual_radius=_measure_radius(visual[cover.visual_centers], visual),
        kept_to_prompt=float(hausdorff(kept, prompt)),
        kept_to_visual=float(hausdorff(kept, visual)),
        pruned=float(hausdorff(torch.cat([visual, prompt]), torch.cat([kept, prompt]))),
    )


def _measure_radius(centers: Tensor, tokens: Tensor) -> float:
    return float(hausdorff(centers, tokens)) if len(centers) else math.inf


def _find_regularity(
    numbers: CoveringNumbers, fit: DimensionFit, achieved: float
) -> Regularity | None:
    """Constants for the fitted radii and for the one that the cover has."""
    radii = list(numbers.spread_radii(2))
    if 0 < achieved < math.inf:
        radii.append(achieved)
    if not radii or fit.dimension == 0:
        return None
    return regularity(numbers, fit.dimension, min(radii), max(radii))


def _find_shape(
    cut: Cut, fit: DimensionFit, prompt: Regularity | None, visual: Regularity | None
) -> CoveringShape | None:
    """None where the theorems say nothing: a part without centres, or a radius of 0."""
    speak = all(0 < radius < math.inf for radius in (cut.prompt_radius, cut.visual_radius))
    if prompt is None or visual is None or not speak:
        return None
    return CoveringShape(fit.dimension, prompt, visual)


def _bound_counts(words: CoveringNumbers, picture: CoveringNumbers) -> tuple[CountsAt, ...]:
    return tuple(
        CountsAt(
            radius,
            (picture.lower(radius), picture.upper(radius)),
            (words.lower(radius), words.upper(radius)),
        )
        for radius in picture.spread_radii(_LISTED)
    )


def _find_smallest_fold(visual: Tensor, prompt: Tensor, cover: Cover) -> int:
    """The smallest k with which every prompt centre is among the k nearest of some word."""
    with keep_precision(visual.device):
        table = cosine(snap(to_float32(prompt)), snap(to_float32(visual)))
    fold = 1
    for center in cover.prompt_centers.tolist():
        fold = max(fold, 1 + int(count_before(table, center).amin()))
    return fold


def _check_cover(cover: Cover, visual: Tensor) -> None:
    if not isinstance(cover, Cover):
        raise InputError(
            f"cover must be a tc.Cover, as tc.mob returns for one sample; got "
            f"{type(cover).__name__}."
        )
    indices = cover.indices
    if len(indices) == 0:
        raise InputError("the cover is empty: nothing was kept, so no distance is defined.")
    if not 0 <= int(indices[0]) <= int(indices[-1]) < len(visual):
        raise InputError(
            f"the cover holds indices from {int(indices[0])} to {int(indices[-1])}, but there are "
            f"{len(visual)} visual tokens. Pass the tokens the cover was chosen from."
        )
    if len(indices.unique()) < len(indices):
        raise InputError(
            f"the cover keeps a token twice: {indices.tolist()}. Prompt and visual centres must be "
            "different tokens."
        )
