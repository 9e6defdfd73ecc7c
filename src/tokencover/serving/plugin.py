"""vLLM's entry point: registers our models under their names.

vLLM calls `register` in each of its processes, and imports one of our models when it is requested.
Nothing in vLLM changes.
"""

from __future__ import annotations

from typing import Any

from tokencover.serving.supported import SERVED_MODELS


def register() -> None:
    """Register our models with vLLM; repeated calls have no effect."""
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    from tokencover.serving.engine_checks import ServedConfig

    known = ModelRegistry.get_supported_archs()
    configs: dict[str, Any] = MODELS_CONFIG_MAP
    for model in SERVED_MODELS:
        if model.name not in known:
            path = f"tokencover.serving.models:{model.name}"  # in vLLM's notation
            ModelRegistry.register_model(model.name, path)
        configs[model.name] = ServedConfig
