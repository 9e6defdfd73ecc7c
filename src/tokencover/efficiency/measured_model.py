"""The model that is measured, as it is or pruned by a method: its times, and what it computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from tokencover.efficiency.flops import compute_prefill_cost
from tokencover.efficiency.instruments import (
    OperationCounter,
    PrefillWatch,
    SelectionWatch,
    TokenTimes,
    read_clock,
)
from tokencover.efficiency.workload import Workload
from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.pruning import Run, prune

COUNTABLE = ("eager", "sdpa")
"""Attentions whose operations PyTorch can count."""


@dataclass(frozen=True, slots=True)
class PassFacts:
    """What does not depend on the clock.

    Attributes
    ----------
    tokens_per_layer : list of list of int
        For each sample, the visual tokens that each block works on.
    lengths : list of int
        The sequence that each block works on, as long as its longest sample.
    cache_lengths : list of int
        Cached tokens of each layer after the prefill.
    cache_bytes : int
        Of keys and values after the prefill.
    prefill_flops : int
        Operations of decoder blocks and head, for the whole batch.
    selection_flops : int
        Matrix products of choosing.
    vision_flops : int or None
        Matrix products of vision tower and projector; None if its attention cannot be counted.
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

    Attributes
    ----------
    selection : float
        Choosing, at all places together.
    prefill : float
        The first pass through the decoder, choosing between its blocks included.
    first_token : float
        From the call of `generate` to the first token: vision tower, prefill, head and all.
    decode : float
        From the first token to the last.
    """

    selection: float
    prefill: float
    first_token: float
    decode: float


class MeasuredModel:
    """Answers the workload's questions.

    Parameters
    ----------
    workload : Workload
        Model and inputs.
    method : Method or None
        What prunes the model; None for nothing.
    """

    def __init__(self, workload: Workload, method: Method | None) -> None:
        self.workload, self.method = workload, method
        self._prompt = workload.find_prompt_words()

    def time_answer(self, tokens: int) -> AnswerTimes:
        """Generate this many tokens, and say how long it took."""
        selection = None if self.method is None else SelectionWatch(self.method)
        prefill, stamps = PrefillWatch(), TokenTimes()
        timed = None if selection is None else selection.method
        with self._prune(timed), prefill.watch_decoder(self.workload.decoder):
            begin = read_clock()
            if selection is not None:
                # The runtime would look for the user's words here. It is given a mask, because it
                # would first have to learn the chat template, which happens once and not each time.
                self.workload.find_prompt_words()
            self._generate(tokens, streamer=stamps)
        first, last = stamps.times[0], stamps.times[-1]
        chosen = 0.0 if selection is None else selection.seconds
        return AnswerTimes(chosen, prefill.seconds, first - begin, last - first)

    def inspect_pass(self) -> PassFacts:
        """Find out what does not depend on the clock, in one pass."""
        counter, prefill = OperationCounter(), PrefillWatch()
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
        """The visual tokens that each block works on, for each sample."""
        depth = len(self.workload.decoder.layers)
        if run is None:
            return [[count] * depth for count in self.workload.visual_counts]
        if len(run.trace) != len(self.workload.visual_counts):
            raise InputError(
                f"{self.method!r} left a trace of {len(run.trace)} samples, the batch has "
                f"{len(self.workload.visual_counts)}: its last place must show it all of them."
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
        # As many tokens in every run: an early end of the answer would not be a saving.
        self.workload.model.generate(
            **self.workload.inputs,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            **options,
        )


def _is_countable(model: Any) -> bool:
    towers = [part for part in model.modules() if hasattr(part, "config")]
    names = {getattr(part.config, "_attn_implementation", None) for part in towers}
    return names <= {*COUNTABLE, None}
