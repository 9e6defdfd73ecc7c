"""Pebble: answers, choices and probabilities are those of `tc.prune`, whatever the engine does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from vllm.exceptions import VLLMValidationError

import tokencover as tc
from tests_vllm.comparing import (
    Answered,
    Asked,
    Choices,
    answer_in_transformers,
    answer_in_vllm,
    check_same,
    measure_all,
)
from tests_vllm.engines import make_engine
from tokencover.methods import Method
from tokencover.serving import pruned_processor, serving_metrics
from tokencover.serving.choice_plan import ChoicePlan
from tokencover.serving.served_methods import SERVED, make_served_method
from tokencover_models.pebble import PICTURE_CHECKPOINT, load_pebble
from tokencover_models.pebble.data import make_examples

BUDGET = 64


@pytest.fixture(scope="module")
def engine() -> Any:
    return make_engine(PICTURE_CHECKPOINT, {"budget": BUDGET, "ceiling": 1.0})


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return load_pebble()


@pytest.fixture(scope="module")
def prompts() -> list[Asked]:
    examples = list(make_examples("test", 2))[:11]
    return [Asked((each.picture,), write(each.question)) for each in examples]


def write(question: str, pictures: int = 1) -> str:
    return f"USER: {'<image> ' * pictures}{question} ASSISTANT:"


def mob(**settings: Any) -> Method:
    return tc.MoB(BUDGET, after=0, per="image", **settings)


@pytest.fixture(scope="module")
def expected(pair: Any, prompts: list[Asked]) -> tuple[list[Answered], list[list[int]]]:
    return answer_in_transformers(pair, mob(), prompts)


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> Choices:
    return Choices(monkeypatch)


def test_all_at_once(engine: Any, prompts: Any, expected: Any, choices: Choices) -> None:
    check_same(answer_in_vllm(engine, prompts), expected[0])
    assert sorted(each.kept for each in choices.made) == sorted(expected[1])


def test_again_from_the_caches(engine: Any, prompts: Any, expected: Any, choices: Choices) -> None:
    check_same(answer_in_vllm(engine, prompts[:4]), expected[0][:4])
    check_same(answer_in_vllm(engine, prompts), expected[0])


def test_one_by_one_without_caches(engine: Any, prompts: Any, expected: Any) -> None:
    engine.reset_prefix_cache()
    for asked, answer in list(zip(prompts, expected[0], strict=True))[:4]:
        check_same(answer_in_vllm(engine, [asked]), [answer])


def test_two_questions_about_one_picture_are_two_choices(
    engine: Any, prompts: Any, choices: Choices
) -> None:
    picture = prompts[0].pictures
    asked = [Asked(picture, write(each)) for each in ("what is there ?", "is it day or night ?")]
    answer_in_vllm(engine, asked)
    first, second = (each.kept for each in choices.made)
    assert first != second
    assert len(first) == len(second) == BUDGET


def test_the_control_words_left_out_of_the_hash(
    engine: Any, prompts: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the words in it, caches give one question the choice of another."""
    plan = ChoicePlan
    hide = property(lambda self: plan.text.fget(replace(self, words=())))  # type: ignore[attr-defined]
    texts: dict[str, Any] = {}

    class Forgetful(plan):  # type: ignore[misc, valid-type]
        text = hide

    def read(settings: Any) -> Any:
        rest = dict(settings)
        text = rest.pop("tokencover", None)
        return texts.get(text), rest

    apply = pruned_processor.PrunedProcessor._read_request

    def read_request(self: Any, inputs: Any) -> Any:
        found, rest = apply(self, inputs)
        made = Forgetful(found.method, found.words, found.ceiling)
        texts[made.text] = found
        return made, rest

    monkeypatch.setattr(pruned_processor, "take_plan", read)
    monkeypatch.setattr(pruned_processor.PrunedProcessor, "_read_request", read_request)
    found = answer_in_vllm(engine, prompts)
    assert measure_all(found, expected[0]) > 0.1


def test_a_budget_above_all_tokens_is_no_pruning(
    engine: Any, pair: Any, prompts: list[Asked]
) -> None:
    few = prompts[:2]
    whole, _ = answer_in_transformers(pair, None, few)
    check_same(answer_in_vllm(engine, few, {"budget": 576}), whole)
    check_same(answer_in_vllm(engine, few, {"budget": 1.0}), whole)


@pytest.mark.parametrize("name", [each for each in SERVED if each != "mob"])
def test_a_request_names_its_method(
    engine: Any, pair: Any, prompts: list[Asked], name: str
) -> None:
    few = prompts[:2]
    method = make_served_method(name, budget=0.1)
    expected, _ = answer_in_transformers(pair, method, few)
    check_same(answer_in_vllm(engine, few, {"method": name, "budget": 0.1}), expected)


