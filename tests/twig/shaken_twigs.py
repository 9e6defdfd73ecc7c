"""Twigs on tiny models, and batches to train them with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.zoo.entry import ZooEntry
from tokencover.twig import Twig, grow


def grow_shaken(model: Any, after: int, depth: int) -> Twig:
    """A twig whose weights differ from those of the base."""
    twig = grow(model, after, depth)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in twig.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.3 * parameter.std() * noise)
    return twig.eval()


def make_batch(entry: ZooEntry, kind: str = "ragged") -> dict[str, Tensor]:
    """Inputs whose last three tokens are the answer."""
    inputs = entry.inputs(kind)
    labels = torch.full_like(inputs["input_ids"], -100)
    labels[:, -3:] = inputs["input_ids"][:, -3:]
    return {**inputs, "labels": labels}
