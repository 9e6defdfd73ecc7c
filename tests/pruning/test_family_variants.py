"""Models beside the zoo's: those that a family serves too, and those that are refused."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    Blip2Config,
    IdeficsConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaModel,
    MllamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    T5Config,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

import tokencover as tc
from tests.pruning.test_families import (
    NAMES,
    ROUTES,
    Before,
    layouts_of,
    media_of,
    model_of,
    modules_that_ran,
    painted,
    places,
    raster,
    true_places,
    without_mixing,
)
from tests.pruning.variants import FLAT, SQUARE, SQUARES, VARIANTS, prompt, sizes
from tests.zoo import ZOO
from tests.zoo.vision_encoders import clip_encoder, siglip_encoder
from tests.zoo.weights import text_config
from tokencover.errors import InputError, TokenCoverError
from tokencover.families import (
    FAMILIES,
    Media,
    UnsupportedModelError,
    family_of,
    list_claims,
    list_refused,
)
from tokencover.families.layout import PATCH
from tokencover.families.registry import REFUSALS
from tokencover.methods import Method
from tokencover.methods.look_ahead import LookAhead


@cache
def variant_model_of(name: str) -> PreTrainedModel:
    return without_mixing(VARIANTS[name].build())


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", VARIANTS)
def test_layouts_of_variants(name: str, route: str) -> None:
    variant, model = VARIANTS[name], variant_model_of(name)
    found = layouts_of(model, media_of(model, variant.inputs, route))
    for layouts, truth in zip(found, (variant.images, variant.videos), strict=True):
        assert [places(layout) for layout in layouts] == [true_places(each) for each in truth]
    family = family_of(model)
    assert len(family.layers(model)) == 2
    assert {family.projector, *family.vision_encoders} <= modules_that_ran(model, variant.inputs)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_token_of_a_variant_is_where_its_pixels_are(name: str) -> None:
    variant, model = VARIANTS[name], variant_model_of(name)
    before = media_of(model, variant.inputs)
    images, videos = layouts_of(model, before)
    pixels_name = "pixel_values" if "pixel_values" in variant.inputs else "pixel_values_videos"
    pixels = variant.inputs[pixels_name]
    _, rows, columns = (images or videos)[0].shape
    first = Before(model, before)
    for token in range(rows * columns):
        row, column = divmod(token, columns)
        if variant.side:
            changed = painted(pixels, (0,) * (pixels.ndim - 3), row, column, variant.side)
        else:
            changed = pixels.clone()
            changed[4 * token : 4 * token + 4] += 1.0
        after = media_of(model, {**variant.inputs, pixels_name: changed})
        assert first.list_changed(model, after) == [(0, PATCH, 0, row, column)]


def test_every_model_type_is_tested() -> None:
    tested = {model_of(name).config.model_type for name in NAMES}
    tested |= {variant_model_of(name).config.model_type for name in VARIANTS}
    served = [
        model_type
        for family in FAMILIES
        for model_type in family.model_types
        if not family.explain_version_fault(model_type)
    ]
    assert sorted(served) == sorted(tested)


def test_what_is_not_tested_by_value_is_a_variant() -> None:
    by_value = {model_of(name).config.model_type for name in NAMES}
    for family in FAMILIES:
        here = {name for name in family.model_types if not family.explain_version_fault(name)}
        assert set(family.variants) & here == here - by_value, family.name


def test_every_class_of_transformers_is_served_or_refused_with_a_reason() -> None:
    """A new transformers brings new classes: add a family, or say why not in refusals.py.

    An older one has fewer of them.
    """
    served = {model_type for family in FAMILIES for model_type in family.model_types}
    known = set(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    assert known - served - set(REFUSALS) == set()
    assert known - served <= set(list_refused())
    assert not served & set(list_refused())
    assert all(reason and not reason.endswith(".") for reason in REFUSALS.values())


@pytest.mark.parametrize("method", [tc.FastV(budget=7), LookAhead(7)])
def test_methods_that_read_attention_do_not_claim_families_where_it_is_not_known(
    method: Method,
) -> None:
    model = ZOO["kimi_k25"].build()
    assert "Kimi K2.5" not in [claim.family.name for claim in list_claims(type(method))]
    assert "Kimi K2.5" in [claim.family.name for claim in list_claims(tc.MoB)]
    inputs = ZOO["kimi_k25"].inputs("single")
    with (
        pytest.raises(InputError, match="no self_attn with q_proj and k_proj"),
        torch.no_grad(),
        tc.prune(model, method, prompt=ZOO["kimi_k25"].user_words(inputs)),
    ):
        model(**inputs)


def test_llava_without_class_token_loses_its_first_patch() -> None:
    variant = VARIANTS["llava, siglip"]
    model = replace(variant, settings={"vision_config": siglip_encoder(4) | FLAT}).build()
    inputs = prompt(15, 15, pixel_values=SQUARES)
    images, _ = layouts_of(model, media_of(model, inputs))
    assert [places(layout) for layout in images] == [raster(SQUARE)[1:]] * 2


# ---- what is missing or refused ----


MISSING = [
    ("llava", {}, None, "without pixel_values (only with: nothing)"),
    ("llava", {"pixel_values": torch.zeros(3, 20, 20)}, None, "has shape (3, 20, 20)"),
    ("llava_next", {"pixel_values": torch.zeros(1)}, None, "without image_sizes (only with: pixel"),
    ("qwen2_vl", {"pixel_values": torch.zeros(1)}, None, "without image_grid_thw"),
    ("qwen3_vl", None, {"pixel_values_videos": torch.zeros(1)}, "without video_grid_thw"),
    ("video_llava", None, {"pixel_values_videos": torch.zeros(2, 3, 16, 16)}, "(2, 3, 16, 16)"),
    (
        "llava_onevision",
        {"image_sizes": sizes((12, 12), (12, 24)), "batch_num_images": torch.tensor([1])},
        None,
        "batch_num_images [1] counts 1 images, but image_sizes has 2",
    ),
    (
        "llava_onevision",
        {"image_sizes": sizes((12, 12)), "vision_aspect_ratio": "square"},
        None,
        "vision_aspect_ratio is 'square'",
    ),
    ("internvl", {"pixel_values": torch.zeros(1, 3, 24, 32)}, None, "has 6 x 8 patches"),
    ("idefics3", {"pixel_values": torch.zeros(1, 1, 3, 24, 32)}, None, "has 6 x 8 patches"),
]


@pytest.mark.parametrize(
    ("name", "images", "videos", "message"), [row for row in MISSING if row[0] in ZOO]
)
def test_what_is_missing_is_said(name: str, images: Any, videos: Any, message: str) -> None:
    model = model_of(name)
    with pytest.raises(InputError) as caught:
        layouts_of(model, Media(model.config, images, videos))
    assert message in str(caught.value)


def test_unknown_vision_encoder_is_rejected() -> None:
    config = LlavaConfig(vision_config={"model_type": "vit"}, text_config=text_config(2))
    media = Media(config, {"pixel_values": SQUARES})
    with pytest.raises(InputError, match=r"encoder 'vit' is not supported.*clip_vision_model"):
        FAMILIES["LLaVA-1.5"].layouts(media)


class Shell(nn.Module):
    """A model without weights: refusals read the configuration."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        self.config = config


