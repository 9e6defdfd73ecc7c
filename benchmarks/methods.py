"""Is every method at least as fast as its plain formulation? Ratios in one run.

    python benchmarks/methods.py                 N = 576 and 2880, some minutes on one core
    python benchmarks/methods.py --tokens 576    half a minute

The plain formulation is what the method does, written by us in a dozen lines of float32 and without
care for ties: it need not give the same on two machines. Ours is exact and settles ties. CPU
seconds are compared, turn by turn, so that a busy machine hits both.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import tokencover as tc
from tokencover.budget import BlockCost
from tokencover.covering import mob_literal
from tokencover.methods import Encoded, Method, View

WIDTH, WORDS, TOWER = 4096, 10, 1024
CROP, HEADS = 576, 16
SIZES = {576: 64, 2880: 320}
RANK = 64


@dataclass(frozen=True)
class Inputs:
    """What one row works on: visual tokens, prompt words, the tower's features and keys."""

    visual: Tensor
    prompt: Tensor
    features: Tensor
    keys: Tensor
    queries: Tensor
    attention: Tensor
    decoder_keys: Tensor
    budget: int

    @classmethod
    def draw(cls, tokens: int, budget: int, seed: int = 0) -> Inputs:
        """Tokens of rank 64 with 1 % of noise, in crops of 576."""
        generator = torch.Generator().manual_seed(tokens + seed)
        basis = torch.randn(RANK, WIDTH, generator=generator) / math.sqrt(RANK)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        def draw_tokens(count: int) -> Tensor:
            return draw(count, RANK) @ basis + 0.1 * draw(count, WIDTH)

        crops = tokens // CROP
        heads = (crops, HEADS, CROP + 1, TOWER // HEADS)
        return cls(
            visual=draw_tokens(tokens),
            prompt=draw_tokens(WORDS),
            features=draw(crops, CROP + 1, TOWER),
            keys=draw(*heads),
            queries=draw(*heads),
            attention=draw(1, 32, 1, tokens).softmax(-1),
            decoder_keys=draw(1, 32, tokens, WIDTH // 32),
            budget=budget,
        )

    def to(self, dtype: torch.dtype) -> Inputs:
        """The same with tokens and words of another dtype."""
        return replace(self, visual=self.visual.to(dtype), prompt=self.prompt.to(dtype))

    def read_keys(self, places: Tensor | None) -> Tensor:
        """The decoder's keys of all visual tokens, or as many as there are places."""
        return self.decoder_keys[:, :, : None if places is None else places.shape[-1]]

    def show(self) -> View:
        """The same as a method sees it."""
        count = len(self.visual)
        place = torch.arange(count).unsqueeze(0)
        crop, cell = place // CROP, place % CROP
        words = torch.ones(1, WORDS, dtype=torch.bool)
        after = torch.arange(count, count + WORDS).unsqueeze(0)
        zeros = torch.zeros_like(place)
        side = math.isqrt(CROP)
        encoded = Encoded(
            features=self.features,
            classes=1,
            depth=24,
            feature_block=22,
            scaling=(TOWER // HEADS) ** -0.5,
            index=crop * (CROP + 1) + 1 + cell,
            queries=lambda block: self.queries,
            keys=lambda block: self.keys,
            project=lambda features: torch.nn.functional.pad(features, (0, WIDTH - TOWER)),
        )
        fields: dict[str, Any] = {
            "block": 2,
            "depth": 32,
            "states": self.visual.unsqueeze(0),
            "mask": place >= 0,
            "prompt": self.prompt.unsqueeze(0),
            "prompt_mask": words,
            "prompt_positions": after,
            "text": self.prompt.unsqueeze(0),
            "text_mask": words,
            "text_positions": after,
            "last": after[:, -1],
            "positions": place,
            "total": torch.tensor([count]),
            "others": torch.tensor([WORDS]),
            "medium": crop,
            "frame": zeros,
            "row": cell // side,
            "column": cell % side,
            "kind": zeros,
            "video": zeros > 0,
            "keys": lambda block, places=None, *, rotated=False: self.read_keys(places),
            "attention": lambda block, queries: self.attention,
            "ahead": lambda blocks, queries: self.attention,
            "norm": lambda states: states,
            "cost": BlockCost(linear=1, quadratic=0),
            "encoded": encoded,
        }
        return View(**fields)


def select_mob(inputs: Inputs) -> None:
    """Algorithm 1, literally."""
    half = inputs.budget // 2
    mob_literal(
        inputs.visual,
        inputs.prompt,
        budget=inputs.budget,
        prompt_budget=half,
        fold=max(1, half // 8),
    )


def select_divprune(inputs: Inputs) -> None:
    """Max-min diversity on a matrix of all distances."""
    unit = torch.nn.functional.normalize(inputs.visual, dim=-1)
    distance = 1 - unit @ unit.T
    nearest = distance + torch.diag(torch.full((len(unit),), math.inf))
    chosen = [int(nearest.amin(0).argmax())]
    reach = distance[chosen[0]].clone()
    while len(chosen) < inputs.budget:
        chosen.append(int(reach.argmax()))
        reach = torch.minimum(reach, distance[chosen[-1]])


def select_cdpruner(inputs: Inputs) -> None:
    """The greedy set of a determinantal point process, on the whole kernel."""
    unit = torch.nn.functional.normalize(inputs.visual, dim=-1)
    mean = torch.nn.functional.normalize(inputs.prompt.mean(0), dim=-1)
    relevance = unit @ mean
    relevance = (relevance - relevance.min()) / (relevance.max() - relevance.min())
    kernel = relevance.unsqueeze(1) * (unit @ unit.T) * relevance
    gain = kernel.diagonal().clone()
    factor = torch.zeros(inputs.budget, len(gain))
    for step in range(inputs.budget):
        pick = int(gain.argmax())
        row = kernel[pick] - factor[:step, pick] @ factor[:step]
        factor[step] = row / gain[pick].clamp(min=1e-9).sqrt()
        gain = gain - factor[step].square()
        gain[pick] = -math.inf


def select_visionzip(inputs: Inputs) -> None:
    """Dominant tokens of each crop; the rest merged into ten in 64 of them."""
    crops = len(inputs.features)
    each = inputs.budget // crops
    merged = round(each * 5 / 32)
    scale = (TOWER // HEADS) ** -0.5
    row = (inputs.queries[:, :, :1] @ inputs.keys.mT * scale).softmax(-1)
    scores = row[:, :, 0, 1:].sum(1)
    keys = inputs.keys[:, :, 1:].mean(1)
    for crop in range(crops):
        dominant = scores[crop].topk(each - merged - 1).indices
        rest = torch.ones(CROP, dtype=torch.bool).index_fill_(0, dominant, False)
        left = torch.nn.functional.normalize(keys[crop, rest], dim=-1)
        features = inputs.features[crop, 1:][rest]
        step = max(1, len(left) // merged)
        targets = torch.arange(0, len(left), step)[:merged]
        others = torch.ones(len(left), dtype=torch.bool).index_fill_(0, targets, False)
        nearest = (left[others] @ left[targets].T).argmax(-1)
        joins = torch.nn.functional.one_hot(nearest, merged).float()
        means = joins.T @ features[others] / joins.sum(0).clamp(min=1).unsqueeze(-1)
        whole = inputs.features[crop]
        kept = torch.cat([whole[:1], whole[1:][dominant.sort().values], features[targets] + means])
        torch.nn.functional.pad(kept, (0, WIDTH - TOWER))


def select_fastv(inputs: Inputs) -> None:
    """The largest head means of one row of attention."""
    inputs.attention.mean(1)[0, -1].topk(inputs.budget).indices.sort()


def read_class_row(inputs: Inputs) -> Tensor:
    """What the class token of each crop looks at, mean over heads, ``(crops, cells)``."""
    scale = (TOWER // HEADS) ** -0.5
    row = (inputs.queries[:, :, :1] @ inputs.keys.mT * scale).softmax(-1)
    received: Tensor = row[:, :, 0, 1:].mean(1)
    return received


def select_fastervlm(inputs: Inputs) -> None:
    """The patches of each crop that its class token looks at most."""
    scores = read_class_row(inputs)
    scores.topk(inputs.budget // len(scores)).indices.sort()


def select_hired(inputs: Inputs) -> None:
    """The patches of each picture that its class token looks at most, summed over heads."""
    scores = read_class_row(inputs) * HEADS
    scores.topk(inputs.budget // len(scores)).indices.sort()


def select_pyramiddrop(inputs: Inputs) -> None:
    """The largest head means of one row of attention, half of the tokens: the first stage."""
    row = inputs.attention.mean(1)[0, -1]
    row.topk(len(row) // 2).indices.sort()


def select_dart(inputs: Inputs) -> None:
    """Tokens least like one of eight pivots, in turn; pivots have the largest keys."""
    norms = inputs.decoder_keys.abs().sum((1, 3))[0]
    words = inputs.read_keys(inputs.prompt[:, 0]).abs().sum((1, 3))[0].topk(4).indices
    own = norms.topk(4).indices
    unit = torch.nn.functional.normalize(inputs.visual, dim=-1)
    others = torch.nn.functional.normalize(inputs.prompt[words], dim=-1)
    free = torch.ones(len(unit), dtype=torch.bool).index_fill_(0, own, False)
    for pivot in torch.cat([unit[own], others]):
        alike = (unit @ pivot).masked_fill(~free, math.inf)
        free[alike.topk((inputs.budget - 4) // 8, largest=False).indices] = False


def select_prumerge(inputs: Inputs) -> None:
    """Each kept patch with its 32 nearest by keys, weighted by attention; one token of the rest."""
    crops, _, length, _ = inputs.keys.shape
    queries, keys = (
        each.transpose(1, 2).reshape(crops, length, TOWER) for each in (inputs.queries, inputs.keys)
    )
    rows = (queries[:, :1] @ keys.mT * TOWER**-0.5).softmax(-1)[:, 0, 1:]
    for crop in range(crops):
        scores, features = rows[crop], inputs.features[crop, 1:]
        kept = scores.topk(inputs.budget // crops - 1).indices.sort().values
        unit = torch.nn.functional.normalize(keys[crop, 1:], dim=-1)
        alike = unit[kept] @ unit.T
        near = alike.scatter_(1, kept.unsqueeze(1), -math.inf).topk(32).indices
        enriched = features[kept] + (scores[near].unsqueeze(-1) * features[near]).sum(1)
        rest = scores.index_fill(0, kept, 0) @ features
        torch.nn.functional.pad(torch.cat([enriched, rest[None]]), (0, WIDTH - TOWER))


def select_scope(inputs: Inputs) -> None:
    """The greedy cover by cosines, weighted by the class token's attention."""
    saliency = read_class_row(inputs).flatten()
    unit = torch.nn.functional.normalize(inputs.visual, dim=-1)
    cosine = (unit @ unit.T).clamp(min=0)
    covered = torch.zeros(len(unit))
    taken = torch.zeros(len(unit), dtype=torch.bool)
    for _ in range(inputs.budget):
        gain = (cosine - covered).clamp(min=0).sum(1) * saliency
        pick = int(gain.masked_fill(taken, -math.inf).argmax())
        taken[pick] = True
        covered = torch.maximum(covered, cosine[pick])


def select_tokencarve(inputs: Inputs) -> None:
    """Shares in the singular values by a decomposition of the tokens, then merging."""
    left, values, _ = torch.linalg.svd(inputs.visual, full_matrices=False)
    information = (left.abs() * values).sum(-1)
    ranks = [each.argsort().argsort() for each in (information, inputs.attention.mean(1)[0, 0])]
    order = (ranks[0] + ranks[1]).argsort(descending=True)[: inputs.budget * 3 // 2]
    half = len(order) // 2
    unit = torch.nn.functional.normalize(inputs.visual[order], dim=-1)
    (unit[half:] @ unit[:half].T).max(-1)


@dataclass(frozen=True)
class Pair:
    """A method of ours, and how it is formulated plainly."""

    make: Callable[[int], Method]
    plain: Callable[[Inputs], None]
    slow: bool = False


PAIRS = {
    "MoB": Pair(tc.MoB, select_mob),
    "DivPrune": Pair(tc.DivPrune, select_divprune),
    "CDPruner": Pair(tc.CDPruner, select_cdpruner),
    "VisionZip": Pair(tc.VisionZip, select_visionzip),
    "FastV": Pair(tc.FastV, select_fastv),
    "FasterVLM": Pair(tc.FasterVLM, select_fastervlm),
    "HiRED": Pair(tc.HiRED, select_hired),
    "PruMerge": Pair(tc.PruMerge, select_prumerge),
    "PyramidDrop": Pair(
        lambda budget: tc.PyramidDrop(0.125, stages=(2, 8, 16)), select_pyramiddrop
    ),
    "DART": Pair(tc.DART, select_dart),
    "SCOPE": Pair(tc.SCOPE, select_scope, slow=True),
    "TokenCarve": Pair(tc.TokenCarve, select_tokencarve, slow=True),
}


def compare(pair: Pair, inputs: Inputs, repeats: int) -> tuple[float, float, float]:
    """CPU seconds of the plain formulation and of ours, and the median ratio."""
    method, view = pair.make(inputs.budget), inputs.show()
    plain, ours = [], []
    for turn in range(repeats + 1):
        begin = time.process_time()
        pair.plain(inputs)
        middle = time.process_time()
        method.choose(view)
        end = time.process_time()
        if turn or not repeats:  # the first turn warms up
            plain.append(middle - begin)
            ours.append(end - middle)
    ratio = statistics.median(a / b for a, b in zip(plain, ours, strict=True))
    return min(plain), min(ours), ratio


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, choices=list(SIZES), help="only this N")
    parser.add_argument("--methods", default=",".join(PAIRS), help=", ".join(PAIRS))
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = arguments.methods.split(",")
    if not set(names) <= set(PAIRS):
        parser.error(f"--methods {arguments.methods}: choose from {', '.join(PAIRS)}")
    print(f"1 thread, float32, CPU time, median ratio of {arguments.repeats} turns\n")
    print("| method | N | K | plain ms | ours ms | faster |\n|" + "---|" * 6)
    with torch.no_grad():
        for tokens, budget in SIZES.items():
            if arguments.tokens not in (None, tokens):
                continue
            inputs = Inputs.draw(tokens, budget)
            for name in names:
                large = PAIRS[name].slow and tokens > CROP
                found = compare(PAIRS[name], inputs, 0 if large else arguments.repeats)
                plain, ours, ratio = found
                print(
                    f"| {name} | {tokens} | {budget} | {1e3 * plain:.1f} | {1e3 * ours:.1f} "
                    f"| {ratio:.2f}x |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
