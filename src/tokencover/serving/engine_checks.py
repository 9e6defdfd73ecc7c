"""What vLLM was started with: what pruning needs of it, and what cannot go together.

vLLM calls `ServedConfig` before anything is loaded, so a wrong start ends at once, with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from vllm.model_executor.models.config import VerifyAndUpdateConfig

from tokencover.errors import InputError
from tokencover.serving.architectures import check_positions, find_served_model
from tokencover.serving.settings import LIMIT_KEY, SETTINGS_KEY, ServingSettings

PLAIN_ROTATIONS: Final = ("default", "linear", "llama3")


class ServedConfig(VerifyAndUpdateConfig):
    """See `vllm.model_executor.models.config`."""

    @staticmethod
    def verify_and_update_model_config(model_config: Any) -> None:
        """Read our settings, and let vLLM keep positions that are not mere counts."""
        config = model_config.hf_config
        settings = ServingSettings.read(getattr(config, SETTINGS_KEY, None))
        model = find_served_model(config.architectures)
        check_positions(model, settings.method.positions)
        if settings.method.positions == "original":
            text = config.get_text_config()
            if getattr(config, LIMIT_KEY, None) is None:
                setattr(config, LIMIT_KEY, text.max_position_embeddings)
                if not model.several_axes:
                    _keep_positions(config, text)

    @staticmethod
    def verify_and_update_config(vllm_config: Any) -> None:
        """Refuse what cannot go together with pruning."""
        positions = ServingSettings.read(
            getattr(vllm_config.model_config.hf_config, SETTINGS_KEY, None)
        ).method.positions
        reasons = list(_find_conflicts(vllm_config, positions))
        if reasons:
            raise InputError("visual tokens cannot be pruned here: " + "; ".join(reasons) + ".")


def _keep_positions(config: Any, text: Any) -> None:
    """Let vLLM ask the model for positions, and keep them by request.

    The decoder's own rotation stays as it is: it never sees more than one row of them. A short
    prompt may end far out, and its answer goes on from there, so the table of rotations is made
    twice as long; its rows do not depend on how many there are.
    """
    kind = (text.rope_parameters or {}).get("rope_type", "default")
    if kind not in PLAIN_ROTATIONS:
        raise InputError(
            f"rotations of type {kind!r} depend on the length of the text: use positions='reindex'."
        )
    config.mrope_section = [1, 0, 0]
    text.max_position_embeddings *= 2


def _find_conflicts(vllm_config: Any, positions: str) -> Iterator[str]:
    multimodal = vllm_config.model_config.multimodal_config
    parallel = vllm_config.parallel_config
    lora = vllm_config.lora_config
    if vllm_config.speculative_config is not None:
        yield "speculative decoding reads the prompt shifted by one; leave --speculative-config out"
    if getattr(vllm_config, "ec_transfer_config", None) is not None:
        yield "an encoder apart from the language model has no words to choose by"
    if getattr(vllm_config.compilation_config, "cudagraph_mm_encoder", False):
        yield "CUDA graphs of the encoder go past the choice; set cudagraph_mm_encoder to false"
    if lora is not None and getattr(lora, "enable_tower_connector_lora", False):
        yield "LoRA on the vision tower counts its tokens by those that are kept"
    if multimodal is None or multimodal.language_model_only:
        yield "the model was loaded without its vision tower"
    elif multimodal.enable_mm_embeds:
        yield "pictures that come as embeddings have no grid; leave --enable-mm-embeds out"
    elif multimodal.is_multimodal_pruning_enabled():
        yield "vLLM's own pruning of videos is on; leave --video-pruning-rate out"
    elif SETTINGS_KEY in (multimodal.mm_processor_kwargs or {}):
        yield (
            f"{SETTINGS_KEY!r} in --mm-processor-kwargs is for requests; a server's own settings "
            "stand in --hf-overrides"
        )
    if positions == "original" and parallel.pipeline_parallel_size > 1:
        yield (
            "later stages of a pipeline do not see where kept tokens were; use reindex, or "
            "tensor parallelism"
        )
    if getattr(parallel, "enable_dbo", False):
        yield "steps that run as two batches at once (--enable-dbo)"
