"""The threshold tau learned while a model is used, without calibration.

The distribution of coupling is a histogram of fixed bins in which a sample's weight fades by
``1 - 1/memory`` with each later one. Coupling is a distance of unit vectors, between 0 and 2, so
the bins can be fixed: memory is bounded, every sample counts, and equal streams give equal
thresholds.

A threshold is in force only under three conditions; otherwise there is none, and the caller does
what it would without a prior:

- `warm_up` samples were observed;
- the values are two groups, by the criterion of `threshold.py`;
- recent samples are distributed like all. A second histogram with a tenth of the memory is compared
  with the first (Kolmogorov-Smirnov distance). If they differ more than chance makes likely, there
  is no threshold until they agree again; if more than chance allows, the warm-up starts again. A
  mixture of the old and the new distribution would look like two groups.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping
from typing import Any, Final

from tokencover.budget.threshold import MINIMUM, Groups, split_groups
from tokencover.errors import InputError
from tokencover.files import check_document, read_document, write_document

ONLINE_KIND: Final = "tokencover online coupling"
ONLINE_VERSION: Final = 1
COUPLING_BINS: Final = 2048
LARGEST: Final = 2.0
"""The distance of opposite unit vectors."""
REFIT: Final = 16
"""The threshold is computed again after so many samples."""
DOUBT: Final = 1.63
DRIFT: Final = 2.5
"""Kolmogorov-Smirnov's c from which on there is no threshold, and from which on the warm-up starts
again. By chance alone a comparison exceeds c in less than 2 exp(-2 c**2) of all cases: once in 100
and once in 130 000."""
_FADED: Final = 0.01
Bins = dict[int, float]
"""The weight of each nonempty bin."""
_LEARN: Final = "let a new OnlineThreshold warm up and save it"


class OnlineThreshold:
    """Learns tau from a stream of coupling values; thread-safe.

    Parameters
    ----------
    warm_up : int
        Samples before a threshold can be in force, at least 50.
    memory : int
        After so many later samples a sample's weight has fallen to 1/e; at least `warm_up`.
    """

    def __init__(self, warm_up: int = 100, memory: int = 1000) -> None:
        _check_settings(warm_up, memory)
        self.warm_up, self.memory = warm_up, memory
        self._lock = threading.Lock()
        self._seen, self._restarts = 0, 0
        self._tau: float | None = None
        self._long: Bins = {}
        self._recent: Bins = {}

    def observe(self, coupling: float) -> float | None:
        """Learn from eta of one sample; return the threshold in force for it, if any.

        That threshold comes from earlier samples.
        """
        if not (math.isfinite(coupling) and 0 <= coupling <= LARGEST * (1 + 1e-6)):
            raise InputError(f"coupling must be between 0 and {LARGEST:g}, got {coupling}.")
        with self._lock:
            in_force = self._tau
            bin_idx = min(int(coupling / LARGEST * COUPLING_BINS), COUPLING_BINS - 1)
            self._long = _add(bin_idx, self._long, self.memory)
            self._recent = _add(bin_idx, self._recent, self._short)
            self._seen += 1
            later = self._seen - self.warm_up
            if later >= 0 and later % REFIT == 0:
                self._refit()
            return in_force

    @property
    def threshold(self) -> float | None:
        """The threshold for the next sample, if one is in force."""
        with self._lock:
            return self._tau

    @property
    def groups(self) -> Groups | None:
        """The present groups; None during warm-up."""
        with self._lock:
            return self._compute_groups()

    @property
    def seen(self) -> int:
        """Samples since the start, or since the last restart."""
        with self._lock:
            return self._seen

    @property
    def restarts(self) -> int:
        """How often the warm-up started again because the distribution had changed."""
        with self._lock:
            return self._restarts

    def state(self) -> dict[str, Any]:
        """Everything learned, as plain JSON values, for `restore`."""
        with self._lock:
            return {
                "format": ONLINE_KIND,
                "version": ONLINE_VERSION,
                "warm_up": self.warm_up,
                "memory": self.memory,
                "seen": self._seen,
                "restarts": self._restarts,
                "tau": self._tau,
                "long": _list_bins(self._long),
                "recent": _list_bins(self._recent),
            }

    def restore(self, state: Mapping[str, Any], source: str = "this state") -> None:
        """Continue from a state of an `OnlineThreshold` with the same settings."""
        found = check_document(dict(state), ONLINE_KIND, ONLINE_VERSION, source=source, make=_LEARN)
        try:
            settings = found["warm_up"], found["memory"]
            seen, restarts = int(found["seen"]), int(found["restarts"])
            tau = None if found["tau"] is None else float(found["tau"])
            long, recent = _read_bins(found["long"]), _read_bins(found["recent"])
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{source} is a damaged {ONLINE_KIND} ({type(error).__name__}: {error}): {_LEARN}."
            ) from error
        if settings != (self.warm_up, self.memory):
            raise InputError(
                f"{source} was learned with warm_up={settings[0]} and memory={settings[1]}, this "
                f"one has {self.warm_up} and {self.memory}: make them equal."
            )
        with self._lock:
            self._seen, self._restarts, self._tau = seen, restarts, tau
            self._long, self._recent = long, recent

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, atomically."""
        write_document(path, ONLINE_KIND, self.state())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> OnlineThreshold:
        """Continue from a saved state, with its settings.

        Raises InputError if the file is missing, damaged, something else, or of another version.
        """
        found = read_document(path, ONLINE_KIND, ONLINE_VERSION, make=_LEARN)
        try:
            made = cls(found["warm_up"], found["memory"])
        except KeyError as error:
            raise InputError(
                f"{path} is a damaged {ONLINE_KIND} (no {error}): {_LEARN}."
            ) from error
        made.restore(
            {"format": ONLINE_KIND, "version": ONLINE_VERSION, **found}, source=os.fspath(path)
        )
        return made

    @property
    def _short(self) -> float:
        return self.memory / 10

    def _refit(self) -> None:
        change = self._measure_change()
        if change > DRIFT:
            self._seen, self._tau = 0, None
            self._long, self._recent = {}, {}
            self._restarts += 1
            return
        groups = self._compute_groups()
        self._tau = groups.tau if groups and groups.separated and change <= DOUBT else None

    def _compute_groups(self) -> Groups | None:
        if self._seen < self.warm_up:
            return None
        centers = [(bin_idx + 0.5) * LARGEST / COUPLING_BINS for bin_idx in self._long]
        # After the warm-up there are enough; that they fade does not make them fewer.
        count = max(MINIMUM, _count_effective(self._seen, self.memory))
        return split_groups(centers, list(self._long.values()), count=count)

    def _measure_change(self) -> float:
        """How far recent samples differ from all, in units of c."""
        counts = [_count_effective(self._seen, memory) for memory in (self.memory, self._short)]
        chance = math.sqrt(sum(1 / count for count in counts))
        return _measure_difference(self._long, self._recent) / chance

    def __getstate__(self) -> dict[str, Any]:
        """Without the lock, which cannot be copied."""
        with self._lock:
            return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)
        self._lock = threading.Lock()


