"""Random weights that the model for images starts training from.

The decoder and the projector know nothing: no head is prepared, and words and patches have nothing
to do with each other. Only the vision encoder starts with a sense of where patches lie and with
heads that look at neighbours, as a convolution would.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from transformers import LlavaForConditionalGeneration

from research.pebble_training.starting_weights import draw_weights, prepare_vision
from tokencover_models.pebble.model import make_picture_model

WORD_SPREAD: Final = 0.1


@torch.no_grad()
def start_picture_model(seed: int) -> LlavaForConditionalGeneration:
    """Make a model for images; the same weights for the same seed."""
    model = make_picture_model()
    rng = torch.Generator().manual_seed(seed)
    decoder: Any = model.model.language_model
    for part in (model.model.vision_tower, model.model.multi_modal_projector, decoder.layers):
        draw_weights(part, rng)
    prepare_vision(model.model.vision_tower)
    decoder.embed_tokens.weight.normal_(0, WORD_SPREAD, generator=rng)
    # What all blocks add together stays as large as what one would add.
    share = (2 * len(decoder.layers)) ** -0.5
    for block in decoder.layers:
        block.self_attn.o_proj.weight.mul_(share)
        block.mlp.down_proj.weight.mul_(share)
    return model
