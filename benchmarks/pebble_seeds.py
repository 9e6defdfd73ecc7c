"""Whether models of other training seeds rank the methods alike.

Each file holds what `benchmarks/pebble_pruning.py --json` wrote for one model, all of them for the
same scenes:

    python benchmarks/pebble_seeds.py seed0.json seed1.json seed2.json

Two models contradict each other about two methods where both call a difference beyond doubt (the
95 % interval of a paired bootstrap over scenes excludes zero) and its signs differ.
"""

from __future__ import annotations

import argparse
import json
from itertools import combinations
from pathlib import Path

import numpy as np

from answer_tables import Cells, average_kinds, compare_tables
from tokencover.statistics import Interval

Tables = dict[str, Cells]
NEAR_PERFECT = 0.9
KNOWN = 0.88
SCARCE = 32


def main() -> None:
    """Print a table of averages, one of differences, and the contradictions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", type=Path, nargs="+", help="one of each model")
    options = parser.parse_args()
    runs = {path.stem: _read(path) for path in options.files}
    whole = {name: run.pop("unpruned") for name, run in runs.items()}
    rows = sorted(set.intersection(*(set(run) for run in runs.values())), key=_rank_name)
    kinds = _read_kinds(options.files[0])
    robust, unknown = _find_robust_types(kinds, runs), _find_unknown_types(kinds, whole)
    print(f"near perfect under random pruning to {SCARCE}: {', '.join(robust) or '-'}")
    print(f"not known to some model even unpruned: {', '.join(unknown) or '-'}\n")
    _print_averages(runs, whole, rows, [*robust, *unknown], kinds)
    _print_differences(runs, rows)


def _read(path: Path) -> Tables:
    stored = json.loads(path.read_text())["cells"]
    tables = {name: np.array(table, dtype=np.float64) for name, table in stored.items()}
    return {name: np.where(table < 0, np.nan, table) for name, table in tables.items()}


def _read_kinds(path: Path) -> list[str]:
    kinds: list[str] = json.loads(path.read_text())["kinds"]
    return kinds


def _rank_name(name: str) -> tuple[int, str]:
    """Large budgets first."""
    return -int(name.split("-")[1]), name


def _find_robust_types(kinds: list[str], runs: dict[str, Tables]) -> list[str]:
    """Types that every model still answers at random pruning to very few tokens."""
    name = f"random-{SCARCE}"
    if not all(name in run for run in runs.values()):
        return []
    shares = np.min([np.nanmean(run[name], axis=0) for run in runs.values()], axis=0)
    return [kind for kind, share in zip(kinds, shares, strict=True) if share >= NEAR_PERFECT]


def _find_unknown_types(kinds: list[str], whole: Tables) -> list[str]:
    """Types that some model never learned; they say nothing about what was pruned."""
    shares = np.min([np.nanmean(cells, axis=0) for cells in whole.values()], axis=0)
    return [kind for kind, share in zip(kinds, shares, strict=True) if share < KNOWN]


def _print_averages(
    runs: dict[str, Tables],
    whole: Tables,
    rows: list[str],
    left_out: list[str],
    kinds: list[str],
) -> None:
    columns = [index for index, kind in enumerate(kinds) if kind not in left_out]
    print(f"| method and K | {' | '.join(runs)} | mean | without those types |")
    print("|---|" + "---:|" * (len(runs) + 2))
    for row in ["unpruned", *rows]:
        tables = [whole[name] if row == "unpruned" else run[row] for name, run in runs.items()]
        means = [100 * average_kinds(table) for table in tables]
        rest = [100 * average_kinds(table[:, columns]) for table in tables]
        cells = " | ".join(f"{mean:.1f}" for mean in means)
        print(f"| {row} | {cells} | {np.mean(means):.1f} | {np.mean(rest):.1f} |")


def _print_differences(runs: dict[str, Tables], rows: list[str]) -> None:
    print(f"\n| pair | {' | '.join(runs)} | |")
    print("|---|" + "---:|" * len(runs) + "---|")
    contradictions = 0
    for first, second in combinations(rows, 2):
        if first.split("-")[1:] != second.split("-")[1:]:
            continue
        found = [compare_tables(run[first], run[second]) for run in runs.values()]
        verdict = _judge(found)
        contradictions += verdict == "CONTRADICTION"
        cells = " | ".join(
            f"{100 * each.mean:+.1f} [{100 * each.low:+.1f}, {100 * each.high:+.1f}]"
            for each in found
        )
        print(f"| {first} minus {second} | {cells} | {verdict} |")
    print(f"\ncontradictions: {contradictions}")


def _judge(found: list[Interval]) -> str:
    above = sum(each.low > 0 for each in found)
    below = sum(each.high < 0 for each in found)
    if above and below:
        return "CONTRADICTION"
    if len(found) in (above, below):
        return "all agree"
    return "some agree" if above or below else "all in doubt"


if __name__ == "__main__":
    main()
