"""Records features, queries and keys of a vision encoder, as `VisionOutputs` for methods.

`generate` encodes images before the first forward pass, so recordings wait, per thread, until the
pass takes them. They are dropped when it ends.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.families import FAMILIES, Family, FoldedTiles
from tokencover.methods import Method, VisionOutputs
from tokencover.pruning.hooks import move_to
from tokencover.pruning.passes import CallState
from tokencover.pruning.vision.encoder import (
    Hook,
    VisionEncoder,
    VisionEncoders,
    build_family_error,
    build_features_error,
)
from tokencover.pruning.vision.encoder_calls import EncoderCalls
from tokencover.pruning.vision.merger import VisionMerger
from tokencover.pruning.vision.vision_attention import VisionAttention, check_whole, number_segments

if TYPE_CHECKING:
    from tokencover.pruning.selection import VisualTokens


READING = "reads what the vision encoder computed"
RECORDED = ("position_embeddings", "cu_seqlens")
"""Arguments of an attention that matter to its weights."""


class VisionReader:
    """Records features, queries and keys of `blocks` in the vision encoders of a model.

    If the method merges there as well, `merging` spreads what was computed for merged tokens. If
    the model `merges_spatially`, features are those of visual tokens as the decoder gets them.
    """

    def __init__(
        self,
        model: nn.Module,
        family: Family,
        method: Method,
        merging: VisionMerger | None,
        state: CallState,
    ) -> None:
        if not family.reads_vision_encoder:
            able = [each.name for each in FAMILIES if each.reads_vision_encoder]
            raise build_family_error(method, family, READING, able)
        self._family, self._method, self._merging = family, method, merging
        self._encoders = VisionEncoders(model, family, method, READING)
        self.merges_spatially = family.folding is not None
        _check_encoder(method, family, self._encoders.first)
        self.blocks = _resolve_blocks(method, self._encoders.first, type(model).__name__)
        if merging is not None and self.blocks and self._encoders.first.kind.packed:
            raise InputError(
                f"{type(method).__name__} {READING} where it merges, but the encoder of "
                f"{family.name} rotates queries and keys, and a merged token has no single "
                "position. Return no watched_vision_blocks, or no vision_blocks."
            )
        self._projector = model.get_submodule(family.projector)
        self._state = state

    def list_hooks(self) -> Iterator[Hook]:
        """Hooks to register, after those that merge."""
        for encoder in self._encoders.all:
            yield encoder.module, self._begin, True
            yield encoder.module, functools.partial(self._finish, encoder), False
            for number in self.blocks:
                attention = encoder.get_attention(number)
                yield attention.module, functools.partial(self._record_arguments, number), True
                for name, part in attention.parts.items():
                    hook = functools.partial(self._record, number, attention, name)
                    yield part, hook, False

    def list_watched(self) -> list[nn.Module]:
        """Blocks whose inner modules have hooks."""
        return [encoder.blocks[number] for encoder in self._encoders.all for number in self.blocks]

    # ---- for EncoderMemory ------------------------------------------------------------------

    @property
    def is_recalled(self) -> bool:
        """Whether recordings of single images can be joined."""
        packed = self._encoders.first.kind.packed
        return self._family.encodes_singly and not self.merges_spatially and not packed

    def get_latest(self) -> Recording | None:
        """The recording of the images encoded last."""
        found: Recording | None = self._state.reading.recording
        return found

    def set_latest(self, recordings: Sequence[Recording | None]) -> None:
        """Replace the latest recording by these, joined into one call."""
        known = [each for each in recordings if each is not None]
        complete = known and len(known) == len(recordings)
        self._state.reading.recording = join_recordings(known) if complete else None

    # ---- called by EncoderCalls -------------------------------------------------------------

    def begin(self, name: str, arguments: dict[str, Any]) -> None:
        """An encoder is about to run with these arguments."""
        self._encoders.check_feature_layer(arguments)
        self._state.reading.expected = True

    def finish(self, name: str) -> None:
        """Keep the recording as that of the images or videos; None if it failed."""
        setattr(self._state.reading, name, self._state.reading.recording)
        self._state.reading.recording = self._state.reading.blocks = None
        self._state.reading.expected = False

    def forget(self, name: str) -> None:
        """Drop the recording of the images or videos."""
        setattr(self._state.reading, name, None)

    def take(self, calls: EncoderCalls) -> Encodings:
        """Move the recordings to the pass that the images and videos belong to."""
        media, encoder = calls.media, self._encoders.first
        given = {"image": media.images, "video": media.videos}
        found = {name: self._take_one(name) for name in given if given[name] is not None}
        crops: FoldedTiles | None = None
        if self.merges_spatially:
            crops = calls.place_crops(encoder.facts)
            index = torch.cat([crops.class_index, crops.index], dim=1)
            numbers, _ = self._encoders.spread(calls.input_ids, crops.images, crops.videos)
        else:
            index, numbers = self._carry_crops(calls, found)
        return Encodings(
            recordings=list(found.values()),
            index=index,
            numbers=numbers,
            encoder=encoder,
            crops=crops,
            projector=self._projector,
            tiles=self._family.tiles,
        )

    def _take_one(self, name: str) -> Recording:
        recording: Recording | None = getattr(self._state.reading, name)
        if recording is None:
            raise build_features_error(name)
        setattr(self._state.reading, name, None)
        return recording

    def _carry_crops(
        self, calls: EncoderCalls, found: dict[str, Recording]
    ) -> tuple[Tensor, Tensor]:
        """Index and numbers for crops of one length, whose patches are visual tokens."""
        numbers: dict[str, Tensor] = {}
        start, lengths = 0, set()
        for name, recording in found.items():
            assert recording.features is not None
            crops, tokens = recording.features.shape[:2]
            numbers[name] = start + torch.arange(crops * tokens).view(crops, tokens)
            start += crops * tokens
            lengths.add(tokens)
        if len(lengths) > 1:
            raise InputError(
                f"Images and frames of videos have {sorted(lengths)} tokens in the vision encoder. "
                "Pass them in separate calls."
            )
        (tokens,) = lengths
        images, videos = numbers.get("image"), numbers.get("video")
        carried, _ = self._encoders.carry(calls, images, videos)
        return torch.arange(start).view(-1, tokens), carried

    # ---- hooks ------------------------------------------------------------------------------

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        # What is recorded when the encoder alone is called would never be taken.
        self._state.reading.blocks = {} if self._state.reading.expected else None
        self._state.reading.recording = None

    def _record_arguments(self, number: int, module: nn.Module, args: Any, kwargs: Any) -> None:
        record = self._get_record(number)
        if record is not None:
            for name in RECORDED:
                if kwargs.get(name) is not None:
                    record.arguments[name] = kwargs[name]

    def _record(
        self,
        number: int,
        attention: VisionAttention,
        name: str,
        module: nn.Module,
        args: Any,
        kwargs: Any,
        output: Tensor,
    ) -> None:
        record = self._get_record(number)
        if record is not None:
            check_whole(module, output)
            output = output.detach()
            if self._merging is not None:
                output = self._merging.spread_now(attention.flatten(name, output))
            record.outputs[name] = output

    def _finish(
        self, encoder: VisionEncoder, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        blocks: dict[int, BlockRecord] | None = self._state.reading.blocks
        if blocks is None:
            return
        features = None if self.merges_spatially else encoder.get_features(output)
        if features is not None and not self._method.merges:
            features = features.detach()
        self._state.reading.recording = Recording(
            features, blocks, kwargs.get("patch_attention_mask")
        )

    def _get_record(self, number: int) -> BlockRecord | None:
        """The record of a block in the current encoder pass.

        None outside of expected passes, and when gradient checkpointing runs a block again.
        """
        blocks: dict[int, BlockRecord] | None = self._state.reading.blocks
        return None if blocks is None else blocks.setdefault(number, BlockRecord())


def _check_encoder(method: Method, family: Family, encoder: VisionEncoder) -> None:
    """Raise for packed images without a mapping to visual tokens, or a missing class token."""
    if encoder.kind.packed and family.folding is None:
        raise InputError(
            f"{type(method).__name__} {READING}, but {family.name} with a vision encoder of "
            f"type {encoder.module.config.model_type!r} packs images of all sizes into one row. "
            "Use a method that acts in the decoder, for example tc.MoB."
        )
    card = getattr(method, "card", None)  # methods that are not registered may have none
    if card is not None and "class token" in card.needs and encoder.classes == 0:
        raise InputError(
            f"{type(method).__name__} needs the class token's attention to each visual token, and "
            f"the vision encoder of {family.name} has no class token here. Use a model with a CLIP "
            "encoder, or another method."
        )


def _resolve_blocks(method: Method, encoder: VisionEncoder, model: str) -> tuple[int, ...]:
    """The blocks whose queries and keys the method names, ascending."""
    name = type(method).__name__
    if len(encoder.feature_blocks) > 1:
        raise InputError(
            f"{name} {READING}, but {model} joins the features of several vision-encoder blocks "
            f"{encoder.feature_blocks} to one visual token. Use a method that acts in the decoder, "
            "for example tc.MoB."
        )
    wanted = tuple(method.watched_vision_blocks(encoder.depth, encoder.feature_block) or ())
    if any(not 0 <= each < encoder.depth for each in wanted):
        raise InputError(
            f"{name} reads queries and keys of vision-encoder blocks {wanted}, which must lie "
            f"between 0 and {encoder.depth - 1} in this model."
        )
    return tuple(sorted(set(wanted)))


# ---- what was recorded in one pass --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """Outputs of the parts of a block's attention, and the arguments that it received."""

    outputs: dict[str, Tensor] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recording:
    """What one forward pass of a vision encoder computed.

    `features` ``(c, t, w)`` is None if the decoder's are used; `present` ``(c, rows, columns)``
    marks patches that are no padding.
    """

    features: Tensor | None
    blocks: dict[int, BlockRecord]
    present: Tensor | None = None


