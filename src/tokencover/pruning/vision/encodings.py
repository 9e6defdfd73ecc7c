"""What the towers computed in one pass, as methods are shown it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.families import FoldedTiles
from tokencover.methods import VisionOutputs
from tokencover.pruning.hooks import move_to
from tokencover.pruning.vision.segments import number_segments
from tokencover.pruning.vision.vision_tower import VisionTower
from tokencover.pruning.visual_tokens import VisualTokens


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """What the attention of one tower block computed, and was told.

    Attributes
    ----------
    outputs : dict
        Of those of its parts that make queries and keys.
    told : dict
        The arguments that matter: ``position_embeddings`` and ``cu_seqlens``, where there are any.
    """

    outputs: dict[str, Tensor] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recording:
    """What one whole forward pass of a tower computed.

    Attributes
    ----------
    features : Tensor or None
        ``(c, t, w)``; None if they are to be those of the visual tokens.
    blocks : dict
        By number, those that were asked for.
    present : Tensor or None
        ``(c, rows, columns)`` bool, the patches that are no padding.
    """

    features: Tensor | None
    blocks: dict[int, BlockRecord]
    present: Tensor | None = None


def join_recordings(recordings: Sequence[Recording]) -> Recording:
    """Pictures that went through a tower one by one, as if they had together.

    Their attention is told nothing, and none of their patches is padding.
    """
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
    """All crops of a forward pass, and the place of each visual token in them.

    Attributes
    ----------
    recordings : list of Recording
        Of images first, then of videos.
    index : Tensor
        ``(c, p)`` int64 on the CPU: place of each token of a crop among all tokens of the towers,
        class tokens first; -1 beyond the crop.
    numbers : Tensor
        ``(b, s)`` int64, crop times tokens of a crop plus token; negative where there is none.
    tower : VisionTower
        One of the towers; they are alike.
    crops : FoldedTiles or None
        How patches are folded into cells; None if each is one.
    projector : nn.Module
        From the tower's width to the decoder's.
    tiles : bool
        Whether images have tiles.
    """

    recordings: list[Recording]
    index: Tensor
    numbers: Tensor
    tower: VisionTower
    crops: FoldedTiles | None
    projector: nn.Module
    tiles: bool
    features: dict[str, Tensor] = field(default_factory=dict)

    def remember_states(self, states: Tensor) -> None:
        """Take the features from the visual tokens ``(b, s, d)`` as the decoder gets them."""
        assert self.crops is not None
        numbers = self.numbers.to(states.device)
        there = numbers >= 0
        crops, tokens = len(self.index), self.crops.tokens
        empty = states.new_zeros(crops * tokens, states.shape[-1])
        found = empty.index_put((numbers[there],), states[there])
        self.features["all"] = found.view(crops, tokens, -1)

    def show(self, tokens: VisualTokens, states: Tensor) -> VisionOutputs:
        """What a method may see of it, for the visual tokens that are left.

        Parameters
        ----------
        states : Tensor
            Of the decoder; projected features are of its type, and everything is on its device.
        """
        device = states.device
        index = self.numbers[tokens.samples].gather(1, tokens.index).clamp(min=-1)
        return VisionOutputs(
            features=self._find_features().to(device),
            classes=self.tower.classes,
            num_blocks=self.tower.depth,
            feature_block=self.tower.feature_block,
            scaling=self.tower.find_attention(0).scaling,
            index=index.masked_fill(~tokens.mask, -1).to(device),
            queries=functools.partial(self._find_projected, "q", device),
            keys=functools.partial(self._find_projected, "k", device),
            project=functools.partial(self._project, device, states.dtype),
            fold=self._fold,
            segments=functools.partial(self._find_segments, device),
            passes_classes=self.crops is None,
            tiles=self.tiles,
        )

    def _find_features(self) -> Tensor:
        if "all" not in self.features:
            found = [each.features for each in self.recordings if each.features is not None]
            self.features["all"] = found[0] if len(found) == 1 else torch.cat(found)
        return self.features["all"]

    def _find_records(self, block: int) -> list[BlockRecord]:
        if any(block not in each.blocks for each in self.recordings):
            named = sorted({block for each in self.recordings for block in each.blocks})
            raise InputError(
                f"block {block} of the vision encoder was not recorded, only {named}. "
                "Return it from watched_vision_blocks."
            )
        return [each.blocks[block] for each in self.recordings]

    def _find_projected(self, name: str, device: torch.device, block: int) -> Tensor:
        attention = self.tower.find_attention(block)
        found = [
            attention.find_projected(record.outputs, record.told.get("position_embeddings"))[name]
            for record in self._find_records(block)
        ]
        flat = found[0] if len(found) == 1 else torch.cat(found)
        return self._take(flat).transpose(1, 2).to(device)

    def _take(self, values: Tensor) -> Tensor:
        """From ``(tokens of the towers, ...)`` to ``(c, p, ...)``; zeros beyond a crop."""
        index = self.index.to(values.device)
        found = values[index.clamp(min=0)]
        beyond = (index < 0).view(*index.shape, *[1] * (found.dim() - 2))
        return found.masked_fill(beyond, 0)

    def _fold(self, values: Tensor) -> Tensor:
        """Mix what patches ``(c, ..., p)`` have to what cells ``(c, ..., cells)`` have."""
        if self.crops is None:
            return values
        sources = self.crops.sources.to(values.device)
        weights = self.crops.weights.to(values.device, values.dtype)
        flat = values.movedim(-1, 1).flatten(0, 1)[sources.clamp(min=0)]
        shares = weights.view(*weights.shape, *[1] * (flat.dim() - 3))
        return (flat * shares).sum(2).movedim(1, -1)

    def _find_segments(self, device: torch.device, block: int) -> Tensor | None:
        attention, records = self.tower.find_attention(block), self._find_records(block)
        lengths = [
            record.told.get("cu_seqlens", attention.count_tokens(record.outputs))
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
            features = self._run_projector(move_to(self.projector, features))
        return features.to(device, dtype)

    def _run_projector(self, features: Tensor) -> Tensor:
        """Project features; kernels of quantized layers crash if there are none."""
        count = len(features)
        if count == 0:
            features = features.new_zeros(1, *features.shape[1:])
        projected: Tensor = self.projector(features)
        return projected[:count]