def _check_settings(warm_up: int, memory: int) -> None:
    """Raise for settings that cannot work."""
    for name, value, least in (("warm_up", warm_up, MINIMUM), ("memory", memory, warm_up)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            why = "fewer cannot show two groups" if name == "warm_up" else "that is warm_up"
            raise InputError(
                f"{name} must be an integer of at least {least} ({why}), got {value!r}."
            )


def _count_effective(seen: int, memory: float) -> float:
    """Effective number of the faded samples: (sum w)**2 / (sum w**2)."""
    keep = 1 - 1 / memory
    total = (1 - keep**seen) / (1 - keep)
    squares = (1 - keep ** (2 * seen)) / (1 - keep**2)
    return total * total / squares


def _add(bin_idx: int, weights: Bins, memory: float) -> Bins:
    """The histogram with one more sample; earlier ones fade, and vanish below `_FADED`."""
    keep = 1 - 1 / memory
    faded = {other: weight * keep for other, weight in weights.items() if weight * keep > _FADED}
    faded[bin_idx] = faded.get(bin_idx, 0.0) + 1.0
    return faded


def _measure_difference(first: Bins, second: Bins) -> float:
    """Kolmogorov-Smirnov distance of two histograms."""
    totals = math.fsum(first.values()), math.fsum(second.values())
    largest = below = 0.0
    for bin_idx in sorted({*first, *second}):
        below += first.get(bin_idx, 0.0) / totals[0] - second.get(bin_idx, 0.0) / totals[1]
        largest = max(largest, abs(below))
    return largest


def _list_bins(weights: Bins) -> list[list[float]]:
    return [[bin_idx, weights[bin_idx]] for bin_idx in sorted(weights)]


def _read_bins(pairs: list[list[float]]) -> Bins:
    for bin_idx, weight in pairs:
        if not (int(bin_idx) == bin_idx and 0 <= bin_idx < COUPLING_BINS and 0 < weight < math.inf):
            raise ValueError(f"no bin {bin_idx} with weight {weight}")
    return {int(bin_idx): float(weight) for bin_idx, weight in pairs}