def join_recordings(recordings: Sequence[Recording]) -> Recording:
    """Join recordings of single images; their attention received no arguments or padding."""
    first = recordings[0]
    if len(recordings) == 1:
        return first
    features = [each.features for each in recordings if each.features is not None]
    blocks = {
        number: BlockRecord(
            {
                name: torch.cat([each.blocks[number].outputs[name] for each in recordings])
                for name in record.outputs
            }
        )
        for number, record in first.blocks.items()
    }
    return Recording(torch.cat(features), blocks)


@dataclass(frozen=True, slots=True)
class Encodings:
    """All crops of a forward pass, and the index of each visual token in them.

    `index` ``(c, p)`` int64 on the CPU locates the tokens of a crop among all encoder tokens, class
    tokens first; -1 beyond the crop. `numbers` ``(b, s)`` int64 is crop times crop length plus
    token; negative where there is none. `crops` says how patches are merged spatially, None if they
    are not.
    """

    recordings: list[Recording]
    index: Tensor
    numbers: Tensor
    encoder: VisionEncoder
    crops: FoldedTiles | None
    projector: nn.Module
    tiles: bool
    features: dict[str, Tensor] = field(default_factory=dict)

    def remember_states(self, states: Tensor) -> None:
        """Use the hidden states ``(b, s, d)`` of visual tokens as features."""
        assert self.crops is not None
        numbers = self.numbers.to(states.device)
        there = numbers >= 0
        crops, tokens = len(self.index), self.crops.tokens
        empty = states.new_zeros(crops * tokens, states.shape[-1])
        found = empty.index_put((numbers[there],), states[there])
        self.features["all"] = found.view(crops, tokens, -1)

    def build_outputs(self, tokens: VisualTokens, states: Tensor) -> VisionOutputs:
        """What a method may read, for the remaining visual tokens, on the device of `states`."""
        device = states.device
        index = self.numbers[tokens.samples].gather(1, tokens.index).clamp(min=-1)
        return VisionOutputs(
            features=self._get_features().to(device),
            classes=self.encoder.classes,
            num_blocks=self.encoder.depth,
            feature_block=self.encoder.feature_block,
            scaling=self.encoder.get_attention(0).scaling,
            index=index.masked_fill(~tokens.mask, -1).to(device),
            queries=functools.partial(self._compute_projected, "q", device),
            keys=functools.partial(self._compute_projected, "k", device),
            project=functools.partial(self._project, device, states.dtype),
            fold=self._fold,
            segments=functools.partial(self._compute_segments, device),
            passes_classes=self.crops is None,
            tiles=self.tiles,
        )

    def _get_features(self) -> Tensor:
        if "all" not in self.features:
            found = [each.features for each in self.recordings if each.features is not None]
            self.features["all"] = found[0] if len(found) == 1 else torch.cat(found)
        return self.features["all"]

    def _get_records(self, block: int) -> list[BlockRecord]:
        if any(block not in each.blocks for each in self.recordings):
            named = sorted({block for each in self.recordings for block in each.blocks})
            raise InputError(
                f"block {block} of the vision encoder was not recorded, only {named}. "
                "Return it from watched_vision_blocks."
            )
        return [each.blocks[block] for each in self.recordings]

    def _compute_projected(self, name: str, device: torch.device, block: int) -> Tensor:
        attention = self.encoder.get_attention(block)
        found = [
            attention.compute_projected(
                record.outputs, record.arguments.get("position_embeddings")
            )[name]
            for record in self._get_records(block)
        ]
        flat = found[0] if len(found) == 1 else torch.cat(found)
        return self._take(flat).transpose(1, 2).to(device)

    def _take(self, values: Tensor) -> Tensor:
        """From ``(encoder tokens, ...)`` to ``(c, p, ...)``; zeros beyond a crop."""
        index = self.index.to(values.device)
        found = values[index.clamp(min=0)]
        beyond = (index < 0).view(*index.shape, *[1] * (found.dim() - 2))
        return found.masked_fill(beyond, 0)

    def _fold(self, values: Tensor) -> Tensor:
        """Average values of patches ``(c, ..., p)`` to those of cells ``(c, ..., cells)``."""
        if self.crops is None:
            return values
        sources = self.crops.sources.to(values.device)
        weights = self.crops.weights.to(values.device, values.dtype)
        flat = values.movedim(-1, 1).flatten(0, 1)[sources.clamp(min=0)]
        shares = weights.view(*weights.shape, *[1] * (flat.dim() - 3))
        return (flat * shares).sum(2).movedim(1, -1)

    def _compute_segments(self, device: torch.device, block: int) -> Tensor | None:
        attention, records = self.encoder.get_attention(block), self._get_records(block)
        lengths = [
            record.arguments.get("cu_seqlens", attention.count_tokens(record.outputs))
            for record in records
        ]
        segments = number_segments(lengths, self.index)
        if any(each.present is not None for each in self.recordings):
            present = [each.present for each in self.recordings if each.present is not None]
            there = torch.cat([each.flatten() for each in present]).long().cpu()
            segments = segments.where(self._take(there).bool(), -1)
        apart = (segments < 0) | (segments != segments[:, :1])
        return segments.to(device) if bool(apart.any()) else None

    def _project(self, device: torch.device, dtype: torch.dtype, features: Tensor) -> Tensor:
        if self.crops is None:
            features = move_to(self.projector, features)
            count = len(features)
            if count == 0:  # kernels of quantized layers crash on empty input
                features = features.new_zeros(1, *features.shape[1:])
            features = self.projector(features)[:count]
        return features.to(device, dtype)
