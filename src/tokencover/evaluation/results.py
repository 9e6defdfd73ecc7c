"""What an evaluation found, for Python: rows to go through, tables to write."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokencover.errors import import_extra
from tokencover.evaluation.metrics import average_all
from tokencover.evaluation.result_rows import (
    ResultRow,
    find_average,
    find_reference,
    find_unpruned,
)
from tokencover.evaluation.results_table import (
    ResultsTable,
    find_difference,
    make_table,
    make_task_table,
)
from tokencover.evaluation.table_formats import as_html, as_latex, as_markdown
from tokencover.files import write_atomically
from tokencover.tables import align_columns


@dataclass(frozen=True, repr=False)
class Results:
    """Methods at budgets, and what each answered; `tc.evaluate` returns it.

    It is a sequence of its rows. Printed, and in a notebook, it is the table of the command line.

    Attributes
    ----------
    run : mapping
        Model, versions and settings of the run.
    groups : mapping
        The group of each task, by name.
    rows : tuple of ResultRow
        The unpruned model first if it is there, then method by method. A row with neither summary
        nor `ResultRow.cannot` is not finished.
    reference : str
        Label or name of the method that others are compared with at the same budget.
    sources : mapping
        What `tokencover.evaluation.find_tasks` finds a task by again, for those that have such a
        name.
    about : mapping
        What each task asked: its `Task.version`, which tells the data, how many questions and, for
        those of lmms-eval, how answers were generated.
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

    def __getitem__(self, place: int) -> ResultRow:
        return self.rows[place]

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
        """The row of the model as it is, None if it is not there or not finished."""
        return find_unpruned(self.rows)

    @property
    def finished(self) -> bool:
        """Whether every method answered everything, or said why it cannot."""
        return all(row.summary is not None or row.cannot is not None for row in self.rows)

    def compare(self, reference: str | None = None) -> ResultsTable:
        """The table that compares methods with one of them at the same budget, see `make_table`."""
        groups = list(dict.fromkeys(self.groups.values()))
        return make_table(self.rows, groups, list(self.groups), reference or self.reference)

    def compare_tasks(self) -> ResultsTable:
        """The table with a column for each task."""
        return make_task_table(self.rows, list(self.groups))

    # ---- for programs -----------------------------------------------------------------------

    def to_dicts(self) -> list[dict[str, Any]]:
        """A dict of plain values for each row; accuracies, costs and differences are shares of 1.

        None stands where nothing was measured.
        """
        return [self._flatten(row) for row in self.rows]

    def list_answers(self) -> list[dict[str, Any]]:
        """A dict for each question that a method answered: what was asked, said, and right.

        Question and right answers are None in results of versions that did not save them.
        """
        return [
            {
                "method": row.combination.label,
                "budget": row.combination.budget or None,
                "task": task,
                "id": each.id,
                "question": each.question,
                "answers": None if each.answers is None else list(each.answers),
                "answer": each.answer,
                "score": each.score,
                "tokens": each.tokens,
                "mean_tokens": each.mean_tokens,
                "flops": each.flops,
                "failed": each.failed,
            }
            for row in self.rows
            for task, records in row.records.items()
            for each in records
        ]

    def to_pandas(self, *, answers: bool = False) -> Any:
        """A data frame of `to_dicts`, or of `list_answers`.

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
        """Comma-separated `to_dicts`, or `list_answers`; written to a file too if one is named."""
        rows = self.list_answers() if answers else self.to_dicts()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _write_cell(value) for key, value in row.items()} for row in rows)
        return _save(path, text.getvalue())

    # ---- for people -------------------------------------------------------------------------

    def to_latex(self, path: str | Path | None = None) -> str:
        """The table in LaTeX; needs no package, best and second of a budget are marked."""
        return _save(path, as_latex(self.compare()))

    def to_markdown(self, path: str | Path | None = None) -> str:
        """The table in Markdown."""
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

    def _flatten(self, row: ResultRow) -> dict[str, Any]:
        method: Any = row.combination.method
        while hasattr(method, "inner"):
            method = method.inner
        summary = row.summary
        against = find_reference(row, self.rows, self.reference) if summary else None
        difference = find_difference(row, against)
        average = find_average(row, self.unpruned)
        groups = dict.fromkeys(self.groups.values())
        return {
            "method": row.combination.label,
            "budget": getattr(method, "budget", None),
            "budget_mode": getattr(method, "budget_mode", None),
            "accuracy": summary and average_all(list(summary.accuracy.values())),
            **{f"accuracy_{group}": summary and summary.groups.get(group) for group in groups},
            "relative": None if average is None else average / 100,
            "tokens": summary and summary.tokens,
            "mean_tokens": summary and summary.mean_tokens,
            "flops": summary and summary.flops,
            "first_token": row.first_token,
            "difference": difference and difference.mean,
            "difference_low": difference and difference.low,
            "difference_high": difference and difference.high,
            "failed": summary and summary.failed,
            "cannot": row.cannot,
        }


def title_model(name: str, quantization: str | None) -> str:
    """A model's name for tables; quantized and unquantized weights never look alike."""
    return name if quantization is None else f"{name} ({quantization})"


def choose_reference(labels: Sequence[str]) -> str:
    """What others are compared with if that is not said: MoB, or else the first method."""
    own = [label for label in labels if label.partition(":")[0] == "mob"]
    return own[0].partition(":")[0] if own else next(iter(labels), "mob")


def _write_cell(value: Any) -> Any:
    return " | ".join(value) if isinstance(value, list) else value


def _save(path: str | Path | None, text: str) -> str:
    if path is not None:
        write_atomically(path, text)
    return text
