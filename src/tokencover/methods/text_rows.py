"""For methods that listen to the text behind the picture."""

from __future__ import annotations

from tokencover.errors import InputError
from tokencover.methods.base import View


def check_text(view: View) -> None:
    """Refuse samples with nothing behind their picture that could look at it."""
    silent = (~view.text_mask.any(-1)).nonzero().squeeze(-1).tolist()
    if silent:
        raise InputError(
            f"there is no text behind the picture in samples {silent} of those with pictures, so "
            "nothing rates their visual tokens: put the question behind the picture."
        )
