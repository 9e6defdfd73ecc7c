"""Merging inside the vision tower.

Hooks before the tower's blocks, or between their two halves, shorten the states, so that all that
follows runs on fewer tokens. After the tower every state is copied to all the tokens it stands
for: projector, packing of tiles and all else of the model work unchanged. Before decoder block 0
the runtime then keeps one visual token for each group, the first in the order of the sequence.

This needs crops of one length that go through plain blocks (those of CLIP, SigLIP and DINOv2) and
become visual tokens one to one, as in the LLaVAs, or square by square, as in InternVL, where it is
squares that are merged (see `squares`). Families that pack pictures of any size into one row and
rotate queries and keys by the places of patches (the Qwens) are refused: a merged patch has none.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Method, TowerView
from tokencover.runtime.families import FAMILIES, Family, Media, TowerFacts
from tokencover.runtime.tower.encoder_calls import EncoderCalls
from tokencover.runtime.tower.squares import Squares
from tokencover.runtime.tower.tower_kinds import TOWER_KINDS, TowerAttention
from tokencover.runtime.tower.tower_run import (
    TowerRun,
    add_bias,
    check_choice,
    count_members,
    mark_first,
    weigh_sizes,
)
from tokencover.runtime.tower.vision_tower import (
    Hook,
    VisionTower,
    VisionTowers,
    refuse_family,
    refuse_features,
)

MERGING = "merges tokens inside the vision tower"


class TowerMerger:
    """Makes the vision towers of a model run a method; what happened is kept for each thread.

    Parameters
    ----------
    model : nn.Module
        The whole model.
    family : Family
        Says where its towers are, and which of their tokens become which visual tokens.
    method : Method
        Merges before, or inside, some tower blocks.

    Raises
    ------
    InputError
        If this family's towers cannot be shortened.
    """

    def __init__(self, model: nn.Module, family: Family, method: Method) -> None:
        if not family.merges_tower:
            able = [each.name for each in FAMILIES if each.merges_tower]
            raise refuse_family(method, family, MERGING, able)
        self._method, self._family, self._config = method, family, model.config
        self._towers = VisionTowers(model, family, method, MERGING)
        for tower in self._towers.all:
            _check_blocks(tower, method)
            _check_attention(tower, method)
        self._stages = _find_blocks(method, self._towers.first)
        self._inside = method.inside_tower_blocks
        self._local = threading.local()

    def list_hooks(self) -> Iterator[Hook]:
        """What must be put on the model."""
        for tower in self._towers.all:
            yield tower.module, functools.partial(self._begin, tower), True
            yield tower.module, self._spread, False
            for number, block in enumerate(tower.blocks):
                yield block, functools.partial(self._before_block, tower, number), True
            for number in self._find_watched():
                attention = tower.find_attention(number)
                for name, part in attention.parts.items():
                    yield part, functools.partial(self._record, attention, name), False

    def list_wraps(self) -> Iterator[tuple[nn.Module, str, Callable[..., Any]]]:
        """Modules, the method of each that must be wrapped, and what sees its calls."""
        if not self._inside:
            return
        for tower in self._towers.all:
            # A block that takes no mask cannot be told of sizes: it runs by halves, too.
            takes_mask = tower.kind.takes_mask or not self._method.proportional_attention
            for number in self._stages if takes_mask else range(tower.depth):
                block = tower.blocks[number]
                # accelerate puts a forward of its own on modules that it moves between devices.
                name = "_old_forward" if "_old_forward" in vars(block) else "forward"
                yield block, name, functools.partial(self._run_in_halves, tower, number)

    def list_watched(self) -> list[nn.Module]:
        """The blocks whose inner modules have hooks."""
        return [
            tower.blocks[number] for tower in self._towers.all for number in self._find_watched()
        ]

    def _find_watched(self) -> list[int]:
        stages = self._stages
        return list(stages) if self._inside else [each - 1 for each in stages if each > 0]

    # ---- what the session tells of each encoder call ----------------------------------------

    def expect(self, name: str, arguments: dict[str, Any]) -> None:
        """Pictures are going to be encoded with these arguments."""
        self._towers.check_feature_layer(arguments)
        images, videos = (arguments if name == kind else None for kind in ("image", "video"))
        self._local.media = Media(self._config, images, videos)

    def remember(self, name: str) -> None:
        """Keep what the tower did as that of the images or of the videos; nothing if it failed."""
        run = self._get_run()
        setattr(self._local, name, run if run is not None and run.complete else None)
        self._local.run = self._local.media = None

    def forget(self, name: str) -> None:
        """There are no such pictures, or the model is going to encode them."""
        setattr(self._local, name, None)

    @property
    def seconds(self) -> float:
        """Time the method took in the towers, for the latest pictures."""
        runs: list[TowerRun | None] = [
            getattr(self._local, name, None) for name in ("image", "video")
        ]
        return sum(run.seconds for run in runs if run is not None)

    def mark_first_of_groups(self, calls: EncoderCalls) -> Tensor:
        """``(b, s)`` bool, False for visual tokens that repeat an earlier one of their group."""
        media = calls.media
        images = None if media.images is None else self._label_groups("image")
        videos = None if media.videos is None else self._label_groups("video")
        if self._family.folding is None:
            carried = self._towers.carry(calls.input_ids, media, images, videos)
        else:
            tower = self._towers.first
            crops = calls.place_crops(TowerFacts(tower.classes, tower.window))
            labels = torch.cat([each.flatten() for each in (images, videos) if each is not None])
            pictures = (
                [torch.where(each < 0, -1, labels[each]) for each in kind]
                for kind in (crops.images, crops.videos)
            )
            carried = self._towers.spread(calls.input_ids, *pictures)
        labels = 2 * carried.numbers + carried.video
        return mark_first(torch.where(carried.numbers < 0, -1, labels))

    def spread_now(self, attention: TowerAttention, output: Tensor) -> Tensor:
        """Copy what a block computes to all the tokens each of its tokens stands for."""
        run = self._get_run()
        if run is None:
            return output
        groups = run.groups[-1]
        return run.squares.spread(attention.cut_crops(output, len(groups)), groups)

    def _label_groups(self, name: str) -> Tensor:
        """``(c, n)`` int64 on the CPU, a number of its own for each group of each crop.

        Where features of several blocks are joined (ViP-LLaVA) groups are those of the deepest:
        tokens of one group may still differ in the features of earlier blocks, and those of the
        first member stand.
        """
        run: TowerRun | None = getattr(self._local, name, None)
        if run is None:
            raise refuse_features(name)
        groups = run.groups[self._towers.first.feature_block].cpu()
        return groups + groups.shape[1] * torch.arange(len(groups)).unsqueeze(-1)

    def _get_run(self) -> TowerRun | None:
        run: TowerRun | None = getattr(self._local, "run", None)
        return run

    # ---- hooks ------------------------------------------------------------------------------

    def _begin(self, tower: VisionTower, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._local.run = None
        if getattr(self._local, "media", None) is None:  # another model that shares the tower
            return
        if torch.is_grad_enabled() and any(
            block.training and getattr(block, "gradient_checkpointing", False)
            for block in tower.blocks
        ):
            raise InputError(
                f"{type(self._method).__name__} merges tokens inside the vision tower, whose blocks"
                " run a second time under gradient checkpointing: switch it off for the tower."
            )
        self._local.run = TowerRun(
            self._find_squares(tower, args[0] if args else kwargs["pixel_values"])
        )

    def _find_squares(self, tower: VisionTower, pixels: Tensor) -> Squares:
        """What becomes a visual token, in each of the crops."""
        rows, columns = tower.grid(pixels)
        if self._family.folding is None:
            return Squares(rows, columns, 1, tower.classes)
        images, videos = self._family.layouts(self._local.media)
        _, tall, wide = [*images, *videos][0].shape
        if (tall * (rows // tall), wide * (rows // tall)) != (rows, columns):
            raise InputError(
                f"{rows} x {columns} patches do not become {tall} x {wide} visual tokens evenly: "
                "prepare the picture with the model's own processor."
            )
        return Squares(tall, wide, rows // tall, tower.classes)

    def _before_block(
        self, tower: VisionTower, number: int, module: nn.Module, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]] | None:
        run = self._get_run()
        if run is None:
            return None
        states, *others = args
        if number == 0:
            states = run.squares.arrange(states)
        run.groups.append(run.groups[-1] if run.groups else run.squares.group_alone(states))
        if number in self._stages and not self._inside:
            states = self._merge(tower, number, states, run)
        if number == 0:
            run.received = run.groups[0]
        run.projections, run.bias = {}, None
        whole = run.squares.count(states) == run.groups[-1].shape[1]
        if not self._method.proportional_attention or whole:
            return (states, *others), kwargs
        run.bias = weigh_sizes(run.squares.repeat(run.count_sizes(states)), states)
        return add_bias((states, *others), kwargs, run.bias)

    def _run_in_halves(
        self,
        tower: VisionTower,
        number: int,
        original: Callable[..., Any],
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """The forward of a block, with merging between its two halves."""
        run, halves = self._get_run(), tower.kind.halves
        if run is None or halves is None:
            return original(hidden_states, attention_mask, **kwargs)
        block: Any = tower.blocks[number]
        attended = halves.attend(block, hidden_states, attention_mask, kwargs)
        if number in self._stages:
            attended = self._merge(tower, number, attended, run)
        return halves.feed(block, attended)

    def _merge(self, tower: VisionTower, number: int, states: Tensor, run: TowerRun) -> Tensor:
        """Ask the method what to merge; give the merged states."""
        view = self._make_view(tower, number, run.squares.join(states), run)
        begin = time.perf_counter()
        choice = self._method.choose_in_tower(view)
        run.seconds += time.perf_counter() - begin
        check_choice(choice, view, f"{'inside' if self._inside else 'before'} tower block {number}")
        groups = choice.groups.to(states.device)
        run.groups[-1] = groups.gather(1, view.members)
        return run.squares.part(choice.states)

    def _make_view(
        self, tower: VisionTower, number: int, states: Tensor, run: TowerRun
    ) -> TowerView:
        members = run.groups[-1]
        if run.crops is None:
            run.crops = self._count_crops(members)
        attended = number if self._inside else number - 1
        return TowerView(
            block=number,
            depth=tower.depth,
            states=states,
            classes=tower.classes,
            sizes=count_members(members, states.shape[1]),
            grid=(run.squares.rows, run.squares.columns),
            crops=run.crops,
            feature_block=tower.feature_block,
            members=members,
            keys=functools.partial(run.keys, tower, attended),
            attention=functools.partial(run.attention, tower, attended),
        )

    def _count_crops(self, members: Tensor) -> tuple[int, ...]:
        media: Media = self._local.media
        if self._family.folding is not None:
            return tuple(each.shape[0] for kind in self._family.layouts(media) for each in kind)
        return self._towers.count_crops(media, *members.shape)

    def _record(
        self,
        attention: TowerAttention,
        name: str,
        module: nn.Module,
        args: Any,
        kwargs: Any,
        output: Tensor,
    ) -> None:
        run = self._get_run()
        if run is not None:
            crops = len(run.groups[-1])
            run.projections[name] = attention.cut_crops(output.detach(), crops)

    def _spread(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        """Copy every state to all the tokens it stands for."""
        run = self._get_run()
        if run is None or run.received is None:
            return output
        if isinstance(output, tuple):
            raise InputError("the vision tower gave a tuple: call the model with return_dict=True.")
        run.projections, run.bias, run.complete = {}, None, True
        spread = run.squares.spread
        output.last_hidden_state = spread(output.last_hidden_state, run.groups[-1])
        if output.get("hidden_states") is not None:
            pairs = zip(output.hidden_states, [run.received, *run.groups], strict=True)
            output.hidden_states = tuple(spread(states, groups) for states, groups in pairs)
        return output


def _find_blocks(method: Method, tower: VisionTower) -> tuple[int, ...]:
    """The tower blocks that the method names, ascending and within the tower."""
    stages = tuple(method.tower_blocks(tower.depth, tower.feature_block))
    if list(stages) != sorted(set(stages)) or any(not 0 <= each < tower.depth for each in stages):
        raise InputError(
            f"{type(method).__name__} wants to merge at tower blocks {stages}: they must ascend "
            f"and lie between 0 and {tower.depth - 1} in this model."
        )
    return stages


def _check_blocks(tower: VisionTower, method: Method) -> None:
    config: Any = tower.module.config
    if tower.kind.halves is None:
        able = [name for name, kind in TOWER_KINDS.items() if kind.halves is not None]
        raise InputError(
            f"{type(method).__name__} {MERGING}, but the blocks of towers of type "
            f"{config.model_type!r} are not known well enough; known are {', '.join(able)}."
        )


def _check_attention(tower: VisionTower, method: Method) -> None:
    config: Any = tower.module.config
    attention = config._attn_implementation
    if method.proportional_attention and attention not in ("sdpa", "eager"):
        raise InputError(
            f"{type(method).__name__} adds to the attention of the vision tower, which "
            f"{attention!r} cannot: load the model with attn_implementation='sdpa'."
        )
