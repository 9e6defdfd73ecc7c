"""Starting weights of image models: random matrices, and sine positions in the vision encoder.

The vision encoder is reported where its patches lie, and its first heads look at a patch's
neighbours, as a convolution would.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn

from tokencover_models.pebble.data import GRID
from tokencover_models.pebble.model import MODEL_HEADS, MODEL_WIDTH

EARLY_BLOCKS: Final = 2
"""Decoder layers that mostly process text without the image during training."""
HEAD: Final = MODEL_WIDTH // MODEL_HEADS
WAVES: Final = HEAD // 4
NEIGHBOUR_OFFSETS: Final = (
    ((-1, 0), (1, 0), (0, -1), (0, 1)),
    ((-1, -1), (-1, 1), (1, -1), (1, 1)),
)


def draw_weights(part: nn.Module, rng: torch.Generator) -> None:
    """Draw random weights for all matrices of a part."""
    for parameter in part.parameters():
        if parameter.ndim >= 2:
            width = min(0.09, parameter[0].numel() ** -0.5)
            parameter.normal_(0, width, generator=rng)


def prepare_vision(tower: Any) -> None:
    """Tell a vision encoder where its patches lie and let its first heads look at neighbours."""
    embeddings = tower.embeddings
    embeddings.class_embedding.normal_(0, 0.02, generator=torch.Generator().manual_seed(0))
    embeddings.patch_embedding.weight[-HEAD:] = 0
    embeddings.position_embedding.weight.zero_()
    embeddings.position_embedding.weight[1:, -HEAD:] = _make_position_code()
    layers = tower.encoder.layers
    for layer, offsets in zip(layers, NEIGHBOUR_OFFSETS, strict=False):
        for head, (down, right) in enumerate(offsets):
            rows = slice(head * HEAD, (head + 1) * HEAD)
            for projection, turn in (
                (layer.self_attn.k_proj, torch.eye(HEAD)),
                (layer.self_attn.q_proj, _make_turn(down, right)),
            ):
                projection.weight[rows] = 0
                projection.weight[rows, -HEAD:] = 1.6 * turn
    for layer in layers:
        layer.self_attn.out_proj.weight.mul_(0.5)
        layer.mlp.fc2.weight.mul_(0.5)


def _make_wave_lengths() -> Tensor:
    lengths: Tensor = 2.6 * (60 / 2.6) ** (torch.arange(WAVES) / (WAVES - 1))
    return lengths


def _make_position_code() -> Tensor:
    """Sines and cosines of a patch's row and column, shape (576, 32)."""
    angle = 2 * torch.pi * torch.arange(GRID)[:, None] / _make_wave_lengths()
    line = torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)
    rows = line[:, None].expand(GRID, GRID, -1)
    columns = line[None].expand(GRID, GRID, -1)
    return torch.cat([rows, columns], dim=2).reshape(GRID * GRID, HEAD)


def _make_turn(down: int, right: int) -> Tensor:
    """Matrix that takes a patch's position code to that of the patch `down`, `right` of it."""
    result = torch.zeros(HEAD, HEAD)
    for start, step in ((0, down), (2 * WAVES, right)):
        for index, length in enumerate(_make_wave_lengths().tolist()):
            angle = torch.tensor(2 * torch.pi * step / length)
            sine, cosine = float(angle.sin()), float(angle.cos())
            at = start + 2 * index
            result[at : at + 2, at : at + 2] = torch.tensor([[cosine, sine], [-sine, cosine]])
    return result
