"""Assemble boulder: our vision encoder and projector, a pretrained decoder, in one stock LLaVA."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    GenerationConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from tokencover_models.boulder.model.base_model import BaseModel, read_base_model
from tokencover_models.pebble.data import PICTURE_TOKENS
from tokencover_models.pebble.model import (
    IMAGE,
    VISION_FEATURE_LAYER,
    CheckpointError,
    hide_progress,
    make_picture_processor,
    make_vision_config,
)

DECODER: Final = "model.language_model."
DOWN: Final = ".lora_down"
UP: Final = ".lora_up"
"""A low-rank change of a decoder's matrix W is the product of two: W + up @ down."""
LONGEST_ANSWER: Final = 8
NAME: Final = "boulder"


def load_assembled(
    checkpoint: str | os.PathLike[str], base: str | os.PathLike[str] | None = None
) -> tuple[LlavaForConditionalGeneration, LlavaProcessor]:
    """Load model and processor; see `tokencover_models.boulder.load_boulder`."""
    base_model = read_base_model(base)  # first: its package is what may be missing
    learned = read_learned(checkpoint)
    tokenizer = base_model.make_tokenizer()
    weights = merge_low_rank(base_model.weights, learned)
    ours = {name: tensor for name, tensor in learned.items() if not name.startswith(DECODER)}
    model = assemble(base_model, {**weights, **ours}, tokenizer)
    return model, make_picture_processor(tokenizer)


def read_learned(checkpoint: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Trained weights in float32: vision encoder, projector, and LoRA of the decoder."""
    path = Path(checkpoint)
    try:
        return {name: tensor.float() for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); it is missing or damaged, reinstall tokencover"
        ) from error


def merge_low_rank(
    weights: Mapping[str, Tensor], learned: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The decoder's weights with what was learned on top.

    Parameters
    ----------
    weights
        Of the base model, by the names of `LlamaModel`.
    learned
        By the names of the whole model; what is not of the decoder is left out.

    Returns
    -------
    dict
        By the names of the whole model.
    """
    merged = {DECODER + name: tensor for name, tensor in weights.items()}
    ours = [name for name in learned if name.startswith(DECODER)]
    for stem in dict.fromkeys(name.removesuffix(DOWN).removesuffix(UP) for name in ours):
        target, down, up = f"{stem}.weight", learned.get(stem + DOWN), learned.get(stem + UP)
        if target not in merged or down is None or up is None:
            raise CheckpointError(
                f"there is a low-rank change of {stem}, but the base model or the checkpoint "
                "lacks its other half: give the base model that boulder was trained on"
            )
        if (up.shape[0], down.shape[1]) != tuple(merged[target].shape):
            raise CheckpointError(
                f"the low-rank change of {stem} is {up.shape[0]} x {down.shape[1]}, the base "
                f"model's matrix {' x '.join(map(str, merged[target].shape))}: give the base "
                "model that boulder was trained on"
            )
        merged[target] = merged[target] + up @ down
    return merged


def make_config(base: BaseModel, tokenizer: PreTrainedTokenizerFast) -> LlavaConfig:
    """The whole model's shape."""
    return LlavaConfig(
        vision_config=make_vision_config(),
        text_config=base.config,
        image_token_index=tokenizer.get_vocab()[IMAGE],
        image_seq_length=PICTURE_TOKENS,
        vision_feature_layer=VISION_FEATURE_LAYER,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
    )


def assemble(
    base: BaseModel, weights: Mapping[str, Tensor], tokenizer: PreTrainedTokenizerFast
) -> LlavaForConditionalGeneration:
    """A stock model from all its weights."""
    kind: Any = LlavaForConditionalGeneration
    with hide_progress():
        model, info = kind.from_pretrained(
            None,
            config=make_config(base, tokenizer),
            state_dict=dict(weights),
            output_loading_info=True,
        )
    wrong = [*info["missing_keys"], *info["unexpected_keys"], *info["mismatched_keys"]]
    if wrong:
        raise CheckpointError(
            f"checkpoint and base model do not fit: {wrong[0]} and {len(wrong) - 1} more; "
            "reinstall tokencover"
        )
    model.config.name_or_path = NAME
    model.generation_config = GenerationConfig(
        bos_token_id=base.config.bos_token_id,
        eos_token_id=base.config.eos_token_id,
        pad_token_id=base.config.pad_token_id,
        do_sample=False,
        max_new_tokens=LONGEST_ANSWER,
    )
    assembled: LlavaForConditionalGeneration = model.eval()
    return assembled
