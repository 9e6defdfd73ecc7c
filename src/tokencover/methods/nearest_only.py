"""The prompt half of MoB alone: the tokens nearest to the prompt.

Place: before a decoder block, by default after one block has run. Signal: the cosine of visual
tokens and the user's words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokencover.covering import Cover, mob_batch
from tokencover.methods.base import ActsOnce, Card, Choice, Details, View
from tokencover.methods.mob import tell_center_words
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class NearestOnly(ActsOnce):
    """Keep the visual tokens with the largest cosine to any prompt word: MoB with Kp = K.

    A prompt without words is near to nothing: farthest points are kept then, and the details of the
    sample say so under "fallback".

    Its settings, `budget` and `after`, are those of `ActsOnce`.
    """

    name: ClassVar[str] = "nearest"
    card: ClassVar[Card] = Card(
        title="Nearest to the prompt",
        year=2025,
        objective="prompt",
        pruning_point="after 1 decoder block",
        signal="cosines of visual tokens with prompt words: MoB's prompt half alone",
        paper="NeurIPS 2025",
        ours=True,
    )

    after: int = 1

    def choose(self, view: View) -> Choice:
        """The K nearest tokens of every sample."""
        left = self.num_kept(view)
        covers = mob_batch(
            view.hidden_states,
            view.prompt,
            budget=left,
            prompt_budget=left,
            # A token among the K best overall is among the K nearest of its own best word, so no
            # word need propose more, and one word alone proposes enough.
            fold=left,
            visual_mask=view.mask,
            prompt_mask=view.prompt_mask,
        )
        told = [_describe(view, sample, cover) for sample, cover in enumerate(covers)]
        return Choice([cover.indices for cover in covers], details=told)


def _describe(view: View, sample: int, cover: Cover) -> Details:
    details = Details(
        prompt_centers=cover.prompt_centers,
        visual_centers=cover.visual_centers,
        center_prompt_positions=tell_center_words(view, sample, cover.prompt_centers),
    )
    if len(cover.prompt_centers) == 0:
        details["fallback"] = "the prompt has no words: farthest points were kept"
    return details
