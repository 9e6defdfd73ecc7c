"""A certificate as a table to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokencover.theory.certificate import Certificate
    from tokencover.theory.covering_numbers import Regularity
    from tokencover.theory.theorems import Theorem1, Theorem2

_WIDTH = 46


def format_certificate(found: Certificate) -> str:
    """Every quantity on a line of its own: what it is, its value, and whether a claim held."""
    far = found.distances
    budget = found.prompt_budget + found.visual_budget
    lines = [
        f"kept {budget} of {found.visual_tokens} visual tokens for {found.prompt_tokens} words: "
        f"{found.prompt_budget} prompt centres, {found.visual_budget} visual centres",
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
            f"  radius {each.radius:.4f}: picture {each.visual[0]} .. {each.visual[1]}, "
            f"words {each.prompt[0]} .. {each.prompt[1]}"
            for each in found.counts
        ),
        _format_line(f"d_eff, fitted to {found.fit.radii} radii", found.fit.dimension),
        _format_line("  error of the fit, in log N", found.fit.error),
        *_format_constants("a, b of the words", found.prompt_regularity),
        *_format_constants("a', b' of the picture", found.visual_regularity),
        "",
        *_format_theorem1(found.theorem1),
        "",
        *_format_theorem2(found.theorem2, found.fold),
        "",
        "Lemma bounds hold for any tokens; the theorems' were only observed here (docs/theory.md).",
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
        return ["Theorem 1 says nothing: a part has no centres, or a radius of 0"]
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
        return ["Theorem 2 says nothing: a part has no centres, or a radius of 0"]
    return [
        _format_line(
            f"Theorem 2, k = {fold}: bound on what pruning moved", found.bound, found.holds
        ),
        _format_line("  alpha Kp^(-1/d), a bound on eps_p", found.prompt_bound, found.prompt_holds),
        _format_line("  beta Kv^(-1/d), a bound on eps_v", found.visual_bound, found.visual_holds),
        f"  {'its step b eps_p^-d >= Kp':<{_WIDTH + 10}}"
        f"{'   holds' if found.step_holds else '   DOES NOT HOLD'}",
    ]
