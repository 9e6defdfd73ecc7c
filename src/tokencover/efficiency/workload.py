"""What is measured: a model, inputs from its own processor, and the FLOPs of a prefill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.budget import LayerCost
from tokencover.bundled_models import get_scenes_for
from tokencover.errors import InputError
from tokencover.families import Family, compute_block_cost, family_of
from tokencover.prompting import Medium, list_kinds, make_inputs
from tokencover.pruning import PromptLocator


@dataclass(frozen=True)
class Workload:
    """A model with one batch of inputs.

    `inputs` is the processor's output on the model's device, `words` locates the prompt tokens,
    `options` are the loading options besides device and dtype.
    """

    name: str
    model: Any
    inputs: dict[str, Tensor]
    words: PromptLocator
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> Family:
        """The model's family."""
        return family_of(self.model)

    @property
    def decoder(self) -> Any:
        """The text model."""
        return self.model.get_submodule(self.family.decoder)

    @property
    def visual(self) -> Tensor:
        """``(b, s)`` bool, the visual tokens."""
        ids = torch.tensor(self.family.visual_ids(self.model.config), device=self.model.device)
        return torch.isin(self.inputs["input_ids"], ids)

    @property
    def visual_counts(self) -> list[int]:
        """The visual tokens of each sample."""
        counts: list[int] = self.visual.sum(-1).tolist()
        return counts

    @property
    def other_counts(self) -> list[int]:
        """All other tokens of each sample, without padding."""
        real: list[int] = self.inputs["attention_mask"].sum(-1).tolist()
        return [all_ - mine for all_, mine in zip(real, self.visual_counts, strict=True)]

    def get_prompt_mask(self) -> Tensor:
        """Return the prompt tokens, ``(b, s)`` bool."""
        return self.words.mask(self.inputs["input_ids"], self.visual)


def build_workload(
    name: str,
    model: Any,
    processor: Any,
    questions: Sequence[tuple[Medium, str]],
    options: Mapping[str, Any] | None = None,
) -> Workload:
    """Build a batch of chats with one user turn each by a loaded model's processor."""
    processor.tokenizer.padding_side = "left"
    batch = make_inputs(processor, [([medium], question) for medium, question in questions])
    inputs = dict(batch.to(model.device, dtype=model.dtype))
    workload = Workload(name, model, inputs, PromptLocator(processor), options or {})
    if 0 in workload.visual_counts:
        raise InputError("The processor added no image to the prompt. Is it the model's own?")
    return workload


def select_drawn_questions(
    processor: Any, count: int, question: str | None = None
) -> list[tuple[Medium, str]]:
    """Return the first drawn scenes, each with its first question or with the given one."""
    scenes = get_scenes_for(list_kinds(processor))
    drawn = [scenes.draw(number, False) for number in range(count)]
    return [(each.medium, question or next(iter(each.answers))) for each in drawn]


@dataclass(frozen=True, slots=True)
class PrefillCost:
    """FLOPs of a decoder with its head, which costs `head` per predicted position.

    A multiplication and an addition count as two FLOPs, attention counts all pairs of tokens, and
    only matrix products count, as in PyTorch's counter.
    """

    layer: LayerCost
    num_layers: int
    head: int

    def of(self, lengths: Sequence[int], predicted: int = 1) -> int:
        """Compute the FLOPs of one sample from the number of tokens in each layer.

        `predicted` is the number of positions for which the head runs; `generate` wants only the
        last.
        """
        if len(lengths) != self.num_layers:
            raise InputError(
                f"the decoder has {self.num_layers} layers, got {len(lengths)} lengths: pass one "
                "per layer."
            )
        return round(sum(map(self.layer.of, lengths))) + self.head * predicted


def compute_prefill_cost(model: Any) -> PrefillCost:
    """Compute the FLOPs of a loaded model's decoder and head from the shapes of their weights."""
    family = family_of(model)
    layers = family.layers(model)
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise InputError(
            f"Cannot compute the FLOPs of {type(model).__name__}: its head is a "
            f"{type(head).__name__}, not one linear layer."
        )
    block = compute_block_cost(layers, model.get_submodule(family.decoder).config)
    return PrefillCost(block, len(layers), head=2 * head.in_features * head.out_features)
