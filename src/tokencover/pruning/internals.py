"""The tested versions of torch and transformers, and the names inside them that pruning relies on.

None of these names is a public API. Without a check, a renamed method or attribute would turn off
an override without an error.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

from tokencover.errors import InternalsError, TokenCoverWarning
from tokencover.families.family import read_version

TESTED: Final = {"torch": ("2.6", "2.15"), "transformers": ("5.19", "5.23")}
"""The lowest and the newest tested version of each package."""

CACHE_METHODS: Final = (
    "batch_repeat_interleave", "batch_select_indices", "crop", "get_mask_sizes", "get_seq_length",
    "reorder_cache", "reset", "update",
)  # fmt: skip
"""What `PrunedCache` overrides in every cache."""

INTERNALS: Final[Mapping[str, tuple[str, ...]]] = {
    "transformers.cache_utils:Cache": CACHE_METHODS,
    "transformers.cache_utils:DynamicLayer": (
        "batch_repeat_interleave", "batch_select_indices", "crop", "get_mask_sizes",
        "get_seq_length", "is_croppable", "reorder_cache", "reset", "update",
    ),
    "transformers.cache_utils:StaticLayer": ("get_mask_sizes", "get_seq_length", "update"),
    "transformers.generation:GenerationMixin": ("generate", "prepare_inputs_for_generation"),
    "transformers.models.qwen3_vl.modeling_qwen3_vl:Qwen3VLTextModel": ("_deepstack_process",),
    "torch._C": ("_current_graph_task_id",),
}  # fmt: skip
"""Attributes of classes and modules."""

PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "transformers.masking_utils:create_causal_mask": (
        "config", "inputs_embeds", "attention_mask", "past_key_values", "layer_idx",
    ),
    "transformers.masking_utils:create_recurrent_attention_mask": (
        "config", "inputs_embeds", "attention_mask", "past_key_values",
    ),
    "transformers.cache_utils:Cache.get_mask_sizes": ("query_length", "layer_idx"),
    "transformers.cache_utils:Cache.get_seq_length": ("layer_idx",),
    "transformers.cache_utils:Cache.crop": ("tokens_to_remove",),
    "transformers.cache_utils:Cache.reorder_cache": ("beam_idx",),
    "transformers.models.llama.modeling_llama:LlamaDecoderLayer.forward": (
        "hidden_states", "attention_mask", "position_ids", "past_key_values", "position_embeddings",
    ),
    "transformers.models.llama.modeling_llama:LlamaAttention.forward": (
        "hidden_states", "position_embeddings", "attention_mask", "past_key_values",
    ),
}  # fmt: skip
"""Parameters of functions."""

INSTANCE_ATTRIBUTES: Final[Mapping[str, tuple[str, ...]]] = {
    "transformers.cache_utils:DynamicCache": ("layers",),
    "transformers.cache_utils:DynamicLayer": ("is_initialized", "keys", "values"),
    "transformers.cache_utils:DynamicSlidingWindowLayer": ("record_past", "sliding_window"),
    "transformers.models.gemma4.modeling_gemma4:Gemma4TextAttention": (
        "is_kv_shared_layer", "store_full_length_kv",
    ),
    "transformers.models.llama4.modeling_llama4:Llama4TextAttention": (
        "attn_scale", "attn_temperature_tuning", "floor_scale", "use_rope",
    ),
}  # fmt: skip
"""Attributes that the source of a class assigns or inherits; looked for in its code."""


@functools.cache
def warn_of_newer_versions() -> None:
    """Warn once if an installed version is newer than the newest tested one."""
    for name, (_, newest) in TESTED.items():
        if read_version(version(name)) > read_version(newest):
            warnings.warn(
                f"{name} {version(name)} is newer than {newest}, the newest version that "
                f"tokencover was tested with. If something fails, install {name}=={newest}.*",
                TokenCoverWarning,
                stacklevel=2,
            )


@functools.cache
def check_internals() -> None:
    """Raise `InternalsError` if a listed name is missing in what is installed."""
    if missing := list_missing():
        from transformers import __version__

        raise InternalsError(
            f"transformers {__version__} has no {', '.join(missing)}, which pruning relies on. "
            "Install a tested version of transformers (see docs/guide/limits.md)."
        )


def list_missing() -> list[str]:
    """The listed names that are missing, each as ``module:owner.name``."""
    missing = []
    for path, names in INTERNALS.items():
        owner = _resolve(path)
        missing += [f"{path}.{name}" for name in names if not hasattr(owner, name)]
    for path, names in PARAMETERS.items():
        function = _resolve(path)
        found = () if function is None else inspect.signature(function).parameters
        missing += [f"{path}({name})" for name in names if name not in found]
    for path, names in INSTANCE_ATTRIBUTES.items():
        assigned = _list_assigned(_resolve(path))
        missing += [f"{path}.{name}" for name in names if name not in assigned]
    return missing


def _resolve(path: str) -> Any:
    """The object at ``module:name.name``, None if it or a part of it is missing."""
    module, _, names = path.partition(":")
    try:
        found: Any = import_module(module)
    except ImportError:
        return None
    for name in names.split(".") if names else ():
        found = getattr(found, name, None)
    return found


def _list_assigned(owner: Any) -> set[str]:
    """The names that methods of a class and of its bases store or read on ``self``."""
    functions = [
        each
        for kind in getattr(owner, "__mro__", ())
        for each in vars(kind).values()
        if inspect.isfunction(each)
    ]
    inherited = {name for kind in getattr(owner, "__mro__", ()) for name in vars(kind)}
    return inherited.union(*(each.__code__.co_names for each in functions))
