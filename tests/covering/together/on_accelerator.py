"""The accelerator's code path, run on CPU tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

import tokencover as tc
from tokencover.covering.search.vectors import bound_error
from tokencover.covering.together import directions, hausdorff_pairs, prompt_centers
from tokencover.covering.together import visual_centers as centers

MULTIPLYING = (directions, hausdorff_pairs, prompt_centers, centers)


def _is_never_on_cpu(tokens: Tensor) -> bool:
    return False


@contextmanager
def pretend_accelerator() -> Iterator[None]:
    """CPU tensors are taken for those of an accelerator."""
    with ExitStack() as stack:
        for module in ("coupling", "diversity", "mob"):
            name = f"tokencover.covering.{module}.on_cpu"
            stack.enter_context(patch(name, _is_never_on_cpu))
        yield


@contextmanager
def disturb_estimates(noise: float) -> Iterator[None]:
    """Every estimated cosine is off by up to `noise`, differently each time it is asked for."""
    multiply = directions.multiply
    generator = torch.Generator().manual_seed(0)

    def multiply_noisily(rows: Tensor, others: Tensor) -> Tensor:
        right = multiply(rows, others)
        return right + noise * (torch.rand(right.shape, generator=generator) * 2 - 1)

    with ExitStack() as stack:
        for module in MULTIPLYING:
            stack.enter_context(patch.object(module, "multiply", multiply_noisily))
        stack.enter_context(
            patch.object(directions, "bound_error", lambda *sizes: bound_error(*sizes) + noise)
        )
        yield


def list_cover(found: tc.Cover) -> tuple[list[int], list[int]]:
    return found.prompt_centers.tolist(), found.visual_centers.tolist()
