"""What calibration learned about a model: the distribution of its coupling, and the threshold."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Final

from tokencover.budget.threshold import split_groups
from tokencover.errors import InputError
from tokencover.files import check_document, read_document, write_document

PROFILE_KIND: Final = "tokencover coupling profile"
PROFILE_VERSION: Final = 1
PROFILE_BINS: Final = 40
_MAKE_ONE: Final = "make one with `tokencover calibrate`"


@dataclass(frozen=True, slots=True)
class TaskCoupling:
    """The coupling of one task's samples."""

    name: str
    count: int
    mean: float
    deviation: float
    histogram: tuple[int, ...]
    """Over the edges of the profile."""
    quartiles: tuple[float, ...] = ()
    """The least value, the quartiles and the greatest; empty in profiles of old versions."""


@dataclass(frozen=True)
class Profile:
    """How strongly prompts and images are coupled in a model.

    Attributes
    ----------
    model : str
        The model's name or path.
    after : int
        How many decoder layers had run where coupling was measured.
    tau : float or None
        The threshold: up to tau coupling is strong, above it weak. None if all values are equal.
    separated : bool
        Whether there are two groups at all; if not, tau is a cut through one.
    objection : str
        Why not; empty if separated.
    valley, explained, strong_share : float
        Depth of the valley between the groups, fraction of variance explained, and fraction of the
        samples with strong coupling; see `tokencover.budget.threshold.Groups`.
    count : int
        Samples measured.
    edges : tuple of float
        Edges of the histogram's bins, one more than bins.
    histogram : tuple of int
        All samples.
    tasks : tuple of TaskCoupling
        The same for each task.
    versions : Mapping
        Of the packages that measured.
    """

    model: str
    after: int
    tau: float | None
    separated: bool
    objection: str
    valley: float
    explained: float
    strong_share: float
    count: int
    edges: tuple[float, ...]
    histogram: tuple[int, ...]
    tasks: tuple[TaskCoupling, ...]
    versions: Mapping[str, str] = field(hash=False)

    def __post_init__(self) -> None:
        if isinstance(self.after, bool) or not isinstance(self.after, int) or self.after < 0:
            raise InputError(
                f"after must be a number of decoder layers, 0 or more, got {self.after!r}."
            )
        if self.tau is not None and not math.isfinite(self.tau):
            raise InputError(f"tau must be a finite number, got {self.tau!r}.")
        if self.separated and self.tau is None:
            raise InputError("a profile with separated groups needs a threshold tau, got None.")
        for name, bins in [("all", self.histogram), *((t.name, t.histogram) for t in self.tasks)]:
            if len(bins) != len(self.edges) - 1:
                raise InputError(
                    f"the histogram of {name} has {len(bins)} bins for {len(self.edges)} edges."
                )

    @classmethod
    def of(cls, model: str, after: int, coupling: Mapping[str, Sequence[float]]) -> Profile:
        """The profile of the measured `coupling` values of each task, which may be empty."""
        values = [value for of_task in coupling.values() for value in of_task]
        groups = split_groups(values)
        edges = _place_edges(min(values), max(values))
        tasks = [
            TaskCoupling(
                name,
                len(of_task),
                statistics.fmean(of_task),
                statistics.pstdev(of_task),
                count_bins(of_task, edges),
                _compute_quartiles(of_task),
            )
            for name, of_task in coupling.items()
            if of_task
        ]
        return cls(
            model=model,
            after=after,
            tau=groups.tau,
            separated=groups.separated,
            objection=groups.objection,
            valley=groups.valley,
            explained=groups.explained,
            strong_share=groups.lower_fraction,
            count=len(values),
            edges=edges,
            histogram=count_bins(values, edges),
            tasks=tuple(tasks),
            versions={name: version(name) for name in ("tokencover", "torch", "transformers")},
        )

    def document(self) -> dict[str, Any]:
        """All fields as plain JSON values, for `from_document`."""
        return {"format": PROFILE_KIND, "version": PROFILE_VERSION, **asdict(self)}

    @classmethod
    def from_document(cls, document: Any, source: str = "this object") -> Profile:
        """The profile in a document of `document`."""
        found = check_document(
            document, PROFILE_KIND, PROFILE_VERSION, source=source, make=_MAKE_ONE
        )
        return cls._from_fields(found, source)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file, atomically."""
        write_document(path, PROFILE_KIND, {"version": PROFILE_VERSION, **asdict(self)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a file of `save`.

        Raises InputError if the file is missing, damaged, something else, or of another version.
        """
        found = read_document(path, PROFILE_KIND, PROFILE_VERSION, make=_MAKE_ONE)
        return cls._from_fields(found, os.fspath(path))

    @classmethod
    def _from_fields(cls, found: dict[str, Any], source: str) -> Profile:
        try:
            tasks = tuple(
                TaskCoupling(
                    **{
                        **task,
                        "histogram": tuple(map(int, task["histogram"])),
                        "quartiles": tuple(map(float, task.get("quartiles", ()))),
                    }
                )
                for task in found.pop("tasks")
            )
            tau = found.pop("tau")
            return cls(
                **{
                    **found,
                    "tau": None if tau is None else float(tau),
                    "edges": tuple(map(float, found["edges"])),
                    "histogram": tuple(map(int, found["histogram"])),
                    "versions": dict(found["versions"]),
                    "tasks": tasks,
                }
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{source} is a damaged {PROFILE_KIND} ({type(error).__name__}: {error}): "
                f"{_MAKE_ONE}."
            ) from error


def _compute_quartiles(values: Sequence[float]) -> tuple[float, ...]:
    """The least value, the quartiles and the greatest."""
    if len(values) == 1:
        return (values[0],) * 5
    inner = statistics.quantiles(values, n=4, method="inclusive")
    return (min(values), *inner, max(values))


def count_bins(values: Sequence[float], edges: Sequence[float]) -> tuple[int, ...]:
    """How many values are in each bin; bins have one width, the last includes its upper edge."""
    bins = len(edges) - 1
    counts = [0] * bins
    for value in values:
        bin_idx = int((value - edges[0]) / (edges[-1] - edges[0]) * bins)
        counts[min(max(bin_idx, 0), bins - 1)] += 1
    return tuple(counts)


def _place_edges(low: float, high: float) -> tuple[float, ...]:
    if high - low < 1e-6:  # nearly equal values: a narrow histogram around them
        low, high = low - 0.01, high + 0.01
    return tuple(low + (high - low) * bin_idx / PROFILE_BINS for bin_idx in range(PROFILE_BINS + 1))
