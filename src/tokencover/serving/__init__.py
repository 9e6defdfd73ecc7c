"""Pruning in serving engines: a plugin for vLLM, and the command that starts its server.

vLLM finds `plugin` by its entry point and imports `models` if one of our models is requested.
These combine `processor` and `model` with vLLM's own classes. The remaining modules do not depend
on vLLM: `settings` of a server and a request, `supported` models and methods, the plan and the
`selection` for an image, and the tensors and positions of `images`.
"""

from tokencover.serving.settings import SETTINGS_KEY, ServingSettings
from tokencover.serving.starting import (
    build_server_command,
    run_server,
    validate_vllm,
)
from tokencover.serving.supported import (
    SERVED,
    SERVED_MODELS,
    ServedModel,
    build_served_method,
    get_served_model,
    validate_positions,
)

__all__ = [
    "SERVED",
    "SERVED_MODELS",
    "SETTINGS_KEY",
    "ServedModel",
    "ServingSettings",
    "build_served_method",
    "build_server_command",
    "get_served_model",
    "run_server",
    "validate_positions",
    "validate_vllm",
]
