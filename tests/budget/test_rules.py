"""Split rules: which table a sample gets, and rules as JSON."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tokencover as tc
from tests.budget.coupling_streams import one_heap, two_heaps
from tokencover.budget import split_rules as rules
from tokencover.budget.profile import Profile
from tokencover.budget.radius_balance import balance_prompt_budget
from tokencover.budget.split_rules import (
    BalancedSplit,
    CouplingSplit,
    Decision,
    FixedSplit,
    OnlineSplit,
    PaperSplit,
    Tokens,
    rule_document,
    rule_from_document,
    rule_of,
)

BUDGET, TOTAL = 16, 48


def tokens(angle: float = 0.5, words: int = 3, seed: int = 0, **more: Any) -> Tokens:
    """Visual tokens near an axis; the words lie together at an angle (in radians) from it."""
    generator = torch.Generator().manual_seed(seed)
    visual = torch.randn(TOTAL, 8, generator=generator) * 0.01
    visual[:, 0] += 1
    prompt = torch.randn(words, 8, generator=generator) * 0.01
    prompt[:, 0] += torch.cos(torch.tensor(angle))
    prompt[:, 1] += torch.sin(torch.tensor(angle))
    return Tokens(visual, prompt, **more)


def paper(group: Any, sample: Tokens) -> Decision:
    split = tc.paper_split(BUDGET, TOTAL, coupling=group, modality=sample.modality)
    return Decision(split, group)


def test_coupling_is_measured_once_and_only_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*pair: torch.Tensor) -> torch.Tensor:
        calls.append(pair)
        return tc.coupling(*pair)

    monkeypatch.setattr(rules, "coupling", counted)
    sample = tokens()
    PaperSplit().decide(BUDGET, sample)
    assert not calls
    assert sample.coupling == sample.coupling == float(tc.coupling(sample.visual, sample.prompt))
    assert len(calls) == 1
    assert tokens(words=0).coupling is None


@pytest.mark.parametrize("modality", ["image", "video"])
def test_words_stand_for_the_tables(modality: Any) -> None:
    sample = tokens(modality=modality)
    assert rule_of("paper").decide(BUDGET, sample) == paper(None, sample)
    assert rule_of("strong").decide(BUDGET, sample) == paper("strong", sample)
    assert rule_of("weak").decide(BUDGET, sample) == paper("weak", sample)
    assert rule_of("auto") == rules.AUTO
    assert rule_of("balanced") == BalancedSplit()
    fixed = tc.Split(3, 5, 1)
    assert rule_of(fixed).decide(BUDGET, sample) == Decision(fixed)


@pytest.mark.parametrize("modality", ["image", "video"])
def test_small_eta_is_strong_coupling(modality: Any) -> None:
    near, far = tokens(0.3, modality=modality), tokens(1.2, modality=modality)
    assert near.coupling is not None
    assert far.coupling is not None
    assert near.coupling < far.coupling
    rule = CouplingSplit((near.coupling + far.coupling) / 2)
    assert rule.decide(BUDGET, near) == paper("strong", near)
    assert rule.decide(BUDGET, far) == paper("weak", far)
    assert rule.decide(BUDGET, tokens(words=0)) == paper(None, tokens())
    assert CouplingSplit(near.coupling).decide(BUDGET, near).group == "strong"  # tau is included


def test_a_profile_gives_the_threshold(tmp_path: Path) -> None:
    profile = Profile.of("m", 1, {"a": two_heaps(200, low=0.4, high=0.9)})
    profile.save(tmp_path / "p.json")
    for rule in (CouplingSplit(profile), CouplingSplit(tmp_path / "p.json")):
        assert rule.tau == profile.tau
        assert rule.decide(BUDGET, tokens(0.3)).group == "strong"
        assert rule.decide(BUDGET, tokens(1.2)).group == "weak"


def test_a_rule_is_short_to_read() -> None:
    assert str(CouplingSplit(1.25)) == "CouplingSplit(1.25)"
    profile = Profile.of("some-model", 1, {"a": one_heap(60)})
    assert str(CouplingSplit(profile)) == "CouplingSplit(profile of some-model)"


def test_without_two_groups_there_is_no_prior() -> None:
    rule = CouplingSplit(Profile.of("m", 1, {"a": one_heap(200, mean=0.6)}))
    assert rule.tau is None
    for angle in (0.3, 1.2):
        assert rule.decide(BUDGET, tokens(angle)) == paper(None, tokens())


def test_a_profile_of_another_place_is_refused() -> None:
    rule = CouplingSplit(Profile.of("m", 2, {"a": two_heaps(200)}))
    rule.check(2)
    CouplingSplit(1.0).check(7)
    with pytest.raises(tc.InputError, match=r"after 2 blocks.*after 1.*calibrate --after 1"):
        rule.check(1)


def test_online_learns_and_then_tells_groups_apart() -> None:
    rule = OnlineSplit(warm_up=50, memory=100)
    groups = [
        rule.decide(BUDGET, tokens(1.2 if seed % 2 else 0.3, seed=seed)).group for seed in range(60)
    ]
    assert groups[:50] == [None] * 50
    assert groups[50:] == ["strong", "weak"] * 5
    assert rule.decide(BUDGET, tokens(words=0)).group is None
    assert rule.threshold.seen == 60


def test_what_online_learned_is_no_setting() -> None:
    rule = OnlineSplit(warm_up=50, memory=100)
    rule.decide(BUDGET, tokens())
    fresh = OnlineSplit(50, 100)
    assert rule == fresh
    assert hash(rule) == hash(fresh)
    assert rule != OnlineSplit(50, 101)
    assert rule_document(rule) == rule_document(fresh)
    assert copy.deepcopy(rule).threshold.seen == 1
    assert rule_from_document(rule_document(rule)).threshold.seen == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(3))
def test_balanced_takes_its_prompt_budget_from_the_geometry(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sample = Tokens(
        torch.randn(TOTAL, 6, generator=generator), torch.randn(3, 6, generator=generator)
    )
    share = balance_prompt_budget(sample.visual, sample.prompt, BUDGET)
    assert share > 0
    eighth = max(1, int(share / 8 + 0.5))
    assert BalancedSplit().decide(BUDGET, sample).split == tc.Split(share, BUDGET - share, eighth)
    per_word = BalancedSplit("per_word").decide(BUDGET, sample).split
    assert per_word == tc.Split(share, BUDGET - share, max(1, share // 3))


def test_balanced_without_words_or_with_nothing_to_drop() -> None:
    assert BalancedSplit().decide(BUDGET, tokens(words=0)).split == paper(None, tokens()).split
    assert BalancedSplit().decide(TOTAL, tokens()).split == tc.paper_split(TOTAL, TOTAL)


ALL = [
    PaperSplit(),
    PaperSplit("weak"),
    FixedSplit(tc.Split(2, 3, 1)),
    CouplingSplit(1.25),
    CouplingSplit(Profile.of("m", 1, {"a": two_heaps(80)})),
    OnlineSplit(60, 600),
    BalancedSplit("per_word"),
]


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
def test_rules_are_json(rule: rules.SplitRule) -> None:
    text = json.dumps(rule_document(rule))
    back = rule_from_document(json.loads(text))
    assert type(back) is type(rule)
    assert back == rule
    assert hash(back) == hash(rule)
    assert rule.name in rules.RULES


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rule_of("both"), "'paper', 'strong', 'weak', 'balanced', 'auto'.*'both'"),
        (lambda: rule_of(3), "got 3"),  # type: ignore[arg-type]
        (lambda: PaperSplit("medium"), "'medium'"),  # type: ignore[arg-type]
        (lambda: BalancedSplit("all"), "'all'"),  # type: ignore[arg-type]
        (lambda: CouplingSplit(None), "got None"),  # type: ignore[arg-type]
        (lambda: CouplingSplit(float("nan")), "got nan"),
        (lambda: CouplingSplit("nowhere.json"), "there is no .* at nowhere.json"),
        (lambda: OnlineSplit(warm_up=3), "got 3"),
        (lambda: rule_from_document({"rule": "magic"}), "no split rule 'magic'; there are paper"),
        (lambda: rule_from_document({"rule": "online", "x": 1}), "cannot be made from"),
        (lambda: rule_from_document({"rule": "coupling"}), "cannot be made from"),
    ],
)
def test_what_is_no_rule_is_refused(make: Any, message: str) -> None:
    with pytest.raises(tc.InputError, match=message):
        make()
