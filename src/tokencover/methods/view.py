"""What a method reads: data of the layer at which it prunes, never the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

from tokencover.budget import LayerCost


class Keys(Protocol):
    """See `View.keys`."""

    def __call__(
        self, layer: int, positions: Tensor | None = None, /, *, rotated: bool = False
    ) -> Tensor:
        """Return keys of the visual tokens, or of other positions, in a watched layer."""


@dataclass(frozen=True, slots=True)
class View:
    """The tokens of a batch before a decoder layer. It holds only samples with visual tokens.

    Shapes: ``b`` samples; ``n``, ``l`` and ``t`` are the largest numbers of visual tokens, prompt
    tokens and text tokens of a sample; ``s`` is the length of the whole sequence. Samples are
    padded on the right; the masks mark real entries. A sequence position counts all tokens of the
    sample, -1 for padding.

    Attributes
    ----------
    layer_idx : int
        The decoder layer about to run; 0 is before the decoder.
    num_layers : int
        Number of decoder layers.
    hidden_states : Tensor
        ``(b, n, d)``, of the visual tokens that may be dropped.
    mask : Tensor
        ``(b, n)`` bool, which of them exist.
    prompt : Tensor
        ``(b, l, d)``, hidden states of the prompt tokens: the text of the last user turn, without
        the chat template.
    prompt_mask : Tensor
        ``(b, l)`` bool.
    prompt_positions : Tensor
        ``(b, l)`` int64, their sequence positions.
    text : Tensor
        ``(b, t, d)``, hidden states of all text after the first visual token, chat template
        included.
    text_mask, text_positions : Tensor
        ``(b, t)``, as for the prompt tokens.
    last : Tensor
        ``(b,)`` int64, sequence position of the last token, which predicts the answer.
    positions : Tensor
        ``(b, n)`` int64, sequence positions of the visual tokens.
    total : Tensor
        ``(b,)`` int64, number of visual tokens before any pruning that could be dropped.
    others : Tensor
        ``(b,)`` int64, number of all other tokens of the sample; every layer processes them.
    medium, frame, row, column, kind : Tensor
        ``(b, n)`` int64, grid location: which image or video of the sample, and where in it (see
        `tokencover.families.layout`); -1 for tokens without a location.
    video : Tensor
        ``(b, n)`` bool, whether the token belongs to a video.
    keys : callable
        ``keys(layer)`` returns ``(b, kv_heads, n, head_dim)``, the keys of the visual tokens in a
        watched layer; ``keys(layer, positions)`` those of other tokens, by ``(b, q)`` sequence
        positions. Without rotary embedding, unless ``rotated=True``.
    attention : callable
        ``attention(layer, queries)`` returns ``(b, heads, q, n)`` float32, the attention weights
        from ``(b, q)`` sequence positions to the visual tokens in a watched layer; zeros for
        position -1. The softmax is over all tokens that the query attends to, cached ones
        included. The layer is the one that ran last, an earlier one, or the one about to run: then
        the weights are those it would compute if nothing were dropped.
    ahead : callable
        ``ahead(layers, queries)`` returns the attention weights, shaped like those of `attention`,
        in the last of some layers when all of them are run on the current sequence. A layer is a
        module, or the index of one of the model's layers.
    norm : callable
        The decoder's final norm, for hidden states of any shape ``(..., d)``.
    cost : LayerCost
        FLOPs of a decoder layer.
    notes : dict
        Empty at the start of a pass; a method can pass values from one pruning layer to the next.
    vision : VisionOutputs or None
        What the vision encoder computed, if `Method.watched_vision_blocks` requests it.
    """

    layer_idx: int
    num_layers: int
    hidden_states: Tensor
    mask: Tensor
    prompt: Tensor
    prompt_mask: Tensor
    prompt_positions: Tensor
    text: Tensor
    text_mask: Tensor
    text_positions: Tensor
    last: Tensor
    positions: Tensor
    total: Tensor
    others: Tensor
    medium: Tensor
    frame: Tensor
    row: Tensor
    column: Tensor
    kind: Tensor
    video: Tensor
    keys: Keys
    attention: Callable[[int, Tensor], Tensor]
    ahead: Callable[[Sequence[nn.Module | int], Tensor], Tensor]
    norm: Callable[[Tensor], Tensor]
    cost: LayerCost
    notes: dict[str, Any] = field(default_factory=dict)
    vision: VisionOutputs | None = None


def _identity(values: Tensor) -> Tensor:
    return values


def _no_segments(block: int) -> Tensor | None:
    return None


@dataclass(frozen=True, slots=True)
class VisionOutputs:
    """What the vision encoder computed, crop by crop.

    A crop is one input of the vision encoder: an image, a base view, a tile or a video frame.

    Shapes: ``c`` crops of all samples, ``t`` tokens of each, class tokens first, then its cells;
    ``p`` tokens that the vision encoder processed, ``w`` its hidden size.

    A cell is what becomes one visual token: a patch, and then ``p`` is ``t``; or several patches
    that the model merges into one (spatial merge). `fold` averages values of patches over cells.

    If the method merges in the vision encoder, features, queries and keys are those of the tokens
    in that block, copied to all of the ``t`` original tokens that each represents, so `index` is
    valid for all. A softmax over all ``t`` counts a merged token once per copy; the visual tokens
    of the view have one copy at most. Gradients flow only through features, if the method merges.

    Attributes
    ----------
    features : Tensor
        ``(c, t, w)``, what becomes visual tokens; includes class tokens, even if the model drops
        them. Zeros beyond the cells of a smaller crop.
    classes : int
        Number of class tokens; 0 for SigLIP and Qwen-VL.
    num_blocks : int
        Number of blocks of the vision encoder.
    feature_block : int
        The block that outputs `features`.
    scaling : float
        Scale of the products of queries and keys in the vision encoder's attention.
    index : Tensor
        ``(b, n)`` int64, for each visual token its index in ``c * t`` (crop times ``t`` plus
        token); -1 for tokens that do not come from the vision encoder.
    queries, keys : callable
        From a block in `Method.watched_vision_blocks` to ``(c, heads, p, head_dim)``, not scaled;
        with rotary embedding if the vision encoder has one.
    project : callable
        From features ``(..., w)`` to hidden states ``(..., d)`` of the decoder.
    fold : callable
        From values of patches ``(c, ..., p - classes)`` to the mean of each cell
        ``(c, ..., t - classes)``.
    segments : callable
        From a block to ``(c, p)`` int64: tokens attend only to tokens of the same crop and number
        (windows); -1 is padding. None if all tokens of a crop attend to each other.
    passes_classes : bool
        Whether class tokens have features and could become visual tokens; False with a spatial
        merge.
    tiles : bool
        Whether the crops of an image after the first are tiles of it; otherwise every crop is a
        separate image.
    """

    features: Tensor
    classes: int
    num_blocks: int
    feature_block: int
    scaling: float
    index: Tensor
    queries: Callable[[int], Tensor]
    keys: Callable[[int], Tensor]
    project: Callable[[Tensor], Tensor]
    fold: Callable[[Tensor], Tensor] = _identity
    segments: Callable[[int], Tensor | None] = _no_segments
    passes_classes: bool = True
    tiles: bool = True


@dataclass(frozen=True, slots=True)
class VisionView:
    """The tokens inside a vision encoder: before a block, or between its attention and its MLP.

    Shapes: ``c`` crops (images, tiles or frames of the whole batch), ``n`` tokens of each. The
    prompt is not known here.

    Attributes
    ----------
    block : int
        The block about to run, or, for methods that merge inside blocks, the one whose attention
        has run and whose feed-forward network has not.
    num_blocks : int
        Number of blocks of the vision encoder.
    hidden_states : Tensor
        ``(c, n, d)``, class tokens first.
    classes : int
        Number of class tokens; they must remain unmerged and first.
    sizes : Tensor
        ``(c, n)`` int64, how many original tokens each token represents.
    grid : tuple of int
        Rows and columns of the original tokens, without class tokens.
    crops : tuple of int
        Number of crops of each image of the call, in order: 1 for plain images, base view and
        tiles, or the frames of a video. Their sum is ``c``.
    feature_block : int
        The block whose output becomes visual tokens.
    members : Tensor
        ``(c, classes + rows * columns)`` int64, the token that each original token is part of.
    keys : callable
        Returns ``(c, heads, n, head_dim)``, the keys of the attention that ran last; not available
        before block 0.
    attention : callable
        Returns ``(c, n, n)`` float32, the weights of that attention, mean over heads.
    """

    block: int
    num_blocks: int
    hidden_states: Tensor
    classes: int
    sizes: Tensor
    grid: tuple[int, int]
    crops: tuple[int, ...]
    feature_block: int
    members: Tensor
    keys: Callable[[], Tensor]
    attention: Callable[[], Tensor]
