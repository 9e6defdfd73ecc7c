"""Models of classes beside the zoo's, with the truth about them written down by hand."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import (
    DeepseekVLForConditionalGeneration,
    Glm4vForConditionalGeneration,
    Glm4vMoeForConditionalGeneration,
    Glm46VForConditionalGeneration,
    GlmOcrForConditionalGeneration,
    LightOnOcrForConditionalGeneration,
    LlavaForConditionalGeneration,
    LlavaNextVideoForConditionalGeneration,
    Mistral3ForConditionalGeneration,
    PreTrainedModel,
    QianfanOCRForConditionalGeneration,
    Qwen3VLMoeForConditionalGeneration,
    VipLlavaForConditionalGeneration,
)

from tests.zoo import Grid, Inputs, Tiled, WithClass
from tests.zoo import Layout as Truth
from tests.zoo.anyres import BASE, PINPOINTS, SIDE
from tests.zoo.entry import noise
from tests.zoo.qwen_media import VALUES, vision_config
from tests.zoo.vision_encoders import PATCH as PATCH_SIZE
from tests.zoo.vision_encoders import clip_encoder, siglip_encoder
from tests.zoo.vocabulary import IMAGE, VIDEO, VISION_END, VISION_START
from tests.zoo.weights import HIDDEN, seeded, text_config


@dataclass(frozen=True)
class Variant:
    """A model whose truth is written down by hand; `side` is 0 if pixels are rows of patches."""

    model_class: Any
    settings: dict[str, Any]
    inputs: Inputs
    images: tuple[Truth, ...] = ()
    videos: tuple[Truth, ...] = ()
    side: int = PATCH_SIZE
    text: dict[str, Any] = field(default_factory=lambda: {"model_type": "llama"})

    def build(self) -> PreTrainedModel:
        config = self.model_class.config_class(
            **{"image_token_id": IMAGE, **self.settings}, text_config=text_config(2, **self.text)
        )
        return seeded(self.model_class, config, "sdpa", torch.float32)


def prompt(*runs: int, token: int = IMAGE, **media: Tensor) -> Inputs:
    """Write runs of visual tokens, each between words."""
    row = [word for run in runs for word in (24, *[token] * run, 25)]
    ids = torch.tensor([[*range(26, 30), *row, *range(30, 35)]])
    text = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    for name, kind in (("image_grid_thw", 1), ("video_grid_thw", 2)):
        if name in media:
            text["mm_token_type_ids"] = kind * (ids == token).int()
    return {**text, **media}


def sizes(*rows: tuple[int, ...]) -> Tensor:
    return torch.tensor(rows)


def by_token(token: str) -> dict[str, Any]:
    """Older configurations call the id of the image token an index."""
    return {f"{token}_token_index": {"image": IMAGE, "video": VIDEO}[token]}


PIXTRAL = {**siglip_encoder(8, "pixtral"), "head_dim": 12}
FLAT = {"vision_use_head": False}
DINO = {**siglip_encoder(4, "dinov2"), "num_hidden_layers": 3}
MROPE: dict[str, Any] = {
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]},
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
GLM: dict[str, Any] = {
    "vision_config": vision_config(
        hidden_size=32, intermediate_size=48, out_hidden_size=HIDDEN, image_size=32
    ),
    "video_token_id": VIDEO,
    "image_start_token_id": VISION_START,
    "image_end_token_id": VISION_END,
}
GLM_TEXT = {**MROPE, "rope_parameters": {**MROPE["rope_parameters"], "partial_rotary_factor": 1.0}}
GLM_IMAGE = prompt(
    6, 6, pixel_values=noise(1, 48, VALUES), image_grid_thw=sizes((1, 4, 6), (1, 6, 4))
)
GLM_VIDEO = prompt(6, 6, pixel_values_videos=noise(1, 48, VALUES), video_grid_thw=sizes((2, 4, 6)))
TWO_GLM_IMAGES = (Grid(1, 2, 3), Grid(1, 3, 2))
SQUARES = noise(1, 2, 3, 16, 16)
SQUARE = Grid(1, 4, 4)
RAGGED = noise(1, 2, 3, 24, 32)
RAGGED_SIZES = sizes((24, 16), (16, 32))

VARIANTS = {
    "vipllava": Variant(
        VipLlavaForConditionalGeneration,
        {"vision_config": clip_encoder(4), "vision_feature_layers": [-2, -1], **by_token("image")},
        prompt(16, 16, pixel_values=SQUARES),
        (SQUARE, SQUARE),
    ),
    "llava, class token kept": Variant(
        LlavaForConditionalGeneration,
        {"vision_config": clip_encoder(4), "vision_feature_select_strategy": "full"},
        prompt(17, 17, pixel_values=SQUARES),
        (WithClass(SQUARE), WithClass(SQUARE)),
    ),
    "llava, siglip": Variant(
        LlavaForConditionalGeneration,
        {"vision_config": siglip_encoder(4) | FLAT, "vision_feature_select_strategy": "full"},
        prompt(16, 16, pixel_values=SQUARES),
        (SQUARE, SQUARE),
    ),
    "llava, dinov2": Variant(
        LlavaForConditionalGeneration,
        {"vision_config": DINO},
        prompt(16, 16, pixel_values=SQUARES),
        (SQUARE, SQUARE),
    ),
    "llava, pixtral": Variant(
        LlavaForConditionalGeneration,
        {"vision_config": PIXTRAL, "vision_feature_select_strategy": "full"},
        prompt(24, 32, pixel_values=RAGGED, image_sizes=RAGGED_SIZES),
        (Grid(1, 6, 4), Grid(1, 4, 8)),
    ),
    "llava, pixtral of one size": Variant(
        LlavaForConditionalGeneration,
        {"vision_config": PIXTRAL, "vision_feature_select_strategy": "full"},
        prompt(48, 48, pixel_values=RAGGED),
        (Grid(1, 6, 8), Grid(1, 6, 8)),
    ),
    "llava_next_video, image": Variant(
        LlavaNextVideoForConditionalGeneration,
        {"vision_config": clip_encoder(SIDE), "image_grid_pinpoints": PINPOINTS},
        prompt(39, pixel_values=noise(1, 1, 5, 3, 12, 12), image_sizes=sizes((24, 14))),
        (Tiled(BASE, Grid(1, 6, 4)),),
    ),
    "llava_next_video, video": Variant(
        LlavaNextVideoForConditionalGeneration,
        {"vision_config": clip_encoder(5), **by_token("video")},
        prompt(12, 12, token=VIDEO, pixel_values_videos=noise(1, 2, 3, 3, 20, 20)),
        videos=(Grid(3, 2, 2), Grid(3, 2, 2)),
        side=2 * PATCH_SIZE,
    ),
    "qwen3_vl_moe": Variant(
        Qwen3VLMoeForConditionalGeneration,
        {
            "vision_config": vision_config(
                hidden_size=32,
                intermediate_size=48,
                out_hidden_size=HIDDEN,
                num_position_embeddings=36,
                deepstack_visual_indexes=[0, 1],
            ),
            "video_token_id": VIDEO,
        },
        GLM_IMAGE,
        TWO_GLM_IMAGES,
        side=0,
        text={**MROPE, **EXPERTS, "num_experts": 4},
    ),
    "mistral3": Variant(
        Mistral3ForConditionalGeneration,
        {"vision_config": PIXTRAL},
        prompt(6, 8, pixel_values=RAGGED, image_sizes=RAGGED_SIZES),
        (Grid(1, 3, 2), Grid(1, 2, 4)),
        side=2 * PATCH_SIZE,
        text={"model_type": "mistral", "sliding_window": None},
    ),
    "lighton_ocr": Variant(
        LightOnOcrForConditionalGeneration,
        {"vision_config": PIXTRAL},
        prompt(6, 8, pixel_values=RAGGED, image_sizes=RAGGED_SIZES),
        (Grid(1, 3, 2), Grid(1, 2, 4)),
        side=2 * PATCH_SIZE,
        text={"model_type": "qwen3"},
    ),
    "deepseek_vl": Variant(
        DeepseekVLForConditionalGeneration,
        {"vision_config": siglip_encoder(4)},
        prompt(16, 16, pixel_values=SQUARES),
        (SQUARE, SQUARE),
    ),
    "qianfan_ocr": Variant(
        QianfanOCRForConditionalGeneration,
        {"vision_config": siglip_encoder(4, "qianfan_ocr_vision")},
        prompt(4, 4, pixel_values=SQUARES),
        (Grid(1, 2, 2), Grid(1, 2, 2)),
        side=2 * PATCH_SIZE,
        text={"model_type": "qwen3"},
    ),
    "glm4v": Variant(
        Glm4vForConditionalGeneration, GLM, GLM_IMAGE, TWO_GLM_IMAGES, side=0, text=GLM_TEXT
    ),
    "glm4v, video": Variant(
        Glm4vForConditionalGeneration, GLM, GLM_VIDEO, (Grid(2, 2, 3),), side=0, text=GLM_TEXT
    ),
    "glm46v": Variant(
        Glm46VForConditionalGeneration, GLM, GLM_IMAGE, TWO_GLM_IMAGES, side=0, text=GLM_TEXT
    ),
    "glm_ocr": Variant(
        GlmOcrForConditionalGeneration, GLM, GLM_IMAGE, TWO_GLM_IMAGES, side=0, text=GLM_TEXT
    ),
    "glm4v_moe": Variant(
        Glm4vMoeForConditionalGeneration,
        GLM,
        GLM_IMAGE,
        TWO_GLM_IMAGES,
        side=0,
        text={**GLM_TEXT, **EXPERTS, "n_routed_experts": 4},
    ),
}
