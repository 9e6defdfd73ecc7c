"""EXAONE 4.5: Qwen2.5-VL's vision encoder before a decoder with windows and plain positions."""

from collections.abc import Sequence

import torch
from transformers import Exaone4_5_Config, Exaone4_5_ForConditionalGeneration, PreTrainedModel

from . import qwen2_vl, qwen_media
from .entry import Inputs, Sample, ZooEntry
from .qwen2_5_vl import WINDOW as TOWER_WINDOW
from .qwen_media import layouts, media, vision_config
from .vocabulary import IMAGE, VIDEO, tagged_chat
from .weights import HIDDEN, seeded, text_config
from .windows import WINDOW, choose_kinds


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(
        layers,
        model_type="exaone4",
        sliding_window=WINDOW,
        layer_types=choose_kinds(layers),
        rms_norm_eps=1e-2,  # what blocks add is normed, small ones too: less blows up rounding
    )
    vision = vision_config(
        hidden_size=32,
        intermediate_size=48,
        out_hidden_size=HIDDEN,
        window_size=TOWER_WINDOW,
        fullatt_block_indexes=[1],
        num_key_value_heads=1,
    )
    config = Exaone4_5_Config(
        vision_config=vision, text_config=text, image_token_id=IMAGE, video_token_id=VIDEO
    )
    return seeded(Exaone4_5_ForConditionalGeneration, config, attn_implementation, dtype)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    packed = qwen_media.pack(samples, text)
    packed.pop("mm_token_type_ids", None)  # its positions have one axis
    return packed


ENTRY = ZooEntry(
    name="exaone4_5",
    build=build,
    chat=tagged_chat,
    write=qwen2_vl.write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=qwen2_vl.ENTRY.kinds,
    video_token_id=VIDEO,
    flash=False,
    own_masks=True,
    alike="gemma3",
)
