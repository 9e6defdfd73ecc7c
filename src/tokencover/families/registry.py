"""The list of families, the family of a model, and why some models cannot be pruned.

A model that cannot be pruned exactly is rejected. Dropping a token equals hiding it where every
layer attends to all earlier tokens; linear attention and convolutions then compute what they would
for a prompt without the token. A window counts positions of the shortened sequence, unless its
mask is cut from the mask of the whole sequence; `Family.windows` says that this is tested. Such
faults are invisible while the prompt is shorter than the window, so the configuration decides.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

from torch import nn

from tokencover.errors import InputError, TokenCoverError
from tokencover.families.family import Family, get_text_model
from tokencover.methods import Method
from tokencover.registry import Registry

FULL = "full_attention"
RECURRENT = ("linear_attention", "conv")
"""Layers that process tokens one by one, and keep a state instead of keys and values."""
WINDOWS = ("sliding_attention", "chunked_attention")
"""Layers that attend to the newest tokens only, or to those of one chunk."""
WINDOW_MASK = "create_sliding_window_causal_mask"
"""What the module of a text model imports from transformers if it uses windows."""
WHY = "but pruning is exact only where every layer attends to all earlier tokens"
CROSS_SETTINGS = (
    "is_encoder_decoder",
    "add_cross_attention",
    "cross_attention_layers",
    "cross_layer_interval",
)


class UnsupportedModelError(TokenCoverError):
    """The object is not a model that tokencover can prune."""


def _get_name(family: object) -> str:
    if not isinstance(family, Family):
        raise InputError(f"a model family must be a Family(...), got {family!r}.")
    return family.name


FAMILIES: Registry[Family] = Registry("model family", "tokencover.families", _get_name)
"""All families, in the order in which they are listed to users."""


def family_of(model: Any) -> Family:
    """Get the family of a model with language-model head, as ``from_pretrained`` returns it.

    Raises
    ------
    UnsupportedModelError
        If it is not such a model, cannot be pruned exactly, or has an unknown type.
    """
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if not isinstance(model_type, str) and isinstance(getattr(model, "module", None), nn.Module):
        raise UnsupportedModelError(
            f"{_describe(model)} wraps the model: prune its .module, then call the wrapper."
        )
    if not isinstance(model, nn.Module) or not isinstance(model_type, str):
        raise UnsupportedModelError(
            f"expected a loaded vision-language model, not {_describe(model)}; load it first with "
            f"from_pretrained, for example AutoModelForImageTextToText.from_pretrained(name)"
        )
    family = next((family for family in FAMILIES if model_type in family.model_types), None)
    reason = explain_attention_fault(model, family)
    if family is not None:
        reason = family.explain_version_fault(model_type) or reason
        reason = reason or _explain_missing_module(family, model)
        if reason is None:
            return family
    reason = reason or REFUSALS.get(model_type, "no family knows this model type")
    supported = "; ".join(f"{each.name} ({', '.join(each.model_types)})" for each in FAMILIES)
    raise UnsupportedModelError(
        f"cannot prune {type(model).__name__} (model_type {model_type!r}): {reason}. Supported "
        f"families, with their model types: {supported}"
    )


def list_refused() -> dict[str, str]:
    """The image-text-to-text types of transformers that no family supports, with the reasons."""
    supported = {name for family in FAMILIES for name in family.model_types}
    return {name: reason for name, reason in REFUSALS.items() if name not in supported}


def _describe(value: Any) -> str:
    return f"the string {value!r}" if isinstance(value, str) else f"a {type(value).__name__}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A family that a method supports.

    `as_published` is False if the method needs ``positions="original"`` there, because the family's
    positions or windows cannot be renumbered.
    """

    family: Family
    as_published: bool


def list_claims(method: type[Method]) -> list[Claim]:
    """The families that a method supports, in the order in which they are listed to users."""
    needs = set(method.card.needs)
    reads_attention = method.watched_layers is not Method.watched_layers or method.looks_ahead
    return [
        Claim(family, as_published=method.positions != "reindex" or family.renumbers)
        for family in FAMILIES
        if _offers(family, needs) and (family.reads_attention or not reads_attention)
        if not (family.has_own_masks and method.looks_ahead)
    ]


def _offers(family: Family, needs: set[str]) -> bool:
    offers = {
        "vision attention": family.reads_vision_encoder,
        "vision merging": family.merges_in_vision_encoder,
        "class token": family.class_token,
        "tiles": family.tiles,
    }
    return all(offered for name, offered in offers.items() if name in needs)


# ---- why a model cannot be pruned exactly ----------------------------------------------------


def explain_attention_fault(model: nn.Module, family: Family | None = None) -> str | None:
    """What in the attention of the text model forbids pruning, None if nothing does."""
    config: Any = model.config
    text = getattr(config, "text_config", None) or config
    fault = _explain_cross_attention(config) or _explain_cross_attention(text)
    if fault is None and not (family and family.both_directions):
        fault = _explain_not_causal(config) or _explain_not_causal(text)
    windows = family is not None and (family.windows or get_text_model(text).has_tested_windows)
    fault = fault or _explain_windows(text, model, windows)
    return fault or _explain_biased_convolution(text)


def needs_own_masks(family: Family, model: nn.Module) -> bool:
    """Whether the masks of a model must be cut from the masks of the whole sequence."""
    config: Any = model.config
    text = getattr(config, "text_config", None) or config
    return family.both_directions or _explain_windows(text, model, windows=False) is not None


