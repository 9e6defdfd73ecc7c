"""Bad input is refused with the value and the way out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tokencover as tc
from tokencover.covering.accelerator import cover_together
from tokencover.covering.checks import SampleCounts, Samples

V, P = torch.randn(6, 4), torch.randn(3, 4)
NAN, INFINITE = V.clone(), P.clone()
NAN[2, 1] = float("nan")
INFINITE[0, 3] = float("-inf")

CASES: list[tuple[dict[str, Any], str]] = [
    ({"visual": NAN}, r"visual holds nan at \[2, 1\].*mask"),
    ({"prompt": INFINITE}, r"prompt holds -inf at \[0, 3\].*half"),
    ({"visual": torch.full((2, 4), 1e300, dtype=torch.float64)}, "visual holds inf"),
    ({"budget": 0}, "budget must be at least 1, got 0"),
    ({"budget": -5}, "got -5"),
    ({"budget": 2.5}, "budget must be an integer, got 2.5"),
    ({"budget": True}, "got True"),
    ({"budget": [3, 4]}, "2 counts for 1 samples"),
    ({"prompt_budget": 5}, "prompt_budget 5 is more than the whole budget 4"),
    ({"prompt_budget": -1}, "prompt_budget must be at least 0, got -1"),
    ({"fold": 0}, "fold must be at least 1, got 0"),
    ({"prompt": torch.randn(3, 5)}, "widths: 4 and 5.*same layer"),
    ({"visual": torch.empty(0, 4)}, "visual is empty.*Skip"),
    ({"visual": torch.randn(4)}, r"got shape \(4,\)"),
    ({"prompt": torch.randn(1, 1, 3, 4)}, r"got shape \(1, 1, 3, 4\)"),
    ({"prompt": P[None]}, r"\(6, 4\) and prompt \(1, 3, 4\)"),
    ({"visual": torch.randn(0, 6, 4), "prompt": torch.randn(0, 3, 4)}, "batch of no samples"),
    ({"visual": torch.empty(6, 0), "prompt": torch.empty(3, 0)}, "width 0"),
    ({"visual": V.long()}, "torch.int64.*not their ids"),
    ({"visual": V.tolist()}, "torch.Tensor, got list"),
    ({"visual": V.to("meta")}, "visual is on meta and prompt on cpu"),
    ({"visual_mask": torch.ones(5, dtype=torch.bool)}, r"shape \(5,\).*must be \(6,\)"),
    ({"prompt_mask": torch.ones(3)}, "prompt_mask must be a tensor of torch.bool.*float32"),
    ({"visual_mask": [True] * 6}, "torch.bool.*got list"),
    ({"visual_mask": torch.zeros(6, dtype=torch.bool)}, "sample 0 without a visual token"),
]


@pytest.mark.parametrize(("changed", "message"), CASES)
def test_mob_refuses(changed: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "visual": V, "prompt": P, "budget": 4, "prompt_budget": 2, "fold": 2,
    }  # fmt: skip
    with pytest.raises(tc.InputError, match=message):
        tc.mob(**{**good, **changed})


@pytest.mark.parametrize(("tokens", "name"), [((NAN, P), "visual"), ((V, INFINITE), "prompt")])
def test_the_accelerator_path_refuses_the_same(
    tokens: tuple[torch.Tensor, torch.Tensor], name: str
) -> None:
    masks = torch.ones(1, 6, dtype=torch.bool), torch.ones(1, 3, dtype=torch.bool)
    samples = Samples(tokens[0][None], tokens[1][None], *masks, [SampleCounts(4, 2, 2)])
    with pytest.raises(tc.InputError, match=f"{name} holds"):
        cover_together(samples)


def test_an_error_is_both_ours_and_a_value_error() -> None:
    with pytest.raises(ValueError, match="got 0"):
        tc.mob(V, P, budget=0, prompt_budget=0, fold=1)
    assert issubclass(tc.InputError, tc.TokenCoverError)
