"""The command line: ``tokencover COMMAND --help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from tokencover.errors import InputError, TokenCoverError
from tokencover.methods import MoB
from tokencover.pebble import train as pebble_training
from tokencover.pebble.benchmark import examples
from tokencover.pebble.loader import load_pebble
from tokencover.runtime import Trace, prune
from tokencover.runtime.families import FAMILIES
from tokencover.viewing import overlay

SHOWN = ("exist", "read", "color", "where", "common_color", "place")


@dataclass(frozen=True)
class Query:
    """A question about a picture, and the right answer if it is known."""

    picture: Image.Image
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

    ask = commands.add_parser("ask", help="ask about a picture, with and without pruning")
    ask.add_argument("--model", default="pebble", help="a folder or hub name (default: pebble)")
    ask.add_argument(
        "--image", type=Path, help="a picture (default: a scene of pebble's test split)"
    )
    ask.add_argument("--question", action="append", help="may be given several times")
    ask.add_argument("--budget", default="64", help="visual tokens to keep: 64, or a share: 0.111")
    ask.add_argument("--after", type=int, default=1, help="decoder blocks before pruning")
    ask.add_argument("--scene", type=int, default=0, help="which scene of pebble's test split")
    ask.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures")
    ask.set_defaults(run=_ask)

    models = commands.add_parser("models", help="list the model families that can be pruned")
    models.set_defaults(run=_models)

    pebble = commands.add_parser("pebble", help="the bundled model")
    train = pebble.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "train", parents=[pebble_training.make_parser()], add_help=False, help="train it again"
    )
    train.set_defaults(run=pebble_training.run)
    return parser


def _models(options: argparse.Namespace) -> None:
    for family in FAMILIES:
        print(f"{family.name:<18} {', '.join(family.model_types)}")


def _ask(options: argparse.Namespace) -> None:
    model, processor = _load(options.model)
    method = MoB(budget=_budget(options.budget), after=options.after)
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"{'question':<52} {'right':<10} {'all tokens':<12} {'pruned':<12} kept")
    for number, query in enumerate(_queries(options), start=1):
        plain, _ = _answer(model, processor, query, None)
        pruned, trace = _answer(model, processor, query, method)
        if trace is None:
            raise InputError("the processor put no picture into the prompt: is it the model's own?")
        tokens = f"{len(trace.kept)} of {trace.visual_tokens}"
        print(f"{query.question:<52} {query.answer or '':<10} {plain:<12} {pruned:<12} {tokens}")
        query.picture.save(options.out / "picture.png")
        overlay(query.picture, trace).save(options.out / f"kept-{number}.png")
    print(f"\npictures: {options.out / 'picture.png'}, {options.out / 'kept-1.png'} ...")
    print("orange: chosen for the question; blue: chosen to cover the rest; faded: dropped")


def _load(name: str) -> tuple[Any, Any]:
    if name == "pebble":
        return load_pebble()
    from transformers import AutoModelForImageTextToText, AutoProcessor

    return AutoModelForImageTextToText.from_pretrained(name), AutoProcessor.from_pretrained(name)


def _budget(text: str) -> int | float:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise InputError(f"--budget takes a count (64) or a share (0.111), got {text!r}.") from None


def _queries(options: argparse.Namespace) -> list[Query]:
    if options.image is not None:
        if not options.question:
            raise InputError("say what to ask about your picture: --question 'what is this ?'")
        with Image.open(options.image) as picture:
            shown = picture.convert("RGB")
        return [Query(shown, question) for question in options.question]
    if options.scene < 0:
        raise InputError(f"--scene counts from 0, got {options.scene}.")
    scene = list(examples("test", options.scene + 1, SHOWN))[-len(SHOWN) :]
    if options.question:
        return [Query(scene[0].picture, question) for question in options.question]
    return [Query(each.picture, each.question, each.answer) for each in scene]


def _answer(
    model: Any, processor: Any, query: Query, method: MoB | None
) -> tuple[str, Trace | None]:
    content = [{"type": "image"}, {"type": "text", "text": query.question}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True
    )
    inputs = processor(images=query.picture, text=text, return_tensors="pt")
    length = inputs["input_ids"].shape[1]
    with torch.no_grad():
        if method is None:
            tokens = model.generate(**inputs, max_new_tokens=32, do_sample=False)
            trace = None
        else:
            with prune(model, method, processor=processor) as run:
                tokens = model.generate(**inputs, max_new_tokens=32, do_sample=False)
            trace = run.trace[0] if run.trace else None
    return processor.decode(tokens[0, length:], skip_special_tokens=True).strip(), trace


if __name__ == "__main__":
    sys.exit(main())
