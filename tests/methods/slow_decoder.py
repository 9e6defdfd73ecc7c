"""A decoder run by hand: one sample, block by block, whole attention maps, positions from 0 on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tests.zoo.oracle import decoder_blocks, text_model

Change = Callable[[Tensor, Tensor], Tensor]
"""New states ``(s', d)`` from states ``(s, d)`` and the last block's head mean ``(s, s)``."""


def slow_decoder(model: PreTrainedModel, states: Tensor, changes: Mapping[int, Change]) -> Tensor:
    """Give the logits of the last token, with the sequence changed before some blocks.

    Parameters
    ----------
    model
        Of the LLaVA families, with eager attention.
    states
        What the decoder is given, ``(s, d)``.
    changes
        What happens before which block.
    """
    decoder: Any = text_model(model)
    seen: list[Tensor] = []

    def look(_: nn.Module, args: Any, output: Any) -> None:
        seen.append(output[1][0].mean(0))

    with torch.no_grad():
        for number, block in enumerate(decoder_blocks(model)):
            if number in changes:
                states = changes[number](states, seen[-1])
            places = torch.arange(len(states))[None]
            handle = block.self_attn.register_forward_hook(look)  # type: ignore[union-attr]
            hidden = torch.ones(len(states), len(states), dtype=torch.bool).triu(1)
            states = block(
                states[None],
                attention_mask=torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[
                    None, None
                ],
                position_embeddings=decoder.rotary_emb(states[None], position_ids=places),
            )[0]
            handle.remove()
        logits: Tensor = model.get_output_embeddings()(decoder.norm(states[-1]))
    return logits


def states_before_decoder(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Tensor:
    """What an unpruned model hands to its first block, ``(b, s, d)``."""
    seen: list[Tensor] = []

    def look(_: nn.Module, args: Any) -> None:
        seen.append(args[0])

    handle = decoder_blocks(model)[0].register_forward_pre_hook(look)
    with torch.no_grad():
        model(**inputs)
    handle.remove()
    return seen[0]
