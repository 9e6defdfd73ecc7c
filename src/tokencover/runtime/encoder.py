"""Reading from the vision tower: features, queries and keys of its tokens, class tokens included.

Hooks record them while the model encodes its pictures. `generate` does so before the first forward
pass, so they wait, for each thread, until the pass takes them; they are dropped when it ends.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Encoded, Method
from tokencover.runtime.family import Family, Media
from tokencover.runtime.tower import Towers
from tokencover.runtime.views import VisualTokens
from tokencover.runtime.vision import (
    Hook,
    VisionTower,
    asked_with,
    carried,
    check_feature_layer,
    not_through_the_tower,
    vision_towers,
)

PURPOSE = "reads what the vision tower computed"


@dataclass(slots=True)
class Recording:
    """What one forward pass of a tower left behind.

    Attributes
    ----------
    features : Tensor or None
        ``(c, t, w)``; None until the tower comes to its end.
    projections : dict
        ``(c, t, heads * head_dim)`` by block and "q_proj" or "k_proj".
    """

    features: Tensor | None = None
    projections: dict[tuple[int, str], Tensor] = field(default_factory=dict)


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

    def shown(self, tokens: VisualTokens, states: Tensor) -> Encoded:
        """What a method may see of it, for the visual tokens that are left.

        Parameters
        ----------
        states : Tensor
            Of the decoder; projected features are of its type, and everything is on its device.
        """
        features, device = self.recording.features, states.device
        assert features is not None
        index = self.numbers[tokens.samples].gather(1, tokens.index).clamp(min=-1)
        return Encoded(
            features=features.to(device),
            classes=self.tower.classes,
            depth=self.tower.depth,
            feature_block=self.tower.feature_block,
            scaling=float(self.tower.attention(0).scale),
            index=index.masked_fill(~tokens.mask, -1).to(device),
            queries=functools.partial(self._projected, "q_proj", device),
            keys=functools.partial(self._projected, "k_proj", device),
            project=functools.partial(self._project, device, states.dtype),
        )

    def _projected(self, name: str, device: torch.device, block: int) -> Tensor:
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


class Encoder:
    """Records what the towers of a model compute.

    Parameters
    ----------
    model, family, method
        The whole model, where its towers are, and who wants to know.
    towers : list of VisionTower
        All of them.
    blocks : tuple of int
        Those whose queries and keys are wanted.
    merging : Towers or None
        If the method merges inside the towers as well; it copies what was computed for merged
        tokens to all that they stand for.
    """

    def __init__(
        self,
        model: nn.Module,
        family: Family,
        method: Method,
        towers: list[VisionTower],
        blocks: tuple[int, ...],
        merging: Towers | None,
    ) -> None:
        self._model, self._family, self._method = model, family, method
        self._towers, self._blocks, self._merging = towers, blocks, merging
        self._projector = model.get_submodule(family.projector)
        self._local = threading.local()

    def hooks(self) -> Iterator[Hook]:
        """What must be put on the model, behind the hooks that merge."""
        for tower in self._towers:
            yield tower.module, self._begin, True
            yield tower.module, functools.partial(self._finish, tower), False
            for number in self._blocks:
                for name in ("q_proj", "k_proj"):
                    hook = functools.partial(self._record, number, name)
                    yield getattr(tower.attention(number), name), hook, False

    def watched(self) -> list[nn.Module]:
        """The blocks whose inner modules have hooks."""
        return [tower.blocks[number] for tower in self._towers for number in self._blocks]

    # ---- what the session tells of each encoder call ----------------------------------------

    def expect(self, name: str, arguments: dict[str, Any]) -> None:
        """Pictures are going to be encoded with these arguments."""
        config: Any = self._model.config
        check_feature_layer(config, self._towers[0].depth, arguments, self._method)
        self._local.expected = True

    def remember(self, name: str) -> None:
        """Keep what was recorded as that of the images or of the videos; nothing if it failed."""
        recording: Recording | None = getattr(self._local, "recording", None)
        complete = recording is not None and recording.features is not None
        setattr(self._local, name, recording if complete else None)
        self._local.recording, self._local.expected = None, False

    def forget(self, name: str) -> None:
        """There are no such pictures, or the model is going to encode them."""
        setattr(self._local, name, None)

    def take(self, input_ids: Tensor, media: Media) -> Encodings:
        """Hand what was recorded over to the forward pass that these pictures belong to."""
        given = {"image": media.images, "video": media.videos}
        found = {name: self._taken(name) for name in given if given[name] is not None}
        numbers: dict[str, Tensor] = {}
        start = 0
        for name, recording in found.items():
            assert recording.features is not None
            crops, tokens = recording.features.shape[:2]
            numbers[name] = start + torch.arange(crops * tokens).view(crops, tokens)
            start += crops * tokens
        joined = _joined(list(found.values()))
        carry = numbers.get("image"), numbers.get("video")
        places = carried(self._model, self._family, input_ids, media, *carry)
        return Encodings(joined, places.kind, self._towers[0], self._projector)

    def _taken(self, name: str) -> Recording:
        recording: Recording | None = getattr(self._local, name, None)
        if recording is None:
            raise not_through_the_tower(name)
        setattr(self._local, name, None)
        return recording

    # ---- hooks ------------------------------------------------------------------------------

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        # Nobody would ever take what was recorded when somebody calls the tower itself.
        self._local.recording = Recording() if getattr(self._local, "expected", False) else None

    def _record(
        self, number: int, name: str, module: nn.Module, args: Any, kwargs: Any, output: Tensor
    ) -> None:
        recording: Recording | None = getattr(self._local, "recording", None)
        if recording is None:  # a block that runs again for gradient checkpointing
            return
        output = output.detach()
        if self._merging is not None:
            output = self._merging.spread_now(output)
        recording.projections[number, name] = output

    def _finish(
        self, tower: VisionTower, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        recording: Recording | None = getattr(self._local, "recording", None)
        if recording is None:
            return
        features: Tensor = output.hidden_states[tower.feature_block + 1]
        recording.features = features if self._method.merges else features.detach()


def encoder_of(
    model: nn.Module, family: Family, method: Method, merging: Towers | None
) -> Encoder | None:
    """The encoder, if the method wants to know what the tower computed.

    Raises
    ------
    InputError
        If it does, and this model's visual tokens are not tokens of one tower block.
    """
    config: Any = model.config
    if method.encoder_blocks(*asked_with(config)) is None:
        return None
    towers = vision_towers(model, family, method, PURPOSE)
    tower, name = towers[0], type(method).__name__
    if len(tower.feature_blocks) > 1:
        raise InputError(
            f"{name} {PURPOSE}, but {type(model).__name__} joins the features of several tower "
            f"blocks {tower.feature_blocks} to one visual token: use a method that acts in the "
            "decoder, tc.MoB say."
        )
    wanted = tuple(method.encoder_blocks(tower.depth, tower.feature_block) or ())
    if any(not 0 <= each < tower.depth for each in wanted):
        raise InputError(
            f"{name} wants queries and keys of tower blocks {wanted}: they must lie between 0 and "
            f"{tower.depth - 1} in this model."
        )
    return Encoder(model, family, method, towers, tuple(sorted(set(wanted))), merging)


def _joined(recordings: list[Recording]) -> Recording:
    """All crops as those of one tower."""
    if len(recordings) == 1:
        return recordings[0]
    features = [each.features for each in recordings if each.features is not None]
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