def llava_with(**text: Any) -> LlavaConfig:
    return LlavaConfig(vision_config=clip_encoder(4), text_config=text_config(2, **text))


REFUSED = [
    (llava_with(model_type="mixtral", sliding_window=4096), "sliding_window is 4096"),
    (
        llava_with(
            model_type="qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1
        ),
        "layer_types has 'sliding_attention' in 1 of 2 layers",
    ),
    (MllamaConfig(), "cross_attention_layers is [3, 8, 13, 18, 23, 28, 33, 38]"),
    (IdeficsConfig(), "cross_layer_interval is 1"),
    (T5Config(), "is_encoder_decoder is True"),
    (Blip2Config(), "32 learned queries represent an image"),
    (LlamaConfig(), "no family knows this model type"),
]


@pytest.mark.parametrize(("config", "reason"), REFUSED)
def test_models_that_cannot_be_pruned_exactly_are_refused(
    config: PreTrainedConfig, reason: str
) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        family_of(Shell(config))
    message = str(caught.value)
    assert f"cannot prune Shell (model_type {config.model_type!r}): " in message
    assert reason in message
    assert "LLaVA-1.5 (llava, vipllava); LLaVA-Next" in message
    assert all(name in message for family in FAMILIES for name in family.model_types)


def test_real_models_are_refused() -> None:
    llama = LlamaForCausalLM(LlamaConfig(**text_config(2)))
    with pytest.raises(UnsupportedModelError, match="cannot prune LlamaForCausalLM"):
        family_of(llama)
    without_head = LlavaModel(llava_with(model_type="llama"))
    with pytest.raises(UnsupportedModelError, match="it has no module 'model'; load the whole"):
        family_of(without_head)
    other_text_stack = ZOO["llava"].build(layers=1)
    del other_text_stack.model.language_model.layers
    with pytest.raises(UnsupportedModelError, match=r"no module 'model\.language_model\.layers'"):
        family_of(other_text_stack)


def test_what_is_no_model_is_refused() -> None:
    found = r"not the string 'llava-hf/llava-1\.5-7b-hf'; load it first with from_pretrained"
    with pytest.raises(UnsupportedModelError, match=found):
        family_of("llava-hf/llava-1.5-7b-hf")
    for other, shown in ((nn.Linear(1, 1), "a Linear"), (CLIPImageProcessorPil(), "a CLIPImage")):
        with pytest.raises(UnsupportedModelError, match=f"not {shown}.*from_pretrained"):
            family_of(other)
    with pytest.raises(UnsupportedModelError, match="not a LlavaConfig"):
        family_of(llava_with())
    assert issubclass(UnsupportedModelError, TokenCoverError)


def test_no_model_type_is_served_twice() -> None:
    types = [model_type for family in FAMILIES for model_type in family.model_types]
    assert len(types) == len(set(types))
