"""``tokencover report``: a folder of results as a page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tokencover.cli.command_line import write_command_line
from tokencover.cli.options import (
    OUTPUT,
    Reference,
    Threads,
    name_reference,
    read_new_file,
    read_new_folder,
    read_path,
    read_task_names,
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

PAGE: Final = Path("report.html")
NOTHING: Final = "no chart can be drawn: the results have no method that is finished"
PICTURES = "Pictures"


ResultsPath = Annotated[
    Path,
    typer.Argument(metavar="RESULTS", help="The --out of `tokencover evaluate`.", parser=read_path),
]
PageFile = Annotated[
    Path | None,
    take(
        "--out",
        "FILE",
        "The page (default: report.html, or none if only other files are asked for).",
        OUTPUT,
        read=read_new_file,
    ),
]
ExportFile = Annotated[
    Path | None,
    take(
        "--export",
        "FILE",
        "Write all numbers as JSON, to send or to read elsewhere.",
        OUTPUT,
        read=read_new_file,
    ),
]
MarkdownFile = Annotated[
    Path | None,
    take("--markdown", "FILE", "Write Markdown tables.", OUTPUT, read=read_new_file),
]
LatexFile = Annotated[
    Path | None,
    take(
        "--latex", "FILE", "Write LaTeX tables in the paper's layout.", OUTPUT, read=read_new_file
    ),
]
CsvFile = Annotated[
    Path | None,
    take("--csv", "FILE", "Write the rows as comma-separated values.", OUTPUT, read=read_new_file),
]
FiguresFolder = Annotated[
    Path | None,
    take(
        "--figures",
        "FOLDER",
        "Write the charts as files, named by the paper's.",
        OUTPUT,
        read=read_new_folder,
    ),
]
FigureFormats = Annotated[
    str,
    take("--format", "LIST", "Of those files: pdf,svg,png.", OUTPUT),
]
OtherFolder = Annotated[
    Path | None,
    take("--against", "RESULTS", "Compare with the results of another run.", read=read_path),
]
AblationResults = Annotated[
    Path | None,
    take(
        "--ablation",
        "FOLDER",
        "The --out of `tokencover ablate`: Figures 4 to 6.",
        read=read_path,
    ),
]
ShownProfile = Annotated[
    Path | None,
    take(
        "--profile",
        "FILE",
        "Show the coupling that `tokencover calibrate` found.",
        read=read_path,
    ),
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
    list[str] | None,
    take(
        "--tasks",
        "NAMES",
        "Where those examples are, as for `evaluate` (default: where they were).",
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
    out: PageFile = None,
    markdown: MarkdownFile = None,
    export: ExportFile = None,
    latex: LatexFile = None,
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
    """Turn results into a page that needs nothing else, or into tables and charts."""
    from tokencover.budget import Profile
    from tokencover.cli.threads import set_threads
    from tokencover.evaluation import read_commands, read_folder, resolve_reference
    from tokencover.evaluation.report import (
        check_formats,
        collect_ablations,
        make_page,
    )

    has_page = out is not None or against is not None or bool(pictures)
    has_page = has_page or not any((markdown, export, latex, csv, figures))
    # Everything is read first, so that nothing is written if something is wrong.
    _check_packages(has_page=has_page, has_figures=figures is not None)
    kinds = split_at_commas(formats)
    check_formats(kinds)
    stored = read_folder(_find_results(results))
    other = None if against is None else read_folder(against)
    ablations = collect_ablations(read_folder(_find_results(ablation)) if ablation else stored)
    named = None if reference is None else name_reference(reference)
    compared = resolve_reference([row.combination for row in stored], named)
    coupling = None if profile is None else Profile.load(profile)
    written = []
    if has_page:
        set_threads(threads)
        page = make_page(
            stored,
            reference=compared,
            profile=coupling,
            kept=_draw_kept(stored, compared, tasks, pictures, device),
            other=other,
            ablations=ablations,
            command=write_command_line(context),
            evaluated_by=read_commands(_find_results(results)),
            date=date.today().isoformat(),
        )
        written.append(out or PAGE)
        write_atomically(written[0], page)
    for path, make in _list_texts(stored, compared, markdown, latex, csv):
        write_atomically(path, make())
        written.append(path)
    written += _write_export(export, stored)
    if figures is not None:
        written += _write_charts(figures, kinds, stored, compared, coupling, ablations)
    print("\n".join(f"wrote {path}" for path in written) or NOTHING)


def _check_packages(*, has_page: bool, has_figures: bool) -> None:
    """Raise an error before the work if a package is missing that writes what is asked for."""
    from tokencover.evaluation.report import check_page_parts
    from tokencover.extras import import_extra

    if has_page:
        check_page_parts()
    for package in ("altair", "vl_convert") if has_figures else ():
        otherwise = "write tables: --markdown, --latex, --csv"
        import_extra(package, "drawing charts", "tokencover[figures]", otherwise)


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
    markdown: Path | None,
    latex: Path | None,
    csv: Path | None,
) -> list[tuple[Path, Callable[[], str]]]:
    """The files that were asked for, and what makes each."""
    from tokencover.evaluation.report import make_latex, make_markdown

    texts: list[tuple[Path | None, Callable[[], str]]] = [
        (markdown, lambda: make_markdown(stored, reference)),
        (latex, lambda: make_latex(stored, reference)),
        (csv, stored.to_csv),
    ]
    return [(path, make) for path, make in texts if path is not None]


def _write_export(path: Path | None, stored: Results) -> list[Path]:
    from tokencover.evaluation import EXPORT_KIND, export_results

    if path is None:
        return []
    write_document(path, EXPORT_KIND, export_results(stored))
    return [path]


def _find_sources(stored: Results) -> list[str]:
    """What finds the tasks again; results of earlier versions name pebble's only."""
    from tokencover.bundled_models import list_scene_sets
    from tokencover.evaluation.lmms import split_names

    found = {task: stored.sources.get(task, task) for task in stored.groups}
    for task, source in found.items():
        is_named = source.partition("/")[0] in list_scene_sets()
        is_named = is_named or bool(split_names([source])[1])
        if not is_named and not Path(source).exists():
            raise InputError(
                f"the questions of {task!r} are not at {source}: say with --tasks where they are."
            )
    return list(found.values())


