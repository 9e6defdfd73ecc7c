"""The twig that comes with the package, on the model that comes with the package."""

from __future__ import annotations

from typing import Any

import torch

import tokencover as tc
from tokencover.methods.twigvlm import TwigVLM
from tokencover.twig import load_twig
from tokencover_models import FOLDER
from tokencover_models.pebble.data import make_examples
from tokencover_models.pebble.model import PICTURE_WORDS, make_prompt

LARGEST_FILE = 4_000_000


def test_it_is_small_and_tells_nothing_of_where_it_was_made() -> None:
    files = list((FOLDER / "twigs" / "pebble").iterdir())
    assert sorted(each.name for each in files) == ["twig.json", "twig.safetensors"]
    assert sum(each.stat().st_size for each in files) < LARGEST_FILE
    assert "/" not in ((FOLDER / "twigs" / "pebble") / "twig.json").read_text()


def test_it_fits_the_model_and_differs_from_it() -> None:
    model, _ = tc.load_pebble()
    twig = load_twig("pebble")
    base: Any = model.get_decoder().layers
    for number, block in enumerate(twig.blocks):
        mine, its = block.state_dict(), base[twig.plan.after + number].state_dict()
        assert all(mine[name].shape == its[name].shape for name in its)
        assert not torch.equal(mine["self_attn.q_proj.weight"], its["self_attn.q_proj.weight"])


def test_the_model_answers_with_64_tokens() -> None:
    model, processor = tc.load_pebble()
    asked = list(make_examples("validation", 1))
    right = 0
    with (
        torch.inference_mode(),
        tc.prune(model, TwigVLM(64, weights="pebble"), processor=processor) as run,
    ):
        for example in asked:
            inputs = processor(
                images=example.picture, text=make_prompt(example.question), return_tensors="pt"
            )
            logits = model(**inputs, logits_to_keep=1).logits
            right += PICTURE_WORDS[int(logits[0, -1].argmax())] == example.answer
            assert run.trace[0].tokens_per_layer == [576, 576] + [64] * 6 + [0] * 3
    assert right >= 0.9 * len(asked)
