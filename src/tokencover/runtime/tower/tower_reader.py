"""Reading from the vision tower: features, queries and keys of its tokens, class tokens included.

Hooks record them while the model encodes its pictures. `generate` does so before the first forward
pass, so they wait, for each thread, until the pass takes them; they are dropped when it ends.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Encoded, Method
from tokencover.runtime.families import Family, Media
from tokencover.runtime.tower.tower_merger import TowerMerger
from tokencover.runtime.tower.vision_tower import Hook, VisionTower, VisionTowers, refuse_features
from tokencover.runtime.visual_tokens import VisualTokens

READING = "reads what the vision tower computed"


Projected = dict[tuple[int, str], Tensor]
"""``(c, t, heads * head_dim)`` by block and "q_proj" or "k_proj"."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What one whole forward pass of a tower computed.

    Attributes
    ----------
    features : Tensor
        ``(c, t, w)``.
    projections : Projected
        Of the blocks that were asked for.
    """

    features: Tensor
    projections: Projected


@dataclass(frozen=True, slots=True)
class Encodings:
    """All crops of a forward pass, and the place of each visual token in them.

    Attributes
    ----------
    recording : Recording
        Of all crops, those of images first.
    numbers : Tensor
        ``(b, s)`` int64, crop times ``t`` plus token; negative where there is none.
    tower : VisionTower
        One of the towers; they are alike.
    projector : nn.Module
        From the tower's width to the decoder's.
    """

    recording: Recording
    numbers: Tensor
    tower: VisionTower
    projector: nn.Module

    def show(self, tokens: VisualTokens, states: Tensor) -> Encoded:
        """What a method may see of it, for the visual tokens that are left.

        Parameters
        ----------
        states : Tensor
            Of the decoder; projected features are of its type, and everything is on its device.
        """
        device = states.device
        index = self.numbers[tokens.samples].gather(1, tokens.index).clamp(min=-1)
        return Encoded(
            features=self.recording.features.to(device),
            classes=self.tower.classes,
            depth=self.tower.depth,
            feature_block=self.tower.feature_block,
            scaling=float(self.tower.attention(0).scale),
            index=index.masked_fill(~tokens.mask, -1).to(device),
            queries=functools.partial(self._find_projected, "q_proj", device),
            keys=functools.partial(self._find_projected, "k_proj", device),
            project=functools.partial(self._project, device, states.dtype),
        )

    def _find_projected(self, name: str, device: torch.device, block: int) -> Tensor:
        found = self.recording.projections.get((block, name))
        if found is None:
            named = sorted({each for each, _ in self.recording.projections})
            raise InputError(
                f"tower block {block} was not recorded, only {named}: name it in encoder_blocks."
            )
        return self.tower.by_head(block, found).to(device)

    def _project(self, device: torch.device, dtype: torch.dtype, features: Tensor) -> Tensor:
        states: Tensor = self.projector(features)
        return states.to(device, dtype)


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
        If this model's visual tokens are not tokens of one tower block.
    """

    def __init__(
        self, model: nn.Module, family: Family, method: Method, merging: TowerMerger | None
    ) -> None:
        self._method, self._merging = method, merging
        self._towers = VisionTowers(model, family, method, READING)
        self._blocks = _find_blocks(method, self._towers.first, type(model).__name__)
        self._projector = model.get_submodule(family.projector)
        self._local = threading.local()

    def list_hooks(self) -> Iterator[Hook]:
        """What must be put on the model, after the hooks that merge."""
        for tower in self._towers.all:
            yield tower.module, self._begin, True
            yield tower.module, functools.partial(self._finish, tower), False
            for number in self._blocks:
                for name in ("q_proj", "k_proj"):
                    hook = functools.partial(self._record, number, name)
                    yield getattr(tower.attention(number), name), hook, False

    def list_watched(self) -> list[nn.Module]:
        """The blocks whose inner modules have hooks."""
        return [tower.blocks[number] for tower in self._towers.all for number in self._blocks]

    # ---- for pictures that are encoded once -------------------------------------------------

    @property
    def blocks(self) -> tuple[int, ...]:
        """The tower blocks whose queries and keys are recorded."""
        return self._blocks

    def take_back(self) -> Recording | None:
        """What was recorded of the pictures that were encoded just now."""
        found: Recording | None = getattr(self._local, "recording", None)
        return found

    def hand_back(self, recordings: Sequence[Recording | None]) -> None:
        """Put recordings in the place of what was recorded just now, as of one call."""
        known = [each for each in recordings if each is not None]
        complete = known and len(known) == len(recordings)
        self._local.recording = _join(known) if complete else None

    # ---- what the session tells of each encoder call ----------------------------------------

    def expect(self, name: str, arguments: dict[str, Any]) -> None:
        """Pictures are going to be encoded with these arguments."""
        self._towers.check_feature_layer(arguments)
        self._local.expected = True

    def remember(self, name: str) -> None:
        """Keep what was recorded as that of the images or of the videos; nothing if it failed."""
        setattr(self._local, name, getattr(self._local, "recording", None))
        self._local.recording = self._local.projections = None
        self._local.expected = False

    def forget(self, name: str) -> None:
        """There are no such pictures, or the model is going to encode them."""
        setattr(self._local, name, None)

    def take(self, input_ids: Tensor, media: Media) -> Encodings:
        """Hand what was recorded over to the forward pass that these pictures belong to."""
        given = {"image": media.images, "video": media.videos}
        found = {name: self._take_one(name) for name in given if given[name] is not None}
        numbers: dict[str, Tensor] = {}
        start = 0
        for name, recording in found.items():
            crops, tokens = recording.features.shape[:2]
            numbers[name] = start + torch.arange(crops * tokens).view(crops, tokens)
            start += crops * tokens
        joined = _join(list(found.values()))
        images, videos = numbers.get("image"), numbers.get("video")
        carried = self._towers.carry(input_ids, media, images, videos)
        return Encodings(joined, carried.numbers, self._towers.first, self._projector)

    def _take_one(self, name: str) -> Recording:
        recording: Recording | None = getattr(self._local, name, None)
        if recording is None:
            raise refuse_features(name)
        setattr(self._local, name, None)
        return recording

    # ---- hooks ------------------------------------------------------------------------------

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        # What is recorded when the tower alone is called would never be taken.
        self._local.projections = {} if getattr(self._local, "expected", False) else None
        self._local.recording = None

    def _record(
        self, number: int, name: str, module: nn.Module, args: Any, kwargs: Any, output: Tensor
    ) -> None:
        projections = self._get_projections()
        if projections is None:  # a block that runs again for gradient checkpointing
            return
        output = output.detach()
        if self._merging is not None:
            output = self._merging.spread_now(output)
        projections[number, name] = output

    def _finish(
        self, tower: VisionTower, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        projections = self._get_projections()
        if projections is None:
            return
        features: Tensor = output.hidden_states[tower.feature_block + 1]
        features = features if self._method.merges else features.detach()
        self._local.recording = Recording(features, projections)

    def _get_projections(self) -> Projected | None:
        """By the tower's pass under way; None if there is none, or it was not expected."""
        found: Projected | None = getattr(self._local, "projections", None)
        return found


def _find_blocks(method: Method, tower: VisionTower, model: str) -> tuple[int, ...]:
    """The tower blocks whose queries and keys the method names, ascending."""
    name = type(method).__name__
    if len(tower.feature_blocks) > 1:
        raise InputError(
            f"{name} {READING}, but {model} joins the features of several tower blocks "
            f"{tower.feature_blocks} to one visual token: use a method that acts in the decoder, "
            "for example tc.MoB."
        )
    wanted = tuple(method.encoder_blocks(tower.depth, tower.feature_block) or ())
    if any(not 0 <= each < tower.depth for each in wanted):
        raise InputError(
            f"{name} wants queries and keys of tower blocks {wanted}: they must lie between 0 and "
            f"{tower.depth - 1} in this model."
        )
    return tuple(sorted(set(wanted)))


def _join(recordings: list[Recording]) -> Recording:
    """All crops as those of one tower."""
    if len(recordings) == 1:
        return recordings[0]
    features = [each.features for each in recordings]
    lengths = {each.shape[1] for each in features}
    if len(lengths) > 1:
        raise InputError(
            f"images and frames of videos have {sorted(lengths)} tokens in the vision tower: give "
            "them in separate calls."
        )
    first, *others = recordings
    projections = {
        name: torch.cat([found, *(each.projections[name] for each in others)])
        for name, found in first.projections.items()
    }
    return Recording(torch.cat(features), projections)
