"""Bad input is refused with the value and the way out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import tokencover as tc
from tests.covering.together.on_accelerator import pretend_accelerator
from tokencover import covering
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
    ({"budget": [3, 4]}, "budget has 2 values, but must have 1"),
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


def test_input_error_is_value_error() -> None:
    with pytest.raises(ValueError, match="got 0"):
        tc.mob(V, P, budget=0, prompt_budget=0, fold=1)
    assert issubclass(tc.InputError, tc.TokenCoverError)


ALL, NONE = torch.ones(2, 6, dtype=torch.bool), torch.zeros(2, 6, dtype=torch.bool)
MASKED = ALL.clone()
MASKED[1] = False
COUNTS: dict[str, Any] = {"budget": 4, "prompt_budget": 2, "fold": 2}
BATCH = torch.randn(2, 6, 4), torch.randn(2, 3, 4)

BATCHED: list[tuple[dict[str, Any], str]] = [
    ({"visual_mask": ALL[0]}, r"visual_mask has shape \(6,\).*must be \(2, 6\)"),
    ({"visual_mask": ALL[:1]}, r"visual_mask has shape \(1, 6\).*must be \(2, 6\)"),
    ({"prompt_mask": ALL}, r"prompt_mask has shape \(2, 6\).*must be \(2, 3\)"),
    ({"visual_mask": ALL.long()}, r"visual_mask must be .*torch.bool.*torch.int64.*bool\(\)"),
    ({"prompt_mask": [[True] * 3] * 2}, r"prompt_mask must be .*got list.*as_tensor"),
    ({"visual": BATCH[0].long()}, "visual must contain floating-point.*int64.*not their ids"),
    ({"prompt": BATCH[1].long()}, "prompt must contain floating-point.*int64.*not their ids"),
    ({"prompt": BATCH[1][:1]}, r"\(2, 6, 4\) and prompt \(1, 3, 4\).*same batch size"),
    ({"prompt": BATCH[1][0]}, r"prompt .*\(3, 4\)"),
]


@pytest.mark.parametrize(("changed", "message"), BATCHED)
def test_batched_functions_refuse(changed: dict[str, Any], message: str) -> None:
    inputs = {"visual": BATCH[0], "prompt": BATCH[1], **changed}
    for select in (tc.mob, covering.mob_batch):
        with pytest.raises(tc.InputError, match=message):
            select(**{**inputs, **COUNTS})
    with pytest.raises(tc.InputError, match=message):
        tc.coupling(**inputs)


@pytest.mark.parametrize(("mask", "sample"), [(MASKED, 1), (NONE, 0)])
def test_a_sample_without_visual_tokens_is_named(mask: torch.Tensor, sample: int) -> None:
    for select in (tc.mob, covering.mob_batch):
        with pytest.raises(tc.InputError, match=f"leaves sample {sample} without .*Skip samples"):
            select(*BATCH, visual_mask=mask, **COUNTS)
    for on_accelerator in (False, True):
        with pretend_accelerator() if on_accelerator else nullcontext():
            message = f"no token left in sample {sample}: .*Skip such samples, or correct"
            with pytest.raises(tc.InputError, match=f"visual has {message} visual_mask"):
                tc.coupling(*BATCH, visual_mask=mask)
            with pytest.raises(tc.InputError, match=f"prompt has {message} prompt_mask"):
                tc.coupling(*BATCH, prompt_mask=mask[:, :3])


def test_sample_without_prompt_gets_visual_centers() -> None:
    covers = covering.mob_batch(*BATCH, prompt_mask=MASKED[:, :3], **COUNTS)
    assert [len(cover.prompt_centers) for cover in covers] == [2, 0]
    assert [len(cover) for cover in covers] == [4, 4]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"budget": [4]}, "budget has 1 values, but must have 2"),
        ({"budget": [4, 0]}, r"budget\[1\] must be at least 1, got 0"),
        ({"prompt_budget": [2, -1]}, r"prompt_budget\[1\] must be at least 0, got -1"),
        ({"fold": [1, 1.5]}, r"fold\[1\] must be an integer, got 1.5"),
        ({"fold": torch.tensor([1, 2])}, r"fold must be an integer, got tensor\(\[1, 2\]\)"),
    ],
)
def test_counts_of_samples_are_checked(changed: dict[str, Any], message: str) -> None:
    for select in (tc.mob, covering.mob_batch):
        with pytest.raises(tc.InputError, match=message):
            select(*BATCH, **{**COUNTS, **changed})


ONE_SAMPLE: list[Callable[[Any, Any], Any]] = [
    lambda visual, prompt: tc.nearest_points(visual, prompt, budget=2, fold=1),
    lambda visual, prompt: covering.prompt_order(visual, prompt, most=2),
    covering.hausdorff,
    covering.directed_hausdorff,
    lambda visual, prompt: covering.select_least_similar(visual, torch.tensor([0]), prompt, 1),
    lambda visual, prompt: tc.farthest_points(visual, budget=2),
    lambda visual, prompt: covering.farthest_order(visual, most=2),
    lambda visual, prompt: covering.select_diverse(visual, budget=2),
    lambda visual, prompt: covering.select_most_isolated(visual),
]
OF_PAIRS = ONE_SAMPLE[:5]


@pytest.mark.parametrize("select", ONE_SAMPLE)
def test_functions_of_one_sample_refuse(select: Callable[[Any, Any], Any]) -> None:
    select(V, P)
    for tokens, message in [
        (BATCH[0], r"visual must be \(tokens, width\), got shape \(2, 6, 4\)"),
        (V[0], r"visual must be \(tokens, width\), got shape \(4,\)"),
        (torch.arange(6).view(6, 1), "visual must contain floating-point.*int64.*not their ids"),
        (V.tolist(), "visual must be a torch.Tensor, got list"),
        (V[:0], r"visual is empty, shape \(0, 4\).*Skip"),
        (NAN, r"visual holds nan at \[2, 1\].*mask"),
    ]:
        with pytest.raises(tc.InputError, match=message):
            select(tokens, P)


@pytest.mark.parametrize("select", OF_PAIRS)
def test_functions_of_pairs_refuse(select: Callable[[Any, Any], Any]) -> None:
    for words, message in [
        (BATCH[1], r"prompt must be \(tokens, width\), got shape \(2, 3, 4\)"),
        (torch.arange(3).view(3, 1), "prompt must contain floating-point.*int64.*not their ids"),
        (torch.randn(3, 5), "different widths: 4 and 5.*same layer"),
        (INFINITE, r"holds -inf at \[0, 3\].*half"),
    ]:
        with pytest.raises(tc.InputError, match=message):
            select(V, words)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (torch.tensor([0, 6]), "from 0 to 6, but there are 6 tokens: use indices from 0 to 5"),
        (torch.tensor([-1]), "from -1 to -1, but there are 6 tokens: use indices from 0 to 5"),
        (torch.ones(6, dtype=torch.bool), r"got torch.bool of shape \(6,\).*nonzero"),
        (torch.tensor([0.0]), r"got torch.float32 of shape \(1,\)"),
        (torch.tensor([[0]]), r"got torch.int64 of shape \(1, 1\)"),
        ([0, 1], r"must be a torch.Tensor of indices, got list: use torch.tensor"),
    ],
)
def test_indices_of_tokens_are_checked(indices: Any, message: str) -> None:
    with pytest.raises(tc.InputError, match=f"start .*{message}"):
        tc.farthest_points(V, budget=2, start=indices)
    with pytest.raises(tc.InputError, match=f"own .*{message}"):
        covering.select_least_similar(V, indices, P, 1)


def test_numbers_of_choices_are_checked() -> None:
    one = torch.tensor([0])
    for budget in (0, -2, 1.5):
        with pytest.raises(tc.InputError, match=f"budget must be .*got {budget}"):
            covering.select_diverse(V, budget=budget)  # type: ignore[arg-type]
    with pytest.raises(tc.InputError, match="shares has 3 values, but must have 4"):
        covering.select_least_similar(V, one, P, [1, 1, 1])
    with pytest.raises(tc.InputError, match=r"shares\[1\] must be at least 0, got -1"):
        covering.select_least_similar(V, one, P, [1, -1, 1, 1])
