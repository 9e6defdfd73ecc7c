"""Which models can be served, and under which names of ours an engine finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokencover.errors import InputError


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of the engine with pruning.

    Attributes
    ----------
    original : str
        What checkpoints call it, in ``config.architectures``.
    family : str
        The family of ours that knows where its tokens lie.
    several_axes : bool
        Whether positions are times, rows and columns.
    """

    original: str
    family: str
    several_axes: bool = False

    @property
    def name(self) -> str:
        """What an engine is asked for instead."""
        return f"TokenCover{self.original}"

    @property
    def place(self) -> str:
        """Where the class is, as engines write it."""
        return f"tokencover.serving.served_models:{self.name}"


SERVED_MODELS: Final = (
    ServedModel("LlavaForConditionalGeneration", "LLaVA-1.5"),
    ServedModel("LlavaNextForConditionalGeneration", "LLaVA-Next"),
    ServedModel("Qwen2VLForConditionalGeneration", "Qwen2-VL", several_axes=True),
    ServedModel("Qwen2_5_VLForConditionalGeneration", "Qwen2.5-VL", several_axes=True),
    ServedModel("Qwen3VLForConditionalGeneration", "Qwen3-VL", several_axes=True),
)


def find_served_model(architectures: Sequence[str] | None) -> ServedModel:
    """The one for a checkpoint, by its architectures; ours count too."""
    for model in SERVED_MODELS:
        if {model.original, model.name} & set(architectures or ()):
            return model
    known = ", ".join(model.original for model in SERVED_MODELS)
    raise InputError(
        f"a model of architecture {', '.join(architectures or ()) or 'unknown'} cannot be served "
        f"with pruning yet; these can: {known}."
    )


def check_positions(model: ServedModel, positions: str) -> None:
    """Refuse positions that a model cannot have, as `tc.prune` does."""
    if positions not in ("original", "reindex"):
        raise InputError(f"positions must be 'original' or 'reindex', got {positions!r}.")
    if positions == "reindex" and model.several_axes:
        raise InputError(
            f"positions of {model.family} are times, rows and columns, which cannot be numbered "
            "anew: use positions='original'."
        )
