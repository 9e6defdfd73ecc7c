"""Tensor parallelism: processes that run one model together, each with some of its heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Choice, Method, View

FAILED: Final = -1
"""What a rank reports in place of the size of its batch if its method raised an error."""
MULTIPLIER: Final = 2_654_435_761
"""Spreads token positions over 31 bits, so that two selections rarely have one checksum."""


@dataclass(frozen=True, slots=True)
class TensorParallelGroup:
    """The ranks that share one model: a process group of `torch.distributed`."""

    group: Any

    @property
    def is_first(self) -> bool:
        """Whether this process is the first rank, which writes and prints."""
        return bool(self.group.rank() == 0)

    def share(self, value: Any) -> Any:
        """The value of the first rank, on every rank."""
        values = [value]
        first = torch.distributed.get_global_rank(self.group, 0)
        torch.distributed.broadcast_object_list(values, src=first, group=self.group)
        return values[0]

    def gather_heads(self, heads: Tensor) -> Tensor:
        """All heads ``(b, heads, ...)``, from those of every rank."""
        parts = [torch.empty_like(heads) for _ in range(self.group.size())]
        torch.distributed.all_gather(parts, heads.contiguous(), group=self.group)
        return torch.cat(parts, dim=1)

    def exchange(self, report: Tensor) -> list[list[int]]:
        """The reports ``(r,)`` int64 of all ranks."""
        reports = [torch.empty_like(report) for _ in range(self.group.size())]
        torch.distributed.all_gather(reports, report, group=self.group)
        found: list[list[int]] = torch.stack(reports).tolist()
        return found


def choose_on_all_ranks(ranks: TensorParallelGroup, method: Method, view: View) -> Choice:
    """Run a method on every rank, and raise on all of them if they disagree."""
    try:
        choice = method.choose(view)
        kept = choice.mask_like(view.mask)
    except Exception:
        ranks.exchange(torch.tensor([FAILED, 0, 0], device=view.mask.device))
        raise
    check_same_on_all_ranks(ranks, method, kept)
    return choice


def check_same_on_all_ranks(ranks: TensorParallelGroup, method: Method, kept: Tensor) -> None:
    """Raise on all ranks if one of them failed, or keeps other tokens ``(b, n)``."""
    flat = kept.flatten()
    positions = torch.arange(1, len(flat) + 1, device=flat.device) * MULTIPLIER % 2**31
    checksum = (positions * flat).sum().unsqueeze(0)
    sizes = torch.tensor([len(kept), len(flat)], device=flat.device)
    reports = ranks.exchange(torch.cat([sizes, checksum]))
    name = type(method).__name__
    if failed := [rank for rank, (size, *_) in enumerate(reports) if size == FAILED]:
        raise InputError(
            f"{name} failed on rank {failed[0]} of {len(reports)}. See the error of that rank."
        )
    if any(each != reports[0] for each in reports):
        raise InputError(
            f"{name} selected different tokens on the {len(reports)} ranks of tensor parallelism. "
            "Give every rank the same inputs, and seed a method that draws random numbers."
        )


def get_tensor_parallel_group(model: nn.Module) -> TensorParallelGroup | None:
    """The ranks among which `from_pretrained(..., tp_plan="auto")` split a model; None if one."""
    mesh: Any = getattr(model, "_device_mesh", None)
    if mesh is None:
        return None
    sizes = dict(zip(mesh.mesh_dim_names or ("tp",), mesh.mesh.shape, strict=True))
    if sizes.get("pp", 1) > 1:
        raise InputError(
            f"This {type(model).__name__} is split over {sizes['pp']} pipeline stages, and no rank "
            "has all decoder layers. Use tensor parallelism (tp_plan='auto') or device_map='auto'."
        )
    if sizes.get("tp", 1) == 1:
        return None
    return TensorParallelGroup(mesh.get_group() if mesh.ndim == 1 else mesh.get_group("tp"))
