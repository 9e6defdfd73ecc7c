"""Split rules: which table a sample gets, and rules as JSON."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import tokencover as tc
from tests.budget.coupling_streams import one_heap, two_heaps
from tokencover.budget import (
    SPLITS,
    SplitRule,
    balance_prompt_budget,
    rule_document,
    rule_from_document,
    rule_of,
)
from tokencover.budget import split as split_module
from tokencover.budget.profile import Profile
from tokencover.budget.split import (
    AUTO,
    BalancedSplit,
    CouplingSplit,
    Decision,
    FixedSplit,
    OnlineSplit,
    PaperSplit,
    Tokens,
)

BUDGET, TOTAL = 16, 48


def tokens(angle: float = 0.5, words: int = 3, seed: int = 0, **more: Any) -> Tokens:
    """Visual tokens near an axis; the prompt tokens are at an angle (in radians) from it."""
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


def test_coupling_measured_once_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*pair: torch.Tensor) -> torch.Tensor:
        calls.append(pair)
        return tc.coupling(*pair)

    monkeypatch.setattr(split_module, "coupling", counted)
    sample = tokens()
    PaperSplit().decide(BUDGET, sample)
    assert not calls
    assert sample.coupling == sample.coupling == float(tc.coupling(sample.visual, sample.prompt))
    assert len(calls) == 1
    assert tokens(words=0).coupling is None


@pytest.mark.parametrize("modality", ["image", "video"])
def test_rule_names_select_paper_tables(modality: Any) -> None:
    sample = tokens(modality=modality)
    assert rule_of("paper").decide(BUDGET, sample) == paper(None, sample)
    assert rule_of("strong").decide(BUDGET, sample) == paper("strong", sample)
    assert rule_of("weak").decide(BUDGET, sample) == paper("weak", sample)
    assert rule_of("auto") == AUTO
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


def test_profile_of_other_layer_raises() -> None:
    rule = CouplingSplit(Profile.of("m", 2, {"a": two_heaps(200)}))
    rule.check(2)
    CouplingSplit(1.0).check(7)
    with pytest.raises(tc.InputError, match=r"after 2 layers.*after 1.*calibrate --after 1"):
        rule.check(1)


def test_online_split_learns_both_groups() -> None:
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
def test_balanced_split_uses_balanced_prompt_budget(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sample = Tokens(
        torch.randn(TOTAL, 6, generator=generator), torch.randn(3, 6, generator=generator)
    )
    share = balance_prompt_budget(sample.visual, sample.prompt, BUDGET)
    assert share > 0
    eighth = max(1, int(share / 8 + 0.5))
    assert BalancedSplit().decide(BUDGET, sample).split == tc.Split(share, BUDGET - share, eighth)


def test_balanced_split_without_prompt_uses_table() -> None:
    assert BalancedSplit().decide(BUDGET, tokens(words=0)).split == paper(None, tokens()).split
    assert BalancedSplit().decide(TOTAL, tokens()).split == tc.paper_split(TOTAL, TOTAL)


ALL = [
    PaperSplit(),
    PaperSplit("weak"),
    FixedSplit(tc.Split(2, 3, 1)),
    CouplingSplit(1.25),
    CouplingSplit(Profile.of("m", 1, {"a": two_heaps(80)})),
    OnlineSplit(60, 600),
    BalancedSplit(),
]


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
def test_rules_are_json(rule: SplitRule) -> None:
    text = json.dumps(rule_document(rule))
    back = rule_from_document(json.loads(text))
    assert type(back) is type(rule)
    assert back == rule
    assert hash(back) == hash(rule)
    assert SPLITS[rule.name] is type(rule)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rule_of("both"), "'paper', 'strong', 'weak', 'balanced', 'auto'.*'both'"),
        (lambda: rule_of(3), "got 3"),  # type: ignore[arg-type]
        (lambda: PaperSplit("medium"), "'medium'"),  # type: ignore[arg-type]
        (lambda: CouplingSplit(None), "got None"),  # type: ignore[arg-type]
        (lambda: CouplingSplit(float("nan")), "got nan"),
        (lambda: CouplingSplit("nowhere.json"), "there is no .* at nowhere.json"),
        (lambda: OnlineSplit(warm_up=3), "got 3"),
        (
            lambda: rule_from_document({"rule": "magic"}),
            "no split rule 'magic'; there are balanced, coupling, fixed, online, paper",
        ),
        (lambda: rule_from_document({"rule": "online", "x": 1}), "cannot be built from"),
        (lambda: rule_from_document({"rule": "coupling"}), "cannot be built from"),
    ],
)
def test_invalid_rule_raises(make: Any, message: str) -> None:
    with pytest.raises(tc.InputError, match=message):
        make()


@dataclass(frozen=True)
class Halves(SplitRule):
    """A rule of another package: the same fraction for the prompt whatever the sample."""

    name: ClassVar[str] = "halves"
    share: float = 0.5

    def decide(self, budget: int, tokens: Tokens) -> Decision:
        prompt_budget = int(budget * self.share)
        return Decision(tc.Split(prompt_budget, budget - prompt_budget, 1))


@dataclass(frozen=True)
class Needy(Halves):
    """One that cannot be built from its name alone."""

    name: ClassVar[str] = "needy"
    share: float = field(kw_only=True)


@pytest.fixture
def more_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that are known for one test."""
    monkeypatch.setattr(SPLITS, "_found", dict(SPLITS._found))
    SPLITS.register(Halves)
    SPLITS.register(Needy)


