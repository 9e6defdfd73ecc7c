"""Methods that merge, or act in several places, formulated plainly: float32, no care for ties.

Of methods that act in several places it is the first: there they have most to compare.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor
from torch.nn.functional import interpolate, normalize

from method_inputs import CROP, HEADS, TOWER, Inputs

SIDE = math.isqrt(CROP)


def count_removed(inputs: Inputs, blocks: int) -> int:
    """How many tokens of each crop the first of some vision-encoder blocks removes."""
    removed = CROP - inputs.budget // len(inputs.features)
    return -(-removed // blocks)


def merge_tome(inputs: Inputs) -> Tensor:
    """Bipartite soft matching of the keys, in one vision-encoder block of 23."""
    remove = count_removed(inputs, 23)
    metric = normalize(inputs.keys.mean(1), dim=-1)
    similarity = metric[:, ::2] @ metric[:, 1::2].mT
    similarity[:, 0] = -math.inf
    value, partner = similarity.max(-1)
    order = value.argsort(descending=True)
    sources, others = order[:, :remove], order[:, remove:].sort().values
    into = partner.gather(1, sources)
    ones = torch.ones_like(inputs.features[..., :1])
    merged = []
    for values in (inputs.features * ones, ones):
        even, odd = values[:, ::2], values[:, 1::2]
        wide = (-1, -1, values.shape[-1])
        moved = even.gather(1, sources.unsqueeze(-1).expand(wide))
        stay = even.gather(1, others.unsqueeze(-1).expand(wide))
        sums = odd.scatter_add(1, into.unsqueeze(-1).expand(wide), moved)
        merged.append(torch.cat([stay, sums], 1))
    return merged[0] / merged[1]


def merge_ficoco(inputs: Inputs) -> Tensor:
    """Filter by redundancy, correlate by attention, compress, in one vision-encoder block of 11."""
    remove = count_removed(inputs, 11)
    attention = inputs.tower_attention
    received, important = attention[:, 1:, 1:].mean(1), attention[:, 0, 1:]
    score = 0.65 * normalize(received, dim=-1) - 0.35 * normalize(important, dim=-1)
    half = SIDE // 2
    windows = score.view(-1, half, 2, half, 2).transpose(2, 3).reshape(len(score), half * half, 4)
    worst = windows == windows.amax(-1, keepdim=True)
    windows = torch.where(worst, torch.where(windows > 0, 2 * windows, windows / 2), windows)
    score = windows.view(-1, half, half, 2, 2).transpose(2, 3).reshape(len(score), CROP)
    order = score.argsort(descending=True) + 1
    dropped, kept = order[:, :remove], order[:, remove:].sort().values
    states = []
    for crop, features in enumerate(inputs.features):
        among = attention[crop, dropped[crop]][:, kept[crop]]
        reach = among >= among.quantile(0.998, dim=-1, keepdim=True)
        weights = among * reach
        weights = (weights / weights.sum(-1, keepdim=True)).T
        sums = features[kept[crop]] + weights @ features[dropped[crop]]
        states.append(torch.cat([features[:1], sums / (1 + weights.sum(-1, keepdim=True))]))
    return torch.stack(states)


def recycle_sparsevlm(inputs: Inputs, kept: int, clusters: int) -> Tensor:
    """Raters, the tokens they look at most, and clusters of some of the others: the first stage."""
    products = (inputs.visual @ inputs.prompt.T).softmax(-1).mean(0)
    raters = products > products.mean()
    score = inputs.text_attention.mean(1)[0, raters].mean(0)
    order = score.argsort(descending=True)
    recycled = order[kept : kept + int(0.3 * (len(score) - kept)) + 1]
    points = inputs.visual[recycled]
    distance = torch.cdist(points, points) / math.sqrt(points.shape[1])
    density = (-distance.topk(clusters, largest=False).values.square().mean(-1)).exp()
    density = density + torch.rand_like(density) * 1e-6
    denser = density > density.unsqueeze(-1)
    delta = distance.masked_fill(~denser, math.inf).amin(-1).clamp(max=distance.max())
    centres = (density * delta).topk(clusters).indices
    owner = distance[:, centres].argmin(-1)
    owner[centres] = torch.arange(clusters)
    means = points.new_zeros(clusters, points.shape[1]).index_add_(0, owner, points)
    means /= owner.bincount(minlength=clusters).unsqueeze(-1)
    return torch.cat([inputs.visual[order[:kept].sort().values], means])


def choose_mustdrop(inputs: Inputs, count: int) -> Tensor:
    """Windows that are alike, the key set, and the tokens the text looks at most: first stage."""
    third = SIDE // 3
    unit = normalize(inputs.features[:, 1:], dim=-1)
    windows = unit.view(-1, third, 3, third, 3, TOWER).transpose(2, 3).reshape(-1, 9, TOWER)
    alike = ((windows @ windows.mT).sum((1, 2)) - 9) / 72
    assert not (alike >= 0.8).any()  # random tokens are not, so nothing is merged
    logits = inputs.queries[:, :, :1] @ inputs.keys.mT * (TOWER // HEADS) ** -0.5
    weights = logits.softmax(-1)[:, :, 0, 1:].mean(1)
    best = weights.topk(math.ceil(0.08 * CROP)).indices
    key = torch.zeros_like(weights, dtype=torch.bool).scatter_(1, best, True).flatten()
    sums = inputs.text_attention.mean(1)[0].sum(0)
    return (sums + key * sums.sum()).topk(count).indices.sort().values


def choose_globalcom2(inputs: Inputs) -> Tensor:
    """The base view's scores divide the budget among tiles, and help to rank their tokens."""
    logits = inputs.queries[:, :, :1] @ inputs.keys.mT * (TOWER // HEADS) ** -0.5
    local = logits[:, :, 0, 1:].mean(1)
    shown, each = local[0].view(SIDE, SIDE), inputs.budget // len(local)
    half = SIDE // 2
    places = list(product(range(2), range(2)))
    sums = [shown[half * i : half * (i + 1), half * j : half * (j + 1)].sum() for i, j in places]
    weights = (torch.stack(sums) / 10).softmax(0)
    counts = (each * (1 + weights - weights.mean())).tolist()
    wide = interpolate(shown[None, None], scale_factor=2, mode="bilinear", align_corners=False)[
        0, 0
    ]
    kept = [local[0].topk(each).indices]
    for tile, (i, j) in enumerate(places, start=1):
        part = wide[SIDE * i : SIDE * (i + 1), SIDE * j : SIDE * (j + 1)].flatten()
        score = normalize(local[tile], dim=0) + normalize(part, dim=0)
        kept.append(score.topk(int(counts[tile - 1])).indices + tile * CROP)
    return torch.cat(kept).sort().values
