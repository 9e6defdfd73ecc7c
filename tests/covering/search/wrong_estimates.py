"""Estimates that err as much as they admit: whatever relies on them must still be right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

from tokencover.covering.search import local, vectors
from tokencover.covering.search.scratch import ScratchBuffers


@contextmanager
def disturb_estimates(noise: float) -> Iterator[None]:
    """Every estimated cosine is off by up to `noise`, differently each time."""
    products, error_bound = vectors.multiply, vectors.bound_error
    generator = torch.Generator().manual_seed(0)

    def multiply_noisily(
        rows: Tensor, others: Tensor, buffers: ScratchBuffers | None, chunk: int = 128
    ) -> Tensor:
        right = products(rows, others, buffers, chunk)
        off = torch.rand(right.shape, generator=generator) * 2 - 1
        # As an error of the products is: in proportion to the lengths of what is multiplied.
        lengths = [torch.linalg.vector_norm(each, dim=-1) for each in (rows, others)]
        return right.addcmul(off, torch.outer(*lengths), value=noise)

    def admit_more(dimension: int, chunk: int) -> float:
        return error_bound(dimension, chunk) + noise

    with (
        patch.multiple(vectors, multiply=multiply_noisily, bound_error=admit_more),
        patch.object(local, "multiply", multiply_noisily),
    ):
        yield
