"""Every method on every family it claims, by value."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.methods.cases import CASES, Case
from tests.methods.replay import Taped, logits_of
from tests.pruning.test_matrix import built, plain_logits
from tests.zoo import ZOO
from tests.zoo.entry import ZooEntry
from tests.zoo.oracle import extended
from tokencover.errors import TokenCoverError
from tokencover.families import list_claims
from tokencover.methods import METHODS, from_json, to_json
from tokencover.pruning.prune import prune

STEPS = 3


def claimed() -> list[Any]:
    """(case, zoo entry, settings that the family needs) for all claims."""
    found = []
    for case in CASES:
        for claim in list_claims(METHODS[case.method]):
            for entry in ZOO.values():
                if entry.name in claim.family.model_types and case.tells_new(entry):
                    changes = {} if claim.as_published else {"positions": "original"}
                    found.append(pytest.param(case, entry, changes, id=f"{case.id}-{entry.name}"))
    return found


CLAIMED = claimed()


def test_every_method_has_a_case() -> None:
    of_one_model = {"twigvlm"}  # its weights belong to one model: see tests/twig
    assert {case.method for case in CASES} == {method.name for method in METHODS} - of_one_model


@pytest.mark.parametrize(("case", "entry", "changes"), CLAIMED)
def test_exact_counts_and_batch_equals_single(
    case: Case, entry: ZooEntry, changes: dict[str, Any]
) -> None:
    model, method = built(entry.name), case.make(**changes)
    for kind in case.kinds(entry):
        batch = entry.inputs(kind, "left")
        together, traces = logits_of(model, method, batch, entry.user_words(batch))
        shown = {trace.sample: trace for trace in traces}
        newline = entry.newline(batch)
        newlines = [0] * len(together) if newline is None else newline.sum(-1).tolist()
        for row, sample in enumerate(entry.samples(kind)):
            alone = entry.collate([sample])
            single, found = logits_of(model, method, alone, entry.user_words(alone))
            torch.testing.assert_close(together[row, -1], single[0, -1], atol=2e-5, rtol=0)
            if row not in shown:
                assert not found  # a sample without an image
                continue
            kept = shown[row].kept
            assert torch.equal(kept, found[0].kept)
            if case.expected is not None:
                assert len(kept) == case.expected(shown[row], method, newlines[row])
            if not case.moves:
                assert (kept.diff() > 0).all()


@pytest.mark.parametrize(("case", "entry", "changes"), CLAIMED)
def test_cached_decoding_equals_recomputation(
    case: Case, entry: ZooEntry, changes: dict[str, Any]
) -> None:
    model: Any = built(entry.name)
    taped = Taped(case.make(**changes))
    inputs = entry.inputs(case.kinds(entry)[0], "left")
    prompt = entry.user_words(inputs)
    with torch.no_grad(), prune(model, taped, prompt=prompt):
        out = model.generate(
            **inputs, max_new_tokens=STEPS, do_sample=False, eos_token_id=10**6,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
    words = out.sequences[:, inputs["input_ids"].shape[1] :]
    taped.playing = True
    longer = extended(inputs, words[:, :-1])
    prompt = torch.nn.functional.pad(prompt, (0, words.shape[1] - 1))
    expected, _ = logits_of(model, taped, longer, prompt)
    found = torch.stack(out.logits, 1)
    torch.testing.assert_close(found, expected[:, -STEPS:], atol=3e-5, rtol=0)


@pytest.mark.parametrize(
    ("case", "entry", "changes"), [each for each in CLAIMED if each.values[0].keeps_all]
)
def test_keeping_all_equals_the_unpruned_model(
    case: Case, entry: ZooEntry, changes: dict[str, Any]
) -> None:
    model = built(entry.name)
    method = case.make(budget=1.0, **changes)
    kind = case.kinds(entry)[0]
    inputs, plain = entry.inputs(kind, "left"), plain_logits(entry.name, kind)
    found, _ = logits_of(model, method, inputs, entry.user_words(inputs))
    real = inputs["attention_mask"].bool()
    torch.testing.assert_close(found[real], plain[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_methods_round_trip_as_json_and_print(case: Case) -> None:
    method = case.make()
    assert from_json(to_json(method)) == method
    assert type(method).__name__ in repr(method)
    assert "budget=" in repr(method)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_tokenizer_needed_only_to_read_prompt(case: Case) -> None:
    entry = ZOO["llava_next"]
    model, method = built(entry.name), case.make()
    inputs = entry.inputs("single", "left")
    with torch.no_grad(), prune(model, method) as run:
        if method.reads_prompt:
            with pytest.raises(TokenCoverError, match="tokenizer"):
                model(**inputs)
        else:
            alone = model(**inputs).logits
            assert run.trace
    if not method.reads_prompt:
        told, _ = logits_of(model, method, inputs, entry.user_words(inputs))
        torch.testing.assert_close(alone[:, -1], told[:, -1], atol=1e-5, rtol=0)
