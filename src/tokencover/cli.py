"""The command line: ``tokencover COMMAND --help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from PIL import Image

from tokencover.commands import ablate, bench, calibrate, evaluate, report
from tokencover.commands.options import add_model_options, budget
from tokencover.errors import InputError, TokenCoverError
from tokencover.loading import load
from tokencover.methods import METHODS, Method, get_method
from tokencover.pebble import train as pebble_training
from tokencover.pebble.data import PebbleExample, make_clip_examples, make_examples
from tokencover.prompting import Medium, kind_of, kinds_taken, make_inputs
from tokencover.runtime import FAMILIES, Trace, find_claims, prune
from tokencover.viewing import (
    GAP,
    WIDEST,
    count_words,
    flow,
    medium_as_seen,
    panels,
    words_of_centers,
)

SHOWN = ("exist", "read", "color", "where", "common_color", "place")
SHOWN_OF_CLIPS = ("read", "when", "animal_then", "common_color", "half", "place")
WORDS_SHOWN = 6
AnyAsked = TypeVar("AnyAsked", bound=PebbleExample)


@dataclass(frozen=True)
class Query:
    """A question about a picture or a clip, and the right answer if it is known."""

    picture: Medium
    question: str
    answer: str | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (TokenCoverError, OSError) as error:
        print(f"tokencover: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tokencover", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    ask = commands.add_parser("ask", help="ask about a picture or clip, with and without pruning")
    add_model_options(ask)
    ask.add_argument(
        "--image", type=Path, help="a picture (default: a scene or clip of pebble's test split)"
    )
    ask.add_argument("--question", action="append", help="may be given several times")
    ask.add_argument("--budget", default="64", help="visual tokens to keep: 64, or a share: 0.111")
    ask.add_argument("--method", default="mob", help="see `tokencover methods` (default: mob)")
    ask.add_argument("--after", type=int, help="decoder blocks before pruning, if the method asks")
    ask.add_argument(
        "--scene", type=int, default=0, help="which scene or clip of pebble's test split"
    )
    ask.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures")
    ask.set_defaults(run=_ask)

    methods = commands.add_parser("methods", help="list the pruning methods")
    methods.set_defaults(run=_methods)

    models = commands.add_parser("models", help="list the model families that can be pruned")
    models.set_defaults(run=_models)

    for command in (evaluate, report, ablate, calibrate, bench):
        command.add_parser(commands)

    pebble = commands.add_parser("pebble", help="the bundled model")
    train = pebble.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "train", parents=[pebble_training.make_parser()], add_help=False, help="train it again"
    )
    train.set_defaults(run=pebble_training.run)
    return parser


def _methods(options: argparse.Namespace) -> None:
    rows = [("name", "year", "objective", "place", "needs", "families")]
    for method in METHODS:
        card, found = method.card, find_claims(method)
        names = [each.family.name + ("" if each.as_published else "*") for each in found]
        if len(found) == len(FAMILIES):
            names = ["all" if all(each.as_published for each in found) else "all*"]
        year = "" if card.year is None else str(card.year)
        needs = ", ".join(card.needs)
        rows.append((method.name, year, card.objective, card.place, needs, ", ".join(names)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    print("\n* Qwen-VL and GLM-4V have positions of several axes: there give positions='original'")
    print("needs: encoder - the tower's tokens become visual tokens one to one, its attention is")
    print("       read; tower - tokens are merged inside it; tiles - a base view and tiles of it")


def _models(options: argparse.Namespace) -> None:
    for family in FAMILIES:
        print(f"{family.name:<18} {', '.join(family.model_types)}")


def _ask(options: argparse.Namespace) -> None:
    model, processor = load(options.model, device=options.device, dtype=options.dtype)
    settings = {} if options.after is None else {"after": options.after}
    method = get_method(options.method, budget=budget(options.budget), **settings)
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"{'question':<52} {'right':<10} {'all tokens':<12} {'pruned':<12} kept")
    queries = _queries(options, processor)
    picture = options.out / (
        "picture.png" if kind_of(queries[0].picture) == "image" else "clip.png"
    )
    for number, query in enumerate(queries, start=1):
        plain, _, _ = _answer(model, processor, query, None)
        pruned, trace, words = _answer(model, processor, query, method)
        if trace is None:
            raise InputError("the processor put no picture into the prompt: is it the model's own?")
        tokens = f"{len(trace.kept)} of {trace.visual_tokens}"
        print(f"{query.question:<52} {query.answer or '':<10} {plain:<12} {pruned:<12} {tokens}")
        if words:
            chosen = [f"{word} {count}" for word, count in count_words(words)[:WORDS_SHOWN]]
            print(f"  tokens chosen for the question, by word: {', '.join(chosen)}")
        _in_one(query.picture).save(picture)
        drawn = _drawn(medium_as_seen(query.picture, processor), query.question, trace, words)
        if drawn is not None:
            drawn.save(options.out / f"kept-{number}.png")
    print(f"\npictures: {picture}, {options.out / 'kept-1.png'} ...")


def _in_one(medium: Medium) -> Image.Image:
    """A picture, or the frames of a clip side by side."""
    return medium if isinstance(medium, Image.Image) else flow(medium, WIDEST, GAP)


def _drawn(
    picture: Medium, question: str, trace: Trace, words: Sequence[str]
) -> Image.Image | None:
    """What was kept; None, and a note, if nobody knows which part of the picture a token shows."""
    crops = len({medium for medium, _ in trace.grids})
    if crops > 1:
        print(f"  not drawn: the model was shown {crops} crops of the picture, and says not which")
        return None
    return panels([picture], trace, words, title=question)


def _queries(options: argparse.Namespace, processor: Any) -> list[Query]:
    if options.image is not None:
        if not options.question:
            raise InputError("say what to ask about your picture: --question 'what is this ?'")
        with Image.open(options.image) as picture:
            shown = picture.convert("RGB")
        return [Query(shown, question) for question in options.question]
    if options.scene < 0:
        raise InputError(f"--scene counts from 0, got {options.scene}.")
    scene = _scene(options.scene) if "image" in kinds_taken(processor) else _clip(options.scene)
    if options.question:
        return [Query(scene[0].picture, question) for question in options.question]
    return scene


def _scene(number: int) -> list[Query]:
    found = _of_the_last(list(make_examples("test", number + 1, SHOWN)))
    return [Query(each.picture, each.question, each.answer) for each in found]


def _clip(number: int) -> list[Query]:
    found = _of_the_last(list(make_clip_examples("test", number + 1, SHOWN_OF_CLIPS)))
    return [Query(each.frames, each.question, each.answer) for each in found]


def _of_the_last(found: list[AnyAsked]) -> list[AnyAsked]:
    """Those about the last scene; not every scene allows all kinds of questions."""
    return [each for each in found if each.scene_id == found[-1].scene_id]


def _answer(
    model: Any, processor: Any, query: Query, method: Method | None
) -> tuple[str, Trace | None, list[str]]:
    """The answer; if a method prunes, what happened, and the words behind its prompt centres."""
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


if __name__ == "__main__":
    sys.exit(main())
