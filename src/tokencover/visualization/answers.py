"""The answer of a model, with the trace and the words to draw."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.prompting import Medium, make_inputs
from tokencover.pruning import Trace, prune
from tokencover.visualization.kept_tokens import words_of_centers


@dataclass(frozen=True)
class Answer:
    """An answer and its seconds; if pruned, its trace and the words of its centers."""

    text: str
    seconds: float
    trace: Trace | None
    words: list[str]


@torch.no_grad()
def generate_answer(
    model: Any,
    processor: Any,
    medium: Medium,
    question: str,
    method: Method | None,
    max_new_tokens: int,
) -> Answer:
    """Answer a question about an image or the frames of a video, pruned by a method or not."""
    inputs = make_inputs(processor, [([medium], question)]).to(model.device)
    ids = inputs["input_ids"]
    pruned = nullcontext() if method is None else prune(model, method, processor=processor)
    with pruned as run:
        begin = time.perf_counter()
        tokens = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)
    text = processor.decode(tokens[0, ids.shape[1] :], skip_special_tokens=True).strip()
    seconds = time.perf_counter() - begin
    if run is None:
        return Answer(text, seconds, None, [])
    if not run.trace:
        raise InputError("The processor added no image to the prompt. Is it the model's own?")
    trace = run.trace[0]
    return Answer(text, seconds, trace, words_of_centers(trace, ids, processor))