@pytest.mark.parametrize(
    "asked",
    [{"budget": 0}, {"budget": 10**9, "method": "no such"}, {"split": "weak"}, 7, {"budget": 1e9}],
)
def test_a_wrong_request_fails_alone(engine: Any, prompts: Any, expected: Any, asked: Any) -> None:
    refused = serving_metrics.get_metrics().refused
    before = refused._value.get()
    with pytest.raises(VLLMValidationError, match="tokencover: "):
        answer_in_vllm(engine, prompts[:1], asked)
    assert refused._value.get() == before + 1
    check_same(answer_in_vllm(engine, prompts[:1]), expected[0][:1])


def test_a_choice_that_fails_does_not_end_the_engine(
    engine: Any, prompts: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokencover.serving import pruned_model

    def fail(*given: Any) -> Any:
        raise RuntimeError("no choice today")

    failed = serving_metrics.get_metrics().failed
    before = failed._value.get()
    with monkeypatch.context() as broken:
        broken.setattr(pruned_model, "choose_tokens", fail)
        picture = prompts[0].pictures
        answer_in_vllm(engine, [Asked(picture, write("where is the red ball ?"))])
    assert failed._value.get() == before + 1
    check_same(answer_in_vllm(engine, prompts[:2]), expected[0][:2])


def test_prompts_without_pictures_or_words(engine: Any, pair: Any) -> None:
    # An image of its own: the control above has filled the caches for words that are not there.
    picture = (list(make_examples("test", 6))[-1].picture,)
    silent = [Asked(picture, "USER: <image> ASSISTANT:")]
    expected, _ = answer_in_transformers(pair, mob(), silent)
    check_same(answer_in_vllm(engine, silent), expected)
    # In transformers the last token of a prompt always stays, as its logits are used. Here a
    # image at the end is pruned like any other, so that there is nothing to compare with.
    others = [Asked((), "USER: what is there ? ASSISTANT:"), Asked(picture, "<image>")]
    assert all(each.tokens for each in answer_in_vllm(engine, others))


def test_the_tower_sees_a_picture_once(
    engine: Any, prompts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.model_executor.models.llava import LlavaForConditionalGeneration as Original

    seen = []
    embed = Original.embed_multimodal

    def count(self: Any, **pictures: Any) -> Any:
        seen.append(len(pictures["pixel_values"]))
        return embed(self, **pictures)

    monkeypatch.setattr(Original, "embed_multimodal", count)
    picture = list(make_examples("test", 5))[-1].picture
    questions = ("is it day ?", "how many birds are there ?", "where is the house ?")
    answer_in_vllm(engine, [Asked((picture,), write(each)) for each in questions])
    answer_in_vllm(engine, [Asked((picture,), write("is there a tree ?"))])
    assert seen == [1]
    # Many short images fit into a step, but the vision encoder gets as many as fit there when
    # whole.
    both = [Asked((picture.rotate(each),), write("is it day ?")) for each in (90, 180)]
    answer_in_vllm(engine, both, {"budget": 8})
    assert seen == [1, 1, 1]


def test_a_prompt_that_ends_beyond_all_positions_is_refused(engine: Any, prompts: Any) -> None:
    """Two images are 128 tokens, but lie 1152 positions wide; pebble has 1024."""
    picture = prompts[0].pictures[0]
    with pytest.raises(VLLMValidationError, match="ends at position 1159"):
        answer_in_vllm(engine, [Asked((picture, picture), write("what is there ?", 2))])
    (found,) = answer_in_vllm(engine, prompts[:1])
    assert found.tokens


@pytest.mark.parametrize("odd", [-1, 10**9, 2**40, 2**70])
def test_ids_that_no_token_has(engine: Any, pair: Any, prompts: Any, odd: int) -> None:
    from vllm import SamplingParams

    ids = pair[1].tokenizer(prompts[0].text)["input_ids"]
    request = {
        "prompt_token_ids": [*ids, odd],
        "multi_modal_data": {"image": list(prompts[0].pictures)},
    }
    with pytest.raises(VLLMValidationError, match="out of vocabulary"):
        engine.generate([request], SamplingParams(max_tokens=2), use_tqdm=False)
    assert answer_in_vllm(engine, prompts[:1])


def test_answers_may_go_beyond_them(engine: Any, prompts: Any) -> None:
    """The longest answer that the engine allows ends at position 1500."""
    from vllm import SamplingParams

    longest = SamplingParams(temperature=0.0, max_tokens=900, ignore_eos=True)
    request = {
        "prompt": prompts[0].text,
        "multi_modal_data": {"image": list(prompts[0].pictures)},
    }
    (found,) = engine.generate([request], longest, use_tqdm=False)
    assert len(found.outputs[0].token_ids) == 900
