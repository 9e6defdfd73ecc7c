"""Measure a model, unpruned or pruned by a method, and the ideal that no method can beat.

In the ideal, every layer runs on a sequence that is already short, and nothing is selected or
moved. Its hidden states are random: time depends only on lengths.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokencover.efficiency.instruments import (
    FlopCounter,
    PrefillWatch,
    SelectionWatch,
    TokenTimes,
    read_clock,
)
from tokencover.efficiency.workload import Workload, compute_prefill_cost
from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.pruning import Run, prune

COUNTABLE = ("eager", "sdpa")
"""Attention implementations whose FLOPs PyTorch can count."""


@dataclass(frozen=True, slots=True)
class PassFacts:
    """What does not depend on the clock.

    `tokens_per_layer` counts the visual tokens of each sample in each layer, `lengths` all tokens
    of the longest sample. `cache_lengths` and `cache_bytes` are those after the prefill.
    `prefill_flops` are of decoder layers and head, for the whole batch. `selection_flops` and
    `vision_flops` count matrix products; the latter is None if its attention cannot be counted.
    """

    tokens_per_layer: list[list[int]]
    lengths: list[int]
    cache_lengths: list[int]
    cache_bytes: int
    prefill_flops: int
    selection_flops: int
    vision_flops: int | None


@dataclass(frozen=True, slots=True)
class AnswerTimes:
    """Seconds of one turn.

    `selection` is the sum over all pruning layers. `prefill` is the first pass through the decoder
    with selection. `first_token` is from the call of `generate` to the first token, `decode` from
    the first token to the last.
    """

    selection: float
    prefill: float
    first_token: float
    decode: float


class MeasuredModel:
    """Answers the questions of a workload, pruned by a method, or unpruned if that is None."""

    def __init__(self, workload: Workload, method: Method | None) -> None:
        self.workload, self.method = workload, method
        self._prompt = workload.get_prompt_mask()

    def time_answer(self, tokens: int) -> AnswerTimes:
        """Generate `tokens` tokens and return how long it took."""
        selection = None if self.method is None else SelectionWatch(self.method)
        prefill, stamps = PrefillWatch(), TokenTimes()
        timed = None if selection is None else selection.method
        with self._prune(timed), prefill.watch_decoder(self.workload.decoder):
            begin = read_clock()
            if selection is not None:
                # `prune` would locate the prompt tokens here. It gets a mask, as it would first
                # learn the chat template, which happens once and not per call.
                self.workload.get_prompt_mask()
            self._generate(tokens, streamer=stamps)
        first, last = stamps.times[0], stamps.times[-1]
        chosen = 0.0 if selection is None else selection.seconds
        return AnswerTimes(chosen, prefill.seconds, first - begin, last - first)

    def inspect_pass(self) -> PassFacts:
        """Collect what does not depend on the clock, in one pass."""
        counter, prefill = FlopCounter(), PrefillWatch()
        workload = self.workload
        method = None if self.method is None else counter.watch_method(self.method)
        base = workload.model.get_submodule(workload.family.base)
        with (
            counter.watch_encoder(base),
            self._prune(method) as run,
            prefill.watch_decoder(workload.decoder),
        ):
            self._generate(1)
        counts = self._count_visual_tokens(run)
        others = workload.other_counts
        of_samples = [
            [count + other for count in mine] for mine, other in zip(counts, others, strict=True)
        ]
        cost = compute_prefill_cost(workload.model)
        return PassFacts(
            tokens_per_layer=counts,
            lengths=[max(each) for each in zip(*of_samples, strict=True)],
            cache_lengths=prefill.lengths,
            cache_bytes=prefill.cached,
            prefill_flops=sum(map(cost.of, of_samples)),
            selection_flops=counter.selection,
            vision_flops=counter.vision if _is_countable(workload.model) else None,
        )

    def _count_visual_tokens(self, run: Run | None) -> list[list[int]]:
        """Return the visual tokens in each layer, for each sample."""
        num_layers = len(self.workload.decoder.layers)
        if run is None:
            return [[count] * num_layers for count in self.workload.visual_counts]
        if len(run.trace) != len(self.workload.visual_counts):
            raise InputError(
                f"{self.method!r} traced {len(run.trace)} samples, the batch has "
                f"{len(self.workload.visual_counts)}: it must see all of them at its last layer."
            )
        return [each.tokens_per_layer for each in run.trace]

    @contextmanager
    def _prune(self, method: Method | None) -> Iterator[Run | None]:
        if method is None:
            yield None
            return
        with prune(self.workload.model, method, prompt=self._prompt) as run:
            yield run

    @torch.inference_mode()
    def _generate(self, tokens: int, **options: Any) -> None:
        # The same number of tokens in every run: a shorter answer would not be a saving.
        self.workload.model.generate(
            **self.workload.inputs,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            **options,
        )


def _is_countable(model: Any) -> bool:
    configs = [part.config for part in model.modules() if hasattr(part, "config")]
    names = {getattr(config, "_attn_implementation", None) for config in configs}
    return names <= {*COUNTABLE, None}


class IdealDecoder:
    """Runs the layers of an unpruned text model on random input of given lengths.

    `lengths` are the tokens of each layer. Neighboring layers with the same length share one input
    ``(batch, length, d)``.
    """

    def __init__(self, decoder: Any, lengths: Sequence[int], batch: int) -> None:
        self._decoder = decoder
        num_layers = len(decoder.layers)
        if getattr(decoder.config, "hidden_size_per_layer_input", 0):
            raise InputError(
                f"{type(decoder).__name__} computes separate inputs for each layer from the "
                "text: its layers cannot be timed on random hidden states."
            )
        if len(lengths) != num_layers:
            raise InputError(
                f"the decoder has {num_layers} layers, got {len(lengths)} lengths: pass one per "
                "layer."
            )
        weight = next(decoder.parameters())
        width = decoder.config.hidden_size
        generator = torch.Generator(weight.device).manual_seed(0)
        kind = {"generator": generator, "device": weight.device, "dtype": weight.dtype}
        self._inputs: list[tuple[int, Tensor]] = [
            (len(list(group)), torch.randn(batch, length, width, **kind))
            for length, group in itertools.groupby(lengths)
        ]

    def time_pass(self) -> float:
        """Run all layers and return the seconds; keys and values are cached as usual."""
        begin = read_clock()
        self._run()
        return read_clock() - begin

    @torch.inference_mode()
    def _run(self) -> None:
        from transformers import DynamicCache

        first = 0
        for count, inputs in self._inputs:
            cache = DynamicCache(config=self._decoder.config)
            with self._keep_only(first, first + count):
                self._decoder(inputs_embeds=inputs, past_key_values=cache, use_cache=True)
            first += count

    @contextmanager
    def _keep_only(self, first: int, end: int) -> Iterator[None]:
        """Limit the decoder to some of its layers inside the block."""
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
