"""Checks of vLLM's configuration: what pruning needs, and what cannot be combined with it.

vLLM calls `ServedConfig` before it loads anything, so a wrong start fails at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from vllm.model_executor.models.config import VerifyAndUpdateConfig

from tokencover.errors import InputError
from tokencover.serving.settings import LIMIT_KEY, SETTINGS_KEY, ServingSettings
from tokencover.serving.supported import get_served_model, validate_positions

LENGTH_INDEPENDENT_ROPE: Final = ("default", "linear", "llama3")


class ServedConfig(VerifyAndUpdateConfig):
    """See `vllm.model_executor.models.config`."""

    @staticmethod
    def verify_and_update_model_config(model_config: Any) -> None:
        """Read our settings, and let vLLM ask the model for positions where needed."""
        config = model_config.hf_config
        settings = ServingSettings.read(getattr(config, SETTINGS_KEY, None))
        model = get_served_model(config.architectures)
        validate_positions(model, settings.method.positions)
        if settings.method.positions == "original":
            text = config.get_text_config()
            if getattr(config, LIMIT_KEY, None) is None:
                setattr(config, LIMIT_KEY, text.max_position_embeddings)
                if not model.several_axes:
                    _use_model_positions(config, text)

    @staticmethod
    def verify_and_update_config(vllm_config: Any) -> None:
        """Raise an error for options that cannot be combined with pruning."""
        positions = ServingSettings.read(
            getattr(vllm_config.model_config.hf_config, SETTINGS_KEY, None)
        ).method.positions
        reasons = list(_list_conflicts(vllm_config, positions))
        if reasons:
            raise InputError("Cannot prune visual tokens: " + "; ".join(reasons) + ".")


def _use_model_positions(config: Any, text: Any) -> None:
    """Let vLLM ask the model for positions, and keep them per request.

    The decoder's own RoPE stays, because it gets one row of them. A short prompt may end at a high
    position and the answer continues from there, so the RoPE table gets twice as long; its rows do
    not depend on its length.
    """
    rope_type = (text.rope_parameters or {}).get("rope_type", "default")
    if rope_type not in LENGTH_INDEPENDENT_ROPE:
        raise InputError(
            f"RoPE type {rope_type!r} depends on the length of the text: use positions='reindex'."
        )
    config.mrope_section = [1, 0, 0]
    text.max_position_embeddings *= 2


def _list_conflicts(vllm_config: Any, positions: str) -> Iterator[str]:
    multimodal = vllm_config.model_config.multimodal_config
    parallel = vllm_config.parallel_config
    lora = vllm_config.lora_config
    if vllm_config.speculative_config is not None:
        yield "speculative decoding is not supported, leave --speculative-config out"
    if getattr(vllm_config, "ec_transfer_config", None) is not None:
        yield "a disaggregated encoder has no prompt tokens to select by"
    if getattr(vllm_config.compilation_config, "cudagraph_mm_encoder", False):
        yield "CUDA graphs of the encoder bypass the selection, set cudagraph_mm_encoder to false"
    if lora is not None and getattr(lora, "enable_tower_connector_lora", False):
        yield "LoRA on the vision encoder counts kept tokens only"
    if multimodal is None or multimodal.language_model_only:
        yield "the model was loaded without its vision encoder"
    elif multimodal.enable_mm_embeds:
        yield "image embeddings have no grid, leave --enable-mm-embeds out"
    elif multimodal.is_multimodal_pruning_enabled():
        yield "vLLM's video pruning is on, leave --video-pruning-rate out"
    elif SETTINGS_KEY in (multimodal.mm_processor_kwargs or {}):
        yield (
            f"{SETTINGS_KEY!r} in --mm-processor-kwargs is for requests, a server's settings "
            "belong in --hf-overrides"
        )
    if positions == "original" and parallel.pipeline_parallel_size > 1:
        yield (
            "pipeline stages do not receive the positions of kept tokens, use reindex or tensor "
            "parallelism"
        )
    if getattr(parallel, "enable_dbo", False):
        yield "dual batch overlap is not supported, leave --enable-dbo out"
