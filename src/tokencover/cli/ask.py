"""``tokencover ask``: answers with and without pruning, and a drawing of what was kept."""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tokencover.cli.model_family import warn_about_images
from tokencover.cli.options import (
    METHODS,
    OUTPUT,
    QUESTIONS,
    Attention,
    Device,
    Dtype,
    JsonInstead,
    ModelName,
    ModelOptions,
    Picture,
    Quantization,
    Threads,
    make_methods,
    print_json,
    read_budget,
    read_model_options,
    read_new_folder,
    read_whole_number,
    take,
)
from tokencover.cli.queries import Query, make_request
from tokencover.errors import InputError, TokenCoverWarning
from tokencover.files import write_atomically
from tokencover.tables import TextTable, print_table, print_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image

    from tokencover.methods import Method
    from tokencover.prompting import Medium
    from tokencover.pruning import Trace

ANSWER_LENGTH: Final = 32
WORDS_SHOWN: Final = 6
HEADER: Final = ("question", "right", "all tokens", "pruned", "kept", "FLOPs", "time")


Questions = Annotated[
    list[str] | None,
    take(
        "--question",
        "TEXT",
        "What to ask; may be given several times, - reads lines of standard input.",
        QUESTIONS,
    ),
]
SceneNumber = Annotated[
    int,
    take(
        "--scene",
        "N",
        "Which scene or clip of pebble's test split, 0 to 399.",
        QUESTIONS,
        read=read_whole_number,
    ),
]
MethodName = Annotated[
    str,
    take(
        "--method",
        "NAME",
        "A name, with settings if need be: fastv:after=3 (see `tokencover methods`).",
        METHODS,
    ),
]
BudgetText = Annotated[
    str,
    take("--budget", "N", "Visual tokens to keep: 64, or a share: 0.111.", METHODS),
]
BlocksBefore = Annotated[
    int | None,
    take(
        "--after",
        "N",
        "Decoder blocks before pruning, short for --method NAME:after=N.",
        METHODS,
        read=read_whole_number,
    ),
]
OpenPicture = Annotated[
    bool,
    take("--open", "", "Show the first picture when it is drawn.", OUTPUT),
]
PicturesFolder = Annotated[
    Path,
    take("--out", "FOLDER", "Folder for the pictures.", OUTPUT, read=read_new_folder),
]


def ask(
    model: ModelName = "pebble",
    dtype: Dtype = None,
    device: Device = None,
    quantization: Quantization = None,
    attention: Attention = None,
    model_options: ModelOptions = None,
    image: Picture = None,
    question: Questions = None,
    scene: SceneNumber = 0,
    method: MethodName = "mob",
    budget: BudgetText = "64",
    after: BlocksBefore = None,
    threads: Threads = None,
    out: PicturesFolder = Path("demo"),
    open_picture: OpenPicture = False,
    as_json: JsonInstead = False,
) -> None:
    """Ask about a picture or clip, with and without pruning."""
    # What needs no torch is checked first: torch takes seconds to import.
    request, share = make_request(image, question or [], scene), read_budget(budget)
    options = read_model_options(quantization, attention, model_options)
    settings = {} if after is None else {"after": after}
    named = make_methods(method, [share], **settings)
    if len(named) != 1:
        raise InputError(f"--method takes one method, for example fastv:after=3, got {method!r}.")

    from tokencover.cli.threads import set_threads
    from tokencover.evaluation.progress import open_progress
    from tokencover.loading import load

    set_threads(threads)
    loaded, processor = load(model, device=device, dtype=dtype, **options)
    if image is not None:
        warn_about_images(model)
    queries = request.make_queries(processor)
    _tell_unknown_words(model, processor, queries)
    shown = _save_picture(queries[0].picture, out)
    found = []
    progress = open_progress(len(queries))
    try:
        _answer(loaded, processor, queries[0], None, length=1)  # what happens once is not timed
        for number, query in enumerate(queries, start=1):
            progress.begin(query.question)
            place = out / f"kept-{number}.png"
            found.append(_compare(loaded, processor, query, named[0], place))
            progress.finish()
    finally:
        progress.close()
    if as_json:
        print_json([each.export() for each in found])
    else:
        _print_answers(found, shown)
    if open_picture:
        _open(found[0].picture or shown)


