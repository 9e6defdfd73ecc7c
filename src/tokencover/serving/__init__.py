"""Pruning in engines that serve: a plugin of vLLM, and the command that starts it.

vLLM finds `vllm_plugin` through its entry points and imports, if one of our models is asked for,
`served_models`, which mixes `pruned_processor` and `pruned_model` into vLLM's own classes. The
rest knows nothing of vLLM: what a server was started with and a request asks for (`settings`,
`served_methods`), the plan that goes to the model (`choice_plan`), the choice (`choosing`), and
positions (`picture_positions`).
"""

from tokencover.serving.architectures import (
    SERVED_MODELS,
    ServedModel,
    check_positions,
    find_served_model,
)
from tokencover.serving.served_methods import SERVED, make_served_method
from tokencover.serving.settings import SETTINGS_KEY, ServingSettings
from tokencover.serving.starting import (
    check_vllm,
    make_server_command,
    run_server,
    write_command,
)

__all__ = [
    "SERVED",
    "SERVED_MODELS",
    "SETTINGS_KEY",
    "ServedModel",
    "ServingSettings",
    "check_positions",
    "check_vllm",
    "find_served_model",
    "make_served_method",
    "make_server_command",
    "run_server",
    "write_command",
]
