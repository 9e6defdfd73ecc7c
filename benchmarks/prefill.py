"""Does pruning deliver? Prefill and decoding against the unpruned model and the ideal, in one run.

    python benchmarks/prefill.py                               every row; an hour on two cores
    python benchmarks/prefill.py --tokens 576 --batches 1 --cpu-time      next to other work
    python benchmarks/prefill.py --growth growth.svg           and how it grows with N and batch

The widths are those of the real 7B models, the weights random, the blocks few, so that they fit a
small machine. The *ideal* is what no pruning method can beat. For the time to the first token: the
blocks before the pruning block run on the whole sequence, all later ones on the short sequence
natively, and nothing is chosen or moved. For decoding: the caches of all blocks are short. The
vision encoder is a stand-in and costs next to nothing.

All rows of one prompt are taken in turns, so that a noisy neighbour hits all; the first turn warms
up, and tells the peaks of memory.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
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
from transformers.generation.streamers import BaseStreamer

import tokencover as tc
from peak_memory import measure_added_peak

IMAGE, QUESTION, CROP = 9, 40, 576
BUDGETS = {576: (64, 128, 192), 1152: (128,), 1728: (192,), 2304: (256,), 2880: (320,)}
BATCHED = {576: (128,)}
"""Of several samples: eight longer ones want more memory than small machines have."""
DECODED = 8
"""Words after the first."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Prompt:
    """What the model reads."""

    attention: str
    visual: int
    batch: int


@dataclass(frozen=True)
class Cut:
    """How it is pruned; with its prompt a row of the table."""

    budget: int
    after: int

    @property
    def left(self) -> int:
        """Length of the sequence after pruning."""
        return 2 * QUESTION + self.budget


@dataclass
class Way:
    """One way to answer, and what it took in each turn."""

    first: list[float] = field(default_factory=list)
    """Seconds to the first word."""
    later: list[float] = field(default_factory=list)
    """Seconds of the words after it."""
    choosing: list[float] = field(default_factory=list)
    """Seconds of the selection alone."""
    peak: float = 0.0
    """Megabytes above what the process held before."""
    cache: int = 0
    """Bytes of keys and values."""


def make_model(blocks: int, width: int) -> Any:
    """A LLaVA with the decoder widths of Vicuna-7B and a vision encoder that is only a stand-in."""
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


