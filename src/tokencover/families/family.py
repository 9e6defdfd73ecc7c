"""What the runtime must know about a model family, and which family a model belongs to.

A model that cannot be pruned exactly is refused. Dropping a token is the same as hiding it where
every block attends to all tokens before it; and a block of linear attention or a convolution is
what it would be for a prompt without the token. A window would count positions in the shortened
sequence, and see other tokens than it should, unless its mask is cut from one for the whole text; a
family says that this was tested for its models. A fault would stay invisible while the prompt is
shorter than the window, so the configuration decides.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from tokencover.errors import InputError, TokenCoverError
from tokencover.families.folding import Folding
from tokencover.families.layout import Layout, Media
from tokencover.families.refusals import REFUSALS
from tokencover.families.versions import read_version
from tokencover.methods import Method
from tokencover.registry import Registry

FULL = "full_attention"
RECURRENT = ("linear_attention", "conv")
"""Blocks that take in one token after the other, and keep a state instead of keys and values."""
WINDOWS = ("sliding_attention", "chunked_attention")
"""Kinds of blocks that see only the newest tokens, or those of one chunk."""
WINDOWED_TEXTS = ("mistral", "ministral3")
"""Text models with optional windows that are tested, whatever family they belong to."""
WINDOW_MASK = "create_sliding_window_causal_mask"
"""What the file of a text model imports from transformers if it makes use of windows."""
WHY = "but pruning is exact only where every block attends to all tokens before it"
CROSS_SETTINGS = (
    "is_encoder_decoder",
    "add_cross_attention",
    "cross_attention_layers",
    "cross_layer_interval",
)

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
    norm : str
        The decoder's last norm, below the decoder.
    towers : tuple of str
        The vision towers.
    projector : str
        From the tower's width to the decoder's.
    deepstack : bool
        Whether visual features are added again after the first blocks (Qwen3-VL).
    added_features : bool
        Whether the decoder is handed visual features to add before some blocks (Granite 4 Vision).
    several_axes : bool
        Whether positions are rows, columns and times (M-RoPE), so that they cannot be numbered
        anew.
    windows : bool
        Whether blocks may attend in windows or chunks: their masks are cut from the model's own.
    both_directions : bool
        Whether tokens of a picture, or of a whole prompt, see those after them too; masks are cut
        from the model's own then.
    scales_by_place : bool
        Whether some blocks scale queries by their places, which they count themselves (Llama 4).
    frames_as_images : bool
        Whether a prompt writes the frames of a video with image tokens (GLM-4V).
    tiles : bool
        Whether pictures come as a base view and tiles of it.
    call_names : tuple of str
        Arguments of the multimodal model that `layouts` needs beside those of its encoders.
    reads_attention : bool
        Whether methods can ask its blocks for keys and rows of attention; not if they project
        queries and keys in a way of their own.
    tower_tokens : callable, optional
        ``tower_tokens(base, media, images, videos)`` carries any numbers of the tower's tokens,
        each ``(crops, tokens)`` int64 or None, to the visual tokens that they become: a tensor for
        each image and for each video, negative where a visual token is not from the tower. None
        where tower tokens do not become visual tokens one to one.
    folding : Folding, optional
        Which patches of the tower make which visual token, where several make one. With neither
        this nor `tower_tokens` nothing can be read from the tower.
    merges_squares : bool
        Whether squares of patches, folded later, can be merged: no block masks or mixes crops.
    class_token : bool
        Whether the towers of its models begin with a class token.
    encodes_singly : bool
        Whether the features of a picture or clip are the same whichever others are encoded with it,
        its pixels being a row of the encoder's only tensor.
    needs : Mapping
        For those of `model_types` that need a newer transformers than the lowest that tokencover
        takes, the version from which on they can be pruned, such as "5.21".
    kin : tuple of str
        Those of `model_types` that run the code of another one and are tested by their layouts and
        module paths only. All others are tested by value.
    """

    name: str
    model_types: tuple[str, ...]
    layouts: Callable[[Media], tuple[list[Layout], list[Layout]]]
    base: str = "model"
    decoder: str = "model.language_model"
    norm: str = "norm"
    towers: tuple[str, ...] = ("model.vision_tower",)
    projector: str = "model.multi_modal_projector"
    deepstack: bool = False
    added_features: bool = False
    several_axes: bool = False
    windows: bool = False
    both_directions: bool = False
    scales_by_place: bool = False
    frames_as_images: bool = False
    tiles: bool = False
    call_names: tuple[str, ...] = ()
    reads_attention: bool = True
    tower_tokens: TowerTokens | None = None
    folding: Folding | None = None
    merges_squares: bool = False
    class_token: bool = False
    encodes_singly: bool = False
    needs: Mapping[str, str] = field(default_factory=dict, hash=False)
    kin: tuple[str, ...] = ()

    @property
    def reads_tower(self) -> bool:
        """Whether methods can be shown what the vision tower computed."""
        return self.tower_tokens is not None or self.folding is not None

    @property
    def merges_tower(self) -> bool:
        """Whether methods can merge tokens inside the vision tower."""
        return self.tower_tokens is not None or self.merges_squares

    @property
    def masks_of_its_own(self) -> bool:
        """Whether blocks may see more, or less, than all tokens before them."""
        return self.windows or self.both_directions

    @property
    def renumbers(self) -> bool:
        """Whether kept tokens can be numbered anew in all of its models."""
        return not (self.several_axes or self.masks_of_its_own)

    def find_lack(self, model_type: str) -> str | None:
        """Say which transformers models of a type need, None if the one installed will do."""
        from transformers import __version__

        needs = self.needs.get(model_type, "0.0")
        if read_version(__version__) >= read_version(needs):
            return None
        return f"it needs transformers {needs} or later, and {__version__} is installed"

    def layers(self, model: nn.Module) -> list[nn.Module]:
        """The decoder's blocks, in order."""
        return list(model.get_submodule(f"{self.decoder}.layers").children())

    def visual_ids(self, config: Any, kinds: Collection[str] = ("image", "video")) -> list[int]:
        """The token ids that stand for pieces of such pictures."""
        if self.frames_as_images and kinds:
            kinds = ("image",)
        asked = [kind for kind in ("image", "video") if kind in kinds]
        found = [getattr(config, f"{kind}_token_id", None) for kind in asked]
        return [token for token in found if token is not None]


