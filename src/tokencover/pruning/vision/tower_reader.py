"""Reading from the vision tower: features, queries and keys of its tokens, class tokens included.

Hooks record them while the model encodes its pictures. `generate` does so before the first forward
pass, so they wait, for each thread, until the pass takes them; they are dropped when it ends.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.families import FAMILIES, Family, FoldedTiles
from tokencover.methods import Method
from tokencover.pruning.vision.encoder_calls import EncoderCalls
from tokencover.pruning.vision.encodings import BlockRecord, Encodings, Recording, join_recordings
from tokencover.pruning.vision.tower_attention import TowerAttention, check_whole
from tokencover.pruning.vision.tower_merger import TowerMerger
from tokencover.pruning.vision.vision_tower import (
    CarriedNumbers,
    Hook,
    VisionTower,
    VisionTowers,
    refuse_family,
    refuse_features,
)

READING = "reads what the vision tower computed"
TOLD = ("position_embeddings", "cu_seqlens")
"""What an attention is told that matters to its weights."""


class TowerReader:
    """Records what the towers of a model compute.

    Parameters
    ----------
    model, family, method
        The whole model, where its towers are, and who wants to know.
    merging : TowerMerger or None
        If the method merges inside the towers as well; it copies what was computed for merged
        tokens to all that they stand for.

    Raises
    ------
    InputError
        If it is not known how this model's visual tokens are made of tokens of one tower block.
    """

    def __init__(
        self, model: nn.Module, family: Family, method: Method, merging: TowerMerger | None
    ) -> None:
        if not family.reads_vision_encoder:
            able = [each.name for each in FAMILIES if each.reads_vision_encoder]
            raise refuse_family(method, family, READING, able)
        self._family, self._method, self._merging = family, method, merging
        self._towers = VisionTowers(model, family, method, READING)
        _refuse_packed(method, family, self._towers.first)
        _refuse_without_class(method, family, self._towers.first)
        self._blocks = _find_blocks(method, self._towers.first, type(model).__name__)
        if merging is not None and self._blocks:
            _refuse_rotated(method, family, self._towers.first)
        self._projector = model.get_submodule(family.projector)
        self.thread_state = threading.local()

    @property
    def folds(self) -> bool:
        """Whether features are to be those of the visual tokens as the decoder gets them."""
        return self._family.folding is not None

    def list_hooks(self) -> Iterator[Hook]:
        """What must be put on the model, after the hooks that merge."""
        for tower in self._towers.all:
            yield tower.module, self._begin, True
            yield tower.module, functools.partial(self._finish, tower), False
            for number in self._blocks:
                attention = tower.find_attention(number)
                yield attention.module, functools.partial(self._listen, number), True
                for name, part in attention.parts.items():
                    hook = functools.partial(self._record, number, attention, name)
                    yield part, hook, False

    def list_watched(self) -> list[nn.Module]:
        """The blocks whose inner modules have hooks."""
        return [tower.blocks[number] for tower in self._towers.all for number in self._blocks]

    # ---- for pictures that are encoded once -------------------------------------------------

    @property
    def blocks(self) -> tuple[int, ...]:
        """The tower blocks whose queries and keys are recorded."""
        return self._blocks

    @property
    def is_recalled(self) -> bool:
        """Whether what was read of pictures one by one is what is read of all together."""
        packed = self._towers.first.kind.packed
        return self._family.encodes_singly and not self.folds and not packed

    def take_back(self) -> Recording | None:
        """What was recorded of the pictures that were encoded just now."""
        found: Recording | None = getattr(self.thread_state, "recording", None)
        return found

    def hand_back(self, recordings: Sequence[Recording | None]) -> None:
        """Put recordings in the place of what was recorded just now, as of one call."""
        known = [each for each in recordings if each is not None]
        complete = known and len(known) == len(recordings)
        self.thread_state.recording = join_recordings(known) if complete else None

    # ---- what the session tells of each encoder call ----------------------------------------

    def expect(self, name: str, arguments: dict[str, Any]) -> None:
        """Pictures are going to be encoded with these arguments."""
        self._towers.check_feature_layer(arguments)
        self.thread_state.expected = True

    def remember(self, name: str) -> None:
        """Keep what was recorded as that of the images or of the videos; nothing if it failed."""
        setattr(self.thread_state, name, getattr(self.thread_state, "recording", None))
        self.thread_state.recording = self.thread_state.blocks = None
        self.thread_state.expected = False

    def forget(self, name: str) -> None:
        """There are no such pictures, or the model is going to encode them."""
        setattr(self.thread_state, name, None)

    def take(self, calls: EncoderCalls) -> Encodings:
        """Hand what was recorded over to the forward pass that these pictures belong to."""
        media, tower = calls.media, self._towers.first
        given = {"image": media.images, "video": media.videos}
        found = {name: self._take_one(name) for name in given if given[name] is not None}
        crops: FoldedTiles | None = None
        if self.folds:
            crops = calls.place_crops(tower.facts)
            index = torch.cat([crops.class_index, crops.index], dim=1)
            carried = self._towers.spread(calls.input_ids, crops.images, crops.videos)
        else:
            index, carried = self._carry_crops(calls, found)
        return Encodings(
            recordings=list(found.values()),
            index=index,
            numbers=carried.numbers,
            tower=tower,
            crops=crops,
            projector=self._projector,
            tiles=self._family.tiles,
        )

    def _take_one(self, name: str) -> Recording:
        recording: Recording | None = getattr(self.thread_state, name, None)
        if recording is None:
            raise refuse_features(name)
        setattr(self.thread_state, name, None)
        return recording

    def _carry_crops(
        self, calls: EncoderCalls, found: dict[str, Recording]
    ) -> tuple[Tensor, CarriedNumbers]:
        """Crops of one length, whose patches are visual tokens one to one."""
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
                f"images and frames of videos have {sorted(lengths)} tokens in the vision tower: "
                "give them in separate calls."
            )
        (tokens,) = lengths
        images, videos = numbers.get("image"), numbers.get("video")
        carried = self._towers.carry(calls, images, videos)
        return torch.arange(start).view(-1, tokens), carried

    # ---- hooks ------------------------------------------------------------------------------

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        # What is recorded when the tower alone is called would never be taken.
        self.thread_state.blocks = {} if getattr(self.thread_state, "expected", False) else None
        self.thread_state.recording = None

    def _listen(self, number: int, module: nn.Module, args: Any, kwargs: Any) -> None:
        record = self._find_record(number)
        if record is not None:
            for name in TOLD:
                if kwargs.get(name) is not None:
                    record.told[name] = kwargs[name]

    def _record(
        self,
        number: int,
        attention: TowerAttention,
        name: str,
        module: nn.Module,
        args: Any,
        kwargs: Any,
        output: Tensor,
    ) -> None:
        record = self._find_record(number)
        if record is not None:
            check_whole(module, output)
            output = output.detach()
            if self._merging is not None:
                output = self._merging.spread_now(attention.flatten(name, output))
            record.outputs[name] = output

    def _finish(
        self, tower: VisionTower, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        blocks: dict[int, BlockRecord] | None = getattr(self.thread_state, "blocks", None)
        if blocks is None:
            return
        features = None if self.folds else tower.find_features(output)
        if features is not None and not self._method.merges:
            features = features.detach()
        self.thread_state.recording = Recording(
            features, blocks, kwargs.get("patch_attention_mask")
        )

    def _find_record(self, number: int) -> BlockRecord | None:
        """By the tower's pass under way; None if there is none, or it was not expected.

        There is none when a block runs again for gradient checkpointing.
        """
        blocks: dict[int, BlockRecord] | None = getattr(self.thread_state, "blocks", None)
        return None if blocks is None else blocks.setdefault(number, BlockRecord())


def _refuse_packed(method: Method, family: Family, tower: VisionTower) -> None:
    """Refuse rows of several pictures, unless the family says how they become visual tokens."""
    config: Any = tower.module.config
    if tower.kind.packed and family.folding is None:
        raise InputError(
            f"{type(method).__name__} {READING}, but {family.name} with a tower of type "
            f"{config.model_type!r} has pictures of all sizes in one row: use a method that acts "
            "in the decoder, for example tc.MoB."
        )


def _refuse_without_class(method: Method, family: Family, tower: VisionTower) -> None:
    card = getattr(method, "card", None)  # methods that are not registered may have none
    if card is not None and "class token" in card.needs and tower.classes == 0:
        raise InputError(
            f"{type(method).__name__} needs the class token's attention to each visual token, and "
            f"the vision tower of {family.name} has no class token here: use a model with a CLIP "
            "tower, or another method."
        )


def _refuse_rotated(method: Method, family: Family, tower: VisionTower) -> None:
    if tower.kind.packed:
        raise InputError(
            f"{type(method).__name__} {READING} where it merges, but the tower of {family.name} "
            "rotates queries and keys: those of a merged token have no place of their own that "
            "could be told. Name no watched_vision_blocks, or no vision_blocks."
        )


def _find_blocks(method: Method, tower: VisionTower, model: str) -> tuple[int, ...]:
    """The tower blocks whose queries and keys the method names, ascending."""
    name = type(method).__name__
    if len(tower.feature_blocks) > 1:
        raise InputError(
            f"{name} {READING}, but {model} joins the features of several tower blocks "
            f"{tower.feature_blocks} to one visual token: use a method that acts in the decoder, "
            "for example tc.MoB."
        )
    wanted = tuple(method.watched_vision_blocks(tower.depth, tower.feature_block) or ())
    if any(not 0 <= each < tower.depth for each in wanted):
        raise InputError(
            f"{name} wants queries and keys of tower blocks {wanted}: they must lie between 0 and "
            f"{tower.depth - 1} in this model."
        )
    return tuple(sorted(set(wanted)))
