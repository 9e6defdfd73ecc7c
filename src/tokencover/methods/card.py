"""What the tables say about a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Objective = Literal["both", "prompt", "visual", "none"]
"""What a method preserves: alignment with what was asked, the picture, or both."""


@dataclass(frozen=True, slots=True)
class Card:
    """What the table of methods says about one.

    Attributes
    ----------
    title : str
        What people call it.
    year : int
        When it was published; None for controls, which never were.
    objective : str
        "prompt" (alignment with what was asked), "visual" (preserving the picture), "both" or
        "none".
    pruning_point : str
        Where it acts, in a few words.
    signal : str
        What it looks at, in a few words.
    paper : str
        Where to read about it: an arXiv number, or a venue; empty for controls. Methods are listed
        by it.
    needs : tuple of str
        What a model must have: "encoder" (visual tokens are patches of its tower, or made of known
        ones, so that its attention can be read), "class token", "tower" (tokens can be merged
        inside it, because each is a visual token), "tiles".
        What is needed beyond a model: "text after the picture", "trained twig", "another method".
    ours : bool
        Whether it is MoB or a half of it; these are listed first.
    departs : str
        Where it departs from the authors' released code, in a sentence; its docstring says more.
    caution : str
        What a reader of results must know, in a sentence; tables that hold the method say it.
    """

    title: str
    year: int | None
    objective: Objective
    pruning_point: str
    signal: str
    paper: str = ""
    needs: tuple[str, ...] = ()
    ours: bool = False
    departs: str = ""
    caution: str = ""
