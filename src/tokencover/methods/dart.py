"""DART (EMNLP 2025): duplication-aware reduction of tokens.

Differences from the released code: it keeps ``4 + 8 * floor(K / 8)`` tokens (`count="published"`),
the default here exactly K: the visual pivots count, the rest is divided evenly, the first pivots
take the remainder. It visits pivots in the order of a hash table; here visual pivots come first,
then text pivots, both by falling norm. Ties go to the lowest index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tokencover.covering import keep_precision, select_least_similar, to_float32
from tokencover.errors import InputError
from tokencover.methods._shared.decoder import LastLayerMethod
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class DART(LastLayerMethod):
    """Keep a few pivots and the visual tokens that duplicate them least.

    https://arxiv.org/abs/2502.11494. Pivots are the visual tokens, and the text tokens after the
    image, whose rotated keys in the last layer have the largest L1 norms. Each pivot in turn takes
    the remaining tokens with the lowest cosine to it, after the decoder's final norm. No attention
    is read.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a fraction of all. For `budget_mode` and
        `positions` see `BudgetedMethod`.
    after : int
        How many decoder layers run before pruning, at least 1; 2 is the paper's setting.
    image_pivots, text_pivots : int
        Numbers of visual and text pivots, at least 1 and 0.
    count : "exact" or "published"
        Whether K tokens are kept, or as many as the released code keeps for K.
    """

    name: ClassVar[str] = "dart"
    card: ClassVar[Card] = Card(
        title="DART",
        year=2025,
        objective="visual",
        pruning_point="after 2 decoder layers",
        signal="norms of keys choose pivots; low cosine to a pivot",
        paper="2502.11494",
        departs='exactly K (`count="published"` keeps 4 + 8 ⌊K/8⌋); pivots in a defined order',
    )
    reads_prompt = False
    reads = "keys to choose pivots by"
    setting_choices: ClassVar = {"count": ("exact", "published")}
    setting_minimums: ClassVar = {"image_pivots": 1, "text_pivots": 0}

    after: int = 2
    image_pivots: int = 4
    text_pivots: int = 4
    count: Literal["exact", "published"] = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count == "published" and self.budget_mode not in ("exact", "published"):
            raise InputError(
                f"count='published' does not keep the budget, so budget_mode={self.budget_mode!r} "
                "cannot be met: use count='exact'."
            )

    def choose(self, view: View) -> Choice:
        """Select the pivots, and the tokens that each takes."""
        layer = self.after - 1
        image_norms = measure_keys(view.keys(layer, rotated=True))
        text_norms = measure_keys(view.keys(layer, view.text_positions, rotated=True))
        image = _select_largest(image_norms, view.mask, self.image_pivots)
        text = _select_largest(text_norms, view.text_mask, self.text_pivots)
        kept = []
        for sample, num_kept in enumerate(self.num_kept(view)):
            mask, own = view.mask[sample], image[sample]
            mine = view.hidden_states[sample]
            words = view.text[sample, text[sample]]
            with keep_precision(mine.device):
                visual = view.norm(mine if mask.all() else mine[mask])
                counts = self._allocate(num_kept, len(visual), len(own), len(words))
                taken = select_least_similar(visual, own, view.norm(words), counts)
            kept.append(torch.cat([own if self.count == "published" else own[:num_kept], taken]))
        return Choice(
            kept,
            details=[
                {"image_pivots": len(own), "text_pivots": len(words)}
                for own, words in zip(image, text, strict=True)
            ],
        )

    def _allocate(self, num_kept: int, total: int, own: int, words: int) -> list[int]:
        """Return how many tokens each pivot takes to keep `num_kept` of `total`."""
        pivots = own + words
        if self.count == "published" and num_kept < total:
            return [num_kept // pivots] * pivots
        count, more = divmod(max(num_kept - own, 0), pivots)
        return [count + (pivot < more) for pivot in range(pivots)]


def measure_keys(keys: Tensor) -> Tensor:
    """Return the L1 norms of keys ``(b, kv_heads, n, head_dim)``, ``(b, n)`` float32.

    Query heads may share keys; counting each key once scales all norms alike.
    """
    norms = to_float32(keys).abs().sum(-1)
    return norms.sum(1, dtype=torch.float64).to(keys.device, torch.float32)


def _select_largest(norms: Tensor, mask: Tensor, count: int) -> list[Tensor]:
    """Return the tokens of the largest norms of each sample, or all if there are fewer."""
    return choose_best(norms, mask, [min(count, size) for size in mask.sum(-1).tolist()])
