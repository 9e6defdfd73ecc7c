"""Where and how the geometry is computed, whatever the caller's settings are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def find_float64_device(device: torch.device) -> torch.device:
    """The device itself, or the CPU if the device has no float64 (Apple's MPS)."""
    return torch.device("cpu") if device.type == "mps" else device


def to_float32(tokens: Tensor) -> Tensor:
    """The values in float32, without history, on a device that has float64."""
    return tokens.detach().to(find_float64_device(tokens.device), torch.float32)


@contextmanager
def keep_precision(device: torch.device) -> Iterator[None]:
    """Keep autocast from computing in half precision, and record no gradients."""
    with torch.no_grad(), torch.autocast(find_float64_device(device).type, enabled=False):
        yield
