"""Calls that cannot be pruned correctly: errors and notes that name the value and the fix."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported

import tokencover as tc
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_embeddings import embedded
from tests.pruning.test_matrix import NEVER, built, generate
from tests.zoo import ZOO
from tokencover.errors import InputError, TokenCoverWarning
from tokencover.families.family import read_version

ENTRY = ZOO["llava"]


class Logits(nn.Module):
    """A model whose forward takes and returns tensors, as tracers want it."""

    def __init__(self, model: Any, inputs: dict[str, Tensor]) -> None:
        super().__init__()
        self.model, self.names = model, list(inputs)

    def forward(self, *values: Tensor) -> Tensor:
        named = dict(zip(self.names, values, strict=True))
        found: Tensor = self.model(**named, use_cache=False).logits
        return found


@pytest.mark.filterwarnings("ignore")
def test_jit_trace_is_refused() -> None:
    model, inputs = built("llava"), ENTRY.inputs("single")
    with tc.prune(model, KeepRandom(7)), pytest.raises(InputError, match=r"torch\.jit\.trace"):
        torch.jit.trace(Logits(model, inputs), tuple(inputs.values()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strict", [False, True])
def test_export_is_refused(strict: bool) -> None:
    model, inputs = built("llava"), ENTRY.inputs("single")
    refused = (
        Unsupported if strict else InputError
    )  # torch wraps errors that it meets while tracing
    with tc.prune(model, KeepRandom(7)), pytest.raises(refused, match=r"torch\.export would"):
        torch.export.export(Logits(model, inputs), tuple(inputs.values()), strict=strict)


def test_a_model_without_weights_is_refused() -> None:
    model: Any = copy.deepcopy(built("llava"))
    model, inputs = model.to("meta"), ENTRY.inputs("single")
    with tc.prune(model, KeepRandom(7)):
        with pytest.raises(InputError, match="meta device"):
            model(**inputs)
        with pytest.raises(InputError, match="meta device"):
            model(**{name: value.to("meta") for name, value in inputs.items()})


@pytest.mark.parametrize("change", [-1, 1, 5])
@pytest.mark.parametrize("given", ["prompt", "visual"])
def test_a_mask_of_another_length_is_refused(given: str, change: int) -> None:
    model, inputs = built("llava"), ENTRY.inputs("single")
    mask = {"prompt": ENTRY.user_words(inputs), "visual": ENTRY.visual(inputs)}[given]
    mask = torch.nn.functional.pad(mask, (0, change))
    options: dict[str, Any] = {"prompt": ENTRY.user_words(inputs), given: mask}
    with tc.prune(model, tc.MoB(7), **options), pytest.raises(InputError, match=f"{given}= is a"):
        model(**inputs)
    with tc.prune(model, tc.MoB(7), **options), pytest.raises(InputError, match=f"{given}= is a"):
        generate(model, inputs, max_new_tokens=2, eos_token_id=NEVER)


@pytest.mark.parametrize("shape", [(0,), (1, 1, 5), (3, 5)])
def test_a_mask_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    model, inputs = built("llava"), ENTRY.inputs("ragged")
    for given in ("prompt", "visual"):
        options: dict[str, Any] = {"prompt": ENTRY.user_words(inputs)}
        options[given] = torch.ones(shape, dtype=torch.bool)
        with tc.prune(model, tc.MoB(7), **options), pytest.raises(InputError, match=given):
            model(**inputs)


def test_one_row_for_a_whole_batch_is_refused() -> None:
    model, inputs = built("llava"), ENTRY.inputs("ragged")
    mask = ENTRY.user_words(inputs)[:1]
    with tc.prune(model, tc.MoB(7), prompt=mask), pytest.raises(InputError, match="prompt= is a"):
        model(**inputs)


def test_a_visual_mask_that_contradicts_the_ids_is_refused() -> None:
    model, inputs = built("llava"), ENTRY.inputs("single")
    visual = ENTRY.visual(inputs).roll(1, dims=1)
    words = ENTRY.user_words(inputs)
    run = tc.prune(model, KeepRandom(7), prompt=words, visual=visual)
    with run, pytest.raises(InputError, match=r"Omit visual="):
        model(**inputs)
    with torch.no_grad(), tc.prune(model, tc.MoB(7), prompt=words, visual=ENTRY.visual(inputs)):
        model(**inputs)


@pytest.mark.parametrize("marks", ["nothing", "visual", "padding"])
def test_an_empty_prompt_mask_is_refused(marks: str) -> None:
    model, inputs = built("llava"), ENTRY.inputs("ragged")
    mask = ENTRY.user_words(inputs)
    mask[0] = False
    if marks == "visual":
        mask[0] = ENTRY.visual(inputs)[0]
    if marks == "padding":
        mask[0] = ~inputs["attention_mask"][0].bool()
    with tc.prune(model, tc.MoB(7), prompt=mask), pytest.raises(InputError, match="sample 0"):
        model(**inputs)
    with torch.no_grad(), tc.prune(model, tc.DivPrune(7), prompt=mask):  # does not read it
        model(**inputs)


def test_a_callable_that_returns_another_shape_is_refused() -> None:
    model, inputs = built("llava"), ENTRY.inputs("single")
    run = tc.prune(model, tc.MoB(7), prompt=lambda ids, visual: ids[:, :3] > 0)
    with run, pytest.raises(InputError, match=r"\(1, 3\)"):
        model(**inputs)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("beams", [1, 2])
def test_masks_fit_all_steps_of_generate(beams: int, cached: bool) -> None:
    model, inputs = built("llava"), ENTRY.inputs("ragged")
    visual, words = ENTRY.visual(inputs), ENTRY.user_words(inputs)
    options: dict[str, Any] = {"max_new_tokens": 4, "eos_token_id": NEVER, "num_beams": beams}
    with tc.prune(model, tc.MoB(7), prompt=words):
        expected = generate(model, inputs, **options)
    with tc.prune(model, tc.MoB(7), prompt=words, visual=visual):
        assert torch.equal(generate(model, inputs, **options, use_cache=cached), expected)
        if beams == 1 and cached:
            found = generate(model, embedded(model, inputs), **options)
            assert torch.equal(found, expected[:, -found.shape[1] :])


def test_visual_tokens_without_pixels_are_noted() -> None:
    model, inputs = built("llava"), ENTRY.inputs("single")
    blind = {name: each for name, each in inputs.items() if name != "pixel_values"}
    with torch.no_grad(), tc.prune(model, KeepRandom(7)):
        with pytest.warns(TokenCoverWarning, match="without pixels"):
            model(**blind)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(**ENTRY.inputs("text_only"))


def test_chunked_prefill_is_noted_or_refused() -> None:
    """Before transformers 5.23 it drops the pixels; since then it gives each chunk a part."""
    model, inputs = built("llava"), ENTRY.inputs("single")
    expected: Any = pytest.warns(TokenCoverWarning, match="prefill_chunk_size")
    if read_version(transformers.__version__) >= (5, 23):
        expected = pytest.raises(tc.InputError, match="prefill_chunk_size")
    with tc.prune(model, KeepRandom(7)), expected:
        generate(model, inputs, max_new_tokens=2, eos_token_id=NEVER, prefill_chunk_size=8)


def test_a_label_behind_padding_is_noted() -> None:
    model, inputs = built("llava"), ENTRY.inputs("ragged", "left")
    labels = inputs["input_ids"].masked_fill(~inputs["attention_mask"].bool(), -100)
    with torch.no_grad(), tc.prune(model, KeepRandom(7), prompt=ENTRY.user_words(inputs)):
        with pytest.warns(TokenCoverWarning, match="-100"):
            model(**inputs, labels=labels)
        first = inputs["attention_mask"].bool().int().argmax(-1)
        labels[torch.arange(len(labels)), first] = -100
        model(**inputs, labels=labels)


def test_a_method_by_name() -> None:
    model, inputs = built("llava"), ENTRY.inputs("single")
    words = ENTRY.user_words(inputs)
    with torch.no_grad():
        with tc.prune(model, tc.MoB(7), prompt=words) as by_class:
            model(**inputs)
        for name, budget in (("mob", 7), ('{"method": "mob", "budget": 7}', None)):
            with tc.prune(model, name, prompt=words, budget=budget) as run:
                model(**inputs)
            assert torch.equal(run.trace[0].kept, by_class.trace[0].kept)
    with pytest.raises(InputError, match="budget"):
        tc.prune(model, "mob")
    with pytest.raises(InputError, match=r"tc\.MoB\(budget=9\)"):
        tc.prune(model, tc.MoB(7), budget=9)
    with pytest.raises(InputError, match="fastv"):
        tc.prune(model, "fastvv", budget=7)
    with pytest.raises(InputError, match="got 7"):
        tc.prune(model, 7)  # type: ignore[arg-type]
