"""What a method may see: data of the place where it acts, never the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

from tokencover.budget import LayerCost


class Keys(Protocol):
    """See `View.keys`."""

    def __call__(
        self, block: int, places: Tensor | None = None, *, rotated: bool = False
    ) -> Tensor:
        """Keys of the visual tokens, or of other places, in a watched block."""


@dataclass(frozen=True, slots=True)
class View:
    """The tokens of a batch before a decoder block. Only samples with visual tokens are shown.

    Shapes: ``b`` samples, ``n`` visual tokens of the largest, ``l`` prompt words of the longest,
    ``t`` text tokens of the longest, ``s`` tokens of the whole sequence. Rows are filled from the
    left; the masks say how far.

    Attributes
    ----------
    layer_idx : int
        The decoder block about to run; 0 is before the decoder.
    num_layers : int
        Number of decoder blocks.
    hidden_states : Tensor
        ``(b, n, d)``, states of the visual tokens that may be dropped.
    mask : Tensor
        ``(b, n)`` bool, which of them exist.
    prompt : Tensor
        ``(b, l, d)``, states of the prompt words: the user's own words.
    prompt_mask : Tensor
        ``(b, l)`` bool.
    prompt_positions : Tensor
        ``(b, l)`` int64, place of each prompt word in the whole sequence; -1 where there is none.
    text : Tensor
        ``(b, t, d)``, states of everything after the first visual token that is not visual: the
        user's words after the picture, and the chat template around them.
    text_mask, text_positions : Tensor
        ``(b, t)``, as for the prompt words.
    last : Tensor
        ``(b,)`` int64, place of the last token of each sample: the row that predicts the answer.
    positions : Tensor
        ``(b, n)`` int64, place of each visual token in the whole sequence.
    total : Tensor
        ``(b,)`` int64, number of visual tokens that could be dropped at the very beginning.
    others : Tensor
        ``(b,)`` int64, number of all other tokens of the sample; every block works on them.
    medium, frame, row, column, kind : Tensor
        ``(b, n)`` int64: which image or video of the sample, and where in it (see
        `tokencover.families.layout`); -1 where a token has no place.
    video : Tensor
        ``(b, n)`` bool, whether the token belongs to a video.
    keys : callable
        ``keys(block)`` gives ``(b, kv_heads, n, head_dim)``, the keys of the visual tokens in a
        watched block; ``keys(block, places)`` those of other tokens, ``(b, q)`` int64 places in the
        whole sequence, -1 for none. Before their rotation, unless ``rotated=True``.
    attention : callable
        ``attention(block, queries)`` gives ``(b, heads, q, n)``: the attention weights that a
        watched block gives the visual tokens, for chosen query rows only, float32. `queries` is
        ``(b, q)`` int64, places in the whole sequence; -1 for no row gives zeros. The softmax is
        over everything the row can see, tokens in the cache included. The block has run, or is the
        one about to run: then it is what it would attend to with nothing dropped.
    ahead : callable
        ``ahead(blocks, queries)``: the attention weights, shaped like those of `attention`, that
        the last of some other decoder blocks would give if they ran on the sequence as it is now;
        a number stands for a block of the model itself.
    norm : callable
        The decoder's final norm, for states of any shape ``(..., d)``.
    cost : LayerCost
        What a decoder block costs.
    notes : dict
        Empty when a pass begins; what a method writes at one place it finds again at the next.
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


def _leave(values: Tensor) -> Tensor:
    return values


def _see_all(block: int) -> Tensor | None:
    return None


@dataclass(frozen=True, slots=True)
class VisionOutputs:
    """What the vision tower computed, crop by crop.

    Shapes: ``c`` crops (images, tiles or frames of all samples), ``t`` tokens of each, class tokens
    first, the others are its cells; ``p`` tokens that the tower worked on, ``w`` the tower's width.

    Where each cell is one of the tower's patches, ``p`` is ``t``. Where the model folds several
    patches into one visual token, that token is the cell: what is computed of patches is folded the
    same way, by `fold`, and the features are those of the visual tokens as the decoder gets them.

    If the method merges inside the tower, features, queries and keys are those of the tokens as
    they are in that block, copied to all of the ``t`` first tokens that each stands for; so `index`
    is valid for all of them. A softmax over all ``t`` counts a merged token once for each copy;
    among the tokens of the view there is one copy at most. Gradients flow through features alone,
    and only if the method merges.

    Attributes
    ----------
    features : Tensor
        ``(c, t, w)``, what becomes visual tokens; class tokens included, though the model drops
        them. Zeros beyond the cells of a crop that is smaller than others.
    classes : int
        How many class tokens stand before the others; 0 for SigLIP and the Qwens.
    num_blocks : int
        Number of the tower's blocks.
    feature_block : int
        The block whose output `features` is.
    scaling : float
        What the tower's attention multiplies products of queries and keys by.
    index : Tensor
        ``(b, n)`` int64, for each visual token of the view its place in ``c * t``, that is, crop
        times ``t`` plus token; -1 where it does not come from the tower.
    queries, keys : callable
        Give ``(c, heads, p, head_dim)`` of a block in `Method.watched_vision_blocks`, not scaled;
        rotated, if the vision encoder rotates them.
    project : callable
        From features ``(..., w)`` to states ``(..., d)`` of the decoder.
    fold : callable
        From values of patches ``(..., p - classes)`` of all crops, the first axis, to those of
        cells ``(..., t - classes)``: the mean over the patches of each.
    segments : callable
        Gives, for a tower block, ``(c, p)`` int64: tokens of a crop attend to those of the same
        number only (windows), and -1 is no token. None if all of a crop attend to all of it.
    passes_classes : bool
        Whether class tokens have features and could become visual tokens; not where patches are
        folded.
    tiles : bool
        Whether the crops of an image after its first are tiles of it; otherwise each crop is a
        picture of its own.
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
    fold: Callable[[Tensor], Tensor] = _leave
    segments: Callable[[int], Tensor | None] = _see_all
    passes_classes: bool = True
    tiles: bool = True


@dataclass(frozen=True, slots=True)
class VisionView:
    """The tokens inside a vision tower: before one of its blocks, or between its two halves.

    Shapes: ``c`` crops (images, tiles or frames of the whole batch), ``n`` tokens of each, all
    crops alike. The prompt is not known here.

    Attributes
    ----------
    block : int
        The tower block about to run, or, for methods that act inside blocks, the one whose
        attention has run and whose feed-forward network has not.
    num_blocks : int
        Number of tower blocks.
    hidden_states : Tensor
        ``(c, n, d)``, class tokens first.
    classes : int
        How many class tokens stand before the others; they must stay alone and first.
    sizes : Tensor
        ``(c, n)`` int64, how many of the tower's first tokens each one stands for.
    grid : tuple of int
        Rows and columns of the tower's first tokens, class tokens apart.
    crops : tuple of int
        Number of crops of each picture of the call, in order: 1 for plain images, base view and
        tiles, or the frames of a video. Their sum is ``c``.
    feature_block : int
        The block whose output becomes visual tokens.
    members : Tensor
        ``(c, classes + rows * columns)`` int64, which of the ``n`` tokens each of the tower's first
        tokens is part of.
    keys : callable
        Gives ``(c, heads, n, head_dim)``, the keys of the attention that ran last; there are none
        before block 0.
    attention : callable
        Gives ``(c, n, n)`` float32, the weights of that attention, mean over heads.
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
