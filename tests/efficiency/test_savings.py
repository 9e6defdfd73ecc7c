"""Measured runs on the bundled model."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pruning.random_method import KeepRandom
from tokencover.efficiency import instruments
from tokencover.efficiency.measured import AnswerTimes, IdealDecoder, MeasuredModel, PassFacts
from tokencover.efficiency.savings import Savings, export_savings, measure_savings, tabulate_savings
from tokencover.efficiency.workload import (
    Workload,
    build_workload,
    select_drawn_questions,
)
from tokencover.errors import InputError
from tokencover.methods import FastV, Method, MoB, PyramidDrop, get_method
from tokencover.pruning import prune
from tokencover_models.pebble import load_pebble


@pytest.fixture(scope="module")
def pair() -> Workload:
    """Two scenes; the second question is longer."""
    model, processor = load_pebble()
    first, second = select_drawn_questions(processor, 2)
    longer = second[0], f"{second[1]} {second[1]}"
    return build_workload("pebble", model, processor, [first, longer])


@pytest.fixture(scope="module")
def found(pair: Workload) -> Savings:
    return measure_savings(pair, [MoB(64), PyramidDrop(64)], tokens_out=3, repeats=1)


def test_every_ratio_is_there(found: Savings) -> None:
    assert [row.method for row in found.rows] == ["mob", "pyramiddrop"]
    for row in found.rows:
        gains = dataclasses.asdict(row.gains)
        if not Path("/proc/self/clear_refs").exists():  # where memory is not known
            assert gains.pop("peak") is None
        for name in ("prefill", "first_token", "decode"):
            ratio = gains.pop(name)
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
        assert all(value is not None and value > 0 for value in gains.values())
        times = row.measured
        assert 0 < times.selection < times.prefill < times.first_token
        assert times.decode_rate is not None
        assert times.decode_rate > 0
        assert times.ideal_prefill > 0
        assert times.above_ideal > 0
        assert times.facts.selection_flops > 0


def test_the_cache_shrinks_as_the_trace_says(pair: Workload, found: Savings) -> None:
    config = pair.decoder.config
    of_token = 2 * config.hidden_size * 4 * 2  # keys and values, float32, two samples
    others = pair.other_counts
    assert others[0] != others[1]
    for measured in (found.unpruned, *(row.measured for row in found.rows)):
        facts = measured.facts
        expected = [
            max(count + other for count, other in zip(counts, others, strict=True))
            for counts in zip(*facts.tokens_per_layer, strict=True)
        ]
        assert facts.cache_lengths == facts.lengths == expected
        assert facts.cache_bytes == of_token * sum(expected)
    mob = found.rows[0].measured.facts
    assert mob.tokens_per_layer == [[576] + [64] * 10] * 2
    assert found.rows[0].gains.cache == pytest.approx(
        11 * (576 + max(others)) / (576 + 10 * 64 + 11 * max(others))
    )


def test_flops_follow_trace_and_head(pair: Workload, found: Savings) -> None:
    with torch.no_grad(), prune(pair.model, MoB(64), prompt=pair.get_prompt_mask()) as run:
        pair.model(**pair.inputs)
    head = 2 * pair.model.lm_head.weight.numel() * 2
    assert found.unpruned.facts.prefill_flops - head == sum(x.flops_unpruned for x in run.trace)
    assert found.rows[0].measured.facts.prefill_flops - head == sum(x.flops for x in run.trace)


def test_vision_encoder_cost_unchanged_by_pruning(found: Savings) -> None:
    vision = found.unpruned.facts.vision_flops
    assert vision
    assert [row.measured.facts.vision_flops for row in found.rows] == [vision, vision]


def test_nothing_is_left_on_the_model(pair: Workload, found: Savings) -> None:
    def hooks() -> int:  # transformers has some of its own
        return sum(
            len(part._forward_hooks) + len(part._forward_pre_hooks) for part in pair.model.modules()
        )

    before = hooks()
    model = MeasuredModel(pair, MoB(64))
    model.inspect_pass()
    model.time_answer(1)
    assert hooks() == before
    assert "get_image_features" not in vars(pair.model.model)
    assert len(pair.decoder.layers) == pair.decoder.config.num_hidden_layers == 11


def test_json_contains_all_fields(found: Savings) -> None:
    data = json.loads(json.dumps(export_savings(found), allow_nan=False))
    assert set(data) == {"setting", "unpruned", "rows"}
    assert data["setting"]["visual_tokens"] == [576, 576]
    assert data["setting"]["repeats"] == 1
    row = data["rows"][0]
    assert set(row) == {"method", "settings", "budget", "measured", "gains"}
    assert set(row["gains"]) == {
        "prefill", "first_token", "decode", "cache", "flops", "peak",
    }  # fmt: skip
    assert set(data["unpruned"]) == {
        "selection", "prefill", "first_token", "ideal_prefill", "above_ideal",
        "decode_rate", "peak_bytes", "facts",
    }  # fmt: skip
    assert set(data["unpruned"]["facts"]) == {each.name for each in dataclasses.fields(PassFacts)}
    assert json.loads(row["settings"])["method"] == "mob"


def test_the_table_has_a_line_for_each(found: Savings) -> None:
    lines = str(tabulate_savings(found)).splitlines()
    assert lines[0].startswith("pebble: 576+576 visual and ")
    assert [line.split()[0] for line in lines[3:6]] == ["unpruned", "mob", "pyramiddrop"]
    assert lines[4].split()[1:4] == ["64", "64", "110.5"]


@pytest.fixture
def quick(found: Savings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs but what a test puts in the place of `time_answer`."""
    monkeypatch.setattr(MeasuredModel, "inspect_pass", lambda self: found.unpruned.facts)
    monkeypatch.setattr(IdealDecoder, "time_pass", lambda self: 1.0)


