"""Where the studio's questions are answered: one model, one question at a time.

A model is pruned for one answer and is as before when that answer is given; a lock keeps questions
of several visitors apart, so that no answer is ever given with the pruning of another one.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import torch

from tokencover.errors import InputError
from tokencover.families import family_of
from tokencover.methods import Method
from tokencover.prompting import Kind, Medium, list_kinds, make_inputs
from tokencover.pruning import Trace, prune
from tokencover.visualization import words_of_centers


@dataclass(frozen=True)
class StudioAnswer:
    """An answer.

    Attributes
    ----------
    text : str
        What the model said.
    seconds : float
        Time from the question to the end of the answer.
    trace : Trace or None
        What was kept; None for an answer with all tokens.
    words : list of str
        The word of each prompt centre.
    """

    text: str
    seconds: float
    trace: Trace | None
    words: list[str]


class ModelDesk:
    """Answers questions with one model.

    Parameters
    ----------
    name : str
        What the model is called.
    model, processor
        As `tokencover.loading.load` gives them.
    longest : int
        Tokens of an answer.
    """

    def __init__(self, name: str, model: Any, processor: Any, *, longest: int = 32) -> None:
        self.name = name
        self.processor = processor
        self.longest = longest
        self.depth = len(family_of(model).layers(model))
        self.family = family_of(model).name
        self._model = model
        self._one_at_a_time = threading.Lock()
        self._is_warm = False

    @property
    def kinds(self) -> frozenset[Kind]:
        """What the model can be shown."""
        return list_kinds(self.processor)

    def ask(self, medium: Medium, question: str, method: Method | None) -> StudioAnswer:
        """Answer a question.

        Parameters
        ----------
        medium : Image or list of Image
            A picture, or the frames of a clip.
        question : str
            What to ask.
        method : Method or None
            Prunes the model for this answer; None keeps all tokens.
        """
        if not question.strip():
            raise InputError("the question is empty: ask something, for example 'what is this ?'.")
        with self._one_at_a_time, torch.no_grad():
            if not self._is_warm:  # what happens once is not timed
                self._answer(medium, question, None)
                self._is_warm = True
            return self._answer(medium, question, method)

    def _answer(self, medium: Medium, question: str, method: Method | None) -> StudioAnswer:
        inputs = make_inputs(self.processor, [([medium], question)]).to(self._model.device)
        length = inputs["input_ids"].shape[1]
        options = {"max_new_tokens": self.longest, "do_sample": False}
        start = time.perf_counter()
        if method is None:
            tokens = self._model.generate(**inputs, **options)
            trace = None
        else:
            with prune(self._model, method, processor=self.processor) as run:
                tokens = self._model.generate(**inputs, **options)
            if not run.trace:
                raise InputError("the processor put no picture into the prompt: is it the model's?")
            trace = run.trace[0]
        seconds = time.perf_counter() - start
        words = (
            [] if trace is None else words_of_centers(trace, inputs["input_ids"], self.processor)
        )
        text = self.processor.decode(tokens[0, length:], skip_special_tokens=True).strip()
        return StudioAnswer(text, seconds, trace, words)
