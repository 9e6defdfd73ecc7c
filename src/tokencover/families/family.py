"""A model family: where its modules are, and how visual tokens are laid out; types of text models.

`tokencover.families.registry` has the list of families, and rejects models that cannot be pruned
exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tokencover.budget import LayerCost, block_cost
from tokencover.families.folding import Folding
from tokencover.families.layout import Layouts, Media

if TYPE_CHECKING:
    from tokencover.pruning.hooks import Hooks
    from tokencover.pruning.passes import Pass

VisionTokenMap = Callable[
    [nn.Module, Media, Tensor | None, Tensor | None], tuple[list[Tensor], list[Tensor]]
]
"""Maps numbers of the vision encoder's tokens to visual tokens, see `Family`."""
GetPass = Callable[[], "Pass | None"]
"""Gets the pass under way, or of a layer that gradient checkpointing runs again; else None."""
DecoderHooks = Callable[[nn.Module, "Hooks", GetPass], None]
"""Registers hooks on a decoder, see `Family`."""


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models with the same modules and the same layout of visual tokens.

    Paths are dotted names below the model that ``from_pretrained`` returns.

    Attributes
    ----------
    name : str
        What users call it.
    model_types : tuple of str
        The supported values of ``config.model_type``.
    layouts : callable
        ``layouts(media)`` returns the layout of every image and of every video of a pass, in the
        order of their features. A layout has one entry for each visual token.
    base : str
        The multimodal model that receives ``input_ids`` and pixels.
    decoder : str
        The text model; its layers are in ``layers``.
    norm : str
        The decoder's last norm, below the decoder.
    vision_encoders : tuple of str
        The vision encoders.
    projector : str
        From the width of the vision encoder to that of the decoder.
    several_axes : bool
        Whether position IDs are rows, columns and times (M-RoPE), so they cannot be renumbered.
    windows : bool
        Whether layers may attend in windows or chunks. Their masks are then cut from the masks of
        the whole sequence.
    both_directions : bool
        Whether tokens of an image, or of a whole prompt, also attend to later ones. Masks are then
        cut from the masks of the whole sequence.
    frames_as_images : bool
        Whether a prompt has image tokens for the frames of a video (GLM-4V).
    tiles : bool
        Whether images have a base view and tiles.
    call_names : tuple of str
        Arguments of the multimodal model that `layouts` needs beside those of its encoders.
    token_arguments : tuple of str
        Arguments of decoder layers with one entry per token, beside those of Llama (ERNIE 4.5 VL).
    decoder_hooks : callable, optional
        ``decoder_hooks(decoder, hooks, get_pass)`` registers hooks that a pruned sequence needs,
        for decoders that use the whole sequence in other places than Llama. Hooks before a layer
        run before tokens are dropped there.
    reads_attention : bool
        Whether methods can read keys and attention of its layers. False if they compute queries and
        keys in another way than Llama.
    map_vision_tokens : callable, optional
        ``map_vision_tokens(base, media, images, videos)`` maps any numbers of the vision encoder's
        tokens, each ``(tiles, tokens)`` int64 or None, to the visual tokens that they become: one
        tensor for each image and for each video, negative where a visual token is not from the
        vision encoder. None if its tokens do not become visual tokens one to one.
    folding : Folding, optional
        Which patches make which visual token, where several make one. Without this and
        `map_vision_tokens`, methods cannot read the vision encoder.
    merges_squares : bool
        Whether squares of patches that become one token can be merged: no block masks tiles or
        mixes them.
    class_token : bool
        Whether the vision encoder has a class token.
    encodes_singly : bool
        Whether the features of an image or video do not depend on the others in the call, and its
        pixels are a row of the only tensor of the call.
    needs : Mapping
        For those of `model_types` that need a newer transformers than the lowest supported one, the
        first version that works, such as "5.21".
    variants : tuple of str
        Those of `model_types` that run the code of another one, and are tested by their layouts and
        module paths only. All others are numerically verified.
    """

    name: str
    model_types: tuple[str, ...]
    layouts: Callable[[Media], Layouts]
    base: str = "model"
    decoder: str = "model.language_model"
    norm: str = "norm"
    vision_encoders: tuple[str, ...] = ("model.vision_tower",)
    projector: str = "model.multi_modal_projector"
    several_axes: bool = False
    windows: bool = False
    both_directions: bool = False
    frames_as_images: bool = False
    tiles: bool = False
    call_names: tuple[str, ...] = ()
    token_arguments: tuple[str, ...] = ()
    decoder_hooks: DecoderHooks | None = None
    reads_attention: bool = True
    map_vision_tokens: VisionTokenMap | None = None
    folding: Folding | None = None
    merges_squares: bool = False
    class_token: bool = False
    encodes_singly: bool = False
    needs: Mapping[str, str] = field(default_factory=dict, hash=False)
    variants: tuple[str, ...] = ()

    @property
    def reads_vision_encoder(self) -> bool:
        """Whether methods can read the vision encoder."""
        return self.map_vision_tokens is not None or self.folding is not None

    @property
    def merges_in_vision_encoder(self) -> bool:
        """Whether methods can merge tokens in the vision encoder."""
        return self.map_vision_tokens is not None or self.merges_squares

    @property
    def has_own_masks(self) -> bool:
        """Whether layers may attend to more, or fewer, than all earlier tokens."""
        return self.windows or self.both_directions

    @property
    def renumbers(self) -> bool:
        """Whether kept tokens can be renumbered in all of its models."""
        return not (self.several_axes or self.has_own_masks)

    def explain_version_fault(self, model_type: str) -> str | None:
        """Why the installed transformers cannot run models of a type, None if it can."""
        from transformers import __version__

        needs = self.needs.get(model_type, "0.0")
        if read_version(__version__) >= read_version(needs):
            return None
        return f"it needs transformers {needs} or later, and {__version__} is installed"

    def layers(self, model: nn.Module) -> list[nn.Module]:
        """The decoder's layers, in order."""
        return list(model.get_submodule(f"{self.decoder}.layers").children())

    def visual_ids(self, config: Any, kinds: Collection[str] = ("image", "video")) -> list[int]:
        """The ids of image and video tokens."""
        if self.frames_as_images and kinds:
            kinds = ("image",)
        wanted = [kind for kind in ("image", "video") if kind in kinds]
        ids = [getattr(config, f"{kind}_token_id", None) for kind in wanted]
        return [token for token in ids if token is not None]

    def install(self, model: nn.Module, hooks: Hooks, get_pass: GetPass) -> None:
        """Register the hooks that models of this family need while they are pruned."""
        decoder = model.get_submodule(self.decoder)
        if self.several_axes:
            hooks.before(decoder, partial(_fill_mask, get_pass))
        if self.decoder_hooks is not None:
            self.decoder_hooks(decoder, hooks, get_pass)


