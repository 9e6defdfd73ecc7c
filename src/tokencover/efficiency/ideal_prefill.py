"""The ideal: what no pruning method can beat.

Every block runs natively on a sequence that has the length already, and nothing is chosen or
moved. The states are random: time depends on lengths alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from tokencover.errors import InputError


class IdealDecoder:
    """Runs a decoder's blocks on sequences of given lengths.

    Parameters
    ----------
    decoder : PreTrainedModel
        The text model of a vision-language model, with no pruning installed.
    """

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder

    def make_states(self, lengths: Sequence[int], batch: int) -> list[tuple[int, Tensor]]:
        """Random input for each run of neighbouring blocks that work on the same length.

        Returns
        -------
        list of (int, Tensor)
            Number of blocks, and states ``(batch, length, d)``.
        """
        depth = len(self._decoder.layers)
        if getattr(self._decoder.config, "hidden_size_per_layer_input", 0):
            raise InputError(
                f"{type(self._decoder).__name__} gives each block inputs of its own, made from the "
                "words: its blocks cannot be timed alone on made-up states."
            )
        if len(lengths) != depth:
            raise InputError(
                f"the decoder has {depth} blocks, got {len(lengths)} lengths: give one for each."
            )
        weight = next(self._decoder.parameters())
        width = self._decoder.config.hidden_size
        generator = torch.Generator(weight.device).manual_seed(0)
        groups = [(len(list(group)), length) for length, group in itertools.groupby(lengths)]
        return [
            (
                blocks,
                torch.randn(
                    batch, length, width,
                    generator=generator, device=weight.device, dtype=weight.dtype,
                ),
            )
            for blocks, length in groups
        ]  # fmt: skip

    @torch.inference_mode()
    def run(self, states: Sequence[tuple[int, Tensor]]) -> None:
        """Run all blocks, each group on its own states; keys and values are cached as always."""
        from transformers import DynamicCache

        first = 0
        for blocks, inputs in states:
            cache = DynamicCache(config=self._decoder.config)
            with self._keep_only(first, first + blocks):
                self._decoder(inputs_embeds=inputs, past_key_values=cache, use_cache=True)
            first += blocks

    @contextmanager
    def _keep_only(self, first: int, end: int) -> Iterator[None]:
        """Cut the decoder down to some of its blocks for a while."""
        decoder, config, layers = self._decoder, self._decoder.config, self._decoder.layers
        depth, kinds = config.num_hidden_layers, getattr(config, "layer_types", None)
        decoder.layers, config.num_hidden_layers = layers[first:end], end - first
        if kinds:
            config.layer_types = kinds[first:end]
        try:
            yield
        finally:
            decoder.layers, config.num_hidden_layers = layers, depth
            if kinds:
                config.layer_types = kinds
