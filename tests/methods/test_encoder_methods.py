"""Methods that read the vision encoder, on real models: the decoder gets what the oracle made."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.zoo import ZOO
from tokencover.methods.base import BudgetedMethod
from tokencover.methods.fastervlm import FasterVLM
from tokencover.methods.globalcom2 import GlobalCom2
from tokencover.methods.hired import HiRED
from tokencover.methods.prumerge import PruMerge, PruMergePlus
from tokencover.methods.visionzip import VisionZip
from tokencover.pruning.prune import prune
from tokencover.pruning.trace import Trace

from .crops import NEWLINE, Image, Plain, Tiled, Token, Tower, slow_rows, tokens_of
from .test_fastervlm import slow_fastervlm
from .test_globalcom2 import slow_globalcom2
from .test_hired import slow_best
from .test_prumerge import slow_prumerge
from .test_visionzip import slow_visionzip

IMAGES: dict[str, Image] = {"llava": Plain(), "llava_next": Tiled((2, 2), cut=(0, 1))}
"""What the first batch of the zoo shows to each family."""


def tower_of(model: Any, inputs: dict[str, Tensor]) -> Tower:
    """All that the model's own vision encoder computes, by hooks on its own modules."""
    vision, parts = model.model.vision_tower, {"q_proj": {}, "k_proj": {}}  # type: ignore[var-annotated]
    handles = []
    for number, layer in enumerate(vision.encoder.layers):
        for name, found in parts.items():
            module = getattr(layer.self_attn, name)

            def record(
                _module: Any, _inputs: Any, output: Tensor, found: Any = found, number: int = number
            ) -> None:
                found[number] = output.unflatten(-1, (2, -1)).transpose(1, 2)

            handles.append(module.register_forward_hook(record))
    with torch.no_grad():
        pixels = inputs["pixel_values"].flatten(0, -4)
        hidden = vision(pixels, output_hidden_states=True).hidden_states
    for handle in handles:
        handle.remove()
    depth, side = len(hidden) - 1, int((hidden[0].shape[1] - 1) ** 0.5)
    return Tower(
        features=hidden[model.config.vision_feature_layer],
        queries=parts["q_proj"],
        keys=parts["k_proj"],
        side=side,
        classes=1,
        scaling=vision.encoder.layers[0].self_attn.scale,
        depth=depth,
        feature_block=depth - 2,
        project=lambda features: model.model.multi_modal_projector(features[None])[0],
    )


def expected_tokens(method: BudgetedMethod, tower: Tower, image: Image, trace: Trace) -> Any:
    """What should stand where the image stood; None for a newline token."""
    (tokens,) = tokens_of(tower, [[image]])
    assert isinstance(method.budget, int)
    media = [0] * len(tokens)
    if isinstance(method, VisionZip):
        return [state for _, state in slow_visionzip(tower, tokens, media, method.budget)]
    if isinstance(method, PruMerge):
        plus = isinstance(method, PruMergePlus)
        made = slow_prumerge(tower, tokens, media, method.budget, method.neighbours, plus)
        return [state for _, state in made]
    if isinstance(method, GlobalCom2):
        assert isinstance(image, Tiled)
        patches = [token for token in tokens if token.cell != NEWLINE]
        kept, _ = slow_globalcom2(tower, patches, method.budget, image.grid)
        chosen = [patches[place] for place in kept]
        left = [token for token in tokens if token.cell == NEWLINE or token in chosen]
        return [None if token.cell == NEWLINE else _state(tower, token) for token in left]
    if isinstance(method, HiRED):
        kept = slow_best(tower, tokens, trace.details["crop_budgets"])
    else:
        kept = slow_fastervlm(tower, tokens, method.budget)
    return [_state(tower, tokens[place]) for place in kept]


def _state(tower: Tower, token: Token) -> Tensor:
    return tower.project(tower.features[token.crop, tower.classes + token.cell][None])[0]


@pytest.mark.parametrize("family", IMAGES)
def test_rows_equal_vision_encoder_attention(family: str) -> None:
    entry = ZOO[family]
    model: Any = entry.build(attn_implementation="eager")
    inputs = entry.inputs("single")
    tower = tower_of(model, inputs)
    with torch.no_grad():
        pixels = inputs["pixel_values"].flatten(0, -4)
        maps = model.model.vision_tower(pixels, output_attentions=True).attentions
    for block in range(tower.depth):
        for crop in range(len(pixels)):
            rows = torch.tensor(slow_rows(tower, block, crop))
            torch.testing.assert_close(rows, maps[block][crop, :, 0, 1:])


METHODS = (
    FasterVLM(9), VisionZip(9), VisionZip(23), HiRED(9), PruMerge(13), PruMergePlus(22),
)  # fmt: skip


@pytest.mark.parametrize(
    ("family", "method"),
    [
        *((family, method) for family in IMAGES for method in METHODS),
        ("llava_next", GlobalCom2(11)),
    ],
)
def test_the_decoder_gets_what_the_oracle_made(family: str, method: BudgetedMethod) -> None:
    entry = ZOO[family]
    model: Any = entry.build()
    inputs = entry.inputs("single")
    with torch.no_grad(), prune(model, method, prompt=entry.user_words(inputs)) as run:
        found = model(**inputs, use_cache=False).logits[0, -1]
    with torch.no_grad():
        visual = entry.visual(inputs)[0]
        first, last = visual.nonzero()[[0, -1], 0].tolist()
        tower = tower_of(model, inputs)
        made = expected_tokens(method, tower, IMAGES[family], run.trace[0])
        newline: Any = getattr(model.model, "image_newline", None)
        image = torch.stack([newline if each is None else each for each in made])
        text = model.get_input_embeddings()(inputs["input_ids"])[0]
        whole = torch.cat([text[:first], image, text[last + 1 :]])
        states = model.model.language_model(inputs_embeds=whole[None]).last_hidden_state
        expected = model.lm_head(states)[0, -1]
    assert len(run.trace[0].kept) == len(made)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
