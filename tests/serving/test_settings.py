"""What servers are started with, and what requests may ask of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tokencover as tc
from tests.budget.coupling_streams import two_heaps
from tokencover.budget import Profile
from tokencover.errors import InputError
from tokencover.families import Layout
from tokencover.methods import from_json
from tokencover.serving import ServingSettings, build_served_method, get_served_model
from tokencover.serving.selection import ImagePlan, SelectionPlan
from tokencover.serving.settings import format_reason
from tokencover.serving.supported import SERVED, SERVED_MODELS, validate_positions


def make_profile(after: int) -> Profile:
    return Profile.of("some-model", after, {"a": two_heaps(100)})


def read(**document: Any) -> ServingSettings:
    return ServingSettings.read({"budget": 64, **document})


@pytest.mark.parametrize("name", SERVED)
def test_every_served_method_acts_before_the_decoder(name: str) -> None:
    method = build_served_method(name, budget=64)
    assert method.name == name
    assert method.pruning_layers(32) == (0,)
    assert method.positions == "original"


def test_a_server_runs_mob_with_a_budget_for_each_picture() -> None:
    assert read().method == tc.MoB(64, after=0, per="image")
    assert read(method="mob:split=weak").method == tc.MoB(64, "weak", after=0, per="image")
    assert read(split="strong").method == tc.MoB(64, "strong", after=0, per="image")
    assert read(method={"method": "random", "seed": 3}).method == tc.Random(64, after=0, seed=3)
    assert read().ceiling == 64
    assert read(ceiling=0.5).ceiling == 0.5


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "must contain"),
        ({}, 'a "budget"'),
        ({"budget": 0}, "at least 1"),
        ({"budget": 64, "ceiling": 0}, "at least 1"),
        ({"budget": 64, "method": "mob:after=2"}, "after=0"),
        ({"budget": 64, "method": "fastv"}, "inside the decoder"),
        ({"budget": 64, "method": "visionzip"}, "vision encoder"),
        ({"budget": 64, "method": "nonsense"}, "no method 'nonsense'"),
        ({"budget": 64, "method": "mob:budget_mode=layer_mean"}, "exact"),
        ({"budget": 64, "split": "online"}, "adapts"),
        ({"budget": 64, "method": "divprune:positions=reindex"}, "fixed when the model is loaded"),
        ({"budget": 64, "choose_by": "chance"}, "choose_by"),
        ({"budget": 64, "vision_cache_mb": -1}, "vision_cache_mb"),
        ({"budget": 64, "celing": 3}, "did you mean 'ceiling'"),
        ({"budget": 64, "ceiling": 63}, "ceiling=63 is below budget=64"),
        ({"budget": 0.5, "ceiling": 0.25}, "ceiling=0.25 is below"),
        ({"budget": 64, "split": "coupling"}, "needs a profile"),
        ({"budget": 64, "method": "mob:split=weak", "split": "strong"}, "both set the split"),
        ({"budget": 64, "method": "mob:split=weak", "profile": "a.json"}, "both set the split"),
    ],
)
def test_a_wrong_start_is_told(document: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ServingSettings.read(document)


def test_a_profile_becomes_its_threshold(tmp_path: Path) -> None:
    profile = make_profile(after=0)
    profile.save(tmp_path / "profile.json")
    rule = read(split="coupling", profile=str(tmp_path / "profile.json")).method.rule  # type: ignore[attr-defined]
    assert profile.tau is not None
    assert rule == tc.CouplingSplit(profile.tau)
    make_profile(after=1).save(tmp_path / "later.json")
    with pytest.raises(InputError, match="calibrate --after 0"):
        read(profile=str(tmp_path / "later.json"))


def test_a_request_may_name_budget_and_method() -> None:
    settings = read(method="mob:split=weak")
    words = [5, 6]
    assert from_json(settings.plan(None, words).method) == settings.method
    less = settings.plan({"budget": 32}, words)
    assert from_json(less.method) == tc.MoB(32, "weak", after=0, per="image")
    assert less.prompt_ids == (5, 6)
    other = settings.plan({"method": "divprune"}, words)
    assert from_json(other.method) == tc.DivPrune(64, positions="original")
    assert other.prompt_ids == ()  # it never looks at them, so they must not spoil the caches
    assert settings.plan({"budget": 0.1, "method": "mob:split=strong"}, ()).prompt_ids == ()
    inside = settings.plan({"method": {"method": "grid", "budget": 9}}, words)
    assert from_json(inside.method) == tc.UniformGrid(9, after=0)


def make_layout(tokens: int) -> Layout:
    line = torch.zeros(tokens, dtype=torch.int64)
    return Layout(line, line, line, torch.arange(tokens), (1, 1, tokens))


def test_the_ceiling_is_for_budgets_that_requests_name() -> None:
    settings = read(budget=0.5, ceiling=64)
    layout = make_layout(576)
    assert settings.plan(None, ()).count_kept(layout) == 288
    assert settings.plan({"method": "grid"}, ()).count_kept(layout) == 288
    assert settings.plan({"budget": 64}, ()).count_kept(layout) == 64
    for budget in (65, 0.12, 1.0, 10**9):
        with pytest.raises(InputError, match="This server allows 64"):
            settings.plan({"budget": budget}, ()).count_kept(layout)
    # One token is not all of them, though 1 equals 1.0.
    with pytest.raises(InputError, match="This server allows 1, which is 1"):
        read(budget=1).plan({"budget": 1.0}, ()).count_kept(layout)


def test_a_client_is_told_in_few_letters_that_can_be_written() -> None:
    for asked in ({"\ud800": 1}, {"method": "x" * 10**6}, {"method": {"method": "x" * 10**6}}):
        with pytest.raises(InputError) as caught:
            read().plan(asked, ())
        assert len(format_reason(caught.value).encode()) < 1100


@pytest.mark.parametrize(
    "asked",
    [
        3,
        {"budget": 0},
        {"budget": -5},
        {"budget": True},
        {"budget": "64"},
        {"budget": 1.5},
        {"budget": None, "method": 4},
        {"method": "fastv"},
        {"method": "no such"},
        {"method": "mob:after=1"},
        {"method": "mob:split=online"},
        {"method": {"method": "mob", "split": {"rule": "coupling", "profile": "/etc/passwd"}}},
        {"method": "mob:split=/etc/passwd"},
        {"method": ["mob"]},
        {"method": {"method": "mob", "inner": {"method": "mob"}}},
        {"positions": "reindex"},
        {"ceiling": 576},
        {7: 3},
        {"budget": float("nan")},
        {"budget": float("inf")},
        {"budget": -0.5},
        {"budget": {"of": 64}},
        {"budget": [64]},
        {"method": '{"method":' * 10_000},
        {"method": {"method": ["mob"]}},
        {"method": "random:seed=-1"},
        {"method": "random:seed=1e400"},
        {"method": "cdpruner:sign=0"},
        {"unknown": 1},
        [],
        "mob",
    ],
)
def test_a_request_may_not_ask_for_more(asked: Any) -> None:
    with pytest.raises(InputError):
        read().plan(asked, [1])


def test_choosing_by_picture_hides_the_words() -> None:
    settings = read(choose_by="image")
    assert settings.plan(None, [5, 6]).prompt_ids == ()
    assert settings.plan(None, [5, 6]).text == settings.plan(None, [7]).text


def test_plans_differ_by_all_that_choices_depend_on() -> None:
    settings = read(ceiling=128)
    plans = [
        settings.plan(None, [5, 6]),
        settings.plan(None, [6, 5]),
        settings.plan({"budget": 32}, [5, 6]),
        settings.plan({"method": "mob:split=weak"}, [5, 6]),
        settings.plan({"method": "nearest"}, [5, 6]),
        read(ceiling=128, method="mob:split=strong").plan(None, [5, 6]),
    ]
    assert len({plan.text for plan in plans}) == len(plans)
    for plan in plans:
        assert SelectionPlan.read(plan.text) == plan
        json.loads(plan.text)


def test_a_plan_survives_as_bytes() -> None:
    plan = ImagePlan('{"method": "mob"}', (1, 70_000), 576, 64, 576, "ab12")
    assert ImagePlan.from_tensor(plan.to_tensor()) == plan


def test_models_are_found_by_either_name() -> None:
    for model in SERVED_MODELS:
        assert get_served_model([model.original]) is model
        assert get_served_model([model.name]) is model
    with pytest.raises(InputError, match="architecture LlamaForCausalLM"):
        get_served_model(["LlamaForCausalLM"])
    with pytest.raises(InputError, match="unknown"):
        get_served_model(None)


def test_rows_and_columns_cannot_be_numbered_anew() -> None:
    llava, qwen = SERVED_MODELS[0], SERVED_MODELS[-1]
    validate_positions(llava, "reindex")
    with pytest.raises(InputError, match="Qwen3-VL"):
        validate_positions(qwen, "reindex")
    with pytest.raises(InputError, match="sideways"):
        validate_positions(llava, "sideways")
