"""Results of an evaluation: read from a folder, and written as tables and data."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tokencover.errors import InputError, import_extra
from tokencover.evaluation.answering import title_model
from tokencover.evaluation.columns import ResultsTable, list_columns, make_table, make_task_table
from tokencover.evaluation.formats import as_html, as_latex, as_markdown
from tokencover.evaluation.lmms import get_benchmark, split_names
from tokencover.evaluation.plan import Combination
from tokencover.evaluation.records import (
    ResultsError,
    Scores,
    Seconds,
    StoredUnit,
    make_damage_error,
    read_results_object,
    read_unit,
)
from tokencover.evaluation.scoring import (
    ResultRow,
    build_row,
    compute_relative_average,
    get_unpruned,
)
from tokencover.evaluation.store import FORMAT, RUN
from tokencover.files import write_atomically
from tokencover.tables import align_columns

EXPORT_KIND: Final = "tokencover results"
EXPORT_VERSION: Final = 1
ANSWER_FIELDS: Final = (
    *("id", "question", "answers", "answer", "score"),
    *("tokens", "mean_tokens", "flops", "failed"),
)
"""Fields of `Record` in `Results.list_answers`, in the order of CSV columns."""


@dataclass(frozen=True, repr=False)
class Results:
    """Methods at budgets with their answers; `tc.evaluate` returns it.

    It is a sequence of its rows. Printed, and in a notebook, it is the table of the command line.

    Attributes
    ----------
    run : mapping
        Model, versions and settings of the run.
    groups : mapping
        The group of each task, by name.
    rows : tuple of ResultRow
        The unpruned model first if it was evaluated, then the methods. A row with neither summary
        nor `ResultRow.cannot` is not finished.
    reference : str
        Label or name of the method that others are compared with at the same budget.
    sources : mapping
        By task: the name with which `tokencover.evaluation.load_tasks` loads it, if it has one.
    about : mapping
        By task: its `Task.version`, which identifies the data, the number of questions and, for
        tasks of lmms-eval, the generation settings.
    """

    run: Mapping[str, Any]
    groups: Mapping[str, str]
    rows: tuple[ResultRow, ...]
    reference: str = "mob"
    sources: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ResultRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> ResultRow:
        return self.rows[index]

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.run["model"]["name"])

    @property
    def title(self) -> str:
        """The model's name, with the quantization of its weights if there is one."""
        return title_model(self.model, self.run["model"].get("quantization"))

    @property
    def unpruned(self) -> ResultRow | None:
        """The row of the unpruned model, None if it is missing or not finished."""
        return get_unpruned(self.rows)

    @property
    def finished(self) -> bool:
        """Whether every method answered everything, or cannot run."""
        return all(row.summary is not None or row.cannot is not None for row in self.rows)

    def compare(self, reference: str | None = None) -> ResultsTable:
        """Build the table that compares methods with one of them at the same budget."""
        groups = list(dict.fromkeys(self.groups.values()))
        return make_table(self.rows, groups, list(self.groups), reference or self.reference)

    def compare_tasks(self) -> ResultsTable:
        """Build the table with a column for each task."""
        return make_task_table(self.rows, list(self.groups))

    # ---- for programs -----------------------------------------------------------------------

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dict of plain values for each row.

        Accuracies, costs and differences are fractions of 1. None means not measured.
        """
        columns = list_columns(self.rows, list(dict.fromkeys(self.groups.values())), self.reference)
        return [
            {key: value for column in columns for key, value in column.export(row).items()}
            for row in self.rows
        ]

    def list_answers(self) -> list[dict[str, Any]]:
        """Return a dict for each answered question, with the answer and the reference answers.

        Question and reference answers are None in results of versions that did not save them.
        """
        return [
            {
                "method": row.combination.label,
                "budget": row.combination.budget or None,
                "task": task,
                **{name: getattr(record, name) for name in ANSWER_FIELDS},
                "answers": None if record.answers is None else list(record.answers),
            }
            for row in self.rows
            for task, records in row.records.items()
            for record in records
        ]

    def to_pandas(self, *, answers: bool = False) -> Any:
        """Return a data frame of `to_dicts`, or of `list_answers`.

        Parameters
        ----------
        answers : bool
            Whether it has a row for each answered question, not for each method.

        Raises
        ------
        InputError
            If pandas is not installed.
        """
        pandas = import_extra("pandas", "to_pandas()", "pandas", "use to_csv() or to_dicts()")
        return pandas.DataFrame(self.list_answers() if answers else self.to_dicts())

    def to_csv(self, path: str | Path | None = None, *, answers: bool = False) -> str:
        """Return `to_dicts`, or `list_answers`, as CSV; also write it to a file if one is named."""
        rows = self.list_answers() if answers else self.to_dicts()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _format_csv(value) for key, value in row.items()} for row in rows)
        return _save(path, text.getvalue())

    # ---- for people -------------------------------------------------------------------------

    def to_latex(self, path: str | Path | None = None) -> str:
        """Return the table in LaTeX; it needs no package, best and second are marked."""
        return _save(path, as_latex(self.compare()))

    def to_markdown(self, path: str | Path | None = None) -> str:
        """Return the table in Markdown."""
        return _save(path, as_markdown(self.compare()) + "\n")

    def __repr__(self) -> str:
        table = self.compare()
        header = ("method", "budget", *table.header)
        lines = []
        for line in table.lines:
            cells = [cell.text for cell in line.cells] or [""] * len(table.columns)
            first = f"{line.label}\n{line.remark}" if line.remark else line.label
            lines.append((first, line.budget or "-", *cells))
        count = len(self.groups)
        title = f"Results of {self.title} on {count} task{'' if count == 1 else 's'}"
        return f"{title}\n{align_columns(header, lines)}"

    def _repr_html_(self) -> str:
        return as_html(self.compare())


def choose_reference(labels: Sequence[str]) -> str:
    """The default reference: MoB, or else the first method."""
    own = [label for label in labels if label.partition(":")[0] == "mob"]
    return own[0].partition(":")[0] if own else next(iter(labels), "mob")


# ---- reading a folder -----------------------------------------------------------------------


def read_folder(folder: str | Path) -> Results:
    """Read a folder of results, without the tasks and the model that produced it.

    Raises
    ------
    InputError
        If the folder is missing, empty or not one of results.
    ResultsError
        If a file is damaged, of another run, or of other examples than the rest.
    """
    folder = Path(folder)
    run = _read_run(folder)
    units: dict[Combination, list[StoredUnit]] = {}
    tasks: dict[str, tuple[str, str]] = {}
    sources: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        if path.name == RUN:
            continue
        unit = read_unit(path, run)
        units.setdefault(unit.combination, []).append(unit)
        if unit.source:
            sources[unit.task] = unit.source
        about = unit.group, unit.version
        if isinstance(unit.result, Scores) and tasks.setdefault(unit.task, about) != about:
            why = f"its {unit.task} has other examples than that of the other methods"
            raise make_damage_error(path, why)
    if not tasks:
        raise InputError(
            f"{folder} has no finished results yet: let `tokencover evaluate --out {folder}` run."
        )
    names = sorted(tasks, key=lambda name: (tasks[name][0], name))
    groups = {name: tasks[name][0] for name in names}
    rows = [_build_row(combination, each, groups) for combination, each in units.items()]
    about_tasks = {name: tasks[name][1] for name in names}
    ordered = tuple(sorted(rows, key=_get_order))
    return Results(run, groups, ordered, sources=sources, about=about_tasks)


def _build_row(
    combination: Combination, units: Sequence[StoredUnit], groups: Mapping[str, str]
) -> ResultRow:
    scores = {unit.task: unit.result for unit in units if isinstance(unit.result, Scores)}
    reasons = {task: each.cannot for task, each in scores.items() if each.cannot is not None}
    if reasons:
        return ResultRow(combination, {}, None, None, reasons[min(reasons)])
    seconds = [unit.result for unit in units if isinstance(unit.result, Seconds)]
    return build_row(combination, scores, seconds[-1] if seconds else None, groups)


def _get_order(row: ResultRow) -> tuple[Any, ...]:
    """Sort key: the unpruned model, then large budgets first."""
    method = row.combination.method
    if method is None:
        return (-1,)
    amount, _, mode = row.budget.partition(" ")
    budget = mode, "." in amount, -float(amount) if amount else 0.0
    return 0, budget, method.name == "mob", method.card.year or 0, str(row.combination)


def _read_run(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise InputError(
            f"there is no folder {folder}: `tokencover evaluate --out {folder}` makes one."
        )
    if not (folder / RUN).is_file():
        raise InputError(
            f"{folder} is not a folder of results, it has no {RUN}: give the one that "
            "`tokencover evaluate --out` wrote."
        )
    run = read_results_object(folder / RUN)
    if run.get("format") != FORMAT:
        raise ResultsError(
            f"{folder / RUN} is of format {run.get('format')!r}, this tokencover reads {FORMAT}: "
            "evaluate again, or use the tokencover that wrote it."
        )
    model = run.get("model")
    if not isinstance(model, dict) or "name" not in model:
        raise make_damage_error(folder / RUN, "it does not name the model")
    return {key: value for key, value in run.items() if key != "format"}


# ---- export ---------------------------------------------------------------------------------


def export_results(stored: Results) -> dict[str, Any]:
    """Return all numbers without answers: model, versions, settings, and each row by task.

    Scores are fractions, "metrics" are on the benchmark's own scales, "average" is the paper's
    "Avg." in percent; None means not measured.
    """
    columns = list_columns(stored.rows, list(dict.fromkeys(stored.groups.values())), "mob")
    costs = [column for column in columns if column.kind == "cost"]
    rows = [
        {
            "name": row.combination.label,
            "budget": row.combination.budget,
            "method": row.combination.settings,
            "cannot": row.cannot,
            "average": compute_relative_average(row, stored.unpruned),
            **{column.key: column.value(row) for column in costs},
            "tasks": _export_tasks(row),
        }
        for row in stored.rows
    ]
    return {
        "version": EXPORT_VERSION,
        "run": dict(stored.run),
        "groups": dict(stored.groups),
        "tasks": {task: _describe_task(task, stored) for task in stored.groups},
        "rows": rows,
    }


def _export_tasks(row: ResultRow) -> dict[str, Any]:
    return {
        task: {
            "score": None if row.summary is None else row.summary.accuracy[task],
            "examples": len(records),
            "failed": sum(record.failed is not None for record in records),
            **({"metrics": dict(row.metrics[task])} if task in row.metrics else {}),
        }
        for task, records in row.records.items()
    }


def _describe_task(task: str, stored: Results) -> dict[str, Any]:
    """Data of a task; of the paper's benchmarks also the paper's number and what differs."""
    source = stored.sources.get(task, "")
    described = {"about": stored.about.get(task, ""), "source": source}
    _, theirs = split_names([source])
    benchmark = get_benchmark(theirs[0]) if theirs else None
    if benchmark is None:
        return described
    kept = ("dataset", "split", "questions", "metric", "paper", "differs")
    return {**described, "benchmark": {name: getattr(benchmark, name) for name in kept}}


def _format_csv(value: Any) -> Any:
    return " | ".join(value) if isinstance(value, list) else value


def _save(path: str | Path | None, text: str) -> str:
    if path is not None:
        write_atomically(path, text)
    return text
