"""Lets torchvision be imported beside a torch for CPUs whose binary it does not fit.

Without its compiled part two operators are unknown, and importing it fails. vLLM imports it, but
uses neither of them. A ``.pth`` file imports this module in every process of the environment.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Any

SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class SchemaFinder(MetaPathFinder):
    """Finds nothing; names the operators just before torchvision is imported."""

    library: Any = None

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> None:
        """See `importlib.abc.MetaPathFinder`."""
        if fullname != "torchvision" or self.library is not None:
            return
        import torch

        self.library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            self.library.define(name + SIGNATURE)


sys.meta_path.insert(0, SchemaFinder())