def _draw_kept(
    stored: Results,
    reference: str,
    tasks: Sequence[str] | None,
    count: int,
    device: str | None,
) -> list[KeptExample]:
    """Let the model look at examples again; it must be the one that was evaluated."""
    if count < 0:
        raise InputError(f"--pictures must be 0 or more, got {count}.")
    if not count:
        return []
    names = read_task_names(tasks) or _find_sources(stored)
    from tokencover.evaluation import describe_run, load_model
    from tokencover.evaluation.lmms import gather_tasks, read_settings
    from tokencover.evaluation.report import (
        draw_kept_images,
        explain_missing,
        list_changed_answers,
        select_rows,
    )

    rows = select_rows(stored, reference)
    telling = list_changed_answers(stored, rows[0])
    settings, measured = stored.run["settings"], stored.run["model"]
    found = gather_tasks(
        names,
        split=settings["split"],
        limit=settings["limit"],
        settings=read_settings(settings),
    )
    options = measured.get("options", {})
    model = load_model(stored.model, device=device, dtype=measured["dtype"], **options)
    model.check(found)
    if describe_run(model)["model"]["weights"] != measured["weights"]:
        raise InputError(
            f"the model {stored.model!r} has other weights now than when it was evaluated: leave "
            "--pictures away, or evaluate again."
        )
    methods = [row.combination.method for row in rows if row.combination.method is not None]
    drawn = draw_kept_images(model, methods, found, count, telling)
    if missing := explain_missing(drawn, count):
        print(f"tokencover: {missing}", file=sys.stderr)
    return drawn
