"""Which prompt word speaks for which prompt centre."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from tokencover.covering import cosine, find_largest, keep_precision, snap, to_float32
from tokencover.methods.base import Choice, View


def add_center_words(choice: Choice, view: View) -> Choice:
    """The same choice; its details also name the word of each prompt centre.

    ``details["centers_words"]`` is int64, one for each of ``details["prompt_centers"]``: the place,
    in the whole sequence, of the prompt word with the largest cosine to it. That cosine is what the
    centre was ranked by. Ties go to the first word.
    """
    details = [
        {**said, "centers_words": _find_nearest_words(view, sample, said["prompt_centers"])}
        for sample, said in enumerate(choice.details)
    ]
    return replace(choice, details=details)


def _find_nearest_words(view: View, sample: int, centers: Tensor) -> Tensor:
    if len(centers) == 0:
        return centers
    spoken = view.prompt_mask[sample]
    tokens = view.states[sample, centers.to(view.states.device)]
    words = view.prompt[sample, spoken.to(view.prompt.device)]
    with keep_precision(tokens.device):
        alignment = cosine(snap(to_float32(tokens)), snap(to_float32(words)))
        nearest = find_largest(alignment)
    positions = view.prompt_positions[sample, spoken]
    return positions[nearest.to(positions.device)]
