"""``tokencover report``: results as a page, tables and charts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tokencover.cli.options import OUTPUT, Reference, Threads, option
from tokencover.cli.values import (
    format_command_line,
    name_reference,
    parse_output_file,
    parse_output_folder,
    parse_path,
    parse_task_names,
    split_at_commas,
)
from tokencover.errors import InputError
from tokencover.files import write_atomically, write_document

if TYPE_CHECKING:
    from tokencover.evaluation import Results
    from tokencover.evaluation.report import KeptExample

PAGE: Final = Path("report.html")
NOTHING: Final = "no chart can be drawn: the results have no finished method"
IMAGES: Final = "Images"


def _output(name: str, text: str) -> object:
    return option(f"{name} FILE", text, OUTPUT, parser=parse_output_file)


ResultsPath = Annotated[
    Path,
    typer.Argument(metavar="RESULTS", help="Output of `tokencover evaluate`.", parser=parse_path),
]
PageFile = Annotated[
    Path | None,
    _output("--out", "HTML page (default: report.html, or none with other files only)."),
]
ExportFile = Annotated[Path | None, _output("--export", "Write all numbers as JSON.")]
MarkdownFile = Annotated[Path | None, _output("--markdown", "Write Markdown tables.")]
LatexFile = Annotated[Path | None, _output("--latex", "Write LaTeX tables in the paper's layout.")]
CsvFile = Annotated[Path | None, _output("--csv", "Write the rows as comma-separated values.")]
FiguresFolder = Annotated[
    Path | None,
    option(
        "--figures FOLDER",
        "Write the charts as files, named as in the paper.",
        OUTPUT,
        parser=parse_output_folder,
    ),
]
FigureFormats = Annotated[
    str, option("--format LIST", "Formats of --figures, e.g. pdf,svg,png.", OUTPUT)
]
OtherFolder = Annotated[
    Path | None,
    option("--against RESULTS", "Compare with the results of another run.", parser=parse_path),
]
AblationResults = Annotated[
    Path | None,
    option(
        "--ablation FOLDER",
        "Output of `tokencover ablate`: Figures 4 to 6, Table 6.",
        parser=parse_path,
    ),
]
ShownProfile = Annotated[
    Path | None,
    option("--profile FILE", "Output of `tokencover calibrate`, to show.", parser=parse_path),
]
ImageCount = Annotated[
    int,
    option("--images N", "Run the model again on N examples, and draw what was kept.", IMAGES),
]
ImageTasks = Annotated[
    list[str] | None,
    option("--tasks NAMES", "Tasks of these examples (default: those of the run).", IMAGES),
]
ImageDevice = Annotated[
    str | None, option("--device NAME", "Device for --images: cuda:1, cpu, or auto.", IMAGES)
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
    images: ImageCount = 0,
    tasks: ImageTasks = None,
    device: ImageDevice = None,
    threads: Threads = None,
) -> None:
    """Build a self-contained HTML report, tables or charts from results."""
    from tokencover.budget import Profile
    from tokencover.cli.process import set_threads
    from tokencover.evaluation import read_commands, read_folder, resolve_reference
    from tokencover.evaluation.report import check_formats, collect_ablations, make_page

    has_page = out is not None or against is not None or bool(images)
    has_page = has_page or not any((markdown, export, latex, csv, figures))
    # Everything is read first: nothing is written if something is wrong.
    _check_packages(has_page=has_page, has_figures=figures is not None)
    kinds = split_at_commas(formats)
    check_formats(kinds)
    stored = read_folder(_get_results_folder(results))
    other = None if against is None else read_folder(against)
    varied = read_folder(_get_results_folder(ablation)) if ablation else stored
    ablations = collect_ablations(varied)
    compared = resolve_reference([row.combination for row in stored], name_reference(reference))
    coupling = None if profile is None else Profile.load(profile)
    written = []
    if has_page:
        set_threads(threads)
        page = make_page(
            stored,
            reference=compared,
            profile=coupling,
            kept=_draw_kept(stored, compared, tasks, images, device),
            other=other,
            ablations=ablations,
            command=format_command_line(context),
            evaluated_by=read_commands(_get_results_folder(results)),
            date=date.today().isoformat(),
        )
        written.append(out or PAGE)
        write_atomically(written[0], page)
    written += _write_tables(stored, compared, markdown, latex, csv, export)
    if figures is not None:
        from tokencover.evaluation.report import make_figures, write_figures

        charts = make_figures(stored, reference=compared, profile=coupling, ablations=ablations)
        written += write_figures(charts, figures, kinds)
    print("\n".join(f"wrote {path}" for path in written) or NOTHING)


def _check_packages(*, has_page: bool, has_figures: bool) -> None:
    """Raise an error before the work if a package for the output is missing."""
    from tokencover.errors import import_extra
    from tokencover.evaluation.report import check_page_parts

    if has_page:
        check_page_parts()
    for package in ("altair", "vl_convert") if has_figures else ():
        otherwise = "write tables: --markdown, --latex, --csv"
        import_extra(package, "drawing charts", "tokencover[figures]", otherwise)


def _get_results_folder(folder: Path) -> Path:
    """Return the folder itself, or the results in one that `tokencover ablate` wrote."""
    inner = folder / "results"
    return inner if inner.is_dir() and not (folder / "run.json").exists() else folder


def _write_tables(
    stored: Results,
    reference: str,
    markdown: Path | None,
    latex: Path | None,
    csv: Path | None,
    export: Path | None,
) -> list[Path]:
    """Write the requested files and return their paths."""
    from tokencover.evaluation import EXPORT_KIND, export_results
    from tokencover.evaluation.report import make_latex, make_markdown

    if markdown is not None:
        write_atomically(markdown, make_markdown(stored, reference))
    if latex is not None:
        write_atomically(latex, make_latex(stored, reference))
    if csv is not None:
        write_atomically(csv, stored.to_csv())
    if export is not None:
        write_document(export, EXPORT_KIND, export_results(stored))
    return [path for path in (markdown, latex, csv, export) if path is not None]


def _list_sources(stored: Results) -> list[str]:
    """Return the sources of the tasks; results of earlier versions have only those of pebble."""
    from tokencover.bundled_models import list_scene_sets
    from tokencover.evaluation.lmms import split_names

    sources = {task: stored.sources.get(task, task) for task in stored.groups}
    for task, source in sources.items():
        is_named = source.partition("/")[0] in list_scene_sets()
        is_named = is_named or bool(split_names([source])[1])
        if not is_named and not Path(source).exists():
            raise InputError(
                f"The questions of {task!r} are not at {source}. Pass their location as --tasks."
            )
    return list(sources.values())


def _draw_kept(
    stored: Results,
    reference: str,
    tasks: Sequence[str] | None,
    count: int,
    device: str | None,
) -> list[KeptExample]:
    """Run the evaluated model again on some examples."""
    if count < 0:
        raise InputError(f"--images must be 0 or more, got {count}.")
    if not count:
        return []
    names = parse_task_names(tasks) or _list_sources(stored)
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
    gathered = gather_tasks(
        names,
        split=settings["split"],
        limit=settings["limit"],
        settings=read_settings(settings),
    )
    options = measured.get("options", {})
    model = load_model(stored.model, device=device, dtype=measured["dtype"], **options)
    model.check(gathered)
    if describe_run(model)["model"]["weights"] != measured["weights"]:
        raise InputError(
            f"The weights of {stored.model!r} have changed since it was evaluated. Omit --images, "
            "or evaluate again."
        )
    methods = [row.combination.method for row in rows if row.combination.method is not None]
    drawn = draw_kept_images(model, methods, gathered, count, telling)
    if missing := explain_missing(drawn, count):
        print(f"tokencover: {missing}", file=sys.stderr)
    return drawn
