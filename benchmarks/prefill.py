"""Does pruning deliver? Prefill time against the unpruned model and against the ideal, in one run.

    python benchmarks/prefill.py                      LLaVA-1.5-7B and LLaVA-Next-7B widths
    python benchmarks/prefill.py --blocks 6 --repeats 5

The widths are those of the real 7B models, the weights random, the blocks few, so that they fit a
small machine. The *ideal* is what no pruning method can beat: the blocks before the pruning block
run on the whole sequence, all later ones on the short sequence natively, and nothing is chosen or
moved. Only the decoder is timed; the vision tower runs before it and costs the same.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import truediv
from typing import Any

import torch
from torch import Tensor
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

import tokencover as tc

IMAGE, QUESTION = 9, 40


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    visual: int
    budget: int


CASES = [
    Case("LLaVA-1.5-7B", 576, 64),
    Case("LLaVA-1.5-7B", 576, 128),
    Case("LLaVA-1.5-7B", 576, 192),
    Case("LLaVA-Next-7B", 2880, 320),
]


def make_model(blocks: int) -> Any:
    """A LLaVA with the decoder widths of Vicuna-7B and a vision tower that is only a stand-in."""
    torch.manual_seed(0)
    text = LlamaConfig(
        hidden_size=4096,
        intermediate_size=11008,
        num_attention_heads=32,
        num_key_value_heads=32,
        num_hidden_layers=blocks,
        vocab_size=1000,
        max_position_embeddings=4096,
    )
    vision = CLIPVisionConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        image_size=24, patch_size=1,
    )  # fmt: skip
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=IMAGE)
    return LlavaForConditionalGeneration(config).eval()


def make_inputs(case: Case) -> dict[str, Tensor]:
    """A system prompt, the picture (one stand-in image per 576 tokens), and a question."""
    words = torch.arange(QUESTION).remainder(900) + 50
    ids = torch.cat([words, torch.full((case.visual,), IMAGE), words]).unsqueeze(0)
    pixels = torch.randn(case.visual // 576, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": pixels}


def make_prompt_mask(ids: Tensor) -> Tensor:
    """The question after the picture."""
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[:, -10:] = True
    return mask


class DecoderRuns:
    """Runs a model's decoder alone, the way each of the compared would."""

    def __init__(self, model: Any, inputs: dict[str, Tensor]) -> None:
        self.model, self.inputs = model, inputs

    def run_unpruned(self) -> None:
        """The model as it is."""
        self.model(**self.inputs, use_cache=False, logits_to_keep=1)

    def make_ideal(self, budget: int) -> Callable[[], None]:
        """One block on everything, the others on the short sequence, as two native models."""
        text = self.model.model.language_model
        length = self.inputs["input_ids"].shape[1]
        short = length - int((self.inputs["input_ids"] == IMAGE).sum()) + budget
        whole = torch.randn(1, length, 4096)
        cut = whole[:, :short].contiguous()
        layers = text.layers

        def run() -> None:
            self.model.model.get_image_features(pixel_values=self.inputs["pixel_values"])
            for blocks, states in ((layers[:1], whole), (layers[1:], cut)):
                text.layers = blocks
                text.config.num_hidden_layers = len(blocks)
                hidden = text(inputs_embeds=states, use_cache=False).last_hidden_state
            self.model.lm_head(hidden[:, -1:])
            text.layers, text.config.num_hidden_layers = layers, len(layers)

        return run


def time_in_turns(runs: dict[str, Callable[[], None]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each, taken in turns so that a noisy neighbour hits all."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            if turn:  # the first turn warms up
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def measure_case(case: Case, model: Any, repeats: int) -> str:
    """Measure one case and format it."""
    inputs = make_inputs(case)
    decoder = DecoderRuns(model, inputs)
    choosing: list[float] = []

    def run_pruned() -> None:
        prompt = make_prompt_mask(inputs["input_ids"])
        with tc.prune(model, tc.MoB(budget=case.budget), prompt=prompt) as run:
            decoder.run_unpruned()
        choosing.append(run.trace[0].seconds)

    runs = {
        "unpruned": decoder.run_unpruned,
        "ideal": decoder.make_ideal(case.budget),
        "pruned": run_pruned,
    }
    seconds = time_in_turns(runs, repeats)
    best = {name: min(values) for name, values in seconds.items()}
    over = statistics.median(map(truediv, seconds["pruned"], seconds["ideal"]))
    return (
        f"| {case.name} | {case.visual} | {case.budget} | {best['unpruned']:.2f} "
        f"| {best['ideal']:.2f} | {best['pruned']:.2f} | {1e3 * min(choosing):.0f} "
        f"| {best['unpruned'] / best['pruned']:.2f}x | {best['unpruned'] / best['ideal']:.2f}x "
        f"| {100 * (over - 1):+.1f} % |"
    )


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    model = make_model(arguments.blocks)
    threads = torch.get_num_threads()
    print(f"{arguments.blocks} decoder blocks, float32, {threads} threads, after=1\n")
    print("| model width | N | K | unpruned s | ideal s | pruned s | choosing ms ", end="")
    print("| faster | ideally | above ideal |\n|" + "---|" * 10)
    with torch.no_grad():
        for case in CASES:
            print(measure_case(case, model, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
