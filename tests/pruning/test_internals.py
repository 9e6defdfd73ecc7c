"""Names inside transformers that pruning relies on: all there, and missed if they are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.llama4.modeling_llama4 import Llama4TextAttention

import tokencover as tc
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tests.zoo.oracle import decoder_blocks
from tokencover.errors import InputError, InternalsError
from tokencover.families import list_layer_types, llama4
from tokencover.pruning import internals
from tokencover.pruning.decoder.layers import check_layers


def test_all_names_are_there() -> None:
    assert internals.list_missing() == []


@pytest.mark.parametrize(
    ("table", "path", "name"),
    [
        ("INTERNALS", "transformers.cache_utils:Cache", "get_mask_widths"),
        ("INTERNALS", "transformers.cache_utils:FormerCache", "update"),
        ("INTERNALS", "transformers.former_module", "update"),
        ("PARAMETERS", "transformers.masking_utils:create_causal_mask", "layer_number"),
        ("INSTANCE_ATTRIBUTES", "transformers.cache_utils:DynamicLayer", "is_begun"),
    ],
)
def test_a_missing_name_stops_pruning(
    monkeypatch: pytest.MonkeyPatch, table: str, path: str, name: str
) -> None:
    monkeypatch.setattr(internals, table, {path: (name,)})
    internals.check_internals.cache_clear()
    try:
        with pytest.raises(InternalsError, match=name):
            tc.prune(built("llava"), KeepRandom(7))
    finally:
        internals.check_internals.cache_clear()


def test_a_layer_without_a_cache_argument_stops_pruning(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ZOO["llava"].build()

    class Renamed(torch.nn.Module):
        def forward(self, hidden_states: Any, cache: Any = None) -> Any:
            return hidden_states

    with pytest.raises(InternalsError, match="Renamed takes no past_key_values"):
        check_layers([Renamed()], model.config.text_config)


def test_shared_keys_that_no_layer_reports_stop_pruning() -> None:
    model = built("llava")
    config = type("Config", (), {"num_kv_shared_layers": 2})
    with pytest.raises(InternalsError, match="is_kv_shared_layer"):
        check_layers(model.model.language_model.layers, config)


def test_another_formula_of_llama_4_stops_pruning(monkeypatch: pytest.MonkeyPatch) -> None:
    llama4._check_formula.cache_clear()
    llama4._check_formula(Llama4TextAttention)
    monkeypatch.setattr(llama4, "_compute_scale", lambda attention, places: places + 1.0)
    llama4._check_formula.cache_clear()
    try:
        with pytest.raises(InternalsError, match="another formula"):
            llama4._check_formula(Llama4TextAttention)
    finally:
        llama4._check_formula.cache_clear()


BOTH_DIRECTIONS = ("gemma3", "gemma4", "gemma4_unified", "paligemma", "molmo2")


@pytest.mark.parametrize("name", [name for name in BOTH_DIRECTIONS if name in ZOO])
def test_attention_in_both_directions_without_a_mask_is_an_error(name: str) -> None:
    """It would be read as plain causal attention."""
    entry, model = ZOO[name], ZOO[name].build()
    inputs = entry.inputs("single")

    def forget(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "attention_mask": None}

    for layer in decoder_blocks(model):
        layer.register_forward_pre_hook(forget, with_kwargs=True)
    with (
        tc.prune(model, KeepRandom(7, (0,)), prompt=entry.user_words(inputs)),
        pytest.raises(InputError, match="in both directions, but got no attention mask"),
    ):
        model(**inputs)


def test_a_window_without_a_mask_is_refused() -> None:
    entry = ZOO["gemma3"]
    model, inputs = entry.build(), entry.inputs("single")

    def forget(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "attention_mask": None}

    text = model.config.text_config
    layer = text.layer_types.index("sliding_attention")
    assert list_layer_types(model.get_decoder())[layer] == "sliding_attention"
    text.sliding_window = 4
    with torch.no_grad(), tc.prune(model, KeepRandom(7, (layer,))) as run:
        block = model.get_decoder().layers[layer]
        handle = block.register_forward_pre_hook(forget, with_kwargs=True, prepend=True)
        with pytest.raises(InputError, match="got no attention mask"):
            model(**inputs)
        handle.remove()
    assert run is not None


@pytest.mark.parametrize("name", ["gemma3", "gemma4", "paligemma", "llama4"])
def test_a_mask_under_another_name_stops_pruning(name: str) -> None:
    """It would be read as no mask, which means that every token sees all before it."""
    entry, model = ZOO[name], ZOO[name].build()
    inputs = entry.inputs("single")

    def rename(layer: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {"mask": kwargs.pop("attention_mask"), **kwargs}

    for layer in decoder_blocks(model):
        layer.register_forward_pre_hook(rename, with_kwargs=True)
    with (
        tc.prune(model, KeepRandom(7, (0,)), prompt=entry.user_words(inputs)),
        pytest.raises(InternalsError, match="called without attention_mask"),
    ):
        model(**inputs)
