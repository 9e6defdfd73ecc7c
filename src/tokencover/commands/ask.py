"""``tokencover ask``: answers with and without pruning, and a drawing of what was kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from tokencover.commands.options import (
    METHODS,
    OUTPUT,
    QUESTIONS,
    Device,
    Dtype,
    ModelName,
    Picture,
    make_methods,
    read_budget,
    read_whole_number,
    take,
)
from tokencover.errors import InputError
from tokencover.tables import TextTable, print_table

if TYPE_CHECKING:
    from PIL import Image

    from tokencover.methods import Method
    from tokencover.pebble.data import PebbleExample
    from tokencover.prompting import Medium
    from tokencover.runtime import Trace

SCENE_QUESTIONS: Final = ("exist", "read", "color", "where", "common_color", "place")
CLIP_QUESTIONS: Final = ("read", "when", "animal_then", "common_color", "half", "place")
WORDS_SHOWN: Final = 6
HEADER: Final = ("question", "right", "all tokens", "pruned", "kept")
AnyAsked = TypeVar("AnyAsked", bound="PebbleExample")


@dataclass(frozen=True)
class Query:
    """A question about a picture or a clip, and the right answer if it is known."""

    picture: Medium
    question: str
    answer: str | None = None


Questions = Annotated[
    list[str] | None,
    take("--question", "TEXT", "What to ask; may be given several times.", QUESTIONS),
]
SceneNumber = Annotated[
    int,
    take(
        "--scene",
        "N",
        "Which scene or clip of pebble's test split.",
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
PicturesFolder = Annotated[
    Path,
    take("--out", "FOLDER", "Folder for the pictures.", OUTPUT),
]


def ask(
    model: ModelName = "pebble",
    dtype: Dtype = None,
    device: Device = None,
    image: Picture = None,
    question: Questions = None,
    scene: SceneNumber = 0,
    method: MethodName = "mob",
    budget: BudgetText = "64",
    after: BlocksBefore = None,
    out: PicturesFolder = Path("demo"),
) -> None:
    """Ask about a picture or clip, with and without pruning."""
    from tokencover.commands.progress_bar import open_progress
    from tokencover.loading import load
    from tokencover.prompting import get_kind

    settings = {} if after is None else {"after": after}
    named = make_methods(method, [read_budget(budget)], **settings)
    if len(named) != 1:
        raise InputError(f"--method takes one method, for example fastv:after=3, got {method!r}.")
    loaded, processor = load(model, device=device, dtype=dtype)
    queries = _choose_queries(processor, image, question or [], scene)
    out.mkdir(parents=True, exist_ok=True)
    shown = out / ("picture.png" if get_kind(queries[0].picture) == "image" else "clip.png")
    _put_in_one(queries[0].picture).save(shown)
    rows = []
    progress = open_progress(len(queries))
    try:
        for number, query in enumerate(queries, start=1):
            progress.begin(query.question)
            rows.append(_compare(loaded, processor, query, named[0], out / f"kept-{number}.png"))
            progress.finish()
    finally:
        progress.close()
    print_table(TextTable(HEADER, rows, words=len(HEADER)))
    print(f"\npictures: {shown}, {out / 'kept-1.png'} ...")


def _compare(
    model: Any, processor: Any, query: Query, method: Method, picture: Path
) -> tuple[str, ...]:
    """Answer twice, draw what was kept; returns a row of the table."""
    from tokencover.viewing import count_words, medium_as_seen

    plain, _, _ = _answer(model, processor, query, None)
    pruned, trace, words = _answer(model, processor, query, method)
    if trace is None:
        raise InputError("the processor put no picture into the prompt: is it the model's own?")
    lines = [query.question]
    if words:
        chosen = [f"{word} {count}" for word, count in count_words(words)[:WORDS_SHOWN]]
        lines.append(f"tokens chosen for the question, by word: {', '.join(chosen)}")
    crops = len({medium for medium, _ in trace.grids})
    if crops > 1:
        lines.append(f"not drawn: the model was shown {crops} crops, and does not say which")
    else:
        _draw(medium_as_seen(query.picture, processor), query.question, trace, words).save(picture)
    kept = f"{len(trace.kept)} of {trace.visual_tokens}"
    return "\n".join(lines), query.answer or "", plain, pruned, kept


def _put_in_one(medium: Medium) -> Image.Image:
    """A picture, or the frames of a clip side by side."""
    from PIL import Image

    from tokencover.viewing import GAP, WIDEST, flow

    return medium if isinstance(medium, Image.Image) else flow(medium, WIDEST, GAP)


def _draw(picture: Medium, question: str, trace: Trace, words: Sequence[str]) -> Image.Image:
    from tokencover.viewing import panels

    return panels([picture], trace, words, title=question)


def _choose_queries(
    processor: Any, image: Path | None, questions: Sequence[str], scene: int
) -> list[Query]:
    """The user's picture and questions, or a scene or clip of pebble's with its own."""
    from tokencover.prompting import list_kinds

    if image is not None:
        if not questions:
            raise InputError("say what to ask about your picture: --question 'what is this ?'")
        picture = _open_picture(image)
        return [Query(picture, question) for question in questions]
    if scene < 0:
        raise InputError(f"--scene counts from 0, got {scene}.")
    bundled = _read_scene(scene) if "image" in list_kinds(processor) else _read_clip(scene)
    if questions:
        return [Query(bundled[0].picture, question) for question in questions]
    return bundled


def _open_picture(path: Path) -> Image.Image:
    from PIL import Image

    with Image.open(path) as picture:
        return picture.convert("RGB")


def _read_scene(number: int) -> list[Query]:
    from tokencover.pebble.data import make_examples

    found = _take_last_scene(list(make_examples("test", number + 1, SCENE_QUESTIONS)))
    return [Query(each.picture, each.question, each.answer) for each in found]


def _read_clip(number: int) -> list[Query]:
    from tokencover.pebble.data import make_clip_examples

    found = _take_last_scene(list(make_clip_examples("test", number + 1, CLIP_QUESTIONS)))
    return [Query(each.frames, each.question, each.answer) for each in found]


def _take_last_scene(found: list[AnyAsked]) -> list[AnyAsked]:
    """Those about the last scene; not every scene allows all kinds of questions."""
    return [each for each in found if each.scene_id == found[-1].scene_id]


def _answer(
    model: Any, processor: Any, query: Query, method: Method | None
) -> tuple[str, Trace | None, list[str]]:
    """The answer; if a method prunes, what happened, and the words of its prompt centres."""
    import torch

    from tokencover.prompting import make_inputs
    from tokencover.runtime import prune
    from tokencover.viewing import words_of_centers

    inputs = make_inputs(processor, [([query.picture], query.question)]).to(model.device)
    length = inputs["input_ids"].shape[1]
    with torch.no_grad():
        if method is None:
            tokens = model.generate(**inputs, max_new_tokens=32, do_sample=False)
            trace = None
        else:
            with prune(model, method, processor=processor) as run:
                tokens = model.generate(**inputs, max_new_tokens=32, do_sample=False)
            trace = run.trace[0] if run.trace else None
    words = words_of_centers(trace, inputs["input_ids"], processor) if trace is not None else []
    return processor.decode(tokens[0, length:], skip_special_tokens=True).strip(), trace, words