@dataclass(frozen=True)
class Answered:
    """An answer of a model, pruned or not."""

    text: str
    seconds: float
    trace: Trace | None = None
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Compared:
    """A query, answered with all tokens and with few.

    Attributes
    ----------
    query : Query
        What was asked.
    whole, pruned : Answered
        Both answers.
    trace : Trace
        What was kept.
    picture : Path, optional
        Where that is drawn; None if the model was shown crops.
    drawing : Image, optional
        The same for a terminal, without words and legend.
    """

    query: Query
    whole: Answered
    pruned: Answered
    trace: Trace
    picture: Path | None = None
    drawing: Image.Image | None = None

    def make_row(self) -> tuple[str, ...]:
        """Of the table."""
        lines = [self.query.question]
        if self.trace.coupling is not None:
            lines.append(f"coupling of question and picture: {self.trace.coupling:.3f}")
        if self.pruned.words:
            from tokencover.visualization import count_words

            most = count_words(self.pruned.words)[:WORDS_SHOWN]
            chosen = ", ".join(f"{word} {count}" for word, count in most)
            lines.append(f"tokens chosen for the question, by word: {chosen}")
        if self.picture is None:
            crops = len({medium for medium, _ in self.trace.grids})
            lines.append(f"not drawn: the model was shown {crops} crops, and does not say which")
        kept = f"{len(self.trace.kept)} of {self.trace.visual_tokens}"
        flops = f"{self.trace.flops / self.trace.flops_unpruned:.0%}"
        took = f"{self.pruned.seconds / self.whole.seconds:.0%}"
        right = self.query.answer or "-"
        return "\n".join(lines), right, self.whole.text, self.pruned.text, kept, flops, took

    def export(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "question": self.query.question,
            "right": self.query.answer,
            "all_tokens": self.whole.text,
            "pruned": self.pruned.text,
            "seconds": {"all_tokens": self.whole.seconds, "pruned": self.pruned.seconds},
            "words": list(self.pruned.words),
            "picture": None if self.picture is None else str(self.picture),
            "trace": self.trace.to_dict(),
        }


def _tell_unknown_words(model: str, processor: Any, queries: Sequence[Query]) -> None:
    from tokencover.prompting import find_unknown_words

    found = [word for each in queries for word in find_unknown_words(processor, each.question)]
    if found:
        words = ", ".join(map(repr, dict.fromkeys(found)))
        warnings.warn(
            f"{model} has no token for {words}, and cannot tell such words apart: ask in others, "
            "or another model.",
            TokenCoverWarning,
            stacklevel=2,
        )


def _compare(model: Any, processor: Any, query: Query, method: Method, picture: Path) -> Compared:
    """Answer twice, and draw what was kept."""
    from PIL import Image

    from tokencover.visualization import medium_as_seen, panels, tint_tokens

    whole = _answer(model, processor, query, None)
    pruned = _answer(model, processor, query, method)
    trace = pruned.trace
    if trace is None:
        raise InputError("the processor put no picture into the prompt: is it the model's own?")
    if len({medium for medium, _ in trace.grids}) > 1:
        return Compared(query, whole, pruned, trace)
    seen = medium_as_seen(query.picture, processor)
    sheet = panels([seen], trace, pruned.words, title=query.question)
    write_atomically(picture, lambda file: sheet.save(file, "PNG"))
    drawing = tint_tokens(seen, trace) if isinstance(seen, Image.Image) else sheet
    return Compared(query, whole, pruned, trace, picture, drawing)


def _save_picture(medium: Medium, out: Path) -> Path:
    """What is asked about: the picture, or the frames of a clip side by side."""
    from PIL import Image

    from tokencover.visualization import GAP, WIDEST, flow

    if isinstance(medium, Image.Image):
        place, shown = out / "picture.png", medium
    else:
        place, shown = out / "clip.png", flow(medium, WIDEST, GAP)
    write_atomically(place, lambda file: shown.save(file, "PNG"))
    return place


def _print_answers(found: Sequence[Compared], shown: Path) -> None:
    from tokencover.cli.terminal_picture import print_picture
    from tokencover.visualization import list_legend

    first = found[0]
    if first.drawing is not None:
        print_picture(first.drawing, first.query.question, list_legend(first.trace))
    print_table(TextTable(HEADER, [each.make_row() for each in found], words=len(HEADER)))
    drawn = [str(each.picture) for each in found if each.picture is not None]
    names = [str(shown), *drawn[:1], *(["..."] if len(drawn) > 1 else [])]
    print_text(
        "\nFLOPs of the decoder's prefill and time to answer: shares of those of all tokens\n"
        f"pictures: {', '.join(names)}"
    )


def _open(picture: Path) -> None:
    if typer.launch(str(picture)):
        print(f"tokencover: no program shows pictures here; look at {picture}", file=sys.stderr)


def _answer(
    model: Any, processor: Any, query: Query, method: Method | None, length: int = ANSWER_LENGTH
) -> Answered:
    """The answer; if a method prunes, what happened, and the words of its prompt centres."""
    import torch

    from tokencover.prompting import make_inputs
    from tokencover.pruning import prune
    from tokencover.visualization import words_of_centers

    inputs = make_inputs(processor, [([query.picture], query.question)]).to(model.device)
    first = inputs["input_ids"].shape[1]
    trace = None
    with torch.no_grad():
        if method is None:
            begin = time.perf_counter()
            tokens = model.generate(**inputs, max_new_tokens=length, do_sample=False)
        else:
            with prune(model, method, processor=processor) as run:
                begin = time.perf_counter()
                tokens = model.generate(**inputs, max_new_tokens=length, do_sample=False)
            trace = run.trace[0] if run.trace else None
        text = processor.decode(tokens[0, first:], skip_special_tokens=True).strip()
    seconds = time.perf_counter() - begin
    words = words_of_centers(trace, inputs["input_ids"], processor) if trace is not None else []
    return Answered(text, seconds, trace, words)
