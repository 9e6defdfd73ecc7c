"""The entry point of vLLM: makes our models known to it, under names of their own.

vLLM calls `register` in each of its processes. It imports none of our models; vLLM does, if one is
asked for. Nothing of vLLM's own changes.
"""

from __future__ import annotations

from typing import Any

from tokencover.serving.architectures import SERVED_MODELS


def register() -> None:
    """Tell vLLM where our models are; calling it again changes nothing."""
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    from tokencover.serving.engine_checks import ServedConfig

    known = ModelRegistry.get_supported_archs()
    configs: dict[str, Any] = MODELS_CONFIG_MAP
    for model in SERVED_MODELS:
        if model.name not in known:
            ModelRegistry.register_model(model.name, model.place)
        configs[model.name] = ServedConfig
