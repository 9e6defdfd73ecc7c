"""Samples cut so that an image's token is their last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tests.zoo.entry import Inputs, Side, ZooEntry
from tokencover.methods import Choice, Method, View


@dataclass(frozen=True)
class KeepFirst(Method):
    """Keep the first `count` tokens that are shown, so that the last ones always go."""

    reads_prompt = False

    count: int
    stage: int = 1
    drops_newlines: bool = True

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        return (self.stage,)

    def choose(self, view: View) -> Choice:
        return Choice([torch.arange(min(self.count, int(each.sum()))) for each in view.mask])


def inputs_ending_in_pictures(entry: ZooEntry, kind: str, side: Side = "left") -> Inputs:
    """A batch of this kind in which every row ends with the last token of its last image."""
    samples = []
    for sample in entry.samples(kind):
        row = torch.tensor([sample.ids])
        last = int(entry.visual({"input_ids": row})[0].nonzero().max())
        samples.append(replace(sample, ids=sample.ids[: last + 1]))
    return entry.collate(samples, side)


def dropped_after_first(visual: Tensor, count: int) -> Tensor:
    """All visual tokens but the first `count` of each row."""
    return visual & (visual.cumsum(-1) > count)


def last_real(inputs: Inputs) -> Tensor:
    """Mask ``(b, s)`` of the last token of each row."""
    mask = inputs["attention_mask"]
    places = torch.arange(mask.shape[1]).expand_as(mask)
    last = (places * mask).amax(-1, keepdim=True)
    return places == last
