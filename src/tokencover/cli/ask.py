"""``tokencover ask``: answers with and without pruning, and images of what was kept."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tokencover.cli.options import (
    METHODS,
    OUTPUT,
    QUESTIONS,
    AsJson,
    ImageFile,
    ModelArguments,
    Threads,
    option,
    shared_options,
)
from tokencover.cli.values import (
    build_methods,
    open_asked_image,
    parse_budget,
    parse_output_folder,
    print_json,
    validate_questions,
)
from tokencover.errors import InputError, TokenCoverWarning
from tokencover.files import write_atomically
from tokencover.tables import TextTable, print_table, print_text

if TYPE_CHECKING:
    from PIL import Image

    from tokencover.methods import Method
    from tokencover.prompting import Medium
    from tokencover.pruning import Trace
    from tokencover.visualization import Answer

MAX_NEW_TOKENS: Final = 32
MAX_WORDS: Final = 6
STDIN: Final = "-"
"""As a question: one question per line of standard input."""
HEADER: Final = ("question", "right", "all tokens", "pruned", "kept", "FLOPs", "time")

Questions = Annotated[
    list[str] | None,
    option(
        "--question TEXT",
        "Question; repeat the option for several, or use - for lines of standard input.",
        QUESTIONS,
    ),
]
SceneNumber = Annotated[
    int, option("--scene N", "Scene or video of pebble's test split, 0 to 399.", QUESTIONS)
]
MethodName = Annotated[
    str, option("--method NAME", "Method with optional settings, e.g. fastv:after=3.", METHODS)
]
BudgetText = Annotated[
    str, option("--budget N", "Visual tokens to keep (64), or a fraction (0.111).", METHODS)
]
LayersBefore = Annotated[
    int | None,
    option("--after N", "Decoder layers before pruning, short for --method NAME:after=N.", METHODS),
]
OpenImage = Annotated[bool, option("--open", "Open the first image when it is drawn.", OUTPUT)]
ImageFolder = Annotated[
    Path, option("--out FOLDER", "Folder for the images.", OUTPUT, parser=parse_output_folder)
]


@shared_options()
def ask(
    source: ModelArguments,
    image: ImageFile = None,
    question: Questions = None,
    scene: SceneNumber = 0,
    method: MethodName = "mob",
    budget: BudgetText = "64",
    after: LayersBefore = None,
    threads: Threads = None,
    out: ImageFolder = Path("demo"),
    open_image: OpenImage = False,
    as_json: AsJson = False,
) -> None:
    """Ask about an image or video, with and without pruning."""
    # What needs no torch is checked first: torch takes seconds to import.
    opened, questions = _read_input(image, question or [], scene)
    parsed_budget, options = parse_budget(budget), source.parse_options()
    settings = {} if after is None else {"after": after}
    methods = build_methods(method, [parsed_budget], **settings)
    if len(methods) != 1:
        raise InputError(f"--method must be one method, e.g. fastv:after=3, got {method!r}.")

    from tokencover.cli.process import set_threads
    from tokencover.evaluation.progress import open_progress
    from tokencover.loading import load
    from tokencover.visualization import generate_answer

    set_threads(threads)
    model, processor = load(source.model, device=source.device, dtype=source.dtype, **options)
    if opened is None:
        queries = _draw_queries(questions, scene, processor)
    else:
        source.warn_about_images()
        queries = [Query(opened, text) for text in questions]
    _warn_about_unknown_words(source.model, processor, queries)
    medium = queries[0].medium
    shown = _save_medium(medium, out)
    comparisons = []
    with closing(open_progress(len(queries))) as progress:
        # The first call is not timed.
        generate_answer(model, processor, medium, queries[0].question, None, 1)
        for number, query in enumerate(queries, start=1):
            progress.begin(query.question)
            path = out / f"kept-{number}.png"
            comparisons.append(_compare(model, processor, query, methods[0], path))
            progress.finish()
    if as_json:
        print_json([each.export() for each in comparisons])
    else:
        _print_answers(comparisons, shown)
    if open_image:
        path = comparisons[0].path or shown
        if typer.launch(str(path)):
            print(f"tokencover: no program to open images was found, see {path}", file=sys.stderr)


@dataclass(frozen=True)
class Query:
    """A question about an image or a video, and the reference answer if it is known."""

    medium: Medium
    question: str
    answer: str | None = None


def _read_input(
    path: Path | None, values: Sequence[str], scene: int
) -> tuple[Image.Image | None, list[str]]:
    """Check the user's options without a model, and return the opened image and the questions."""
    from tokencover.bundled_models import get_scene_set

    questions = [line for value in values for line in _list_lines(value)]
    validate_questions(questions)
    if path is not None:
        return open_asked_image(path, questions), questions
    last = get_scene_set("image").num_scenes - 1
    if not 0 <= scene <= last:
        raise InputError(f"--scene must be from 0 to {last}, got {scene}.")
    return None, questions


