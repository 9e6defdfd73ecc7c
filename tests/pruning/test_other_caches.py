"""Caches that keep their keys and values elsewhere, or in fewer bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, QuantizedCache, StaticCache
from transformers.cache_utils import DynamicLayer, Fp8QuantizedLayer, QuantizedLayer

import tokencover as tc
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_matrix import BUDGET, NEVER, built, generate
from tests.zoo import ZOO
from tests.zoo.entry import ZooEntry
from tokencover.methods import Method

FEW = [pytest.param(ZOO[name], id=name) for name in ("llava", "qwen2_vl")]
METHODS: list[Method] = [
    KeepRandom(BUDGET, (0,)), KeepRandom(BUDGET, (1, 3)), tc.FastV(BUDGET, after=1),
]  # fmt: skip
EVERY = pytest.mark.parametrize("method", METHODS, ids=["before all", "twice", "fastv"])


def answer(entry: ZooEntry, method: Method, **options: Any) -> Tensor:
    inputs = entry.inputs("ragged")
    with tc.prune(built(entry.name), method, prompt=entry.user_words(inputs)):
        found: Tensor = generate(
            built(entry.name), inputs, max_new_tokens=6, do_sample=False, eos_token_id=NEVER,
            **options,
        )  # fmt: skip
    return found


class _Stream:
    """A stand-in for a stream of a graphics card: everything is done in order anyway."""

    def wait_stream(self, other: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


class Elsewhere(DynamicLayer):
    """Its keys and values are somewhere else until they are fetched: here are NaN meanwhile."""

    away: tuple[Tensor, Tensor] | None = None

    def offload(self) -> None:
        if self.keys is not None and self.values is not None and self.away is None:
            away = self.away = self.keys, self.values
            self.keys, self.values = (torch.full_like(each, torch.nan) for each in away)

    def prefetch(self) -> None:
        if self.away is not None:
            (self.keys, self.values), self.away = self.away, None

    def reorder_cache(self, beam_idx: Any) -> None:
        """As for layers that are on the processor: wherever the tensors are, they are arranged."""
        was_away = self.away is not None
        self.prefetch()
        super().reorder_cache(beam_idx)
        if was_away:
            self.offload()


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offloading asks for the streams of a card, which is not there."""
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: _Stream())
    monkeypatch.setattr(torch, "Stream", _Stream)


def make_offloaded(layers: int) -> DynamicCache:
    cache = DynamicCache(offloading=True)
    make: Any = Elsewhere
    cache.layers = [make() for _ in range(layers)]
    return cache


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize("beams", [1, 2])
@EVERY
@pytest.mark.parametrize("entry", FEW)
def test_an_offloaded_cache_gives_the_same_words(
    entry: ZooEntry, method: Method, beams: int
) -> None:
    cache = make_offloaded(5)
    found = answer(entry, method, past_key_values=cache, num_beams=beams)
    assert isinstance(cache.layers[3], Elsewhere)
    assert cache.layers[3].away is not None
    assert torch.equal(found, answer(entry, method, num_beams=beams))


@pytest.mark.usefixtures("streams")
@EVERY
@pytest.mark.parametrize("kind", ["offloaded", "static", "offloaded_static"])
@pytest.mark.parametrize("entry", FEW)
def test_caches_by_name_give_the_same_words(entry: ZooEntry, method: Method, kind: str) -> None:
    found = answer(entry, method, cache_implementation=kind, disable_compile=True)
    assert torch.equal(found, answer(entry, method))


@pytest.mark.usefixtures("streams")
def test_a_static_offloaded_cache_gives_the_same_words() -> None:
    entry, method = ZOO["llava"], METHODS[1]
    config = built("llava").config.get_text_config()
    cache = StaticCache(config, max_cache_len=128, offloading=True)
    found = answer(entry, method, past_key_values=cache, disable_compile=True)
    assert torch.equal(found, answer(entry, method))


class ExactGroups(QuantizedLayer):
    """Groups of all bits there are: quantised in the layer's own way, but nothing is lost."""

    def __init__(self) -> None:
        super().__init__(residual_length=4)

    def _quantize(self, tensor: Tensor, axis: int = 0) -> Tensor:
        return tensor.clone()

    def _dequantize(self, q_tensor: Tensor) -> Tensor:
        return q_tensor


class ExactFloats(Fp8QuantizedLayer):
    """Floats of all bits there are."""

    def _quantize(self, tensor: Tensor, scale: Any = None) -> tuple[Tensor, float]:
        return tensor.clone(), 1.0

    def _dequantize(self, qtensor: Any) -> Tensor:
        found: Tensor = qtensor[0]
        return found


def make_quantized(entry: ZooEntry, layer: type[Any]) -> QuantizedCache:
    cache = QuantizedCache("fp8", built(entry.name).config.get_text_config())
    cache.layers = [layer() for _ in cache.layers]
    return cache


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("layer", [ExactGroups, ExactFloats])
@EVERY
@pytest.mark.parametrize("entry", FEW)
def test_a_quantised_cache_that_loses_nothing_gives_the_same_words(
    entry: ZooEntry, method: Method, layer: type[Any], beams: int
) -> None:
    cache = make_quantized(entry, layer)
    found = answer(entry, method, past_key_values=cache, num_beams=beams)
    assert torch.equal(found, answer(entry, method, num_beams=beams))


@EVERY
@pytest.mark.parametrize("entry", FEW)
def test_eight_bits_are_nearly_the_same(entry: ZooEntry, method: Method) -> None:
    options = {"output_logits": True, "return_dict_in_generate": True}
    plain: Any = answer(entry, method, **options)
    short: Any = answer(
        entry, method, cache_implementation="quantized", cache_config={"backend": "fp8"}, **options
    )
    assert isinstance(short.past_key_values, QuantizedCache)
    # The prompt is not read from the cache; the first word after it is.
    assert torch.equal(plain.logits[0], short.logits[0])
    same = plain.sequences[:, -6] == short.sequences[:, -6]
    assert same.all()
    assert 0 < (plain.logits[1] - short.logits[1]).abs().max() < 0.3


@pytest.mark.parametrize("layer", [ExactGroups, ExactFloats])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("crop", -2),
        ("batch_select_indices", torch.tensor([1])),
        ("batch_repeat_interleave", 2),
    ],
)
def test_what_quantised_layers_would_do_by_halves_is_refused(
    layer: type[Any], name: str, value: Any
) -> None:
    cache = make_quantized(ZOO["llava"], layer)
    answer(ZOO["llava"], METHODS[1], past_key_values=cache)
    with pytest.raises(tc.InputError, match=name):
        getattr(cache, name)(value)
