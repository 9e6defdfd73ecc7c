"""What the vision encoder learns by itself, through heads that are thrown away afterwards.

Every patch tells its words, and the class token tells what the image holds, both where the decoder
takes the visual tokens from and at the vision encoder's end. The heads read; they do not say what a
visual token must look like.

Among 576 patches the class token does not find the few dozen that hold something: it learns the
place and stops. So copies of it are shown small parts of the image, about which they are asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax

from research.pebble_training.holdings import HOLDINGS, TABLES
from research.pebble_training.losses import PLACE_WEIGHT, THING_WEIGHT
from research.pebble_training.patch_labels import NONE, SCENE_GROUPS
from tokencover_models.pebble.data import PICTURE_TOKENS
from tokencover_models.pebble.model import MODEL_WIDTH, VISION_FEATURE_LAYER

HIDDEN: Final = 256
# The label "none" comes first in each group.
BOUNDS: Final = (0, *torch.tensor([len(g.words) + 1 for g in SCENE_GROUPS]).cumsum(0).tolist())


class TowerHeads(nn.Module):
    """Heads for patches, for the class token of their block, and at the vision encoder's end."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Linear(MODEL_WIDTH, BOUNDS[-1])
        self.norm = nn.LayerNorm(MODEL_WIDTH)
        self.holdings = nn.ModuleList(
            nn.Sequential(nn.Linear(MODEL_WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HOLDINGS))
            for _ in range(2)
        )

    def compute_holdings(self, middle: Tensor) -> Tensor:
        """Logits of what is held, from class tokens where patches are taken."""
        told: Tensor = self.holdings[0](self.norm(middle))
        return told

    def compute_final_holdings(self, end: Tensor) -> Tensor:
        """Logits of what is held, from the class token at the vision encoder's end."""
        told: Tensor = self.holdings[1](end)
        return told


@dataclass(frozen=True)
class Sight:
    """What a vision encoder saw.

    Attributes
    ----------
    patches
        Where visual tokens are taken, shape (images, 576, width).
    summary
        The class token there, shape (images, width).
    glances
        Its copies there, which saw one part each, shape (images, parts, width).
    end
        The class token at the vision encoder's end, shape (images, width).
    """

    patches: Tensor
    summary: Tensor
    glances: Tensor
    end: Tensor


def run_whole_tower(tower: Any, pixels: Tensor, parts: Tensor) -> Sight:
    """Run the vision encoder to its end.

    Parameters
    ----------
    vision encoder
        A CLIP vision model.
    pixels
        Normalised images.
    parts
        Which patches each copy of the class token sees, bool, shape (images, parts, 576);
        there may be none. No other token sees the copies, so they change nothing else.
    """
    states = tower.pre_layrnorm(tower.embeddings(pixels))
    own = 1 + PICTURE_TOKENS
    mask = _make_glance_mask(parts) if parts.shape[1] else None
    states = torch.cat([states, states[:, :1].expand(-1, parts.shape[1], -1)], dim=1)
    for layer in tower.encoder.layers[: VISION_FEATURE_LAYER + 1]:
        states = layer(states, mask)
    last = states[:, :own]
    for layer in tower.encoder.layers[VISION_FEATURE_LAYER + 1 :]:
        last = layer(last, None)
    end = tower.post_layernorm(last[:, 0])
    return Sight(states[:, 1:own], states[:, 0], states[:, own:], end)


def _make_glance_mask(parts: Tensor) -> Tensor:
    """Mask to add to attention: all see all but the copies, which see themselves and a part."""
    pictures, copies, patches = parts.shape
    size = 1 + patches + copies
    seen = torch.zeros(pictures, 1, size, size, dtype=torch.bool)
    seen[..., : 1 + patches, : 1 + patches] = True
    seen[:, 0, 1 + patches :, 1 : 1 + patches] = parts
    seen[..., 1 + patches :, 1 + patches :] = torch.eye(copies, dtype=torch.bool)
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)


def compute_words_loss(
    heads: TowerHeads, patches: Tensor, labels: Tensor
) -> tuple[Tensor, dict[str, float]]:
    """How badly patches tell their words.

    Parameters
    ----------
    heads
        Of the run.
    patches
        Shape (images, 576, width).
    labels
        What `label_scene` returns for each image, shape (images, 576, groups).

    Returns
    -------
    loss
        A scalar.
    accuracy
        Share of patches with a word of a group that tell the right one, per group.
    """
    told = heads.words(patches).flatten(0, 1)
    loss, accuracy = told.new_zeros(()), {}
    for index, (group, (start, end)) in enumerate(zip(SCENE_GROUPS, pairwise(BOUNDS), strict=True)):
        truth = labels[..., index].flatten()
        each = cross_entropy(told[:, start:end], truth + 1, reduction="none")
        has_one = truth != NONE
        emphasis = torch.where(has_one, THING_WEIGHT.get(group.name, 1.0), 1.0)
        loss = loss + (each * emphasis).mean() * PLACE_WEIGHT.get(group.name, 1.0)
        right = told[:, start:end].argmax(1) == truth + 1
        accuracy[group.name] = float(right[has_one].float().mean())
    return loss, accuracy


def compute_holdings_loss(logits: Tensor, holdings: Tensor) -> Tensor:
    """How far what is reported is from what is held: divergence, summed over the tables.

    Parameters
    ----------
    logits
        Shape (..., HOLDINGS).
    holdings
        What `label_holdings` returns, same shape.
    """
    logits, holdings = logits.flatten(0, -2), holdings.flatten(0, -2)
    loss = logits.new_zeros(())
    for start, end in TABLES:
        truth = holdings[:, start:end]
        told = log_softmax(logits[:, start:end], dim=1)
        each = truth * (truth.clamp_min(1e-9).log() - told)
        # Tables with nothing to tell cost nothing and do not count.
        loss = loss + each.sum() / (truth.sum(1) > 0).sum().clamp_min(1)
    return loss
