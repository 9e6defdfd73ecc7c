"""Draw the images of README and docs from the bundled model and the stored study.

    python tools/draw_pictures.py                      all of them, into docs/images
    python tools/draw_pictures.py --only kept budgets  some of them
    python tools/draw_pictures.py --out elsewhere      into another folder

`tokencover ask` draws the same kept tokens, `tokencover report` the same chart. Charts need the
extra `figures`; everything else needs nothing more than tokencover.
"""

from __future__ import annotations

import argparse
import io
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw

import tokencover as tc
from tokencover.evaluation import read_folder
from tokencover.evaluation.report import make_figures, render_chart
from tokencover.loading import load
from tokencover.prompting import make_inputs
from tokencover.pruning import Trace
from tokencover.visualization import GAP, MARGIN, flow, overlay, words_of_centers
from tokencover_models.pebble.data import PictureExample, make_examples

ROOT = Path(__file__).parent.parent
STUDY = ROOT / "research" / "study" / "answers"
"""Stored answers of the study."""
PEBBLE, BOULDER = ("flops", "seed1-flops"), ("boulder", "boulder-flops")
"""Archives there, and those of one model among them."""
SIDE, LINE = 768, 34
"""Pixels of an image, four for each of pebble's, and of a line of text."""
PLOTTED = ("mob_stages", "mob", "scope", "divprune", "visionzip", "pyramiddrop", "fastv", "dart")
"""Methods in the chart: MoB, and the strongest of each kind."""
LARGEST_COST = 35
"""Percent of the unpruned model's operations, where the chart ends."""
ASKED = "read"
"""The kind of question that the images ask: one patch has the answer."""


