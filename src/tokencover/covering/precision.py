"""Where and how the geometry is computed, whatever the caller's settings are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def with_float64(device: torch.device) -> torch.device:
    """The device itself, or the CPU if the device has no float64 (Apple's MPS)."""
    return torch.device("cpu") if device.type == "mps" else device


def plain(tokens: Tensor) -> Tensor:
    """The values in float32, without history, on a device that has float64."""
    return tokens.detach().to(with_float64(tokens.device), torch.float32)


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """Record no gradients, and keep autocast from running estimates in half precision."""
    with torch.no_grad(), torch.autocast(with_float64(device).type, enabled=False):
        yield
