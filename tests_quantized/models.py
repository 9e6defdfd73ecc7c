"""Tiny models of the zoo, wide enough to be quantized, as each library quantizes them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
from torchao.quantization import (
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
)
from torchao.quantization.granularity import PerGroup
from transformers import BitsAndBytesConfig, PreTrainedModel, QuantoConfig, TorchAoConfig

from tests.zoo import ZOO, Inputs
from tests.zoo.weights import seeded

FAMILIES: Final = ("llava", "qwen2_5_vl", "internvl")
WIDTH: Final = 64
INT4: Final = getattr(torch, "int4")  # noqa: B009 - torch does not declare it
BFLOAT16_TOLERANCE: Final = 0.1
"""As `Recipe.tolerance`: 0.047 is the largest difference that was measured."""


@dataclass(frozen=True)
class Recipe:
    """One way to quantize.

    Attributes
    ----------
    configure
        Makes what `from_pretrained` takes.
    tolerance
        How far the float32 logits of a short sequence may be from those of a longer one. It is
        above the largest difference measured on unpruned models: 1e-6 where weights alone are
        quantized, 0.0036 for bitsandbytes' 4 bits (its products on the CPU are in bfloat16), and
        0.013 (bitsandbytes) and 0.033 (torchao) where activations are quantized, too, since a
        rounded value can change by a whole step.
    """

    configure: Callable[[], Any]
    tolerance: float = 1e-5


def _configure_nf4(double: bool) -> Any:
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double
    )


RECIPES: Final = {
    "bitsandbytes-nf4": Recipe(lambda: _configure_nf4(double=False), 0.01),
    "bitsandbytes-nf4-double": Recipe(lambda: _configure_nf4(double=True), 0.01),
    "bitsandbytes-int8": Recipe(lambda: BitsAndBytesConfig(load_in_8bit=True), 0.05),
    "torchao-int8": Recipe(lambda: TorchAoConfig(Int8WeightOnlyConfig())),
    "torchao-int8-dynamic": Recipe(
        lambda: TorchAoConfig(Int8DynamicActivationInt8WeightConfig()), 0.1
    ),
    "torchao-int4": Recipe(lambda: TorchAoConfig(PrototypeInt4WeightOnlyConfig(group_size=32))),
    "torchao-intx4": Recipe(
        lambda: TorchAoConfig(IntxWeightOnlyConfig(INT4, granularity=PerGroup(32)))
    ),
    "quanto-int8": Recipe(lambda: QuantoConfig(weights="int8")),
    "quanto-int4": Recipe(lambda: QuantoConfig(weights="int4")),
}


@cache
def build_wide(name: str) -> PreTrainedModel:
    """Build a model of the zoo with the widths that bitsandbytes' kernels need."""
    narrow = ZOO[name].build()
    config = narrow.config
    text, vision = config.text_config, config.vision_config
    for part in (text, vision):
        part.hidden_size, part.intermediate_size = WIDTH, 2 * WIDTH
    text.num_attention_heads, text.num_key_value_heads, text.head_dim = 4, 2, 16
    if hasattr(vision, "out_hidden_size"):
        vision.out_hidden_size = WIDTH
    return seeded(type(narrow), config, "sdpa", torch.float32)


@cache
def load_quantized(name: str, recipe: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Save the wide model, and load it as users load a quantized one."""
    plain = build_wide(name)
    with tempfile.TemporaryDirectory() as folder:
        plain.save_pretrained(folder)
        model = type(plain).from_pretrained(
            folder, quantization_config=RECIPES[recipe].configure(), dtype=dtype
        )
    model.generation_config.suppress_tokens = plain.generation_config.suppress_tokens
    loaded: PreTrainedModel = model.eval()
    return loaded


def get_inputs(name: str, kind: str, dtype: torch.dtype = torch.float32) -> Inputs:
    """Return a batch, padded on the left, with pixels of the model's dtype."""
    inputs = ZOO[name].inputs(kind, "left")
    return {
        key: value.to(dtype) if value.is_floating_point() else value
        for key, value in inputs.items()
    }


def list_quantized_layers(model: PreTrainedModel) -> list[str]:
    """List the linear layers whose weights are not plain parameters."""
    return [
        name
        for name, part in model.named_modules()
        if isinstance(part, torch.nn.Linear)
        and (type(part) is not torch.nn.Linear or type(part.weight) is not torch.nn.Parameter)
    ]