@pytest.mark.usefixtures("quick")
def test_one_token_has_no_decode_rate(pair: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        MeasuredModel, "time_answer", lambda self, tokens: AnswerTimes(0.1, 1.0, 2.0, 0.0)
    )
    result = measure_savings(pair, [MoB(64)], tokens_out=1, repeats=1)
    assert result.rows[0].measured.decode_rate is None
    assert result.rows[0].gains.decode is None
    assert str(tabulate_savings(result)).splitlines()[4].split()[13:15] == ["-", "-"]


@pytest.mark.usefixtures("quick")
def test_ratios_are_medians_of_pairs(pair: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    # A neighbour slows the second turn down for both, and then one model: no ratio of medians
    # would be right.
    noise = {None: iter([1, 10, 1]), "mob": iter([1, 10, 20])}

    def answer(self: MeasuredModel, tokens: int) -> AnswerTimes:
        if tokens < 5:  # not yet a turn that counts
            return AnswerTimes(0, 1, 1, 1)
        name = None if self.method is None else self.method.name
        factor = next(noise[name])
        return AnswerTimes(0.1, factor * (8.0 if name is None else 2.0), factor * 9.0, factor * 4.0)

    monkeypatch.setattr(MeasuredModel, "time_answer", answer)
    result = measure_savings(pair, [MoB(64)], tokens_out=5, repeats=3)
    prefill = result.rows[0].gains.prefill
    assert (prefill.median, prefill.high) == (4.0, 4.0)
    assert prefill.low == pytest.approx(2.1)
    assert result.rows[0].gains.first_token.median == 1.0
    assert result.rows[0].measured.above_ideal == 20.0
    assert result.rows[0].measured.decode_rate == pytest.approx(0.1)
    assert result.rows[0].measured.prefill == 20.0


def test_choosing_at_several_places_adds_up(
    pair: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(instruments, "read_clock", lambda: float(next(ticks)))
    answered = MeasuredModel(pair, KeepRandom(9, (1, 2, 4))).time_answer(1)
    assert answered.selection == 3


@pytest.fixture(scope="module")
def workload() -> Workload:
    model, processor = load_pebble()
    return build_workload("pebble", model, processor, select_drawn_questions(processor, 1))


@pytest.mark.parametrize(
    "method",
    [
        MoB(64),
        get_method("pyramiddrop", budget=64),  # prunes at several layers
        get_method("sparsevlm", budget=64),  # merges
        get_method("fastervlm", budget=64),  # reads the vision encoder
        get_method("tome", budget=64),  # merges in the vision encoder
        get_method("mustdrop", budget=64),  # in the vision encoder and at several layers
        get_method("twigvlm", budget=64, weights="pebble"),  # runs other layers ahead
        get_method("final_wipe", inner=FastV(64)),  # wraps another method
    ],
    ids=lambda each: each.name,
)
def test_compare_supports_every_kind_of_method(workload: Workload, method: Method) -> None:
    facts = MeasuredModel(workload, method).inspect_pass()
    with torch.no_grad(), prune(workload.model, method, prompt=workload.get_prompt_mask()) as run:
        workload.model(**workload.inputs)
    assert facts.tokens_per_layer == [run.trace[0].tokens_per_layer]
    assert facts.cache_lengths == facts.lengths
    assert facts.cache_lengths[-1] < 576


def test_processor_without_image_tokens_raises() -> None:
    model, processor = load_pebble()
    template = processor.chat_template
    assert template is not None

    class Blind:
        tokenizer = processor.tokenizer
        chat_template = template

        def apply_chat_template(self, *args: Any, **kwargs: Any) -> Any:
            return processor.apply_chat_template(*args, **kwargs)

        def __call__(self, images: Any, **kwargs: Any) -> Any:
            batch = processor(images=images, **kwargs)
            batch["input_ids"] = batch["input_ids"][:, -4:]
            batch["attention_mask"] = batch["attention_mask"][:, -4:]
            return batch

    with pytest.raises(InputError, match="added no image"):
        build_workload("pebble", model, Blind(), select_drawn_questions(load_pebble()[1], 1))
