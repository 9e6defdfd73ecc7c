"""The ideal runs each layer on a sequence of the given length."""

from __future__ import annotations

from typing import Any

import pytest

from tests.zoo import ZOO
from tokencover.efficiency.measured import IdealDecoder
from tokencover.errors import InputError
from tokencover.families import family_of


@pytest.mark.parametrize("name", [name for name in ZOO if name != "gemma4"])
def test_blocks_run_in_order_on_their_lengths(name: str) -> None:
    model = ZOO[name].build()
    decoder: Any = model.get_submodule(family_of(model).decoder)
    layers = list(decoder.layers)
    seen: list[tuple[int, int, int]] = []
    for number, layer in enumerate(layers):
        layer.register_forward_pre_hook(
            lambda module, args, number=number: seen.append((number, *args[0].shape[:2]))
        )
    assert IdealDecoder(decoder, [9, 9, 4, 2, 2], batch=3).time_pass() > 0
    assert seen == [(0, 3, 9), (1, 3, 9), (2, 3, 4), (3, 3, 2), (4, 3, 2)]
    assert list(decoder.layers) == layers
    assert decoder.config.num_hidden_layers == 5


def test_layers_with_own_inputs_raise() -> None:
    model = ZOO["gemma4"].build()
    decoder: Any = model.get_submodule(family_of(model).decoder)
    with pytest.raises(InputError, match="separate inputs for each layer"):
        IdealDecoder(decoder, [9] * 5, batch=1)


def test_decoder_restored_after_error() -> None:
    model = ZOO["llava"].build()
    decoder: Any = model.get_submodule("model.language_model")
    decoder.config.hidden_size, width = 3, decoder.config.hidden_size
    ideal = IdealDecoder(decoder, [4, 4, 2, 2, 2], batch=1)
    decoder.config.hidden_size = width
    with pytest.raises(RuntimeError):
        ideal.time_pass()
    assert len(decoder.layers) == 5
    assert decoder.config.num_hidden_layers == 5


def test_a_length_is_wanted_for_every_block() -> None:
    decoder = ZOO["llava"].build().get_submodule("model.language_model")
    with pytest.raises(InputError, match="has 5 layers, got 1 lengths"):
        IdealDecoder(decoder, [4], batch=1)
