"""Inputs of a model that know which of their tokens are the prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from transformers.feature_extraction_utils import BatchFeature

from tokencover.errors import InputError
from tokencover.pruning.prompt import mark_questions


class PromptInputs(BatchFeature):
    """What `tc.make_inputs` returns: a model's inputs, with the prompt mask as an attribute.

    Parameters
    ----------
    data : dict, optional
        What the processor returned.
    processor
        The model's processor.
    list_questions : callable, optional
        Returns the question of each row, and the text that the chat template writes after it.
    """

    def __init__(
        self,
        data: dict[str, Any] | None = None,
        processor: Any = None,
        list_questions: Callable[[], Sequence[tuple[str, str]]] | None = None,
    ) -> None:
        super().__init__(data)
        self._processor, self._list_questions = processor, list_questions
        self._mask: Tensor | None = None

    @property
    def prompt_mask(self) -> Tensor:
        """The tokens of the questions, ``(batch, length)`` bool, on the device of ``input_ids``."""
        if self._list_questions is None:
            raise InputError(
                "These inputs do not contain their questions. Use the object that tc.make_inputs "
                "returned, or omit prompt= to locate them by the chat template."
            )
        input_ids = self["input_ids"]
        if self._mask is None:
            self._mask = mark_questions(self._processor, input_ids, self._list_questions())
        return self._mask.to(input_ids.device)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
