"""LFM2-VL: any resolution, patches filled up to one length, mostly short convolutions."""

from collections.abc import Sequence

import torch
from torch import nn
from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration, PreTrainedModel

from . import qwen2_vl
from .entry import Inputs, Sample, ZooEntry
from .layout import Layout
from .qwen_media import MERGE, merged
from .raster_patches import cut, media
from .vision_encoders import siglip_encoder
from .vocabulary import IMAGE, tagged_chat
from .weights import seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    encoder = siglip_encoder(8, "siglip2_vision_model")
    del encoder["image_size"]
    kinds = ["conv", "conv", "full_attention"] * layers
    text = text_config(
        layers,
        model_type="lfm2",
        layer_types=[*kinds[: layers - 1], "full_attention"],
        block_auto_adjust_ff_dim=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    config = Lfm2VlConfig(
        vision_config={**encoder, "num_patches": 64},
        text_config=text,
        image_token_id=IMAGE,
        downsample_factor=MERGE,
        projector_hidden_size=40,
        tie_word_embeddings=False,
    )
    return seeded(Lfm2VlForConditionalGeneration, config, attn_implementation, dtype)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    """Fill the patches of each image up to one length."""
    images = [medium for sample in samples for medium in sample.media]
    if not images:
        return {}
    patches = [cut(image.pixels).permute(0, 2, 3, 1).flatten(1) for image in images]
    masks = [torch.ones(len(each), dtype=torch.int32) for each in patches]
    return {
        "pixel_values": nn.utils.rnn.pad_sequence(patches, batch_first=True),
        "pixel_attention_mask": nn.utils.rnn.pad_sequence(masks, batch_first=True),
        "spatial_shapes": torch.tensor([image.size[1:] for image in images]),
    }


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    sizes = inputs["spatial_shapes"].tolist() if "spatial_shapes" in inputs else []
    return [merged((1, *size)) for size in sizes], []


ENTRY = ZooEntry(
    name="lfm2_vl",
    build=build,
    chat=tagged_chat,
    write=qwen2_vl.write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed"),
    crops=True,
    recurrent=True,
    alike="llava",
)
