"""Runs that shorten the sequence even if everything is kept, to compare both ways."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from torch import Tensor

from tokencover.pruning.passes import Kept, Pass
from tokencover.pruning.selection import Selector


@contextmanager
def always_gather() -> Iterator[None]:
    """Let no run notice that nothing was dropped."""

    def keep_as_given(
        selector: Selector, keep: Tensor, current: Pass, earlier: Kept | None
    ) -> Kept:
        return Kept.where(keep)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Selector, "_keep_where", keep_as_given)
        yield
