"""Methods that choose tokens, formulated plainly: float32, one sample, no care for ties."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from method_inputs import CROP, HEADS, TOWER, WIDTH, Inputs
from tokencover.covering import mob_literal


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
    """The patches of each image that its class token looks at most, summed over heads."""
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