class Answers:
    """A prompt, answered by a model in the ways that are compared."""

    def __init__(self, model: Any, prompt: Prompt, clock: Clock, words: int) -> None:
        self.model, self.prompt, self._clock, self._words = model, prompt, clock, words
        model.set_attn_implementation({"text_config": prompt.attention})
        self._question = torch.arange(QUESTION).remainder(900) + 50
        picture = torch.full((prompt.visual,), IMAGE)
        ids = torch.cat([self._question, picture, self._question]).repeat(prompt.batch, 1)
        generator = torch.Generator().manual_seed(1)
        pixels = torch.randn(prompt.batch * prompt.visual // CROP, 3, 24, 24, generator=generator)
        self._inputs = {"input_ids": ids, "pixel_values": pixels}
        self._states = torch.randn(prompt.batch, ids.shape[1], model.config.text_config.hidden_size)

    def answer_unpruned(self, way: Way) -> None:
        """With all tokens."""
        self._generate(way, self._inputs)

    def answer_shortly(self, way: Way, length: int) -> None:
        """After a prompt without an image that is as short as a pruned one."""
        ids = self._question.repeat(1 + length // QUESTION)[:length]
        self._generate(way, {"input_ids": ids.repeat(self.prompt.batch, 1)})

    def answer_pruned(self, way: Way, cut: Cut) -> None:
        """Pruned by MoB."""
        asked = torch.zeros_like(self._inputs["input_ids"], dtype=torch.bool)
        asked[:, -10:] = True
        begin = self._clock()
        with tc.prune(self.model, tc.MoB(budget=cut.budget, after=cut.after), prompt=asked) as run:
            self._generate(way, self._inputs, begin)
        way.choosing.append(run.trace[0].seconds)

    def _generate(self, way: Way, inputs: dict[str, Tensor], begin: float | None = None) -> None:
        times = _Times(self._clock)
        found = self.model.generate(
            **inputs,
            attention_mask=torch.ones_like(inputs["input_ids"]),
            max_new_tokens=self._words,
            do_sample=False,
            return_dict_in_generate=True,
            streamer=times,
        )
        way.first.append(times.words[0] - (times.begin if begin is None else begin))
        way.later.append(times.words[-1] - times.words[0])
        layers = found.past_key_values.layers
        way.cache = sum(each.keys.nbytes + each.values.nbytes for each in layers)

    def prefill_ideally(self, way: Way, cut: Cut) -> None:
        """Some blocks on everything, the others on the short sequence, as two native models."""
        begin = self._clock()
        text = self.model.model.language_model
        layers = text.layers
        self.model.model.get_image_features(pixel_values=self._inputs["pixel_values"])
        parts = (
            (layers[: cut.after], self._states),
            (layers[cut.after :], self._states[:, : cut.left]),
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
        way.first.append(self._clock() - begin)


class _Times(BaseStreamer):
    """When each word came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.begin = clock()
        self._puts: list[float] = []

    @property
    def words(self) -> list[float]:
        """Times of the words; what `generate` puts first is the prompt."""
        return self._puts[1:]

    def put(self, value: Tensor) -> None:
        self._puts.append(self._clock())

    def end(self) -> None:
        pass


@dataclass
class Row:
    """The ways that a row compares."""

    unpruned: Way
    ideal: Way
    short: Way
    pruned: Way

    def format(self, prompt: Prompt, cut: Cut) -> str:
        """One line of the table."""
        first = {name: min(getattr(self, name).first) for name in ("unpruned", "ideal", "pruned")}
        cached = (self.unpruned, self.short, self.pruned)
        cells = [
            prompt.attention, prompt.visual, cut.budget, prompt.batch, cut.after,
            *(f"{seconds:.2f}" for seconds in first.values()),
            f"{1e3 * min(self.pruned.choosing):.0f}",
            f"{first['unpruned'] / first['pruned']:.2f}x", f"{100 * self.above:+.1f} %",
            *(f"{prompt.batch * DECODED / min(way.later):.1f}" for way in cached),
            *(f"{way.peak:.0f}" for way in (self.unpruned, self.pruned)),
            *(f"{way.cache / 1e6:.1f}" for way in cached),
        ]  # fmt: skip
        return "| " + " | ".join(map(str, cells)) + " |"

    @property
    def above(self) -> float:
        """By what share the pruned model is slower than the ideal: the median of all turns."""
        turns = zip(self.pruned.first, self.ideal.first, strict=True)
        return statistics.median(pruned / ideal for pruned, ideal in turns) - 1


def measure(
    model: Any, prompt: Prompt, cuts: list[Cut], repeats: int, clock: Clock, words: int
) -> dict[Cut, Row]:
    """Rows of one prompt, taken in turns."""
    answers = Answers(model, prompt, clock, words)
    unpruned, shorts = Way(), {cut.left: Way() for cut in cuts}
    rows = {cut: Row(unpruned, Way(), shorts[cut.left], Way()) for cut in cuts}
    runs: list[tuple[Way, Callable[[Way], None]]] = [(unpruned, answers.answer_unpruned)]
    if words > 1:
        runs += [(shorts[each], partial(answers.answer_shortly, length=each)) for each in shorts]
    for cut, row in rows.items():
        runs.append((row.ideal, partial(answers.prefill_ideally, cut=cut)))
        runs.append((row.pruned, partial(answers.answer_pruned, cut=cut)))
    for way, run in runs:
        way.peak = measure_added_peak(partial(run, Way()))
    for _ in range(repeats):
        for way, run in runs:
            run(way)
    return rows


HEADER = (
    "| attention | N | K | batch | after | unpruned s | ideal s | pruned s | choosing ms | faster "
    "| above ideal | unpruned words/s | ideal words/s | pruned words/s | unpruned MB | pruned MB "
    "| unpruned KV MB | ideal KV MB | pruned KV MB |\n|" + "---|" * 19
)


def plot_growth(model: Any, repeats: int, clock: Clock, width: int, path: Path) -> None:
    """Draw the time to the first token over N for one sample, and over the batch for N = 576."""
    import vl_convert  # comes with tokencover[figures]

    panels = {
        "N": [(each, Prompt("sdpa", each, 1)) for each in BUDGETS],
        "batch": [(each, Prompt("sdpa", CROP, each)) for each in (1, 2, 4, 8)],
    }
    charts: list[dict[str, Any]] = []
    for label, prompts in panels.items():
        points: list[dict[str, Any]] = []
        for where, prompt in prompts:
            cuts = [Cut(prompt.visual // 9, after=1)]
            (row,) = measure(model, prompt, cuts, repeats, clock, words=1).values()
            for way in ("unpruned", "ideal", "pruned"):
                seconds = min(getattr(row, way).first)
                points.append({label: where, "seconds": round(seconds, 3), "way": way})
                print(points[-1], flush=True)
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
        for each in itertools.product(kinds, lists["tokens"], lists["batches"]):
            prompt = Prompt(*each)
            budgets = (BUDGETS if prompt.batch == 1 else BATCHED).get(prompt.visual, ())
            cuts = [
                Cut(budget, after)
                for budget, after in itertools.product(budgets, lists["after"])
                if only is None or budget in only
            ]
            if cuts:
                rows = measure(model, prompt, cuts, arguments.repeats, clock, 1 + DECODED)
                for cut, row in rows.items():
                    print(row.format(prompt, cut), flush=True)


if __name__ == "__main__":
    main()