def main() -> None:
    """Draw what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--only", nargs="+", choices=list(PICTURES), default=list(PICTURES))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        path = options.out / f"{name}.png"
        save_small(PICTURES[name](), path)
        print(f"written: {path} ({path.stat().st_size // 1024} kB)")


def draw_kept() -> Image.Image:
    """For README: the image, and what is left of it for one question."""
    example, *_ = list_examples(ASKED)
    model, processor = load("pebble")
    trace, words, answer = ask(model, processor, example, tc.MoB(64))
    return join(
        [
            caption(enlarge(example.picture), "what the model is shown: 576 visual tokens"),
            caption(
                enlarge(overlay(example.picture, trace, words)),
                f"{example.question} “{answer}”, from 64 of them:",
                "orange for the question, blue to cover the rest",
            ),
        ]
    )


def draw_steps() -> Image.Image:
    """Algorithm 1, step by step: prompt centres, then visual centres, then the cover."""
    example, *_ = list_examples(ASKED)
    trace, words, _ = ask(*load("pebble"), example, tc.MoB(64))
    prompt, visual = len(trace.prompt_centers), len(trace.visual_centers)
    shown = [
        (1, 0, "the token nearest to a word"),
        (prompt, 0, f"{prompt} prompt centres"),
        (prompt, 8, "and the 8 farthest tokens"),
        (prompt, visual, f"and all {visual} visual centres"),
    ]
    return join(
        [
            caption(enlarge(overlay(example.picture, keep_first(trace, *counts), words)), text)
            for *counts, text in shown
        ],
        columns=2,
    )


def draw_halves() -> Image.Image:
    """One objective or two: the same budget for each half of MoB alone, and for MoB."""
    example, *_ = list_examples(ASKED)
    model, processor = load("pebble")
    made = []
    for method, text in (
        (tc.NearestOnly(64), "nearest to the question alone"),
        (tc.FarthestOnly(64), "farthest points alone"),
        (tc.MoB(64), "MoB: both"),
    ):
        trace, words, answer = ask(model, processor, example, method)
        picture = enlarge(overlay(example.picture, trace, words))
        made.append(caption(picture, f"{text}: “{answer}”", count(trace)))
    return join(made)


def draw_questions() -> Image.Image:
    """The same image, two questions: what changes, and what stays."""
    model, processor = load("pebble")
    made = []
    for kind in ("read", "common_color"):
        example, *_ = list_examples(kind)
        trace, words, answer = ask(model, processor, example, tc.MoB(64))
        picture = enlarge(overlay(example.picture, trace, words))
        made.append(caption(picture, f"{example.question} “{answer}”", count(trace)))
    return join(made)


def draw_budgets() -> Image.Image:
    """What is left at four budgets."""
    example, *_ = list_examples(ASKED)
    model, processor = load("pebble")
    made = []
    for budget in (192, 128, 64, 32):
        trace, words, answer = ask(model, processor, example, tc.MoB(budget))
        picture = enlarge(overlay(example.picture, trace, words))
        made.append(caption(picture, f"K = {budget}: “{answer}”", count(trace)))
    return join(made, columns=2)


def draw_trade_off() -> Image.Image:
    """Accuracy against cost of some methods."""
    return plot_study(PEBBLE, PLOTTED)


def draw_all_methods() -> Image.Image:
    """Accuracy against cost of all methods."""
    return plot_study(PEBBLE)


def draw_boulder() -> Image.Image:
    """The same, of the second test model."""
    return plot_study(BOULDER)


def plot_study(stored_in: tuple[str, str], names: Sequence[str] | None = None) -> Image.Image:
    """Draw accuracy against prefill FLOPs from the stored study, for these methods or for all."""
    drawn = render_chart(make_chart(stored_in, names), "png")
    assert isinstance(drawn, bytes)
    return Image.open(io.BytesIO(drawn)).convert("RGB")


def make_chart(stored_in: tuple[str, str], names: Sequence[str] | None = None) -> dict[str, Any]:
    """Build the chart of `plot_study`; its legend names every setting that is not a default."""
    name, run = stored_in
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(STUDY / f"{name}.tar.xz") as archive:
            wanted = [each for each in archive if each.name.split("/")[0] == run]
            archive.extractall(folder, wanted, filter="data")
        stored = read_folder(Path(folder) / run)
    rows = [
        row
        for row in stored.rows
        if row.combination.method is None or names is None or row.combination.method.name in names
    ]
    chart = make_figures(replace(stored, rows=tuple(rows)), reference="mob")["fig3-flops"]
    labels = [row.combination.label for row in rows if row.combination.method is not None]
    shown = next(each for each in chart["params"] if each["name"] == "shown")
    shown["value"] = list(dict.fromkeys(labels))
    # Lines with their intervals: the unpruned model is at zero, and the page names the budgets.
    chart["layer"] = [each for each in chart["layer"] if is_about_methods(each)]
    for layer in chart["layer"]:
        layer["encoding"]["x"]["scale"] = {"domain": [0, LARGEST_COST]}
        if legend := layer["encoding"]["color"].get("legend"):
            legend |= {"labelLimit": 0, "columns": 3}
    return chart


def is_about_methods(layer: dict[str, Any]) -> bool:
    """Whether a layer of a chart has marks of methods: neither text nor the unpruned model."""
    return "color" in layer["encoding"] and layer["mark"]["type"] != "text"


PICTURES: dict[str, Callable[[], Image.Image]] = {
    "kept": draw_kept,
    "steps": draw_steps,
    "halves": draw_halves,
    "questions": draw_questions,
    "budgets": draw_budgets,
    "trade-off": draw_trade_off,
    "all-methods": draw_all_methods,
    "boulder": draw_boulder,
}
"""What there is, by the name of the file."""


def list_examples(kind: str) -> list[PictureExample]:
    """Questions of a kind about the first test scenes."""
    return list(make_examples("test", 1, (kind,)))


def ask(
    model: Any, processor: Any, example: PictureExample, method: tc.Method
) -> tuple[Trace, list[str], str]:
    """What was kept, the words that chose it, and the answer."""
    inputs = make_inputs(processor, [([example.picture], example.question)])
    with torch.no_grad(), tc.prune(model, method, processor=processor) as run:
        tokens = model.generate(**inputs, max_new_tokens=4, do_sample=False)
    words = words_of_centers(run.trace[0], inputs["input_ids"], processor)
    answer = processor.decode(tokens[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return run.trace[0], words, answer.strip()


def count(trace: Trace) -> str:
    """How many tokens of each kind there are."""
    prompt, visual = len(trace.prompt_centers), len(trace.visual_centers)
    return f"{prompt} for the question, {visual} to cover the rest"


def keep_first(trace: Trace, prompt: int, visual: int) -> Trace:
    """The trace as if so many centres of each kind had been chosen."""
    chosen = torch.cat([trace.prompt_centers[:prompt], trace.visual_centers[:visual]])
    kept = torch.isin(trace.kept, chosen)
    where = {name: getattr(trace, name)[kept] for name in ("medium", "frame", "row", "column")}
    return replace(trace, kept=trace.kept[kept], **where)


def enlarge(picture: Image.Image) -> Image.Image:
    """All images have one size."""
    return picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.NEAREST)


def caption(picture: Image.Image, *lines: str) -> Image.Image:
    """The image with two lines of text above it."""
    sheet = Image.new("RGB", (picture.width, picture.height + 2 * LINE + 10), "white")
    brush = ImageDraw.Draw(sheet)
    for place, line in enumerate(lines, start=2 - len(lines)):
        brush.text((0, LINE * place), line, "#2d2d2d", font_size=0.72 * LINE)
    sheet.paste(picture, (0, 2 * LINE + 10))
    return sheet


def join(pictures: Sequence[Image.Image], columns: int | None = None) -> Image.Image:
    """Side by side on white."""
    width = (columns or len(pictures)) * (SIDE + GAP)
    body = flow(pictures, width, GAP)
    sheet = Image.new("RGB", (body.width + 2 * MARGIN, body.height + 2 * MARGIN), "white")
    sheet.paste(body, (MARGIN, MARGIN))
    return sheet


def save_small(picture: Image.Image, path: Path) -> None:
    """With a palette: the repository and the package's page stay light."""
    picture.quantize(256, kmeans=4, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
