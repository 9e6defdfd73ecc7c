"""Several processes of torchrun: each answers its own examples, or runs its part of the model."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from tokencover.cli.options import RUNNING, choose_from, take
from tokencover.errors import InputError

ParallelName = Literal["data", "tensor"]
Parallel = Annotated[
    ParallelName,
    take(
        "--parallel",
        "data|tensor",
        "Under torchrun, split the examples or the model's weights over the processes.",
        RUNNING,
        read=choose_from("data", "tensor"),
    ),
]


def read_tensor_plan(parallel: ParallelName, **others: object) -> dict[str, Any]:
    """What `tokencover.loading.load` takes to split a model; empty if it is not to be split.

    Parameters
    ----------
    parallel : "data" or "tensor"
        What to split over the processes.
    **others
        Options that do not go with "tensor", by their names, with None if they were not given.
    """
    if parallel == "data":
        return {}
    if "RANK" not in os.environ:
        raise InputError(
            "--parallel tensor splits the model over processes that torchrun starts: run torchrun "
            "--nproc-per-node 2 -m tokencover ... --parallel tensor."
        )
    for name, value in others.items():
        if value is not None:
            raise InputError(
                f"--{name} {value} does not go with --parallel tensor, which runs every example on "
                f"all processes and puts each part on its own device. Leave --{name} out."
            )
    return {"tp_plan": "auto"}


def is_silent(parallel: ParallelName) -> bool:
    """Whether another process prints and writes what this one has, too."""
    return parallel == "tensor" and os.environ.get("RANK") != "0"
