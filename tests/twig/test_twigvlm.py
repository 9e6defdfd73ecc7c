"""TwigVLM against the truncated network, run eagerly."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tokencover as tc
from tests.methods.test_look_ahead import kept_by_rows, last_row
from tests.pruning.test_matrix import built
from tests.twig.shaken_twigs import grow_shaken
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Inputs, Side
from tokencover.methods import Choice, View
from tokencover.methods.twigvlm import TwigVLM
from tokencover.twig import Twig, save_twig

AFTER, DEPTH = 1, 2
NAMES = ["llava", "llava_next", "qwen2_vl", "qwen2_5_vl", "llava_onevision", "smolvlm"]


class Seeing(TwigVLM):
    """Shows the rows that it chose by."""

    seen: list[Tensor] = []  # noqa: RUF012

    def choose(self, view: View) -> Choice:
        if view.layer_idx == self.after:
            self.seen.append(self.compute_ahead_attention(view))
        return super().choose(view)


def truncate(name: str, twig: Twig) -> Any:
    """An eager model whose blocks after the first ones are the twig's."""
    model: Any = copy.deepcopy(built(name, "eager"))
    blocks = model.get_decoder().layers
    for number, block in enumerate(twig.blocks):
        blocks[AFTER + number].load_state_dict(block.state_dict())
    return model


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", NAMES)
def test_it_keeps_what_the_truncated_network_attends_to(
    name: str, side: Side, attention: str, tmp_path: Path
) -> None:
    entry, model = ZOO[name], built(name, attention)
    twig = grow_shaken(model, AFTER, DEPTH)
    save_twig(twig, tmp_path)
    inputs = entry.inputs("mixed", side)
    method = Seeing(6, after=AFTER, wipe=4, weights=str(tmp_path))
    method.seen.clear()
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
        model(**inputs)
    rows = last_row(truncate(name, twig), inputs, AFTER + DEPTH - 1)
    newline, visual = entry.newline(inputs), entry.visual(inputs)
    patches = visual if newline is None else visual & ~newline
    kept = kept_by_rows(entry, inputs, rows, 6)
    assert [trace.sample for trace in run.trace] == [1]
    expected = rows[1, patches[1]]
    torch.testing.assert_close(method.seen[0][0, :, 0].mean(0), expected, atol=1e-5, rtol=0)
    there = visual[1].nonzero().squeeze(-1)[run.trace[0].details["wiped"]]
    assert there.tolist() == (kept[1] | (visual & ~patches)[1]).nonzero().squeeze(-1).tolist()


def run(model: Any, inputs: Inputs, method: TwigVLM) -> Any:
    words = ZOO["llava"].user_words(inputs)
    with torch.no_grad(), tc.prune(model, method, prompt=words) as found:
        model(**inputs)
    return found.trace


def test_the_twig_differs_from_the_base(tmp_path: Path) -> None:
    """Otherwise the comparison above would show nothing."""
    inputs, model = ZOO["llava"].inputs("single"), built("llava", "eager")
    twig = grow_shaken(model, AFTER, DEPTH)
    base = last_row(model, inputs, AFTER + DEPTH - 1)
    own = last_row(truncate("llava", twig), inputs, AFTER + DEPTH - 1)
    assert (base - own).abs().max() > 1e-2


def test_it_is_read_once_and_follows_the_type_of_the_model(tmp_path: Path) -> None:
    save_twig(grow_shaken(built("llava"), AFTER, DEPTH), tmp_path)
    method = TwigVLM(6, after=AFTER, weights=str(tmp_path))
    inputs = ZOO["llava"].inputs("single")
    with torch.inference_mode():
        run(built("llava"), inputs, method)
    first = method.twig
    half = ZOO["llava"].build(dtype=torch.float64)
    run(half, {**inputs, "pixel_values": inputs["pixel_values"].double()}, method)
    assert method.twig is first
    assert {each.dtype for each in first.blocks.parameters()} == {torch.float64}
    assert method == TwigVLM(6, after=AFTER, weights=str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "layers", "message"),
    [
        ({"after": 2}, 5, r"after layer 1.*pruned after layer 2.*after=1"),
        ({"after": AFTER}, 6, "this one has 6 layers of width 32"),
    ],
)
def test_a_twig_of_another_model_is_refused(
    settings: dict[str, Any], layers: int, message: str, tmp_path: Path
) -> None:
    save_twig(grow_shaken(built("llava"), AFTER, DEPTH), tmp_path)
    model = ZOO["llava"].build(layers=layers)
    with pytest.raises(tc.InputError, match=message):
        run(model, ZOO["llava"].inputs("single"), TwigVLM(6, weights=str(tmp_path), **settings))


def test_a_twig_of_another_width_is_refused() -> None:
    model = ZOO["llava"].build(layers=6)
    with pytest.raises(tc.InputError, match=r"of width 128.* of width 32"):
        run(model, ZOO["llava"].inputs("single"), TwigVLM(6, weights="pebble"))


def test_without_weights_it_says_what_to_do() -> None:
    with pytest.raises(tc.InputError, match=r"needs a twig.*tc\.LookAhead"):
        run(built("llava"), ZOO["llava"].inputs("single"), TwigVLM(6))