def _read_name(family: object) -> str:
    """The name that a family is registered by."""
    if not isinstance(family, Family):
        raise InputError(f"a model family must be a Family(...), got {family!r}.")
    return family.name


FAMILIES: Registry[Family] = Registry("model family", "tokencover.families", _read_name)
"""All families, in the order in which they are listed to users."""


class UnsupportedModelError(TokenCoverError):
    """The object is no model that tokencover can prune."""


def family_of(model: Any) -> Family:
    """Find the family of a model.

    Parameters
    ----------
    model : PreTrainedModel
        A vision-language model with its language-model head, as ``from_pretrained`` returns it.

    Returns
    -------
    Family
        Where the model keeps what matters.

    Raises
    ------
    UnsupportedModelError
        If it is no such model, its attention cannot be pruned exactly, or no family knows it.
    """
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if not isinstance(model_type, str) and isinstance(getattr(model, "module", None), nn.Module):
        raise UnsupportedModelError(
            f"{_describe(model)} wraps the model: prune its .module, then call the wrapper."
        )
    if not isinstance(model, nn.Module) or not isinstance(model_type, str):
        raise UnsupportedModelError(
            f"expected a loaded vision-language model, not {_describe(model)}; load it first with "
            f"from_pretrained, for example AutoModelForImageTextToText.from_pretrained(name)"
        )
    found = next((family for family in FAMILIES if model_type in family.model_types), None)
    reason = find_attention_fault(model, found)
    if found is not None:
        reason = found.find_lack(model_type) or reason
    if reason is None and found is not None:
        reason = find_missing_module(found, model)
    if reason is None and found is not None:
        return found
    reason = reason or REFUSALS.get(model_type, "no family knows this model type")
    raise UnsupportedModelError(
        f"cannot prune {type(model).__name__} (model_type {model_type!r}): {reason}. Supported "
        f"families, with their model types: {list_supported()}"
    )


def find_refused() -> dict[str, str]:
    """The image-text-to-text types of transformers that no family serves, each with its reason."""
    claimed = {name for family in FAMILIES for name in family.model_types}
    return {name: reason for name, reason in REFUSALS.items() if name not in claimed}


def list_supported() -> str:
    """The families with the model types of each, for messages."""
    return "; ".join(f"{family.name} ({', '.join(family.model_types)})" for family in FAMILIES)


