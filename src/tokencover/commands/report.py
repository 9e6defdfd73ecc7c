"""``tokencover report``: a folder of results as a page."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokencover.commands.command_line import write_command_line
from tokencover.commands.options import (
    OUTPUT,
    Reference,
    Threads,
    name_reference,
    read_whole_number,
    split_at_commas,
    take,
)
from tokencover.errors import InputError
from tokencover.files import write_atomically, write_document

if TYPE_CHECKING:
    from tokencover.budget import Profile
    from tokencover.evaluation import Results
    from tokencover.evaluation.report import KeptExample, StoredAblations

PICTURES = "Pictures"


ResultsPath = Annotated[
    Path, typer.Argument(metavar="RESULTS", help="The --out of `tokencover evaluate`.")
]
PageFile = Annotated[Path, take("--out", "FILE", "The page.", OUTPUT)]
ExportFile = Annotated[
    Path | None,
    take("--export", "FILE", "Write all numbers as JSON, to send or to read elsewhere.", OUTPUT),
]
MarkdownFile = Annotated[
    Path | None,
    take("--markdown", "FILE", "Write Markdown tables too.", OUTPUT),
]
LatexFile = Annotated[
    Path | None,
    take("--latex", "FILE", "Write LaTeX tables in the paper's layout too.", OUTPUT),
]
LatexCosts = Annotated[
    bool,
    take("--latex-costs", "", "Add the paper's computed costs of LLaVA-7B to --latex.", OUTPUT),
]
CsvFile = Annotated[
    Path | None,
    take("--csv", "FILE", "Write the rows as comma-separated values too.", OUTPUT),
]
FiguresFolder = Annotated[
    Path | None,
    take("--figures", "FOLDER", "Write the charts as files too, named by the paper's.", OUTPUT),
]
FigureFormats = Annotated[
    str,
    take("--format", "LIST", "Of those files: pdf,svg,png.", OUTPUT),
]
OtherFolder = Annotated[
    Path | None,
    take("--against", "RESULTS", "Compare with the results of another run."),
]
AblationResults = Annotated[
    Path | None,
    take("--ablation", "FOLDER", "The --out of `tokencover ablate`: Figures 4 to 6, Table 6."),
]
ShownProfile = Annotated[
    Path | None,
    take("--profile", "FILE", "Show the coupling that `tokencover calibrate` found."),
]
PictureCount = Annotated[
    int,
    take(
        "--pictures",
        "N",
        "Let the model look at N examples again, and draw what was kept.",
        PICTURES,
        read=read_whole_number,
    ),
]
PictureTasks = Annotated[
    str | None,
    take(
        "--tasks",
        "NAMES",
        "Where those examples are, as for `evaluate` (default: pebble's).",
        PICTURES,
    ),
]
PictureDevice = Annotated[
    str | None,
    take("--device", "NAME", "To look at them again: cuda:1, cpu, or auto.", PICTURES),
]


def write_report(
    context: typer.Context,
    results: ResultsPath,
    out: PageFile = Path("report.html"),
    markdown: MarkdownFile = None,
    export: ExportFile = None,
    latex: LatexFile = None,
    latex_costs: LatexCosts = False,
    csv: CsvFile = None,
    figures: FiguresFolder = None,
    formats: FigureFormats = "pdf",
    against: OtherFolder = None,
    ablation: AblationResults = None,
    reference: Reference = None,
    profile: ShownProfile = None,
    pictures: PictureCount = 0,
    tasks: PictureTasks = None,
    device: PictureDevice = None,
    threads: Threads = None,
) -> None:
    """Turn results into a page that needs nothing else."""
    from tokencover.budget import Profile
    from tokencover.commands.threads import set_threads
    from tokencover.evaluation import check_reference, read_commands, read_folder
    from tokencover.evaluation.report import (
        check_formats,
        check_page_parts,
        find_ablations,
        make_page,
    )

    # Everything is read first, so that nothing is written if something is wrong.
    check_page_parts()
    kinds = split_at_commas(formats)
    check_formats(kinds)
    stored = read_folder(_find_results(results))
    other = None if against is None else read_folder(against)
    ablations = find_ablations(read_folder(_find_results(ablation)) if ablation else stored)
    named = None if reference is None else name_reference(reference)
    compared = check_reference([row.combination for row in stored], named)
    coupling = None if profile is None else Profile.load(profile)
    set_threads(threads)
    drawn = _draw_kept(stored, compared, tasks, pictures, device)
    page = make_page(
        stored,
        reference=compared,
        profile=coupling,
        pictures=drawn,
        other=other,
        ablations=ablations,
        command=write_command_line(context),
        evaluated_by=read_commands(_find_results(results)),
        date=date.today().isoformat(),
    )
    write_text(out, page)
    written = [out]
    for path, make in _list_texts(stored, compared, ablations, markdown, (latex, latex_costs), csv):
        write_text(path, make())
        written.append(path)
    if export is not None:
        _write_export(export, stored)
        written.append(export)
    if figures is not None:
        written += _write_charts(figures, kinds, stored, compared, coupling, ablations)
    print("\n".join(f"wrote {path}" for path in written))


def _write_charts(
    folder: Path,
    formats: list[str],
    stored: Results,
    reference: str,
    profile: Profile | None,
    ablations: StoredAblations,
) -> list[Path]:
    from tokencover.evaluation.report import make_figures, write_figures

    charts = make_figures(stored, reference=reference, profile=profile, ablations=ablations)
    return write_figures(charts, folder, formats)


def _find_results(folder: Path) -> Path:
    """The folder itself, or the results in one that `tokencover ablate` wrote."""
    inner = folder / "results"
    return inner if inner.is_dir() and not (folder / "run.json").exists() else folder


def _list_texts(
    stored: Results,
    reference: str,
    ablations: StoredAblations,
    markdown: Path | None,
    latex: tuple[Path | None, bool],
    csv: Path | None,
) -> list[tuple[Path, Callable[[], str]]]:
    """The files that were asked for, and what makes each."""
    from tokencover.evaluation.report import make_latex, make_markdown

    texts: list[tuple[Path | None, Callable[[], str]]] = [
        (markdown, lambda: make_markdown(stored, reference)),
        (latex[0], lambda: make_latex(stored, reference, ablations, costs=latex[1])),
        (csv, stored.to_csv),
    ]
    return [(path, make) for path, make in texts if path is not None]


def _write_export(path: Path, stored: Results) -> None:
    from tokencover.evaluation import EXPORT_KIND, export_results

    try:
        write_document(path, EXPORT_KIND, export_results(stored))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}. Give another place.") from error


def _find_sources(stored: Results) -> list[str]:
    """What finds the tasks again; results of earlier versions name pebble's only."""
    from tokencover.evaluation.lmms import split_names

    found = {task: stored.sources.get(task, task) for task in stored.groups}
    for task, source in found.items():
        is_named = source.partition("/")[0] in ("pebble", "pebble-clips")
        is_named = is_named or bool(split_names([source])[1])
        if not is_named and not Path(source).exists():
            raise InputError(
                f"the questions of {task!r} are not at {source}: say with --tasks where they are."
            )
    return list(found.values())


