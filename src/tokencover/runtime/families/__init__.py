"""The model families that tokencover knows, one file each."""

from __future__ import annotations

from typing import Any

from torch import nn

from tokencover.errors import TokenCoverError
from tokencover.runtime.families import (
    deepseek_vl,
    glm4v,
    idefics3,
    internvl,
    lighton_ocr,
    llava,
    llava_next,
    llava_onevision,
    mistral3,
    qwen2_5_vl,
    qwen2_vl,
    qwen3_vl,
    smolvlm,
    video_llava,
)
from tokencover.runtime.families.refusals import attention_reason, structure_reason
from tokencover.runtime.family import Family

FAMILIES: tuple[Family, ...] = (
    llava.FAMILY,
    llava_next.FAMILY,
    qwen2_vl.FAMILY,
    qwen2_5_vl.FAMILY,
    qwen3_vl.FAMILY,
    video_llava.FAMILY,
    llava_onevision.FAMILY,
    internvl.FAMILY,
    smolvlm.FAMILY,
    idefics3.FAMILY,
    mistral3.FAMILY,
    lighton_ocr.FAMILY,
    glm4v.FAMILY,
    deepseek_vl.FAMILY,
)
"""All families, in the order in which they are listed to users."""


class UnsupportedModelError(TokenCoverError):
    """The object is no model that tokencover can prune."""


def family_of(model: Any) -> Family:
    """Find the family of a model.

    Parameters
    ----------
    model : PreTrainedModel
        A vision-language model with its language-model head, as ``from_pretrained`` returns it.

    Returns
    -------
    Family
        Where the model keeps what matters.

    Raises
    ------
    UnsupportedModelError
        If it is no such model, its attention cannot be pruned exactly, or no family knows it.
    """
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if not isinstance(model, nn.Module) or not isinstance(model_type, str):
        raise UnsupportedModelError(
            f"expected a loaded vision-language model, not {_shown(model)}; load it first with "
            f"from_pretrained, for example AutoModelForImageTextToText.from_pretrained(name)"
        )
    found = next((family for family in FAMILIES if model_type in family.model_types), None)
    reason = attention_reason(model.config)
    if reason is None and found is not None:
        reason = structure_reason(found, model)
    if reason is None and found is not None:
        return found
    raise UnsupportedModelError(
        f"cannot prune {type(model).__name__} (model_type {model_type!r}): "
        f"{reason or 'no family knows this model type'}. Supported families, with their model "
        f"types: {supported()}"
    )


def supported() -> str:
    """The families with the model types of each, for messages."""
    return "; ".join(f"{family.name} ({', '.join(family.model_types)})" for family in FAMILIES)


def _shown(value: Any) -> str:
    """A short description: a string itself, of all else the class."""
    return f"the string {value!r}" if isinstance(value, str) else f"a {type(value).__name__}"


__all__ = ["FAMILIES", "UnsupportedModelError", "family_of", "supported"]
