"""DART: duplication-aware reduction of tokens (EMNLP 2025, arXiv 2502.11494).

Place: before a decoder block, by default after two blocks have run. Signal: key norms choose a few
pivots; cosines to the pivots say which visual tokens duplicate them. No attention is needed.

Pivots are the visual tokens, and the text tokens after the picture, whose keys of the last block
(rotated, all heads together) have the largest L1 norms. Each pivot in turn takes the tokens least
similar to it from those still free. States are compared after the decoder's final norm, as in the
released code.

Departures from the released code:

- Count. It keeps ``4 + 8 * floor(K / 8)`` tokens. `count="published"` does that, less what clamping
  takes when tokens run out; the default keeps exactly K: the visual pivots count, what is left of K
  is shared evenly, and the first pivots take one more each until nothing is left over. If K does
  not exceed the number of visual pivots, only pivots are kept.
- Order. It visits pivots in the order of a hash table, and the result depends on it. Here visual
  pivots come first, then text pivots, each by falling norm.
- Spans come from the sequence, so any number of pictures and words, and batches, will do. Text
  between two pictures counts as text. With fewer tokens than pivots there are fewer pivots.
- Ties go to the lowest index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tokencover.covering import check_count, keep_precision, select_least_similar, to_float32
from tokencover.errors import InputError
from tokencover.methods._shared.last_block_method import ReadsLastBlock
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class DART(ReadsLastBlock):
    """Keep a few pivots and the visual tokens that duplicate them least.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a share of those there are. For
        `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder blocks run before pruning, at least 1; 2 is the paper's setting.
    image_pivots, text_pivots : int
        How many pivots of each kind, at least 1 and 0.
    count : "exact" or "published"
        Whether K tokens are kept, or as many as the released code keeps for K; the trace tells.
    """

    name: ClassVar[str] = "dart"
    card: ClassVar[Card] = Card(
        title="DART",
        year=2025,
        objective="visual",
        pruning_point="after 2 decoder blocks",
        signal="norms of keys choose pivots; low cosine to a pivot",
        paper="2502.11494",
        departs='exactly K (`count="published"` keeps 4 + 8 ⌊K/8⌋); pivots in a defined order',
    )
    reads_prompt = False
    reads = "keys to choose pivots by"

    after: int = 2
    image_pivots: int = 4
    text_pivots: int = 4
    count: Literal["exact", "published"] = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("image_pivots", self.image_pivots, 1)
        check_count("text_pivots", self.text_pivots, 0)
        if self.count not in ("exact", "published"):
            raise InputError(f"count must be 'exact' or 'published', got {self.count!r}.")
        if self.count == "published" and self.budget_mode not in ("exact", "published"):
            raise InputError(
                f"count='published' does not keep the budget, so budget_mode={self.budget_mode!r} "
                "cannot be met: use count='exact'."
            )

    def choose(self, view: View) -> Choice:
        """Pivots, and what each of them takes, for every sample."""
        block = self.after - 1
        image_norms = measure_keys(view.keys(block, rotated=True))
        text_norms = measure_keys(view.keys(block, view.text_positions, rotated=True))
        image = _find_strongest(image_norms, view.mask, self.image_pivots)
        text = _find_strongest(text_norms, view.text_mask, self.text_pivots)
        kept = []
        for sample, left in enumerate(self.num_kept(view)):
            mask, own = view.mask[sample], image[sample]
            mine = view.hidden_states[sample]
            words = view.text[sample, text[sample]]
            with keep_precision(mine.device):
                visual = view.norm(mine if mask.all() else mine[mask])
                shares = self._share_out(left, len(visual), len(own), len(words))
                taken = select_least_similar(visual, own, view.norm(words), shares)
            kept.append(torch.cat([own if self.count == "published" else own[:left], taken]))
        return Choice(
            kept,
            details=[
                {"image_pivots": len(own), "text_pivots": len(words)}
                for own, words in zip(image, text, strict=True)
            ],
        )

    def _share_out(self, left: int, total: int, own: int, words: int) -> list[int]:
        """How many tokens each pivot takes if `left` of `total` should be kept."""
        pivots = own + words
        if self.count == "published" and left < total:
            return [left // pivots] * pivots
        each, more = divmod(max(left - own, 0), pivots)
        return [each + (pivot < more) for pivot in range(pivots)]


def measure_keys(keys: Tensor) -> Tensor:
    """L1 norm of each token's keys, ``(b, kv_heads, n, head_dim)`` to ``(b, n)`` float32.

    Query heads may share keys; counting each key once scales all norms alike.
    """
    norms = to_float32(keys).abs().sum(-1)
    return norms.sum(1, dtype=torch.float64).to(keys.device, torch.float32)


def _find_strongest(norms: Tensor, mask: Tensor, count: int) -> list[Tensor]:
    """The tokens of the largest norms of each sample, or all if there are fewer."""
    return choose_best(norms, mask, [min(count, size) for size in mask.sum(-1).tolist()])
