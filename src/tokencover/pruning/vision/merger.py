"""Merging inside the vision encoder.

Its blocks run on shortened hidden states. After the last block, and wherever the model takes the
output of another one (DeepStack), every state is copied to all the tokens that it stands for, so
projector, tiles and spatial merge work unchanged. Before decoder layer 0 one visual token remains
per group, the first in the sequence.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.families import FAMILIES, Family, Media
from tokencover.methods import Method, VisionMerge, VisionView
from tokencover.pruning.passes import CallState
from tokencover.pruning.vision.encoder import (
    VISION_ENCODER_TYPES,
    Hook,
    VisionEncoder,
    VisionEncoders,
    build_family_error,
    build_features_error,
)
from tokencover.pruning.vision.encoder_calls import EncoderCalls
from tokencover.pruning.vision.merged_row import MergingRun, build_row, count_members, reshape_like
from tokencover.pruning.vision.vision_attention import check_whole

MERGING = "merges tokens in the vision encoder"


class VisionMerger:
    """Runs a merging method in the vision encoders of a model."""

    def __init__(self, model: nn.Module, family: Family, method: Method, state: CallState) -> None:
        if not family.merges_in_vision_encoder:
            able = [each.name for each in FAMILIES if each.merges_in_vision_encoder]
            raise build_family_error(method, family, MERGING, able)
        self._method, self._family, self._config = method, family, model.config
        self._encoders = VisionEncoders(model, family, method, MERGING)
        for encoder in self._encoders.all:
            _check_blocks(encoder, method)
            _check_attention(encoder, method)
        self._stages = _resolve_blocks(method, self._encoders.first)
        self._inside = method.inside_vision_blocks
        self._state = state

    def list_hooks(self) -> Iterator[Hook]:
        """Hooks to register."""
        for encoder in self._encoders.all:
            yield encoder.module, functools.partial(self._begin, encoder), True
            yield encoder.module, self._finish, False
            for tap in encoder.taps:
                yield tap, self._spread_tapped, True
            for number in self._get_watched():
                attention = encoder.get_attention(number)
                for name, part in attention.parts.items():
                    yield part, functools.partial(self._record, name), False

    def list_wraps(self) -> Iterator[tuple[nn.Module, str, Callable[..., Any]]]:
        """Modules, the method of each to wrap, and the wrapper."""
        for encoder in self._encoders.all:
            for number, block in enumerate(encoder.blocks):
                # accelerate puts a forward of its own on modules that it moves between devices.
                name = "_old_forward" if "_old_forward" in vars(block) else "forward"
                yield block, name, functools.partial(self._run_block, encoder, number)

    def list_watched(self) -> list[nn.Module]:
        """Blocks whose inner modules have hooks."""
        return [
            encoder.blocks[number]
            for encoder in self._encoders.all
            for number in self._get_watched()
        ]

    def _get_watched(self) -> list[int]:
        stages = self._stages
        return list(stages) if self._inside else [each - 1 for each in stages if each > 0]

    # ---- called by EncoderCalls -------------------------------------------------------------

    def begin(self, name: str, arguments: dict[str, Any]) -> None:
        """An encoder is about to run with these arguments."""
        self._encoders.check_feature_layer(arguments)
        images, videos = (arguments if name == kind else None for kind in ("image", "video"))
        self._state.merging.media = Media(self._config, images, videos)

    def finish(self, name: str) -> None:
        """Keep the run as that of the images or videos; None if it failed."""
        run = self._get_run()
        setattr(self._state.merging, name, run if run is not None and run.complete else None)
        self._state.merging.run = self._state.merging.media = None

    def forget(self, name: str) -> None:
        """Drop the run of the images or videos."""
        setattr(self._state.merging, name, None)

    @property
    def seconds(self) -> float:
        """Seconds the method took in the vision encoder for the latest images and videos."""
        runs: list[MergingRun | None] = [
            getattr(self._state.merging, name) for name in ("image", "video")
        ]
        return sum(run.seconds for run in runs if run is not None)

    def mark_first_of_groups(self, calls: EncoderCalls) -> Tensor:
        """``(b, s)`` bool, False for visual tokens that repeat an earlier one of their group."""
        media = calls.media
        images = None if media.images is None else self._label_groups("image")
        videos = None if media.videos is None else self._label_groups("video")
        numbers, is_video = self._encoders.carry(calls, images, videos)
        return _mark_first(torch.where(numbers < 0, -1, 2 * numbers + is_video))

    def spread_now(self, output: Tensor) -> Tensor:
        """Copy the output ``(m, w)`` of an attention to all tokens that its tokens stand for."""
        run = self._get_run()
        return output if run is None else run.spread(run.attended, output)

    def _label_groups(self, name: str) -> Tensor:
        """One number per group and crop, ``(c, n)`` int64 on the CPU.

        Where features of several blocks are joined (ViP-LLaVA, DeepStack), the groups of the
        deepest count.
        """
        run: MergingRun | None = getattr(self._state.merging, name)
        if run is None:
            raise build_features_error(name)
        groups = [crop for each in run.passed[self._encoders.first.feature_block].groups
                  for crop in each.cpu()]  # fmt: skip
        table = nn.utils.rnn.pad_sequence(groups, batch_first=True)
        return table + table.shape[1] * torch.arange(len(table)).unsqueeze(-1)

    def _get_run(self) -> MergingRun | None:
        run: MergingRun | None = self._state.merging.run
        return run

    # ---- hooks ------------------------------------------------------------------------------

    def _begin(self, encoder: VisionEncoder, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._state.merging.run = None
        if self._state.merging.media is None:  # another model that shares the encoder
            return
        if torch.is_grad_enabled() and any(
            block.training and getattr(block, "gradient_checkpointing", False)
            for block in encoder.blocks
        ):
            raise InputError(
                f"{type(self._method).__name__} merges tokens in the vision encoder and cannot run "
                "with gradient checkpointing. Disable checkpointing for the vision encoder."
            )
        named = next(name for name in ("pixel_values", "hidden_states") if args or name in kwargs)
        pixels = args[0] if args else kwargs[named]
        sets = self._encoders.build_crop_sets(encoder, self._state.merging.media, pixels)
        self._state.merging.run = MergingRun(build_row(sets, pixels.device))

    def _run_block(
        self,
        encoder: VisionEncoder,
        number: int,
        original: Callable[..., Any],
        hidden_states: Tensor,
        *mask: Tensor | None,
        **kwargs: Any,
    ) -> Any:
        """Run a block, merging before it or between its attention and feed-forward parts."""
        run, kind = self._get_run(), encoder.kind
        if run is None:
            return original(hidden_states, *mask, **kwargs)
        states, stage = hidden_states, number in self._stages
        if mask:
            kwargs["attention_mask"] = mask[0]
        if number == 0:
            run.check_length(states)
        if stage and not self._inside:
            states = self._merge(encoder, number, states, run)
        states, kwargs = run.prepare(states, kwargs, self._method.proportional_attention)
        # A block that takes no mask cannot weigh tokens by size, so it runs in two parts as well.
        if (stage and self._inside) or (run.bias is not None and not kind.takes_mask):
            given = kwargs.pop("attention_mask", None)
            block: Any = encoder.blocks[number]
            states = kind.attend(block, states, _add_bias(given, run.bias, states), kwargs)
            if stage and self._inside:
                states = self._merge(encoder, number, states, run)
            output = kind.feed(block, states)
        else:
            if run.bias is not None:
                kwargs["attention_mask"] = _add_bias(kwargs.get("attention_mask"), run.bias, states)
            output = original(states, **kwargs)
        return run.finish_block(number, encoder.depth, output)

    def _merge(
        self, encoder: VisionEncoder, number: int, states: Tensor, run: MergingRun
    ) -> Tensor:
        """Let the method merge in every set of crops; return the merged states."""
        where = f"{'inside' if self._inside else 'before'} vision-encoder block {number}"
        groups, merged, changed = [], [], False
        for part, own in enumerate(run.row.cut(states.flatten(0, -2))):
            squares = run.row.sets[part].squares
            view = self._make_view(encoder, number, squares.join(own), run, part)
            begin = time.perf_counter()
            choice = self._method.merge_in_vision_encoder(view)
            run.seconds += time.perf_counter() - begin
            _check_choice(choice, view, where)
            changed = changed or choice.hidden_states is not view.hidden_states
            groups.append(choice.groups)
            merged.append(choice.hidden_states)
        if not changed:
            return states
        run.row = run.row.merge(groups, [each.shape[1] for each in merged])
        parted = [each.squares.part(new) for each, new in zip(run.row.sets, merged, strict=True)]
        return reshape_like(run.row.order(parted), states)

    def _make_view(
        self, encoder: VisionEncoder, number: int, states: Tensor, run: MergingRun, part: int
    ) -> VisionView:
        crops, members = run.row.sets[part], run.row.groups[part]
        attended = number if self._inside else number - 1
        return VisionView(
            block=number,
            num_blocks=encoder.depth,
            hidden_states=states,
            classes=encoder.classes,
            sizes=run.row.count_members()[part].to(states.device),
            grid=(crops.squares.rows, crops.squares.columns),
            crops=crops.per_image,
            feature_block=encoder.feature_block,
            members=members.to(states.device),
            keys=functools.partial(run.compute_keys, encoder, attended, part),
            attention=functools.partial(run.compute_attention, encoder, attended, part),
        )

    def _record(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
        run = self._get_run()
        if run is not None:
            check_whole(module, output)
            run.projections[name] = output.detach()

    def _spread_tapped(
        self, module: nn.Module, args: Any, kwargs: Any
    ) -> tuple[Any, dict[str, Any]] | None:
        """Spread the output of a block that the model takes out (DeepStack)."""
        run = self._get_run()
        if run is None:
            return None
        states, *others = args
        return (run.spread(run.row, states), *others), kwargs

    def _finish(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        """Spread all collected hidden states over the first tokens."""
        run = self._get_run()
        if run is None or not run.passed:
            return output
        if isinstance(output, tuple):
            raise InputError("The vision encoder returned a tuple. Pass return_dict=True.")
        run.projections, run.arguments, run.bias, run.complete = {}, {}, None, True
        if output.get("hidden_states") is not None:
            rows = [run.first, *run.passed[:-1], run.first]  # the last block's were copied then
            # From transformers 5.23 on, hidden states that the model does not use are None.
            pairs = zip(rows, output.hidden_states, strict=True)
            output.hidden_states = tuple(
                None if states is None else run.spread(row, states) for row, states in pairs
            )
        return output


def _add_bias(mask: Tensor | None, bias: Tensor | None, states: Tensor) -> Tensor | None:
    """The mask with the bias ``(m,)`` per key; ``(c, 1, t, t)`` for crops side by side."""
    if bias is None:
        return mask
    if states.dim() == 3:
        rows = bias.view(len(states), 1, 1, -1)
        bias = rows.expand(-1, -1, states.shape[1], -1)
    return bias if mask is None else mask + bias


def _check_choice(choice: VisionMerge, view: VisionView, where: str) -> None:
    """Raise unless the choice partitions the tokens of the view."""
    groups, states = choice.groups, choice.hidden_states
    crops, tokens, width = view.hidden_states.shape
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
    members = count_members(groups, count)
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


def _mark_first(labels: Tensor) -> Tensor:
    """True where a value first occurs in its row, and where it is negative."""
    ordered, order = labels.sort(dim=-1, stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.zeros_like(first).scatter(1, order, first) | (labels < 0)


def _resolve_blocks(method: Method, encoder: VisionEncoder) -> tuple[int, ...]:
    """The blocks that the method names, checked."""
    stages = tuple(method.vision_blocks(encoder.depth, encoder.feature_block))
    if list(stages) != sorted(set(stages)) or any(not 0 <= each < encoder.depth for each in stages):
        raise InputError(
            f"{type(method).__name__} merges at vision-encoder blocks {stages}, which must ascend "
            f"and lie between 0 and {encoder.depth - 1} in this model."
        )
    return stages


def _check_blocks(encoder: VisionEncoder, method: Method) -> None:
    if encoder.kind.norms is None:
        able = [name for name, kind in VISION_ENCODER_TYPES.items() if kind.norms is not None]
        raise InputError(
            f"{type(method).__name__} {MERGING}, but blocks of encoders of type "
            f"{encoder.module.config.model_type!r} are not supported. Supported are "
            f"{', '.join(able)}."
        )


def _check_attention(encoder: VisionEncoder, method: Method) -> None:
    attention = encoder.module.config._attn_implementation
    if method.proportional_attention and attention not in ("sdpa", "eager"):
        raise InputError(
            f"{type(method).__name__} adds to the attention of the vision encoder, which "
            f"{attention!r} does not support. Load the model with attn_implementation='sdpa'."
        )
