"""What the paper's theory says about one cover, every quantity computed from the tokens.

Lemma 1 and its relaxation bound the Hausdorff distance between all tokens and the kept ones. They
hold for any finite sets. Theorems 1 and 2 are *not* guarantees: steps of their proofs do not hold
as written (`docs/research/theory.md`), so a certificate reports whether their inequalities held.

All distances are Euclidean between unit vectors. Bounds are per unit of the model's Lipschitz
constant, which `research.theory.lipschitz` estimates from below.
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
from tokencover.theory.bounds import (
    CoveringNumbers,
    CoveringShape,
    DimensionFit,
    Distances,
    Regularity,
    Theorem1,
    Theorem2,
    fit_dimension,
    regularity,
    theorem1,
    theorem2,
)

_LISTED = 6
"""Radii in the table of covering numbers."""


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
        k: the given one, or the smallest with which the prompt could propose these prompt centers.
    theorem1 : Theorem1 or None
        The product of both radii, and what Theorem 1 claims about it. None, as for Theorem 2, where
        a part has no centers or a radius of 0.
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

    Covering numbers of V take O(N**2 d), far more than choosing the cover.

    Parameters
    ----------
    visual, prompt : Tensor
        V ``(n, d)`` and P ``(l, d)``, as they were given to `mob`; P not empty.
    cover : Cover
        Indices into `visual`.
    fold : int, optional
        k, for Theorem 2; by default the smallest that explains the prompt centers.
    """
    check_pair(visual, prompt, ranks=(2,))
    _check_cover(cover, visual)
    distances = _measure_distances(visual, prompt, cover)
    fold = (
        _compute_smallest_fold(visual, prompt, cover)
        if fold is None
        else check_count("fold", fold, 1)
    )
    words, image = CoveringNumbers.of(prompt), CoveringNumbers.of(visual)
    fit = fit_dimension([words, image])
    of_prompt = _compute_regularity(words, fit, distances.prompt_radius)
    of_visual = _compute_regularity(image, fit, distances.visual_radius)
    prompt_budget, visual_budget = len(cover.prompt_centers), len(cover.visual_centers)
    shape = _build_shape(distances, fit, of_prompt, of_visual)
    first = second = None
    if shape is not None:
        first = theorem1(prompt_budget + visual_budget, distances, shape, words, image)
        candidates = fold * len(prompt)
        second = theorem2(prompt_budget, visual_budget, distances, shape, candidates)
    return Certificate(
        visual_tokens=len(visual),
        prompt_tokens=len(prompt),
        prompt_budget=prompt_budget,
        visual_budget=visual_budget,
        distances=distances,
        counts=_bound_counts(words, image),
        fit=fit,
        prompt_regularity=of_prompt,
        visual_regularity=of_visual,
        fold=fold,
        theorem1=first,
        theorem2=second,
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


def _compute_regularity(
    numbers: CoveringNumbers, fit: DimensionFit, achieved: float
) -> Regularity | None:
    """Constants for the fitted radii and for the radius of the cover."""
    radii = list(numbers.spread_radii(2))
    if 0 < achieved < math.inf:
        radii.append(achieved)
    if not radii or fit.dimension == 0:
        return None
    return regularity(numbers, fit.dimension, min(radii), max(radii))


def _build_shape(
    distances: Distances, fit: DimensionFit, prompt: Regularity | None, visual: Regularity | None
) -> CoveringShape | None:
    """Return None where the theorems say nothing: a part without centers, or a radius of 0."""
    speak = all(
        0 < radius < math.inf for radius in (distances.prompt_radius, distances.visual_radius)
    )
    if prompt is None or visual is None or not speak:
        return None
    return CoveringShape(fit.dimension, prompt, visual)


def _bound_counts(words: CoveringNumbers, image: CoveringNumbers) -> tuple[CountsAt, ...]:
    return tuple(
        CountsAt(
            radius,
            (image.lower(radius), image.upper(radius)),
            (words.lower(radius), words.upper(radius)),
        )
        for radius in image.spread_radii(_LISTED)
    )


def _compute_smallest_fold(visual: Tensor, prompt: Tensor, cover: Cover) -> int:
    """Return the smallest k with which each prompt center is among a prompt token's k nearest."""
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
            f"the cover keeps a token twice: {indices.tolist()}. Prompt and visual centers must be "
            "different tokens."
        )


