"""Positions without gaps: by value, against blocks run by hand on the short sequence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.pruning.random_method import KeepRandom, dropped_by
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Inputs, Side, ZooEntry
from tests.zoo.oracle import additive_mask, extended
from tokencover.errors import TokenCoverWarning
from tokencover.families import family_of
from tokencover.methods import DivPrune, FinalWipe
from tokencover.pruning.prune import prune

PLAIN = ["llava", "llava_next", "video_llava", "llava_onevision", "internvl", "smolvlm"]
STAGES = [(0,), (1,), (1, 3)]


def by_hand(
    model: Any, inputs: Inputs, gone: dict[int, Tensor], continued: Tensor | None = None
) -> list[Tensor]:
    """Logits of the tokens that are left, row by row, one row at a time, without padding."""
    decoder = model.get_submodule(family_of(model).decoder)
    captured: dict[str, Tensor] = {}

    def capture(_: Any, args: Any, kwargs: dict[str, Any]) -> None:
        captured["states"] = kwargs["inputs_embeds"]

    inputs = inputs if continued is None else extended(inputs, continued)
    handle = decoder.register_forward_pre_hook(capture, with_kwargs=True)
    with torch.no_grad():
        model(**inputs, use_cache=False)
        handle.remove()
        real = inputs["attention_mask"].bool()
        longer = real.shape[1]
        padded = {
            stage: torch.nn.functional.pad(mask, (0, longer - mask.shape[1]))
            for stage, mask in gone.items()
        }
        return [
            _row(model, decoder, captured["states"][row], real[row], row, padded)
            for row in range(len(real))
        ]


def _row(
    model: Any, decoder: Any, states: Tensor, left: Tensor, row: int, gone: dict[int, Tensor]
) -> Tensor:
    places = left.nonzero().squeeze(-1)
    states = states[places]
    for number, block in enumerate(decoder.layers):
        if number in gone:
            stay = ~gone[number][row, places]
            states, places = states[stay], places[stay]
        positions = torch.arange(len(states)).unsqueeze(0)
        out = block(
            states.unsqueeze(0),
            attention_mask=additive_mask(torch.ones(1, len(states), dtype=torch.bool), model.dtype),
            position_embeddings=decoder.rotary_emb(states.unsqueeze(0), position_ids=positions),
        )
        states = (out[0] if isinstance(out, tuple) else out).reshape(len(states), -1)
    logits: Tensor = model.lm_head(decoder.norm(states))
    return logits


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("name", PLAIN)
def test_kept_tokens_are_numbered_anew(name: str, stages: tuple[int, ...], side: Side) -> None:
    entry: ZooEntry = ZOO[name]
    model = entry.build()
    for kind in ("ragged", "two_images"):
        if kind not in entry.kinds:
            continue
        inputs = entry.inputs(kind, side)
        method = KeepRandom(7, stages, positions="reindex")
        gone = dropped_by(method, inputs, entry.visual(inputs))
        with torch.no_grad(), prune(model, method, prompt=entry.user_words(inputs)):
            found = model(**inputs, use_cache=False).logits
        left = inputs["attention_mask"].bool()
        for dropped in gone.values():
            left = left & ~dropped
        for row, expected in enumerate(by_hand(model, inputs, gone)):
            torch.testing.assert_close(found[row, left[row]], expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("name", ["llava", "llava_next"])
def test_generated_tokens_go_on_behind_the_shortened_prompt(
    name: str, stages: tuple[int, ...]
) -> None:
    entry: ZooEntry = ZOO[name]
    model: Any = entry.build()
    inputs = entry.inputs("ragged", "left")
    method = KeepRandom(7, stages, positions="reindex")
    gone = dropped_by(method, inputs, entry.visual(inputs))
    with prune(model, method, prompt=entry.user_words(inputs)):
        out = model.generate(
            **inputs, max_new_tokens=4, do_sample=False, eos_token_id=10**6,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
    words = out.sequences[:, inputs["input_ids"].shape[1] :]
    steps = torch.stack(out.logits, 1)
    for row, expected in enumerate(by_hand(model, inputs, gone, words[:, :-1])):
        torch.testing.assert_close(steps[row], expected[-4:], atol=3e-5, rtol=0)


def test_numbering_anew_differs_from_original_positions() -> None:
    entry = ZOO["llava"]
    model = entry.build()
    inputs = entry.inputs("ragged", "left")
    found = []
    for positions in ("original", "reindex"):
        method = KeepRandom(7, (1,), positions=positions)
        with torch.no_grad(), prune(model, method, prompt=entry.user_words(inputs)):
            found.append(model(**inputs).logits[:, -1])
    assert (found[0] - found[1]).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["qwen2_vl", "gemma3"])
def test_models_that_cannot_reindex_keep_positions(name: str) -> None:
    entry = ZOO[name]
    model, inputs = entry.build(), entry.inputs("single")
    expected = KeepRandom(7, positions="original")
    with torch.no_grad():
        with prune(model, expected) as plain:
            logits = model(**inputs).logits
        for method in (KeepRandom(7, positions="reindex"), FinalWipe(DivPrune(7), block=4)):
            with pytest.warns(TokenCoverWarning, match="on the command line .*original"):
                run = prune(model, method)
            with run:
                found = model(**inputs).logits
            if isinstance(method, KeepRandom):
                assert torch.equal(found, logits)
                assert torch.equal(run.trace[0].kept, plain.trace[0].kept)
