"""The models and methods that an engine can serve with pruning.

Methods must act once, before the decoder, on one image at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokencover.budget import CouplingSplit, OnlineSplit, PaperSplit, rule_of
from tokencover.errors import InputError
from tokencover.methods import METHODS, BudgetedMethod, Method, make_method, parse_method


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of the engine with pruning.

    `original` is its name in ``config.architectures`` of checkpoints, `family` the name of its
    model family, `several_axes` whether it has multi-axis position IDs (M-RoPE).
    """

    original: str
    family: str
    several_axes: bool = False

    @property
    def name(self) -> str:
        """The architecture that the engine loads instead."""
        return f"TokenCover{self.original}"


SERVED_MODELS: Final = (
    ServedModel("LlavaForConditionalGeneration", "LLaVA-1.5"),
    ServedModel("LlavaNextForConditionalGeneration", "LLaVA-Next"),
    ServedModel("Qwen2VLForConditionalGeneration", "Qwen2-VL", several_axes=True),
    ServedModel("Qwen2_5_VLForConditionalGeneration", "Qwen2.5-VL", several_axes=True),
    ServedModel("Qwen3VLForConditionalGeneration", "Qwen3-VL", several_axes=True),
)


def get_served_model(architectures: Sequence[str] | None) -> ServedModel:
    """Return the model for the architectures of a checkpoint; names with our prefix count too."""
    for model in SERVED_MODELS:
        if {model.original, model.name} & set(architectures or ()):
            return model
    known = ", ".join(model.original for model in SERVED_MODELS)
    raise InputError(
        f"Cannot serve models of architecture {', '.join(architectures or ()) or 'unknown'} with "
        f"pruning. Supported: {known}."
    )


def validate_positions(model: ServedModel, positions: str) -> None:
    """Raise an error for positions that a model does not support."""
    if positions not in ("original", "reindex"):
        raise InputError(f"positions must be 'original' or 'reindex', got {positions!r}.")
    if positions == "reindex" and model.several_axes:
        raise InputError(
            f"{model.family} does not support positions='reindex' because it has multi-axis "
            "position IDs (M-RoPE). Use positions='original'."
        )


SERVED: Final = (
    "mob",
    "nearest",
    "farthest",
    "divprune",
    "cdpruner",
    "random",
    "grid",
    "downsample",
)
"""The methods that requests may name."""
_SERVED_NAMES: Final = ", ".join(SERVED)

REQUEST_SPLITS: Final = ("paper", "strong", "weak", "balanced", "auto")
"""The splits that requests may name: none of them reads a file."""

_ANY_NUM_LAYERS: Final = 64
_ANY_ENCODER: Final = (24, 22)


def build_served_method(
    spec: str | Mapping[str, Any],
    *,
    budget: int | float,
    positions: str = "original",
    split: str | None = None,
    profile: str | None = None,
) -> BudgetedMethod:
    """Build the method that a server runs.

    `spec` is ``mob:split=weak``, or the same as JSON. A method that can prune after some decoder
    layers prunes before the decoder, whatever its default is. `budget`, a count or fraction per
    image, and MoB's `split`, a name or "coupling", are used if the spec has none. `positions` are
    those of the server, `profile` is the file for ``split="coupling"``.
    """
    settings = dict(parse_method(spec) if isinstance(spec, str) else spec)
    kind = METHODS[str(settings.get("method"))]
    fields = getattr(kind, "__dataclass_fields__", {})
    settings.setdefault("budget", budget)
    if "after" in fields and kind.watched_layers is Method.watched_layers:
        settings.setdefault("after", 0)
    if "per" in fields:
        settings["per"] = "image"
    if settings.setdefault("positions", positions) != positions:
        raise InputError(
            f"positions={settings['positions']!r} in {spec!r} differs from this server's "
            f"positions={positions!r}, which is fixed when the model is loaded. Leave it out."
        )
    if split is not None or profile is not None:
        if "split" in settings:
            raise InputError(
                f"{spec!r} and {'profile' if split is None else 'split'}={split or profile!r} "
                "both set the split. Pass one of them."
            )
        settings["split"] = _resolve_split(split, profile)
    return validate_served(make_method(settings))


def _resolve_split(split: str | None, profile: str | None) -> str | dict[str, Any] | None:
    """Return the rule of split and profile, with the threshold of the profile."""
    if profile is None:
        if split == CouplingSplit.name:
            raise InputError(
                "split='coupling' needs a profile of this model. Pass --profile FILE, which "
                "`tokencover calibrate --after 0` writes."
            )
        return split
    if split not in (None, "coupling"):
        raise InputError(f"A profile requires split='coupling', got split={split!r}.")
    rule = CouplingSplit(profile)
    rule.check(0)
    if rule.tau is None:  # one group: the table without a prior
        return {"rule": PaperSplit.name}
    return {"rule": CouplingSplit.name, "profile": rule.tau}


def validate_served(method: Method) -> BudgetedMethod:
    """Raise an error for a method that needs more than the tokens of one image and the prompt."""
    name = method.name
    if not isinstance(method, BudgetedMethod):
        raise InputError(f"Cannot serve {name}: it has no budget. Use {_SERVED_NAMES}.")
    if tuple(method.pruning_layers(_ANY_NUM_LAYERS)) != (0,):
        raise InputError(
            f"Cannot serve {name}: it prunes inside the decoder, where the engine's KV cache "
            "already has all tokens. Pass after=0 if it has that setting, or use "
            f"{_SERVED_NAMES}."
        )
    needs_model = (
        method.watched_layers(_ANY_NUM_LAYERS)
        or method.looks_ahead
        or method.watched_vision_blocks(*_ANY_ENCODER) is not None
        or method.vision_blocks(*_ANY_ENCODER)
    )
    if needs_model:
        raise InputError(
            f"Cannot serve {name}: it reads attention or the inside of the vision encoder, which "
            f"the engine does not provide. Use {_SERVED_NAMES}."
        )
    if method.budget_mode != "exact":
        raise InputError(
            f"budget_mode={method.budget_mode!r} is not supported: before the decoder all modes "
            "are the same. Use 'exact'."
        )
    split = getattr(method, "split", None)
    if split is not None and isinstance(rule_of(split), OnlineSplit):
        raise InputError(
            "split='online' adapts between requests, so equal requests would get different answers "
            "and caches would be wrong. Use split='coupling' with a profile."
        )
    return method


def validate_request(settings: Mapping[str, Any]) -> None:
    """Raise an error for settings that a request may not make.

    A request names a method and plain settings. What could read a file or build other objects is
    reserved for the server.
    """
    name = settings.get("method")
    if name not in SERVED:
        raise InputError(f"Method {name!r} is not available on this server. Use {_SERVED_NAMES}.")
    for key, value in settings.items():
        if key == "split" and value not in REQUEST_SPLITS:
            raise InputError(
                f"split={value!r} is not allowed in a request. Use {', '.join(REQUEST_SPLITS)}."
            )
        if not isinstance(value, str | int | float):
            raise InputError(f"{key}={value!r} is not a string or number.")
