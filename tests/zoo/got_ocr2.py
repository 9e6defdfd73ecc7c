"""GOT-OCR 2: a SAM encoder whose windows and convolutions leave one token of 4 x 4 patches."""

from typing import Any

import torch
from transformers import (
    GotOcr2Config,
    GotOcr2ForConditionalGeneration,
    PreTrainedConfig,
    PreTrainedModel,
)

from .single_grids import single_grids
from .vocabulary import IMAGE
from .weights import seeded, text_config

SIDE = 4
PATCH = 2
TOKEN = 4 * PATCH


def build(
    attn_implementation: str = "sdpa",
    layers: int = 5,
    dtype: torch.dtype = torch.float32,
    config_class: type[PreTrainedConfig] = GotOcr2Config,
) -> PreTrainedModel:
    vision = {
        "hidden_size": 16,
        "output_channels": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "mlp_dim": 24,
        "image_size": SIDE * TOKEN,
        "patch_size": PATCH,
        "window_size": 5,
        "global_attn_indexes": [1],
    }
    make: Any = config_class
    config = make(
        vision_config=vision,
        text_config=text_config(layers, model_type="qwen2"),
        image_token_index=IMAGE,
        image_seq_length=SIDE * SIDE,
        tie_word_embeddings=False,
    )
    # The vision encoder knows no other attention than eager.
    attention = {"": "eager", "text_config": attn_implementation}
    return seeded(GotOcr2ForConditionalGeneration, config, attention, dtype)


ENTRY = single_grids("got_ocr2", build, SIDE, TOKEN)
