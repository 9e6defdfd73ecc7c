"""Does pruning deliver? Prefill and decoding against the unpruned model and the ideal, in one run.

    python benchmarks/prefill.py                               every row; an hour on two cores
    python benchmarks/prefill.py --tokens 576 --batches 1 --cpu-time      next to other work
    python benchmarks/prefill.py --growth growth.svg           and how it grows with N and batch

The widths are those of the real 7B models, the weights random, the blocks few, so that they fit a
small machine. The *ideal* is what no pruning method can beat. For the time to the first token: the
blocks before the pruning block run on the whole sequence, all later ones on the short sequence
natively, and nothing is chosen or moved. For decoding: the caches of all blocks are short. The
vision tower is a stand-in and costs next to nothing.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import truediv
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    CLIPVisionConfig,
    DynamicCache,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
)

import tokencover as tc
from peak_memory import measure_added_peak

IMAGE, QUESTION, CROP = 9, 40, 576
BUDGETS = {576: (64, 128, 192), 1152: (128,), 1728: (192,), 2304: (256,), 2880: (320,)}
LARGEST_BATCHED = 576
"""Longer sequences are measured alone: eight of them want more memory than small machines have."""
DECODED = 16


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    attention: str
    visual: int
    budget: int
    batch: int
    after: int

    @property
    def short(self) -> int:
        """Length of the sequence after pruning."""
        return 2 * QUESTION + self.budget


def make_model(blocks: int, width: int) -> Any:
    """A LLaVA with the decoder widths of Vicuna-7B and a vision tower that is only a stand-in."""
    torch.manual_seed(0)
    text = LlamaConfig(
        hidden_size=width,
        intermediate_size=11008 * width // 4096,
        num_attention_heads=width // 128,
        num_key_value_heads=width // 128,
        num_hidden_layers=blocks,
        vocab_size=1000,
        max_position_embeddings=4096,
        eos_token_id=None,
    )
    vision = CLIPVisionConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        image_size=24, patch_size=1,
    )  # fmt: skip
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=IMAGE)
    return LlavaForConditionalGeneration(config).eval()


class Runs:
    """One case, run the ways that are compared."""

    def __init__(self, model: Any, case: Case) -> None:
        self.model, self.case = model, case
        self.choosing: list[float] = []
        self.cache_bytes: dict[str, int] = {}
        model.set_attn_implementation({"text_config": case.attention})
        words = torch.arange(QUESTION).remainder(900) + 50
        ids = torch.cat([words, torch.full((case.visual,), IMAGE), words]).repeat(case.batch, 1)
        generator = torch.Generator().manual_seed(1)
        pixels = torch.randn(case.batch * case.visual // CROP, 3, 24, 24, generator=generator)
        self._inputs: dict[str, Tensor] = {"input_ids": ids, "pixel_values": pixels}
        self._short: dict[str, Tensor] = {
            "input_ids": words.repeat(1 + case.short // QUESTION)[: case.short].repeat(
                case.batch, 1
            )
        }
        self._states = torch.randn(case.batch, ids.shape[1], model.config.text_config.hidden_size)

    def generate(self, name: str, words: int = 1) -> None:
        """Answer with so many words: unpruned, pruned, or on a short prompt without a picture."""
        if name != "pruned":
            self._generate(name, self._inputs if name == "unpruned" else self._short, words)
            return
        asked = torch.zeros_like(self._inputs["input_ids"], dtype=torch.bool)
        asked[:, -10:] = True
        method = tc.MoB(budget=self.case.budget, after=self.case.after)
        with tc.prune(self.model, method, prompt=asked) as run:
            self._generate(name, self._inputs, words)
        self.choosing.append(run.trace[0].seconds)

    def _generate(self, name: str, inputs: dict[str, Tensor], words: int) -> None:
        found = self.model.generate(
            **inputs,
            attention_mask=torch.ones_like(inputs["input_ids"]),
            max_new_tokens=words,
            do_sample=False,
            return_dict_in_generate=True,
        )
        layers = found.past_key_values.layers
        self.cache_bytes[name] = sum(each.keys.nbytes + each.values.nbytes for each in layers)

    def prefill_ideally(self) -> None:
        """Some blocks on everything, the others on the short sequence, as two native models."""
        text, after = self.model.model.language_model, self.case.after
        layers = text.layers
        self.model.model.get_image_features(pixel_values=self._inputs["pixel_values"])
        parts = (
            (layers[:after], self._states),
            (layers[after:], self._states[:, : self.case.short]),
        )
        try:
            for blocks, states in parts:
                if len(blocks):
                    text.layers, text.config.num_hidden_layers = blocks, len(blocks)
                    cache = DynamicCache()
                    hidden = text(inputs_embeds=states, past_key_values=cache, use_cache=True)
            self.model.lm_head(hidden.last_hidden_state[:, -1:])
        finally:
            text.layers, text.config.num_hidden_layers = layers, len(layers)


def time_in_turns(
    runs: dict[str, Callable[[], None]], repeats: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of each, taken in turns so that a noisy neighbour hits all."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            begin = clock()
            run()
            if turn:  # the first turn warms up
                seconds[name].append(clock() - begin)
    return seconds


@dataclass(frozen=True)
class Measured:
    """What one case took: seconds to the first token, words a second, megabytes."""

    first: dict[str, float]
    above: float
    choosing: float
    decoding: dict[str, float]
    peak: dict[str, float]
    cache: dict[str, int]


def measure(model: Any, case: Case, repeats: int, clock: Callable[[], float]) -> Measured:
    """Measure one case."""
    runs = Runs(model, case)
    ways: dict[str, Callable[[], None]] = {
        "unpruned": lambda: runs.generate("unpruned"),
        "ideal": runs.prefill_ideally,
        "pruned": lambda: runs.generate("pruned"),
    }
    first = time_in_turns(ways, repeats, clock)
    longer: dict[str, Callable[[], None]] = {
        name: partial(runs.generate, name, 1 + DECODED) for name in ("unpruned", "short", "pruned")
    }
    long = {name: min(each) for name, each in time_in_turns(longer, 1, clock).items()}
    runs.generate("short")
    begin = clock()
    runs.generate("short")
    prompt = {name: min(each) for name, each in first.items()} | {"short": clock() - begin}
    return Measured(
        first={name: min(each) for name, each in first.items()},
        above=statistics.median(map(truediv, first["pruned"], first["ideal"])) - 1,
        choosing=min(runs.choosing),
        decoding={
            name: case.batch * DECODED / max(each - prompt[name], 1e-9)
            for name, each in long.items()
        },
        peak={name: measure_added_peak(ways[name]) for name in ("unpruned", "pruned")},
        cache=runs.cache_bytes,
    )


def format_row(case: Case, found: Measured) -> str:
    """One line of the table."""
    first, speed, cache = found.first, found.decoding, found.cache
    cells = [
        case.attention, case.visual, case.budget, case.batch, case.after,
        *(f"{first[name]:.2f}" for name in ("unpruned", "ideal", "pruned")),
        f"{1e3 * found.choosing:.0f}",
        f"{first['unpruned'] / first['pruned']:.2f}x", f"{100 * found.above:+.1f} %",
        *(f"{speed[name]:.1f}" for name in ("unpruned", "short", "pruned")),
        *(f"{found.peak[name]:.0f}" for name in ("unpruned", "pruned")),
        *(f"{cache[name] / 1e6:.1f}" for name in ("unpruned", "short", "pruned")),
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


HEADER = (
    "| attention | N | K | batch | after | unpruned s | ideal s | pruned s | choosing ms | faster "
    "| above ideal | unpruned words/s | ideal words/s | pruned words/s | unpruned MB | pruned MB "
    "| unpruned KV MB | ideal KV MB | pruned KV MB |\n|" + "---|" * 19
)


def plot_growth(
    model: Any, repeats: int, clock: Callable[[], float], width: int, path: Path
) -> None:
    """Draw the time to the first token over N for one sample, and over the batch for N = 576."""
    import vl_convert  # comes with tokencover[figures]

    panels = {
        "N": [(each, Case("sdpa", each, each // 9, 1, 1)) for each in BUDGETS],
        "batch": [(each, Case("sdpa", CROP, 64, each, 1)) for each in (1, 2, 4, 8)],
    }
    charts: list[dict[str, Any]] = []
    for label, cases in panels.items():
        points = [
            {label: where, "seconds": seconds, "way": way}
            for where, case in cases
            for way, seconds in measure(model, case, repeats, clock).first.items()
        ]
        for point in points:
            print(point, flush=True)
        charts.append(_describe_chart(label, points))
    title = f"Time to the first token, decoder of width {width}, K = N / 9"
    drawn = vl_convert.vegalite_to_svg({"title": title, "hconcat": charts})
    path.write_text(drawn, encoding="utf-8")


def _describe_chart(label: str, points: list[dict[str, Any]]) -> dict[str, Any]:
    """Lines of seconds over something, as Vega-Lite has them."""
    return {
        "data": {"values": points},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {"field": label, "type": "quantitative"},
            "y": {"field": "seconds", "type": "quantitative"},
            "color": {"field": "way", "type": "nominal"},
        },
    }


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--width", type=int, default=4096, help="a multiple of 128")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", default="576,2880", help=", ".join(map(str, BUDGETS)))
    parser.add_argument("--budgets", help="only these K")
    parser.add_argument("--attention", default="sdpa,eager")
    parser.add_argument("--batches", default="1,4,8")
    parser.add_argument("--after", default="0,1,2", help="blocks that see everything")
    parser.add_argument("--cpu-time", action="store_true", help="for machines with other work")
    parser.add_argument("--growth", type=Path, metavar="FILE", help="plot it instead of the table")
    arguments = parser.parse_args()
    model = make_model(arguments.blocks, arguments.width)
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    print(f"{arguments.blocks} blocks of width {arguments.width}, float32, ", end="")
    print(f"{torch.get_num_threads()} threads{', CPU time' if arguments.cpu_time else ''}\n")
    lists = {
        name: [int(each) for each in getattr(arguments, name).split(",")]
        for name in ("tokens", "batches", "after")
    }
    only = None if arguments.budgets is None else {int(k) for k in arguments.budgets.split(",")}
    with torch.no_grad():
        if arguments.growth is not None:
            plot_growth(model, arguments.repeats, clock, arguments.width, arguments.growth)
            return
        print(HEADER)
        kinds = arguments.attention.split(",")
        for attention, visual, batch in itertools.product(kinds, lists["tokens"], lists["batches"]):
            if batch > 1 and visual > LARGEST_BATCHED:
                continue
            for budget, after in itertools.product(BUDGETS[visual], lists["after"]):
                if only is None or budget in only:
                    case = Case(attention, visual, budget, batch, after)
                    row = format_row(case, measure(model, case, arguments.repeats, clock))
                    print(row, flush=True)


if __name__ == "__main__":
    main()
