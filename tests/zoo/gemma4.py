"""Gemma 4: windows, images that see themselves, and something for each token in every block."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import Gemma4Config, Gemma4ForConditionalGeneration, PreTrainedModel

from . import qwen2_vl
from .entry import Inputs, Medium, Sample, ZooEntry
from .layout import Layout
from .qwen_media import MERGE, merged
from .raster_patches import cut, media
from .vision_encoders import PATCH
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START, VOCABULARY_SIZE, tagged_chat
from .weights import seeded, text_config
from .windows import WINDOW, choose_kinds


def build(
    attn_implementation: str = "sdpa",
    layers: int = 5,
    dtype: torch.dtype = torch.float32,
    shared: int = 0,
) -> PreTrainedModel:
    """``shared`` of the last blocks attend to the keys of earlier ones."""
    text = text_config(
        layers,
        sliding_window=WINDOW,
        layer_types=choose_kinds(layers),
        global_head_dim=16,
        hidden_size_per_layer_input=6,
        vocab_size_per_layer_input=VOCABULARY_SIZE,
        use_bidirectional_attention="vision",
        num_kv_shared_layers=shared,
    )
    vision = {
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "patch_size": PATCH,
        "pooling_kernel_size": MERGE,
        "position_embedding_size": 16,
    }
    config = Gemma4Config(
        text_config=text,
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        boi_token_id=VISION_START,
        eoi_token_id=VISION_END,
        tie_word_embeddings=False,
    )
    model = seeded(Gemma4ForConditionalGeneration, config, attn_implementation, dtype)
    shrink_queries(model)
    return model


@torch.no_grad()
def shrink_queries(model: PreTrainedModel) -> None:
    """Make queries small: products are not scaled."""
    for name, parameter in model.named_parameters():
        if "language_model" in name and "q_norm" in name:
            parameter.mul_(0.3)


def pack(samples: Sequence[Sample], text: Inputs, side: int = PATCH) -> Inputs:
    packed = {"mm_token_type_ids": (text["input_ids"] == IMAGE).int()}
    images = [medium for sample in samples for medium in sample.media]
    if not images:
        return packed
    patches = [cut(image.pixels, side).flatten(1) for image in images]
    longest = max(map(len, patches))
    filled = [pad(each, (0, 0, 0, longest - len(each))) for each in patches]
    packed["pixel_values"] = torch.stack(filled)
    packed["image_position_ids"] = torch.stack([_place(each, longest) for each in images])
    return packed


def _place(image: Medium, longest: int) -> Tensor:
    """Columns and rows of the patches, -1 after them."""
    _, rows, columns = image.size
    row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    places = torch.stack([column.flatten(), row.flatten()], -1)
    return pad(places, (0, 0, 0, longest - len(places)), value=-1)


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    places = inputs.get("image_position_ids", torch.empty(0, 0, 2))
    sizes = [(each.amax(0) + 1).tolist() for each in places]
    found: list[Layout] = [merged((1, rows, columns)) for columns, rows in sizes]
    return found, []


ENTRY = ZooEntry(
    name="gemma4",
    build=build,
    chat=tagged_chat,
    write=qwen2_vl.write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed"),
    video_token_id=VIDEO,
    flash=False,
    own_masks=True,
    alike="gemma3",
)
