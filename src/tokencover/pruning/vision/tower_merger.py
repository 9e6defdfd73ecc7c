"""Merging inside the vision tower.

Its blocks are run with shortened states, so that all that follows works on fewer tokens. After the
last block, and wherever the model takes the output of another one (DeepStack), every state is
copied to all the tokens it stands for: projector, packing of tiles, folding and all else of the
model work unchanged. Before decoder block 0 the runtime then keeps one visual token for each group,
the first in the order of the sequence.

What is merged is what becomes a visual token: a patch, as in the LLaVAs, or a square of patches, as
in InternVL and the Qwens (see `squares`). Crops may lie side by side and stay equally long, or each
picture may have a length of its own in one row (see `row`). There blocks are told which tokens
attend to each other, and how they are rotated: what they are told is shortened (see `tower_run`).
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
from tokencover.families import FAMILIES, Family, Media
from tokencover.methods import Method, VisionView
from tokencover.pruning.vision.encoder_calls import EncoderCalls
from tokencover.pruning.vision.row import begin_row, reshape_like
from tokencover.pruning.vision.tower_attention import check_whole
from tokencover.pruning.vision.tower_kinds import TOWER_KINDS
from tokencover.pruning.vision.tower_run import TowerRun, check_choice, mark_first
from tokencover.pruning.vision.vision_tower import (
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
        if not family.merges_in_vision_encoder:
            able = [each.name for each in FAMILIES if each.merges_in_vision_encoder]
            raise refuse_family(method, family, MERGING, able)
        self._method, self._family, self._config = method, family, model.config
        self._towers = VisionTowers(model, family, method, MERGING)
        for tower in self._towers.all:
            _check_blocks(tower, method)
            _check_attention(tower, method)
        self._stages = _find_blocks(method, self._towers.first)
        self._inside = method.inside_vision_blocks
        self.thread_state = threading.local()

    def list_hooks(self) -> Iterator[Hook]:
        """What must be put on the model."""
        for tower in self._towers.all:
            yield tower.module, functools.partial(self._begin, tower), True
            yield tower.module, self._finish, False
            for tap in tower.taps:
                yield tap, self._spread_tapped, True
            for number in self._find_watched():
                attention = tower.find_attention(number)
                for name, part in attention.parts.items():
                    yield part, functools.partial(self._record, name), False

    def list_wraps(self) -> Iterator[tuple[nn.Module, str, Callable[..., Any]]]:
        """Modules, the method of each that must be wrapped, and what sees its calls."""
        for tower in self._towers.all:
            for number, block in enumerate(tower.blocks):
                # accelerate puts a forward of its own on modules that it moves between devices.
                name = "_old_forward" if "_old_forward" in vars(block) else "forward"
                yield block, name, functools.partial(self._run_block, tower, number)

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
        self.thread_state.media = Media(self._config, images, videos)

    def remember(self, name: str) -> None:
        """Keep what the tower did as that of the images or of the videos; nothing if it failed."""
        run = self._get_run()
        setattr(self.thread_state, name, run if run is not None and run.complete else None)
        self.thread_state.run = self.thread_state.media = None

    def forget(self, name: str) -> None:
        """There are no such pictures, or the model is going to encode them."""
        setattr(self.thread_state, name, None)

    @property
    def seconds(self) -> float:
        """Time the method took in the towers, for the latest pictures."""
        runs: list[TowerRun | None] = [
            getattr(self.thread_state, name, None) for name in ("image", "video")
        ]
        return sum(run.seconds for run in runs if run is not None)

    def mark_first_of_groups(self, calls: EncoderCalls) -> Tensor:
        """``(b, s)`` bool, False for visual tokens that repeat an earlier one of their group."""
        media = calls.media
        images = None if media.images is None else self._label_groups("image")
        videos = None if media.videos is None else self._label_groups("video")
        carried = self._towers.carry(calls, images, videos)
        labels = 2 * carried.numbers + carried.video
        return mark_first(torch.where(carried.numbers < 0, -1, labels))

    def spread_now(self, output: Tensor) -> Tensor:
        """Copy what an attention computes, ``(m, w)``, to all that its tokens stand for."""
        run = self._get_run()
        return output if run is None else run.spread(run.attended, output)

    def _label_groups(self, name: str) -> Tensor:
        """``(c, n)`` int64 on the CPU, a number of its own for each group of each crop.

        Where features of several blocks are joined (ViP-LLaVA, DeepStack) groups are those of the
        deepest: tokens of one group may still differ in the features of earlier blocks, and those
        of the first member stand.
        """
        run: TowerRun | None = getattr(self.thread_state, name, None)
        if run is None:
            raise refuse_features(name)
        groups = [crop for each in run.passed[self._towers.first.feature_block].groups
                  for crop in each.cpu()]  # fmt: skip
        table = nn.utils.rnn.pad_sequence(groups, batch_first=True)
        return table + table.shape[1] * torch.arange(len(table)).unsqueeze(-1)

    def _get_run(self) -> TowerRun | None:
        run: TowerRun | None = getattr(self.thread_state, "run", None)
        return run

    # ---- hooks ------------------------------------------------------------------------------

    def _begin(self, tower: VisionTower, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.thread_state.run = None
        if getattr(self.thread_state, "media", None) is None:  # another model that shares the tower
            return
        if torch.is_grad_enabled() and any(
            block.training and getattr(block, "gradient_checkpointing", False)
            for block in tower.blocks
        ):
            raise InputError(
                f"{type(self._method).__name__} merges tokens inside the vision tower, whose blocks"
                " run a second time under gradient checkpointing: switch it off for the tower."
            )
        named = next(name for name in ("pixel_values", "hidden_states") if args or name in kwargs)
        pixels = args[0] if args else kwargs[named]
        sets = self._towers.find_crop_sets(tower, self.thread_state.media, pixels)
        self.thread_state.run = TowerRun(begin_row(sets, pixels.device))

    def _run_block(
        self,
        tower: VisionTower,
        number: int,
        original: Callable[..., Any],
        hidden_states: Tensor,
        *mask: Tensor | None,
        **kwargs: Any,
    ) -> Any:
        """The forward of a block, merging before it or between its two halves."""
        run, halves = self._get_run(), tower.kind.halves
        if run is None or halves is None:
            return original(hidden_states, *mask, **kwargs)
        states, stage = hidden_states, number in self._stages
        if mask:
            kwargs["attention_mask"] = mask[0]
        if number == 0:
            run.check_length(states)
        if stage and not self._inside:
            states = self._merge(tower, number, states, run)
        states, kwargs = run.prepare(states, kwargs, self._method.proportional_attention)
        # A block that takes no mask cannot be told of sizes: it runs by halves, too.
        if (stage and self._inside) or (run.bias is not None and not tower.kind.takes_mask):
            given = kwargs.pop("attention_mask", None)
            block: Any = tower.blocks[number]
            states = halves.attend(block, states, _add_bias(given, run.bias, states), kwargs)
            if stage and self._inside:
                states = self._merge(tower, number, states, run)
            output = halves.feed(block, states)
        else:
            if run.bias is not None:
                kwargs["attention_mask"] = _add_bias(kwargs.get("attention_mask"), run.bias, states)
            output = original(states, **kwargs)
        return run.finish_block(number, tower.depth, output)

    def _merge(self, tower: VisionTower, number: int, states: Tensor, run: TowerRun) -> Tensor:
        """Ask the method what to merge in each set of crops; give the merged states."""
        where = f"{'inside' if self._inside else 'before'} tower block {number}"
        groups, merged, changed = [], [], False
        for part, own in enumerate(run.row.cut(states.flatten(0, -2))):
            squares = run.row.sets[part].squares
            view = self._make_view(tower, number, squares.join(own), run, part)
            begin = time.perf_counter()
            choice = self._method.merge_in_vision_encoder(view)
            run.seconds += time.perf_counter() - begin
            check_choice(choice, view, where)
            changed = changed or choice.hidden_states is not view.hidden_states
            groups.append(choice.groups)
            merged.append(choice.hidden_states)
        if not changed:
            return states
        run.row = run.row.merge(groups, [each.shape[1] for each in merged])
        parted = [each.squares.part(new) for each, new in zip(run.row.sets, merged, strict=True)]
        return reshape_like(run.row.order(parted), states)

    def _make_view(
        self, tower: VisionTower, number: int, states: Tensor, run: TowerRun, part: int
    ) -> VisionView:
        crops, members = run.row.sets[part], run.row.groups[part]
        attended = number if self._inside else number - 1
        return VisionView(
            block=number,
            num_blocks=tower.depth,
            hidden_states=states,
            classes=tower.classes,
            sizes=run.row.count_members()[part].to(states.device),
            grid=(crops.squares.rows, crops.squares.columns),
            crops=crops.pictures,
            feature_block=tower.feature_block,
            members=members.to(states.device),
            keys=functools.partial(run.find_keys, tower, attended, part),
            attention=functools.partial(run.find_attention, tower, attended, part),
        )

    def _record(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
        run = self._get_run()
        if run is not None:
            check_whole(module, output)
            run.projections[name] = output.detach()

    def _spread_tapped(
        self, module: nn.Module, args: Any, kwargs: Any
    ) -> tuple[Any, dict[str, Any]] | None:
        """Copy the output of a block that the model takes, before it does."""
        run = self._get_run()
        if run is None:
            return None
        states, *others = args
        return (run.spread(run.row, states), *others), kwargs

    def _finish(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        """Copy every state that was collected on the way to all the tokens it stands for."""
        run = self._get_run()
        if run is None or not run.passed:
            return output
        if isinstance(output, tuple):
            raise InputError("the vision tower gave a tuple: call the model with return_dict=True.")
        run.projections, run.told, run.bias, run.complete = {}, {}, None, True
        if output.get("hidden_states") is not None:
            rows = [run.first, *run.passed[:-1], run.first]  # the last block's were copied then
            # From transformers 5.23 on, hidden states that the model does not use are None.
            pairs = zip(rows, output.hidden_states, strict=True)
            output.hidden_states = tuple(
                None if states is None else run.spread(row, states) for row, states in pairs
            )
        return output


def _add_bias(mask: Tensor | None, bias: Tensor | None, states: Tensor) -> Tensor | None:
    """What is added to products of queries and keys, towards larger tokens ``(m,)``.

    Side by side crops, ``(c, t, d)``, have ``(c, 1, t, t)`` of it.
    """
    if bias is None:
        return mask
    if states.dim() == 3:
        rows = bias.view(len(states), 1, 1, -1)
        bias = rows.expand(-1, -1, states.shape[1], -1)
    return bias if mask is None else mask + bias


def _find_blocks(method: Method, tower: VisionTower) -> tuple[int, ...]:
    """The tower blocks that the method names, ascending and within the tower."""
    stages = tuple(method.vision_blocks(tower.depth, tower.feature_block))
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