@pytest.mark.usefixtures("more_rules")
def test_a_registered_rule_works_by_name() -> None:
    assert rule_of("halves") == Halves()
    assert rule_of("halves").decide(BUDGET, tokens()).split == tc.Split(8, 8, 1)
    method = tc.MoB(budget=BUDGET, split="halves")
    assert tc.from_json(tc.to_json(method)) == method
    assert tc.get_method("mob", budget=BUDGET, split="halves") == method


@pytest.mark.usefixtures("more_rules")
@pytest.mark.parametrize("rule", [Halves(0.25), Needy(share=0.125)], ids=lambda rule: rule.name)
def test_a_registered_rule_is_json(rule: SplitRule) -> None:
    assert rule_from_document(json.loads(json.dumps(rule_document(rule)))) == rule
    method = tc.MoB(budget=BUDGET, split=rule)
    assert tc.from_json(tc.to_json(method)) == method


@pytest.mark.usefixtures("more_rules")
def test_rule_name_with_required_settings_raises() -> None:
    with pytest.raises(tc.InputError, match=r"split='needy' needs share.*Needy\(share="):
        rule_of("needy")
    with pytest.raises(tc.InputError, match=r"split='coupling' needs profile"):
        rule_of("coupling")
    with pytest.raises(tc.InputError, match=r"'auto', 'online', 'halves', a tc\.Split.*'third'"):
        rule_of("third")


def test_named_rule_state_is_per_method() -> None:
    first, second = (tc.MoB(budget=BUDGET, split="online") for _ in range(2))
    assert first.rule is first.rule
    assert first.rule is not second.rule
    assert first == second
    assert hash(first) == hash(second)
    assert tc.from_json(tc.to_json(first)) == first


class Nameless(Halves):
    name = ""


class Plain(SplitRule):
    name: ClassVar[str] = "plain"

    def decide(self, budget: int, tokens: Tokens) -> Decision:
        raise NotImplementedError


class Weak(Halves):
    name: ClassVar[str] = "Weak"


class OtherPaper(Halves):
    name: ClassVar[str] = "paper"


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (SplitRule, "is not a split rule"),
        (Halves(), "is not a split rule"),
        (dict, "is not a split rule"),
        (Plain, "must be a dataclass"),
        (Nameless, "must have a `name`"),
        (Weak, r"split='Weak' means PaperSplit\(coupling='weak'\) already"),
        (OtherPaper, "another split rule named 'paper' already"),
    ],
)
def test_what_cannot_be_registered(thing: Any, message: str) -> None:
    with pytest.raises(tc.InputError, match=message):
        SPLITS.register(thing)
