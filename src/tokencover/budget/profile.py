"""What calibration learned about a model: the distribution of its coupling, and the threshold."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Final

from tokencover.budget.threshold import find_two_groups
from tokencover.errors import InputError
from tokencover.files import check_document, read_document, write_document

PROFILE_KIND: Final = "tokencover coupling profile"
PROFILE_VERSION: Final = 1
PROFILE_BINS: Final = 40
_MAKE_ONE: Final = "make one with `tokencover calibrate`"


@dataclass(frozen=True, slots=True)
class TaskCoupling:
    """The coupling of one task's samples.

    Attributes
    ----------
    name : str
        The task.
    count : int
        Samples measured.
    mean, deviation : float
        Of their coupling.
    histogram : tuple of int
        Over the edges of the profile.
    quartiles : tuple of float
        The least value, the quartiles and the greatest; empty in profiles of versions that did not
        save them.
    """

    name: str
    count: int
    mean: float
    deviation: float
    histogram: tuple[int, ...]
    quartiles: tuple[float, ...] = ()


@dataclass(frozen=True)
class Profile:
    """How strongly prompts and pictures are coupled in a model.

    Attributes
    ----------
    model : str
        As it was asked for.
    after : int
        Decoder blocks that had run where coupling was measured.
    tau : float or None
        The threshold: up to tau coupling is strong, above it weak. None if all values are equal.
    separated : bool
        Whether there are two groups at all; if not, tau is a cut through one.
    objection : str
        Why not; empty if separated.
    valley, explained, strong_share : float
        See `tokencover.budget.threshold.Groups`; strong coupling is the lower group.
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
            raise InputError(f"after must be a number of blocks, 0 or more, got {self.after!r}.")
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
        """The profile of measured values.

        Parameters
        ----------
        model, after : str, int
            What was measured.
        coupling : Mapping
            The values of each task; a task may have none.
        """
        values = [value for each in coupling.values() for value in each]
        groups = find_two_groups(values)
        edges = _place_edges(min(values), max(values))
        tasks = [
            TaskCoupling(
                name,
                len(each),
                statistics.fmean(each),
                statistics.pstdev(each),
                count_bins(each, edges),
                _find_quartiles(each),
            )
            for name, each in coupling.items()
            if each
        ]
        return cls(
            model=model,
            after=after,
            tau=groups.tau,
            separated=groups.separated,
            objection=groups.objection,
            valley=groups.valley,
            explained=groups.explained,
            strong_share=groups.lower_share,
            count=len(values),
            edges=edges,
            histogram=count_bins(values, edges),
            tasks=tuple(tasks),
            versions={name: version(name) for name in ("tokencover", "torch", "transformers")},
        )

    def document(self) -> dict[str, Any]:
        """All of it as plain JSON values; `from_document` reads them."""
        return {"format": PROFILE_KIND, "version": PROFILE_VERSION, **asdict(self)}

    @classmethod
    def from_document(cls, document: Any, source: str = "this object") -> Profile:
        """The profile that `document` wrote down."""
        found = check_document(
            document, PROFILE_KIND, PROFILE_VERSION, source=source, make=_MAKE_ONE
        )
        return cls._from_fields(found, source)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file, whole or not at all."""
        write_document(path, PROFILE_KIND, {"version": PROFILE_VERSION, **asdict(self)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read what `save` wrote.

        Raises
        ------
        InputError
            If the file is missing, damaged, something else, or of another version.
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


def _find_quartiles(values: Sequence[float]) -> tuple[float, ...]:
    """The least value, the quartiles and the greatest."""
    if len(values) == 1:
        return (values[0],) * 5
    inner = statistics.quantiles(values, n=4, method="inclusive")
    return (min(values), *inner, max(values))


def count_bins(values: Sequence[float], edges: Sequence[float]) -> tuple[int, ...]:
    """How many values lie in each bin; bins are of one width, the last holds its upper edge."""
    bins = len(edges) - 1
    counts = [0] * bins
    for value in values:
        place = int((value - edges[0]) / (edges[-1] - edges[0]) * bins)
        counts[min(max(place, 0), bins - 1)] += 1
    return tuple(counts)


def _place_edges(low: float, high: float) -> tuple[float, ...]:
    if high - low < 1e-6:  # all alike: a narrow histogram around them
        low, high = low - 0.01, high + 0.01
    return tuple(low + (high - low) * place / PROFILE_BINS for place in range(PROFILE_BINS + 1))