def _draw_queries(questions: Sequence[str], scene: int, processor: Any) -> list[Query]:
    """Return questions about a drawn image, or about a video if the model takes no images."""
    from tokencover.bundled_models import get_scenes_for
    from tokencover.prompting import list_kinds

    drawn = get_scenes_for(list_kinds(processor)).draw(scene, True)
    if questions:
        return [Query(drawn.medium, question) for question in questions]
    return [Query(drawn.medium, *pair) for pair in drawn.answers.items()]


def _list_lines(value: str) -> list[str]:
    if value != STDIN:
        return [value]
    lines = [line.strip() for line in sys.stdin if line.strip()]
    if not lines:
        raise InputError("--question - reads questions from standard input, which is empty.")
    return lines


@dataclass(frozen=True)
class Comparison:
    """The answers to a query with and without pruning.

    `path` is the image of what was kept, None if it cannot be drawn; `drawing` is the same for a
    terminal.
    """

    query: Query
    unpruned: Answer
    pruned: Answer
    trace: Trace
    path: Path | None = None
    drawing: Image.Image | None = None

    def build_row(self) -> tuple[str, ...]:
        """Return the cells of a table row."""
        lines = [self.query.question]
        if self.trace.coupling is not None:
            lines.append(f"coupling of prompt and image: {self.trace.coupling:.3f}")
        if self.pruned.words:
            from tokencover.visualization import count_words

            most = count_words(self.pruned.words)[:MAX_WORDS]
            chosen = ", ".join(f"{word} {count}" for word, count in most)
            lines.append(f"tokens chosen for the question, by word: {chosen}")
        if self.path is None:
            tiles = len({medium for medium, _ in self.trace.grids})
            lines.append(f"not drawn: the model does not record where its {tiles} tiles belong")
        kept = f"{len(self.trace.kept)} of {self.trace.visual_tokens}"
        flops = f"{self.trace.flops / self.trace.flops_unpruned:.0%}"
        took = f"{self.pruned.seconds / self.unpruned.seconds:.0%}"
        reference = self.query.answer or "-"
        answers = self.unpruned.text, self.pruned.text
        return "\n".join(lines), reference, *answers, kept, flops, took

    def export(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "question": self.query.question,
            "right": self.query.answer,
            "all_tokens": self.unpruned.text,
            "pruned": self.pruned.text,
            "seconds": {"all_tokens": self.unpruned.seconds, "pruned": self.pruned.seconds},
            "words": list(self.pruned.words),
            "picture": None if self.path is None else str(self.path),
            "trace": self.trace.to_dict(),
        }


def _warn_about_unknown_words(model: str, processor: Any, queries: Sequence[Query]) -> None:
    from tokencover.prompting import list_unknown_words

    unknown = [word for each in queries for word in list_unknown_words(processor, each.question)]
    if unknown:
        words = ", ".join(map(repr, dict.fromkeys(unknown)))
        warnings.warn(
            f"{model} has no token for {words}: use other words, or another model.",
            TokenCoverWarning,
            stacklevel=2,
        )


def _compare(model: Any, processor: Any, query: Query, method: Method, path: Path) -> Comparison:
    """Answer with and without pruning, and draw what was kept."""
    from PIL import Image

    from tokencover.visualization import generate_answer, medium_as_seen, panels, tint_tokens

    unpruned, pruned = (
        generate_answer(model, processor, query.medium, query.question, each, MAX_NEW_TOKENS)
        for each in (None, method)
    )
    trace = pruned.trace
    assert trace is not None  # it has one, since a method pruned
    if len({medium for medium, _ in trace.grids}) > 1:
        return Comparison(query, unpruned, pruned, trace)
    seen = medium_as_seen(query.medium, processor)
    sheet = panels([seen], trace, pruned.words, title=query.question)
    write_atomically(path, lambda file: sheet.save(file, "PNG"))
    drawing = tint_tokens(seen, trace) if isinstance(seen, Image.Image) else sheet
    return Comparison(query, unpruned, pruned, trace, path, drawing)


def _save_medium(medium: Medium, out: Path) -> Path:
    """Save the image, or the frames of the video side by side."""
    from PIL import Image

    from tokencover.visualization import GAP, WIDEST, flow

    if isinstance(medium, Image.Image):
        path, image = out / "picture.png", medium
    else:
        path, image = out / "clip.png", flow(medium, WIDEST, GAP)
    write_atomically(path, lambda file: image.save(file, "PNG"))
    return path


def _print_answers(comparisons: Sequence[Comparison], shown: Path) -> None:
    from tokencover.cli.terminal_image import print_image
    from tokencover.visualization import list_legend

    first = comparisons[0]
    if first.drawing is not None:
        print_image(first.drawing, first.query.question, list_legend(first.trace))
    print_table(TextTable(HEADER, [each.build_row() for each in comparisons], words=len(HEADER)))
    drawn = [str(each.path) for each in comparisons if each.path is not None]
    names = [str(shown), *drawn[:1], *(["..."] if len(drawn) > 1 else [])]
    print_text(
        "\nFLOPs of the decoder's prefill and time to answer: relative to all tokens\n"
        f"images: {', '.join(names)}"
    )