_WIDTH = 46


def format_certificate(found: Certificate) -> str:
    """Format every quantity on one line: its name, its value, and whether a claim held."""
    far = found.distances
    budget = found.prompt_budget + found.visual_budget
    lines = [
        f"kept {budget} of {found.visual_tokens} visual tokens for {found.prompt_tokens} prompt "
        f"tokens: {found.prompt_budget} prompt centers, {found.visual_budget} visual centers",
        "",
        _format_line("eta = d_H(V, P)", far.coupling),
        _format_line("eps_p = d_H(S_p, P)", far.prompt_radius),
        _format_line("eps_v = d_H(S_v, V)", far.visual_radius),
        _format_line("d_H(S, P)", far.kept_to_prompt),
        _format_line("d_H(S, V)", far.kept_to_visual),
        "",
        _format_line("d_H(V + P, S + P): what pruning moved", far.pruned),
        _format_line("  bound of Lemma 1", far.lemma1),
        _format_line("  bound of its relaxation", far.relaxed),
        "",
        "balls needed, at least .. at most",
        *(
            f"  radius {each.radius:.4f}: image {each.visual[0]} .. {each.visual[1]}, "
            f"prompt {each.prompt[0]} .. {each.prompt[1]}"
            for each in found.counts
        ),
        _format_line(f"d_eff, fitted to {found.fit.radii} radii", found.fit.dimension),
        _format_line("  error of the fit, in log N", found.fit.error),
        *_format_constants("a, b of the prompt", found.prompt_regularity),
        *_format_constants("a', b' of the image", found.visual_regularity),
        "",
        *_format_theorem1(found.theorem1),
        "",
        *_format_theorem2(found.theorem2, found.fold),
        "",
        "Lemma bounds hold for any tokens. Those of the theorems were only observed here:",
        "see docs/research/theory.md.",
    ]
    return "\n".join(lines)


def _format_line(name: str, value: float, holds: bool | None = None) -> str:
    verdict = {True: "   holds", False: "   DOES NOT HOLD", None: ""}[holds]
    return f"{name:<{_WIDTH}}{value:>12.6g}{verdict}"


def _format_constants(name: str, found: Regularity | None) -> list[str]:
    if found is None:
        return [f"{name}: none, there is nothing to fit"]
    values = f"{found.lower:.4g}, {found.upper:.4g}"
    where = f"radii {found.smallest:.4f} .. {found.largest:.4f}"
    return [f"{name + ', ' + where:<{_WIDTH}}{values:>12}"]


def _format_theorem1(found: Theorem1 | None) -> list[str]:
    if found is None:
        return ["Theorem 1 says nothing: a part has no centers, or a radius of 0"]
    return [
        _format_line("Theorem 1: eps_p * eps_v", found.product),
        _format_line("  >= D1 K^(-2/d)", found.budget_term, found.budget_holds),
        _format_line("  >= D2 eta^2 = (eta/z)^2", found.coupling_term, found.coupling_holds),
        _format_line("  what its proof shows: max(eps_p, eps_v)", found.larger_radius),
        _format_line(
            "  >= eta/z", found.smallest_radius, found.larger_radius >= found.smallest_radius
        ),
        _format_line("  eps*", found.best_radius),
    ]


def _format_theorem2(found: Theorem2 | None, fold: int) -> list[str]:
    if found is None:
        return ["Theorem 2 says nothing: a part has no centers, or a radius of 0"]
    return [
        _format_line(
            f"Theorem 2, k = {fold}: bound on what pruning moved", found.bound, found.holds
        ),
        _format_line("  alpha Kp^(-1/d), a bound on eps_p", found.prompt_bound, found.prompt_holds),
        _format_line("  beta Kv^(-1/d), a bound on eps_v", found.visual_bound, found.visual_holds),
        f"  {'its step b eps_p^-d >= Kp':<{_WIDTH + 10}}"
        f"{'   holds' if found.step_holds else '   DOES NOT HOLD'}",
    ]
