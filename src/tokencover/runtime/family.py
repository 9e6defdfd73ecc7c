"""What the runtime must know about a model family, and nothing else about any model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tokencover.runtime.layout import Layout


@dataclass(frozen=True, slots=True)
class Media:
    """The pictures and videos of one forward pass, as the model's encoder was called for them.

    Attributes
    ----------
    config : Any
        The model's configuration.
    images, videos : Mapping or None
        The arguments of ``get_image_features`` and ``get_video_features``: pixels, grids, sizes.
        None if there was no such call.
    """

    config: Any
    images: Mapping[str, Any] | None = None
    videos: Mapping[str, Any] | None = None


TowerTokens = Callable[
    [nn.Module, Media, Tensor | None, Tensor | None], tuple[list[Tensor], list[Tensor]]
]
"""Carries numbers of tower tokens to visual tokens, see `Family`."""


@dataclass(frozen=True, slots=True)
class Family:
    """Where a family of models keeps what matters.

    Paths are dotted names below the model that ``from_pretrained`` returns.

    Attributes
    ----------
    name : str
        What users call it.
    model_types : tuple of str
        The ``config.model_type`` values it serves.
    layouts : callable
        Gives, for the media of a pass, the layout of every image and of every video, in the order
        in which their features come. A layout has one entry for each of its visual tokens.
    base : str
        The multimodal model that receives ``input_ids`` and pixels.
    decoder : str
        The text model; its blocks are in ``layers``.
    towers : tuple of str
        The vision towers.
    projector : str
        From the tower's width to the decoder's.
    deepstack : bool
        Whether visual features are added again after the first blocks (Qwen3-VL).
    several_axes : bool
        Whether positions are rows, columns and times (M-RoPE), so that they cannot be numbered
        anew.
    tiles : bool
        Whether pictures come as a base view and tiles of it.
    tower_tokens : callable, optional
        ``tower_tokens(base, media, images, videos)`` carries any numbers of the tower's tokens,
        each ``(crops, tokens)`` int64 or None, to the visual tokens that they become: a tensor for
        each image and for each video, negative where a visual token is not from the tower. None
        where tower tokens do not become visual tokens one to one.
    """

    name: str
    model_types: tuple[str, ...]
    layouts: Callable[[Media], tuple[list[Layout], list[Layout]]]
    base: str = "model"
    decoder: str = "model.language_model"
    towers: tuple[str, ...] = ("model.vision_tower",)
    projector: str = "model.multi_modal_projector"
    deepstack: bool = False
    several_axes: bool = False
    tiles: bool = False
    tower_tokens: TowerTokens | None = None

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        """The decoder's blocks, in order."""
        return list(model.get_submodule(f"{self.decoder}.layers").children())

    def visual_ids(self, config: Any) -> list[int]:
        """The token ids that stand for pieces of a picture or video."""
        names = ("image_token_id", "video_token_id")
        return [value for name in names if (value := getattr(config, name, None)) is not None]
