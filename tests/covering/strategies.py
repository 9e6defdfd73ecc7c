"""Sets of tokens that are hard on a selection: ties, duplicates, zero rows, any size."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

_kinds = st.sampled_from(["integers", "gaussian", "clusters", "duplicates", "orthogonal"])


@st.composite
def token_sets(draw: st.DrawFn, most: int = 20, width: int | None = None) -> Tensor:
    """A ``(n, d)`` float32 tensor."""
    count = draw(st.integers(1, most))
    width = width or draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    tokens = _tokens(draw(_kinds), count, width, generator)
    if draw(st.booleans()):
        tokens[draw(st.integers(0, count - 1))] = 0.0
    return tokens


def _tokens(kind: str, count: int, width: int, generator: torch.Generator) -> Tensor:
    if kind == "integers":  # many exact ties
        return torch.randint(-2, 3, (count, width), generator=generator).float()
    if kind == "orthogonal":
        return torch.eye(max(count, width))[:count, :width].contiguous()
    tokens = torch.randn(count, width, generator=generator)
    if kind == "clusters":  # distances far below float32 resolution inside a cluster
        home = torch.randint(0, 3, (count,), generator=generator)
        return tokens[home % count] + 1e-4 * torch.randn(count, width, generator=generator)
    if kind == "duplicates":
        return tokens[torch.randint(0, max(1, count // 3), (count,), generator=generator)]
    return tokens


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Tensor, int, int, int]:
    """Visual tokens, prompt tokens, K, Kp and k; also K >= N, Kp = 0, short and empty prompts."""
    visual = draw(token_sets())
    width = visual.shape[1]
    prompt = draw(token_sets(most=5, width=width))[: draw(st.integers(0, 5))]
    budget = draw(st.integers(1, len(visual) + 3))
    return visual, prompt, budget, draw(st.integers(0, budget)), draw(st.integers(1, 8))
