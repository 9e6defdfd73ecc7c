"""The paper's tables: Kp and k for a budget K.

For pictures the paper prints three reduction rates, 88.9, 77.8 and 66.7 % (64, 128 and 192 tokens
of 576). Kp is a share of K, k a share of Kp:

===================  ======  ======  ======  ========
reduction rate       8/9     7/9     2/3     k
===================  ======  ======  ======  ========
no eta prior         1/2     3/8     1/3     Kp / 8
strong coupling      3/8     1/4     1/4     3 Kp / 40
weak coupling        1/2     7/16    5/12    Kp / 8
===================  ======  ======  ======  ========

(The first row is the paper's Kp = 32, 48, 64 with k = 4, 6, 8, which it lists in reverse; for
strong coupling at 2/3 its appendix prints 11/24, its table captions 1/4.) For video it prints one
share: 3/8 under strong coupling (MSVD, MSRVTT, ActivityNet), 1/2 under weak coupling (TGIF).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from tokencover.budget.amount import Budget, round_half_up, tokens_to_keep
from tokencover.budget.split import Coupling, Modality, Split
from tokencover.errors import InputError


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One row of the tables.

    Attributes
    ----------
    prompt_shares : dict
        Kp / K for each printed reduction rate.
    fold_share : Fraction
        k / Kp.
    """

    prompt_shares: dict[Fraction, Fraction]
    fold_share: Fraction

    def find_prompt_share(self, reduction: Fraction) -> Fraction:
        """Kp / K: linear between the printed reduction rates, constant outside them."""
        rates = sorted(self.prompt_shares)
        if reduction <= rates[0]:
            return self.prompt_shares[rates[0]]
        for low, high in pairwise(rates):
            if reduction <= high:
                weight = (reduction - low) / (high - low)
                shares = self.prompt_shares[low], self.prompt_shares[high]
                return shares[0] + weight * (shares[1] - shares[0])
        return self.prompt_shares[rates[-1]]


def _make_row(shares: tuple[str, str, str], fold_share: str) -> ShareRow:
    rates = Fraction(8, 9), Fraction(7, 9), Fraction(2, 3)
    return ShareRow(dict(zip(rates, map(Fraction, shares), strict=True)), Fraction(fold_share))


NO_PRIOR = _make_row(("1/2", "3/8", "1/3"), "1/8")
TABLES: dict[Modality, dict[Coupling | None, ShareRow]] = {
    "image": {
        None: NO_PRIOR,
        "strong": _make_row(("3/8", "1/4", "1/4"), "3/40"),
        "weak": _make_row(("1/2", "7/16", "5/12"), "1/8"),
    },
    "video": {
        None: NO_PRIOR,
        "strong": _make_row(("3/8", "3/8", "3/8"), "3/40"),
        "weak": _make_row(("1/2", "1/2", "1/2"), "1/8"),
    },
}


def paper_split(
    budget: Budget,
    total: int,
    *,
    coupling: Coupling | None = None,
    modality: Modality = "image",
) -> Split:
    """The paper's split of a budget.

    Parameters
    ----------
    budget : int or float
        K, a count, or a share of `total`.
    total : int
        N, number of visual tokens.
    coupling : {"strong", "weak"}, optional
        The eta prior. Without it the row that depends on K alone is used.
    modality : {"image", "video"}
        The paper gives no video row without a prior; the one for images is used.

    Returns
    -------
    Split
        Kp and k rounded to the nearest integer, k at least 1.
    """
    if modality not in TABLES:
        raise InputError(f"modality must be one of {list(TABLES)}, got {modality!r}.")
    if coupling not in TABLES[modality]:
        raise InputError(f"coupling must be 'strong', 'weak' or None, got {coupling!r}.")
    keep = tokens_to_keep(budget, total)
    row = TABLES[modality][coupling]
    prompt_budget = round_half_up(keep * row.find_prompt_share(1 - Fraction(keep, total)))
    fold = max(1, round_half_up(prompt_budget * row.fold_share))
    return Split(prompt_budget, keep - prompt_budget, fold)