def _fill_mask(
    get_pass: GetPass, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Give a decoder with M-RoPE a mask that no token is padding, if it has no mask.

    Without mask and cache, transformers looks for packed documents in the position IDs. Those of an
    image (Cosmos 3 Edge: its times) look like many documents that are hidden from each other, so
    layers before the first pruning layer would get another mask than those after it.
    """
    current = get_pass()
    if current is None or not current.tokens.has_visual:
        return None
    if any(kwargs.get(name) is not None for name in ("attention_mask", "past_key_values")):
        return None
    states = kwargs.get("inputs_embeds")
    if states is None:
        return None
    return args, {**kwargs, "attention_mask": states.new_ones(states.shape[:2], dtype=torch.int64)}


def read_version(text: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    major, minor, *_ = text.split(".")
    return int(major), int(minor)


# ---- what differs between text models, by `text_config.model_type`; families share them ---------


@dataclass(frozen=True, slots=True)
class TextModel:
    """Differences from a Llama-like text model.

    If it `rotates_windows_only`, layers with full attention do not rotate queries and keys; if it
    `hides_rotations`, they get no rotary embedding. `active_experts` names the setting with the
    number of experts per token, `skipped_modules` parts of module names that text tokens skip.
    """

    has_tested_windows: bool = False
    rotates_windows_only: bool = False
    hides_rotations: bool = False
    active_experts: str = "num_experts_per_tok"
    skipped_modules: tuple[str, ...] = ()


TEXT_MODELS = {
    "aria_text": TextModel(active_experts="moe_topk"),
    "cohere2": TextModel(rotates_windows_only=True),
    "cohere_compass_text": TextModel(rotates_windows_only=True, hides_rotations=True),
    "ernie4_5_vl_moe_text": TextModel(skipped_modules=("vision_moe",)),
    "exaone4": TextModel(rotates_windows_only=True),
    # All experts compute all tokens; the outputs of a few are added.
    "llama4_text": TextModel(active_experts="num_local_experts"),
    "ministral3": TextModel(has_tested_windows=True),
    "mistral": TextModel(has_tested_windows=True),
}
_LLAMA_LIKE = TextModel()


def get_text_model(config: Any) -> TextModel:
    """The differences of a text model, from its configuration."""
    return TEXT_MODELS.get(getattr(config, "model_type", ""), _LLAMA_LIKE)


def compute_block_cost(layers: Sequence[nn.Module], config: Any) -> LayerCost:
    """FLOPs of one decoder layer (the mean, where layers differ); `config` is the decoder's."""
    text = get_text_model(config)
    active = getattr(config, text.active_experts, None)
    return block_cost(layers, active_experts=active, skipped_modules=text.skipped_modules)
