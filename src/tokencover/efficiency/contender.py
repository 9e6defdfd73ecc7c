"""One of those that are compared: the model as it is, or pruned by a method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from tokencover.efficiency.counting import OperationCounter
from tokencover.efficiency.flops import cost_of
from tokencover.efficiency.stopwatch import PrefillWatch, SelectionWatch, TokenTimes, now
from tokencover.efficiency.subject import Subject
from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.runtime import Run, prune

COUNTABLE = ("eager", "sdpa")
"""Attentions whose operations PyTorch can count."""


@dataclass(frozen=True, slots=True)
class Facts:
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
class Times:
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


class Contender:
    """Answers the subject's queries.

    Parameters
    ----------
    subject : Subject
        Model and inputs.
    method : Method or None
        What prunes the model; None for nothing.
    """

    def __init__(self, subject: Subject, method: Method | None) -> None:
        self.subject, self.method = subject, method
        self._prompt = subject.prompt_mask()

    def answer(self, tokens: int) -> Times:
        """Generate this many tokens, and say how long it took."""
        selection = None if self.method is None else SelectionWatch(self.method)
        prefill, stamps = PrefillWatch(), TokenTimes()
        timed = None if selection is None else selection.method
        with self._pruned(timed), prefill.on(self.subject.decoder):
            begin = now()
            if selection is not None:
                # The runtime would look for the user's words here. It is given a mask, because it
                # would first have to learn the chat template, which happens once and not each time.
                self.subject.prompt_mask()
            self._generate(tokens, streamer=stamps)
        first, last = stamps.times[0], stamps.times[-1]
        chosen = 0.0 if selection is None else selection.seconds
        return Times(chosen, prefill.seconds, first - begin, last - first)

    def look(self) -> Facts:
        """Find out what does not depend on the clock, in one pass."""
        counter, prefill = OperationCounter(), PrefillWatch()
        subject = self.subject
        method = None if self.method is None else counter.counted(self.method)
        base = subject.model.get_submodule(subject.family.base)
        with counter.on(base), self._pruned(method) as run, prefill.on(subject.decoder):
            self._generate(1)
        counts = self._counts(run)
        others = subject.other_counts
        of_samples = [
            [count + other for count in mine] for mine, other in zip(counts, others, strict=True)
        ]
        cost = cost_of(subject.model)
        return Facts(
            tokens_per_layer=counts,
            lengths=[max(each) for each in zip(*of_samples, strict=True)],
            cache_lengths=prefill.lengths,
            cache_bytes=prefill.cached,
            prefill_flops=sum(map(cost.of, of_samples)),
            selection_flops=counter.selection,
            vision_flops=counter.vision if _is_countable(subject.model) else None,
        )

    def _counts(self, run: Run | None) -> list[list[int]]:
        """The visual tokens that each block works on, for each sample."""
        depth = len(self.subject.decoder.layers)
        if run is None:
            return [[count] * depth for count in self.subject.visual_counts]
        if len(run.trace) != len(self.subject.visual_counts):
            raise InputError(
                f"{self.method!r} left a trace of {len(run.trace)} samples, the batch has "
                f"{len(self.subject.visual_counts)}: its last place must show it all of them."
            )
        return [each.tokens_per_layer for each in run.trace]

    @contextmanager
    def _pruned(self, method: Method | None) -> Iterator[Run | None]:
        if method is None:
            yield None
            return
        with prune(self.subject.model, method, prompt=self._prompt) as run:
            yield run

    @torch.inference_mode()
    def _generate(self, tokens: int, **options: Any) -> None:
        # As many tokens in every run: an early end of the answer would not be a saving.
        self.subject.model.generate(
            **self.subject.inputs,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            **options,
        )


def _is_countable(model: Any) -> bool:
    towers = [part for part in model.modules() if hasattr(part, "config")]
    names = {getattr(part.config, "_attn_implementation", None) for part in towers}
    return names <= {*COUNTABLE, None}
