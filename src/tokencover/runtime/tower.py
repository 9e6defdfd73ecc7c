"""Merging inside the vision tower.

Hooks before the tower's blocks shorten the states, so that later blocks run on fewer tokens. Behind
the tower every state is copied to all the tokens it stands for: projector, packing of tiles and all
else of the model work unchanged. Before decoder block 0 the runtime then keeps one visual token for
each group, the first in the order of the sequence.

This needs crops of one length that go through plain blocks and become visual tokens one to one:
LLaVA-1.5 and ViP-LLaVA, LLaVA-Next (images) and Video-LLaVA, with a CLIP or SigLIP tower. Families
that pack pictures of any size into one row (the Qwens) or fold several patches into one token are
refused.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods.base import Method, TowerChoice, TowerView
from tokencover.runtime.family import Family, Media
from tokencover.runtime.forward_pass import places_of
from tokencover.runtime.layout import Layout

CLASS_TOKENS = {"clip_vision_model": 1, "siglip_vision_model": 0}
"""The towers in which tokens can be merged, and how many class tokens they begin with."""

Hook = tuple[nn.Module, Any, bool]
"""A module, what to call, and whether before (else after) its forward."""


@dataclass(slots=True)
class TowerRun:
    """One forward pass of a tower.

    Attributes
    ----------
    groups : list of Tensor
        For each block that has run ``(c, n)`` int64: which token it saw for each first token.
    sizes : Tensor or None
        ``(c, m)`` int64, how many first tokens each token stands for now.
    keys : Tensor or None
        ``(c, m, heads * head_dim)``, of the block that has just run, if it is watched.
    seconds : float
        Time the method took.
    complete : bool
        Whether the tower came to its end.
    """

    groups: list[Tensor] = field(default_factory=list)
    sizes: Tensor | None = None
    keys: Tensor | None = None
    seconds: float = 0.0
    complete: bool = False


class Towers:
    """Makes the vision towers of a model run a method; what happened is kept for each thread.

    Parameters
    ----------
    model : nn.Module
        The whole model.
    family : Family
        Says where its towers are, and which of their tokens become which visual tokens.
    method : Method
        Merges before some tower blocks.
    """

    def __init__(self, model: nn.Module, family: Family, method: Method) -> None:
        self._method, self._family, self._model = method, family, model
        self._towers = [_Tower(model.get_submodule(path), method) for path in family.towers]
        self._local = threading.local()

    def hooks(self) -> Iterator[Hook]:
        """What must be put on the model."""
        for tower in self._towers:
            yield tower.module, functools.partial(self._begin, tower), True
            yield tower.module, self._spread, False
            for number, block in enumerate(tower.blocks):
                yield block, functools.partial(self._before_block, tower, number), True
                if number + 1 in tower.stages:
                    yield tower.attention(number).k_proj, self._record_keys, False

    # ---- what the session remembers of each encoder call ------------------------------------

    def remember(self, name: str) -> None:
        """Keep what the tower did as that of the images or of the videos; nothing if it failed."""
        run: TowerRun | None = getattr(self._local, "run", None)
        setattr(self._local, name, run if run is not None and run.complete else None)
        self._local.run = None

    def forget(self, name: str) -> None:
        """There are no such pictures, or the model is going to encode them."""
        setattr(self._local, name, None)

    def seconds(self) -> float:
        """Time the method took in the towers, for the latest pictures."""
        runs: list[TowerRun | None] = [
            getattr(self._local, name, None) for name in ("image", "video")
        ]
        return sum(run.seconds for run in runs if run is not None)

    def first_of_groups(self, input_ids: Tensor, media: Media) -> Tensor:
        """``(b, s)`` bool, False for visual tokens that repeat an earlier one of their group."""
        labels = (
            self._labels("image", media, media.images),
            self._labels("video", media, media.videos),
        )
        named = self._family.tower_tokens
        assert named is not None
        images, videos = (
            [Layout(each, each, each, each, (1, 1, len(each))) for each in tokens]
            for tokens in named(self._model.get_submodule(self._family.base), media, *labels)
        )
        ids = self._family.visual_ids(self._model.config)
        places = places_of(input_ids, ids, images, videos)
        return _first_of_each(torch.where(places.kind < 0, -1, 2 * places.kind + places.video))

    def _labels(self, name: str, media: Media, arguments: Any) -> Tensor | None:
        """``(c, n)`` int64 on the CPU, a number of its own for each group of each crop."""
        if arguments is None:
            return None
        run: TowerRun | None = getattr(self._local, name, None)
        if run is None:
            raise InputError(
                f"the {name} features did not come through the model's vision tower, so nothing "
                "was merged there: hand pixels to the model, not features made before."
            )
        groups = run.groups[_feature_block(media, arguments, len(run.groups))].cpu()
        return groups + groups.shape[1] * torch.arange(len(groups)).unsqueeze(-1)

    # ---- hooks ------------------------------------------------------------------------------

    def _begin(self, tower: _Tower, module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled() and any(
            block.training and getattr(block, "gradient_checkpointing", False)
            for block in tower.blocks
        ):
            raise InputError(
                f"{type(self._method).__name__} merges tokens inside the vision tower, whose blocks"
                " run a second time under gradient checkpointing: switch it off for the tower."
            )
        self._local.run = TowerRun()

    def _before_block(
        self, tower: _Tower, number: int, module: nn.Module, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]] | None:
        run: TowerRun | None = getattr(self._local, "run", None)
        if run is None:
            return None
        states, *others = args
        if run.sizes is None:
            run.sizes = torch.ones(states.shape[:2], dtype=torch.int64, device=states.device)
        before = run.groups[-1] if run.groups else _everyone(states)
        if number in tower.stages:
            choice = self._choose(tower, number, states, run)
            groups = choice.groups.to(states.device)
            merged = run.sizes.new_zeros(choice.states.shape[:2])
            run.sizes = merged.scatter_add(1, groups, run.sizes)
            before, states = groups.gather(1, before), choice.states
        run.groups.append(before)
        run.keys = None
        if not self._method.proportional_attention or states.shape[1] == before.shape[1]:
            return (states, *others), kwargs
        return _with_bias((states, *others), kwargs, run.sizes)

    def _choose(self, tower: _Tower, number: int, states: Tensor, run: TowerRun) -> TowerChoice:
        assert run.sizes is not None
        keys = functools.partial(tower.keys, number, run.keys)
        view = TowerView(number, len(tower.blocks), states, tower.classes, run.sizes, keys)
        begin = time.perf_counter()
        choice = self._method.choose_in_tower(view)
        run.seconds += time.perf_counter() - begin
        _check(choice, view)
        return choice

    def _record_keys(self, module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
        run: TowerRun | None = getattr(self._local, "run", None)
        if run is not None:
            run.keys = output.detach()

    def _spread(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        """Copy every state to all the tokens it stands for."""
        run: TowerRun | None = getattr(self._local, "run", None)
        if run is None or not run.groups:
            return output
        if isinstance(output, tuple):
            raise InputError("the vision tower gave a tuple: call the model with return_dict=True.")
        run.keys, run.complete = None, True
        output.last_hidden_state = _spread(output.last_hidden_state, run.groups[-1])
        if output.get("hidden_states") is not None:
            groups = [run.groups[0], *run.groups]  # the first state is what block 0 received
            pairs = zip(output.hidden_states, groups, strict=True)
            output.hidden_states = tuple(_spread(states, group) for states, group in pairs)
        return output


class _Tower:
    """One vision tower, checked to be one in which tokens can be merged."""

    def __init__(self, module: Any, method: Method) -> None:
        kind = getattr(module.config, "model_type", None)
        if kind not in CLASS_TOKENS:
            raise InputError(
                f"{type(method).__name__} merges tokens inside the vision tower, but nothing is "
                f"known of towers of type {kind!r}; known are {', '.join(CLASS_TOKENS)}."
            )
        attention = module.config._attn_implementation
        if method.proportional_attention and attention not in ("sdpa", "eager"):
            raise InputError(
                f"{type(method).__name__} adds to the attention of the vision tower, which "
                f"{attention!r} cannot: load the model with attn_implementation='sdpa'."
            )
        self.module: nn.Module = module
        self.classes = CLASS_TOKENS[kind]
        self.blocks: list[nn.Module] = list(module.encoder.layers)
        self.stages = checked_tower_blocks(method, len(self.blocks))

    def attention(self, number: int) -> Any:
        return self.blocks[number].self_attn

    def keys(self, number: int, recorded: Tensor | None) -> Tensor:
        if recorded is None:
            raise InputError(
                f"there are no keys before tower block {number}, because no block has run: merge "
                "before a later one, or by the states alone."
            )
        heads: int = self.attention(number - 1).num_heads
        keys: Tensor = recorded.unflatten(-1, (heads, -1)).transpose(1, 2)
        return keys


def towers_of(model: nn.Module, family: Family, method: Method) -> Towers | None:
    """The towers, if the method acts inside them.

    Raises
    ------
    InputError
        If it does, and this family's towers cannot be shortened.
    """
    config: Any = model.config
    vision = getattr(config, "vision_config", None)
    depth = getattr(vision, "num_hidden_layers", None) or getattr(vision, "depth", None)
    # Without a known depth the method is asked with a large one: it acts in the tower or not.
    wanted = method.tower_blocks(depth if isinstance(depth, int) else 1000)
    if len(wanted) == 0:
        return None
    if family.tower_tokens is None:
        raise InputError(
            f"{type(method).__name__} merges tokens inside the vision tower, which cannot be done "
            f"for {family.name}: its towers pack pictures of any size or fold several patches into "
            "one visual token. It works with LLaVA-1.5, ViP-LLaVA, LLaVA-Next and Video-LLaVA; "
            "elsewhere use a method that acts in the decoder, tc.MoB say."
        )
    return Towers(model, family, method)


def checked_tower_blocks(method: Method, depth: int) -> tuple[int, ...]:
    """The tower blocks that the method names, ascending and within the tower."""
    stages = tuple(method.tower_blocks(depth))
    if list(stages) != sorted(set(stages)) or any(not 0 <= each < depth for each in stages):
        raise InputError(
            f"{type(method).__name__} wants to merge before tower blocks {stages}: they must "
            f"ascend and lie between 0 and {depth - 1} in this model."
        )
    return stages


def _check(choice: TowerChoice, view: TowerView) -> None:
    groups, states = choice.groups, choice.states
    crops, tokens, width = view.states.shape
    where = f"before tower block {view.block}"
    if groups.dtype != torch.int64 or groups.shape != (crops, tokens):
        raise InputError(
            f"{where} groups have shape {tuple(groups.shape)} and type {groups.dtype}; expected "
            f"{(crops, tokens)} and torch.int64."
        )
    if states.dim() != 3 or (states.shape[0], states.shape[2]) != (crops, width):
        raise InputError(
            f"{where} merged states have shape {tuple(states.shape)}; expected "
            f"({crops}, new tokens, {width})."
        )
    count = states.shape[1]
    if bool(((groups < 0) | (groups >= count)).any()):
        raise InputError(
            f"{where} groups run from {int(groups.min())} to {int(groups.max())}, but there are "
            f"{count} merged states."
        )
    members = groups.new_zeros(crops, count).scatter_add(1, groups, torch.ones_like(groups))
    if not bool(members.all()):
        crop, empty = (members == 0).nonzero()[0].tolist()
        raise InputError(f"{where} new token {empty} of crop {crop} has no member.")
    classes = torch.arange(view.classes, device=groups.device)
    apart = groups[:, : view.classes] == classes
    if not bool(apart.all()) or bool((members[:, : view.classes] != 1).any()):
        raise InputError(
            f"{where} the first {view.classes} tokens are class tokens, which must stay alone and "
            f"first; their groups are {groups[:, : view.classes].tolist()}."
        )


def _everyone(states: Tensor) -> Tensor:
    """Each token on its own."""
    return torch.arange(states.shape[1], device=states.device).expand(states.shape[:2])


def _spread(states: Tensor, groups: Tensor) -> Tensor:
    if states.shape[1] == groups.shape[1] and torch.equal(groups, _everyone(states)):
        return states
    index = groups.to(states.device).unsqueeze(-1).expand(-1, -1, states.shape[-1])
    return states.gather(1, index)


def _with_bias(
    args: tuple[Any, ...], kwargs: dict[str, Any], sizes: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Add the logarithm of each token's size to the attention that it receives."""
    states = args[0]
    bias = sizes.to(states.device).float().log().to(states.dtype)[:, None, None, :]
    bias = bias.expand(-1, -1, states.shape[1], -1)
    if len(args) > 1:
        mask = bias if args[1] is None else args[1] + bias
        return (states, mask, *args[2:]), kwargs
    given = kwargs.get("attention_mask")
    return args, {**kwargs, "attention_mask": bias if given is None else given + bias}


def _feature_block(media: Media, arguments: Any, depth: int) -> int:
    """The tower block whose output becomes visual tokens.

    Where features of several blocks are joined (ViP-LLaVA) it is the deepest: tokens of one group
    may still differ in the features of earlier blocks, and those of the first member stand.
    """
    for name in ("vision_feature_layer", "vision_feature_layers"):
        layer = arguments.get(name)
        layer = getattr(media.config, name, None) if layer is None else layer
        if layer is not None:
            layers: Sequence[int] = [layer] if isinstance(layer, int) else layer
            return max(0, max(each % (depth + 1) for each in layers) - 1)
    return depth - 1


def _first_of_each(labels: Tensor) -> Tensor:
    """True where a value first occurs in its row, and where it is negative."""
    ordered, order = labels.sort(dim=-1, stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.zeros_like(first).scatter(1, order, first) | (labels < 0)
