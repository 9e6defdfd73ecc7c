"""What the vision encoders computed in one pass, as `VisionOutputs` for methods."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.families import FoldedTiles
from tokencover.methods import VisionOutputs
from tokencover.pruning.hooks import move_to
from tokencover.pruning.vision.encoder import VisionEncoder
from tokencover.pruning.vision.vision_attention import number_segments

if TYPE_CHECKING:
    from tokencover.pruning.selection import VisualTokens


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
            features = self._run_projector(move_to(self.projector, features))
        return features.to(device, dtype)

    def _run_projector(self, features: Tensor) -> Tensor:
        """Project features; kernels of quantized layers crash on empty input."""
        count = len(features)
        if count == 0:
            features = features.new_zeros(1, *features.shape[1:])
        projected: Tensor = self.projector(features)
        return projected[:count]
