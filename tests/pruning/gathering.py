"""Sessions that shorten the sequence even if everything is kept, to compare both ways."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from torch import Tensor

from tokencover.pruning.forward_pass import Kept, VisualPass
from tokencover.pruning.session import Session


@contextmanager
def always_gather() -> Iterator[None]:
    """Let no session find that nothing was dropped."""

    def keep_as_told(
        session: Session, keep: Tensor, current: VisualPass, earlier: Kept | None
    ) -> Kept:
        return Kept.where(keep)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "_keep_where", keep_as_told)
        yield