def list_layer_types(decoder: Any) -> list[str]:
    """The type of each decoder layer, as in transformers' ``layer_types``."""
    types = getattr(decoder.config, "layer_types", None)
    return list(types) if types else [FULL] * len(decoder.layers)


def _explain_missing_module(family: Family, model: nn.Module) -> str | None:
    paths = (family.base, f"{family.decoder}.layers", *family.vision_encoders, family.projector)
    for path in paths:
        try:
            model.get_submodule(path)
        except AttributeError:
            return (
                f"it has no module {path!r}; load the whole model with its language-model head, "
                f"take it out of any wrapper, and check that this family knows its text model"
            )
    return None


def _explain_cross_attention(config: Any) -> str | None:
    for name in CROSS_SETTINGS:
        if value := getattr(config, name, None):
            return (
                f"{name} is {value!r}: its text reads the image through cross-attention, so there"
                f" are no visual tokens in the sequence to drop"
            )
    return None


def _explain_not_causal(config: Any) -> str | None:
    for name, causal in (("is_causal", True), ("use_bidirectional_attention", False)):
        value = getattr(config, name, None)
        if value is not None and bool(value) is not causal:
            return f"{name} is {value!r}: its attention is not causal"
    return None


def _explain_windows(text: Any, model: nn.Module, windows: bool) -> str | None:
    """What is neither full attention nor recurrent, None if nothing is; `windows` are accepted."""
    accepted = (FULL, *RECURRENT, *WINDOWS) if windows else (FULL, *RECURRENT)
    types = getattr(text, "layer_types", None)
    if types:
        counts = Counter(kind for kind in types if kind not in accepted)
        listed = ", ".join(f"{kind!r} in {count}" for kind, count in counts.items())
        return f"layer_types has {listed} of {len(types)} layers, {WHY}" if counts else None
    window = getattr(text, "sliding_window", None)
    if windows or window is None or not _uses_windows(model):
        return None
    return f"sliding_window is {window!r}, {WHY}"


def _explain_biased_convolution(text: Any) -> str | None:
    if "conv" in (getattr(text, "layer_types", None) or ()) and getattr(text, "conv_bias", False):
        return "conv_bias is True: its convolutions read the padding of shorter samples"
    return None


def _uses_windows(model: nn.Module) -> bool:
    """Whether the text model has windows; some configurations have the setting without them."""
    names = [name for name, _ in model.named_modules() if name.endswith("self_attn")]
    modules = [sys.modules[type(model.get_submodule(name)).__module__] for name in names]
    return not modules or any(hasattr(module, WINDOW_MASK) for module in modules)


_CROSS = "its text reads the image through cross-attention: the sequence has no visual tokens"
_ENCODER_DECODER = "it is an encoder-decoder: its decoder's sequence has no visual tokens"
_INDEXED = "its attention layers choose the tokens they attend to (indexed attention)"
_BOTH = "the tokens of an image attend in both directions, not only to earlier ones"
_QUERIES = "32 learned queries represent an image, and its text model (OPT, T5) has no rotations"
_SINES = "its text model adds positions to its embeddings, and calls its layers without rotations"
_DISCRETE = "its images are codes of its vocabulary: there is no vision encoder or projector"
_CONVOLVED = "its attention has short convolutions: that is not tested"

REFUSALS: dict[str, str] = {
    "blip": _CROSS,
    "blip-2": _QUERIES,
    "chameleon": _DISCRETE,
    "diffusion_gemma": "it writes blocks of text by diffusion, not one token after the other",
    "dots3_note": _INDEXED,
    "emu3": _DISCRETE,
    "evolla": "it reads proteins, not images, and those through cross-attention",
    "florence2": _ENCODER_DECODER,
    "fuyu": "it takes patches and their positions as separate arguments: that is not tested",
    "gemma3n": "its layers read one of four streams of hidden states: that is not tested",
    "git": _BOTH,
    "glm5_next": _INDEXED,
    "idefics": _CROSS,
    "inkling2": _CONVOLVED,
    "inkling_mm_model": _CONVOLVED,
    "instructblip": _QUERIES,
    "instructblipvideo": _QUERIES,
    "kosmos-2": _SINES,
    "kosmos-2.5": _SINES,
    "mistral4": "it is a text model without images",
    "minimax_m3_vl": _INDEXED,
    "mistral_large4": _INDEXED,
    "mllama": _CROSS,
    "nemotron_h_omni": "most layers of its text model are Mamba: that is not tested",
    "pi0": f"it predicts a robot's actions, not text, and {_BOTH}",
    "pix2struct": _ENCODER_DECODER,
    "pp_formulanet": _ENCODER_DECODER,
    "qwen4_exp": _INDEXED,
    "shieldgemma2": "it is a Gemma 3 that answers yes or no: prune the model inside, `model.model`",
    "t5gemma2": _ENCODER_DECODER,
    "udop": _ENCODER_DECODER,
    "unlimited_ocr": (
        "its layers attend to the prompt and to a sliding window of the answer, through a special "
        "cache"
    ),
    "vision-encoder-decoder": _ENCODER_DECODER,
}
"""From ``config.model_type`` to the reason, for image-text-to-text classes of transformers.

A type that a family supports counts as supported even if it is listed here. Every other type of
``MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES`` must be listed; a test checks this.
"""
