"""What differs between text models, by ``text_config.model_type``; several families share one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from tokencover.budget import LayerCost, block_cost


@dataclass(frozen=True, slots=True)
class TextModel:
    """Differences from a Llama-like text model.

    If it `rotates_windows_only`, layers with full attention do not rotate queries and keys; if it
    `hides_rotations`, they get no rotary embedding. `active_experts` names the setting with the
    number of experts per token, `skipped_modules` parts of module names that text tokens skip.
    """

    has_tested_windows: bool = False
    rotates_windows_only: bool = False
    hides_rotations: bool = False
    active_experts: str = "num_experts_per_tok"
    skipped_modules: tuple[str, ...] = ()


TEXT_MODELS = {
    "aria_text": TextModel(active_experts="moe_topk"),
    "cohere2": TextModel(rotates_windows_only=True),
    "cohere_compass_text": TextModel(rotates_windows_only=True, hides_rotations=True),
    "ernie4_5_vl_moe_text": TextModel(skipped_modules=("vision_moe",)),
    "exaone4": TextModel(rotates_windows_only=True),
    # All experts compute all tokens; the outputs of a few are added.
    "llama4_text": TextModel(active_experts="num_local_experts"),
    "ministral3": TextModel(has_tested_windows=True),
    "mistral": TextModel(has_tested_windows=True),
}
_LLAMA_LIKE = TextModel()


def get_text_model(config: Any) -> TextModel:
    """The differences of a text model, from its configuration."""
    return TEXT_MODELS.get(getattr(config, "model_type", ""), _LLAMA_LIKE)


def compute_block_cost(layers: Sequence[nn.Module], config: Any) -> LayerCost:
    """FLOPs of one decoder layer (the mean, where layers differ); `config` is the decoder's."""
    text = get_text_model(config)
    active = getattr(config, text.active_experts, None)
    return block_cost(layers, active_experts=active, skipped_modules=text.skipped_modules)