def _describe(value: Any) -> str:
    """A short description: a string itself, of all else the class."""
    return f"the string {value!r}" if isinstance(value, str) else f"a {type(value).__name__}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A family that a method runs on.

    Attributes
    ----------
    family : Family
        The family.
    as_published : bool
        False if the method must be given ``positions="original"`` there, because the family's
        positions or windows cannot be numbered anew.
    """

    family: Family
    as_published: bool


def find_claims(method: type[Method]) -> list[Claim]:
    """The families that a method runs on, in the order in which they are listed to users."""
    needs = set(method.card.needs)
    anew = method.positions == "reindex"
    return [
        Claim(family, as_published=not (anew and not family.renumbers))
        for family in FAMILIES
        if _has(family, needs) and (family.reads_attention or not _asks(method))
        if not (family.masks_of_its_own and method.looks_ahead)
    ]


def _asks(method: type[Method]) -> bool:
    """Whether a method asks decoder blocks for keys or attention."""
    return method.watched_layers is not Method.watched_layers or method.looks_ahead


def _has(family: Family, needs: set[str]) -> bool:
    offers = {
        "vision attention": family.reads_tower,
        "vision merging": family.merges_tower,
        "class token": family.class_token,
        "tiles": family.tiles,
    }
    return all(offered for name, offered in offers.items() if name in needs)


# ---- why a model cannot be pruned exactly ----------------------------------------------------


def find_attention_fault(model: nn.Module, family: Family | None = None) -> str | None:
    """Say what in the attention of the text stack forbids pruning, None if nothing does."""
    config: Any = model.config
    text = getattr(config, "text_config", None) or config
    fault = _find_cross_attention(config) or _find_cross_attention(text)
    if fault is None and not (family and family.both_directions):
        fault = _find_not_causal(config) or _find_not_causal(text)
    windows = family is not None and (family.windows or text.model_type in WINDOWED_TEXTS)
    fault = fault or _find_not_full(text, model, windows)
    return fault or _find_biased_convolution(text)


def needs_own_masks(family: Family, model: nn.Module) -> bool:
    """Whether the masks of a model must be cut from those that it makes for the whole text."""
    config: Any = model.config
    text = getattr(config, "text_config", None) or config
    return family.both_directions or _find_not_full(text, model, windows=False) is not None


def find_missing_module(family: Family, model: nn.Module) -> str | None:
    """Say which module of the family the model lacks, None if all are there."""
    paths = (family.base, f"{family.decoder}.layers", *family.towers, family.projector)
    for path in paths:
        try:
            model.get_submodule(path)
        except AttributeError:
            return (
                f"it has no module {path!r}; load the whole model with its language-model head, "
                f"take it out of any wrapper, and see that its text stack is one this family knows"
            )
    return None


def find_block_kinds(decoder: Any) -> list[str]:
    """What each block of a text model is, in the words of transformers' ``layer_types``."""
    kinds = getattr(decoder.config, "layer_types", None)
    return list(kinds) if kinds else [FULL] * len(decoder.layers)


def is_recurrent(kind: str) -> bool:
    """Whether blocks of this kind take in one token after the other."""
    return kind in RECURRENT


def _find_cross_attention(config: Any) -> str | None:
    for name in CROSS_SETTINGS:
        if value := getattr(config, name, None):
            return (
                f"{name} is {value!r}: its text reads the picture through cross-attention, so there"
                f" are no visual tokens in the sequence to drop"
            )
    return None


def _find_not_causal(config: Any) -> str | None:
    for name, causal in (("is_causal", True), ("use_bidirectional_attention", False)):
        value = getattr(config, name, None)
        if value is not None and bool(value) is not causal:
            return f"{name} is {value!r}: its attention is not causal"
    return None


def _find_not_full(text: Any, model: nn.Module, windows: bool) -> str | None:
    """Say what is not full attention, None if all is; windows may pass."""
    fine = (FULL, *RECURRENT, *WINDOWS) if windows else (FULL, *RECURRENT)
    types = getattr(text, "layer_types", None)
    if types:
        others = Counter(kind for kind in types if kind not in fine)
        found = ", ".join(f"{kind!r} in {count}" for kind, count in others.items())
        return f"layer_types has {found} of {len(types)} blocks, {WHY}" if others else None
    window = getattr(text, "sliding_window", None)
    if windows or window is None or not _uses_windows(model):
        return None
    return f"sliding_window is {window!r}, {WHY}"


def _find_biased_convolution(text: Any) -> str | None:
    if "conv" in (getattr(text, "layer_types", None) or ()) and getattr(text, "conv_bias", False):
        return "conv_bias is True: its convolutions take in what fills up shorter rows of a batch"
    return None


def _uses_windows(model: nn.Module) -> bool:
    """Whether the text stack has windows; a setting that it never reads means nothing."""
    names = [name for name, _ in model.named_modules() if name.endswith("self_attn")]
    found = [model.get_submodule(name) for name in names]
    files = [sys.modules[type(attention).__module__] for attention in found]
    return not found or any(hasattr(file, WINDOW_MASK) for file in files)
