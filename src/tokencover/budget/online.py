"""The threshold tau learned while a model is used, without calibration.

The distribution of coupling is held as a histogram of fixed bins in which a sample's weight fades
by ``1 - 1/memory`` with each later one. Coupling is a distance of unit vectors, so it lies between
0 and 2 and the bins can be fixed: memory is bounded, every sample counts (a reservoir would hold a
random few, and answers would depend on a lot), and equal streams give equal thresholds.

A threshold is in force only if all three hold; otherwise there is none, and the caller does what
it would without a prior:

- `warm_up` samples were seen;
- the values are two groups, by the criterion of `threshold.py` that calibration uses too;
- recent samples are distributed like the long run. A second histogram with a tenth of the memory
  is compared with the first (Kolmogorov-Smirnov distance). If they differ more than chance makes
  likely, there is no threshold until they agree again; if more than chance allows, everything is
  forgotten and a new warm-up begins. A mixture of what was and what is would look like two groups
  and be none.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping
from typing import Any, Final

from tokencover.budget.threshold import MINIMUM, Groups, find_two_groups
from tokencover.errors import InputError
from tokencover.files import check_document, read_document, write_document

ONLINE_KIND: Final = "tokencover online coupling"
ONLINE_VERSION: Final = 1
COUPLING_BINS: Final = 2048
LARGEST: Final = 2.0
"""The distance of opposite unit vectors."""
REFIT: Final = 16
"""After so many samples the threshold is computed anew."""
DOUBT: Final = 1.63
DRIFT: Final = 2.5
"""Kolmogorov-Smirnov's c, for no threshold and for a new beginning: by chance alone, a comparison
exceeds c in 2 exp(-2 c**2) of all cases, once in 100 and once in 130 000. (Recent samples are part
of the long run, so less often.)"""
_FADED: Final = 0.01
Bins = dict[int, float]
"""The weight of each bin that is not empty."""
_LEARN: Final = "let a new OnlineThreshold warm up and save it"


class OnlineThreshold:
    """Learns tau from a stream of coupling values. Safe to use from several threads.

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
        """Take in one sample.

        Parameters
        ----------
        coupling : float
            eta of the sample.

        Returns
        -------
        float or None
            The threshold that is in force for this sample; it comes from those before it.
        """
        if not (math.isfinite(coupling) and 0 <= coupling <= LARGEST * (1 + 1e-6)):
            raise InputError(f"coupling must lie between 0 and {LARGEST:g}, got {coupling}.")
        with self._lock:
            in_force = self._tau
            place = min(int(coupling / LARGEST * COUPLING_BINS), COUPLING_BINS - 1)
            self._long = _add(place, self._long, self.memory)
            self._recent = _add(place, self._recent, self._short)
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
        """What the latest fit found; None during warm-up."""
        with self._lock:
            return self._find_groups()

    @property
    def seen(self) -> int:
        """Samples since the start, or since all was forgotten."""
        with self._lock:
            return self._seen

    @property
    def restarts(self) -> int:
        """How often all was forgotten because the distribution had changed."""
        with self._lock:
            return self._restarts

    def state(self) -> dict[str, Any]:
        """Everything learned, as plain JSON values; `restore` continues from it, bit for bit."""
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
        """Write the state to a file, whole or not at all."""
        write_document(path, ONLINE_KIND, self.state())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> OnlineThreshold:
        """One that continues from a saved state, with its settings.

        Raises
        ------
        InputError
            If the file is missing, damaged, something else, or of another version.
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
        groups = self._find_groups()
        self._tau = groups.tau if groups and groups.separated and change <= DOUBT else None

    def _find_groups(self) -> Groups | None:
        if self._seen < self.warm_up:
            return None
        centers = [(place + 0.5) * LARGEST / COUPLING_BINS for place in self._long]
        # The warm-up has seen to it that there are enough; that they fade does not make them fewer.
        count = max(MINIMUM, _count_effective(self._seen, self.memory))
        return find_two_groups(centers, list(self._long.values()), count=count)

    def _measure_change(self) -> float:
        """How far recent samples and the long run differ, in units of c."""
        counts = [_count_effective(self._seen, memory) for memory in (self.memory, self._short)]
        chance = math.sqrt(sum(1 / count for count in counts))
        return _measure_difference(self._long, self._recent) / chance

    def __getstate__(self) -> dict[str, Any]:
        """Locks cannot be copied; a copy gets its own."""
        with self._lock:
            return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)
        self._lock = threading.Lock()


def _check_settings(warm_up: int, memory: int) -> None:
    """Refuse settings that cannot work."""
    for name, value, least in (("warm_up", warm_up, MINIMUM), ("memory", memory, warm_up)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            why = "fewer cannot show two groups" if name == "warm_up" else "that is warm_up"
            raise InputError(
                f"{name} must be an integer of at least {least} ({why}), got {value!r}."
            )


def _count_effective(seen: int, memory: float) -> float:
    """Number of equal samples that know as much as the faded ones: (sum w)**2 / (sum w**2)."""
    keep = 1 - 1 / memory
    total = (1 - keep**seen) / (1 - keep)
    squares = (1 - keep ** (2 * seen)) / (1 - keep**2)
    return total * total / squares


def _add(place: int, weights: Bins, memory: float) -> Bins:
    """The histogram with one more sample, the others faded; what is all but gone is left out."""
    keep = 1 - 1 / memory
    faded = {bin_: weight * keep for bin_, weight in weights.items() if weight * keep > _FADED}
    faded[place] = faded.get(place, 0.0) + 1.0
    return faded


def _measure_difference(first: Bins, second: Bins) -> float:
    """Kolmogorov-Smirnov distance of two histograms."""
    totals = math.fsum(first.values()), math.fsum(second.values())
    largest = below = 0.0
    for place in sorted({*first, *second}):
        below += first.get(place, 0.0) / totals[0] - second.get(place, 0.0) / totals[1]
        largest = max(largest, abs(below))
    return largest


def _list_bins(weights: Bins) -> list[list[float]]:
    return [[place, weights[place]] for place in sorted(weights)]


def _read_bins(pairs: list[list[float]]) -> Bins:
    for place, weight in pairs:
        if not (int(place) == place and 0 <= place < COUPLING_BINS and 0 < weight < math.inf):
            raise ValueError(f"no bin {place} with weight {weight}")
    return {int(place): float(weight) for place, weight in pairs}