def _draw_kept(
    stored: Results, reference: str, tasks: str | None, count: int, device: str | None
) -> list[KeptExample]:
    """Let the model look at examples again; it must be the one that was evaluated."""
    if count < 0:
        raise InputError(f"--pictures must be 0 or more, got {count}.")
    if not count:
        return []
    names = split_at_commas(tasks) if tasks else _find_sources(stored)
    from tokencover.evaluation import describe_run, load_model
    from tokencover.evaluation.lmms import gather_tasks, read_settings
    from tokencover.evaluation.report import (
        choose_rows,
        draw_kept_pictures,
        explain_missing,
        list_telling_examples,
    )

    rows = choose_rows(stored, reference)
    telling = list_telling_examples(stored, rows[0])
    settings, measured = stored.run["settings"], stored.run["model"]
    found = gather_tasks(
        names,
        split=settings["split"],
        limit=settings["limit"],
        settings=read_settings(settings),
    )
    model = load_model(stored.model, device=device, dtype=measured["dtype"])
    model.check(found)
    if describe_run(model)["model"]["weights"] != measured["weights"]:
        raise InputError(
            f"the model {stored.model!r} has other weights now than when it was evaluated: leave "
            "--pictures away, or evaluate again."
        )
    methods = [row.combination.method for row in rows if row.combination.method is not None]
    drawn = draw_kept_pictures(model, methods, found, count, telling)
    if missing := explain_missing(drawn, count):
        print(f"tokencover: {missing}", file=sys.stderr)
    return drawn


def write_text(path: Path, text: str) -> None:
    """Write a file, and the folders above it if need be."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}. Give another place.") from error
