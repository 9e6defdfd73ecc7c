"""How much a model's answer changes for how far its tokens move, measured.

The paper's bounds assume that the blocks after the pruning layer are Lipschitz in the Hausdorff
distance between token sets, and never say with which constant. Here it is estimated *from below*:
the largest ratio of change to distance that a few random changes of the visual tokens showed. The
true constant, if there is one, is at least that; no number of tries shows that it is not larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.covering import hausdorff
from tokencover.errors import InputError
from tokencover.families import family_of
from tokencover.methods import Choice, Method, View
from tokencover.pruning import prune

Change = Callable[[View], Choice]

_RESOLUTION = 1e-6
"""Distances below are rounding errors."""


@dataclass(frozen=True, slots=True)
class Move:
    """One change of the tokens of one sample.

    Attributes
    ----------
    distance : float
        d_H(X, X_s) before the pruning block, with X the visual tokens and prompt tokens. Euclidean
        between unit vectors, as in `tokencover.theory.certificate`.
    change : float
        Euclidean distance of the logits at the sample's last token.
    """

    distance: float
    change: float

    @property
    def ratio(self) -> float:
        """Change per distance; 0 where nothing moved or nothing changed."""
        return self.change / self.distance if self.distance > _RESOLUTION else 0.0


@dataclass(frozen=True, slots=True)
class LipschitzEstimate:
    """What random changes say about a model, beside what a pruning did to it.

    Attributes
    ----------
    tried : tuple of Move
        The random changes, all samples together.
    pruned : tuple of Move
        What the method did: one for each sample with visual tokens. Not part of the estimate.
    """

    tried: tuple[Move, ...]
    pruned: tuple[Move, ...]

    @property
    def constant(self) -> float:
        """The largest ratio among `tried`: at most the true constant C."""
        return max((move.ratio for move in self.tried), default=0.0)

    @property
    def expected(self) -> tuple[float, ...]:
        """For each pruned sample `constant` times its distance; the true bound may be larger."""
        return tuple(self.constant * move.distance for move in self.pruned)

    def __str__(self) -> str:
        lines = [f"C >= {self.constant:.4g}, the largest of {len(self.tried)} ratios"]
        lines += [
            f"pruned: d_H {move.distance:.4f}, logits moved {move.change:.4f}, C d_H >= {value:.4f}"
            for move, value in zip(self.pruned, self.expected, strict=True)
        ]
        return "\n".join(lines)


def estimate_lipschitz(
    model: nn.Module,
    inputs: Mapping[str, Any],
    method: Method,
    *,
    prompt: Tensor | str | Sequence[str] | None = None,
    processor: Any = None,
    subsets: int = 8,
    nudges: int = 8,
    size: float = 0.05,
    seed: int = 0,
) -> LipschitzEstimate:
    """Estimate the Lipschitz constant of the blocks after the one where a method prunes.

    Runs the model ``2 + subsets + nudges`` times.

    Parameters
    ----------
    model, prompt, processor
        As for `tokencover.prune`.
    inputs : Mapping
        What the model takes: a batch, with images.
    method : Method
        One that drops tokens before one decoder layer and changes no states.
    subsets : int
        How many times to keep a random part of the visual tokens, of random size.
    nudges : int
        How many times to keep all and turn each a little, its length unchanged.
    size : float
        How far to turn: about the distance between a token's old and new direction.
    seed : int
        Another seed, other changes.
    """
    block = _get_only_layer(model, method)
    generator = torch.Generator().manual_seed(seed)
    changes = [_keep_random_subset(generator) for _ in range(subsets)]
    changes += [_nudge(generator, size) for _ in range(nudges)]
    if not changes:
        raise InputError("subsets and nudges are both 0: there is nothing to estimate from.")
    words: dict[str, Any] = {"prompt": prompt, "processor": processor}

    def run(change: Change) -> tuple[_ChangedTokens, Tensor]:
        probe = _ChangedTokens(block, change, method.positions)
        with torch.no_grad(), prune(model, probe, **words):
            return probe, _compute_last_logits(model, inputs)

    whole, answer = run(_keep_everything)
    with torch.no_grad(), prune(model, method, **words) as pruning:
        pruned_answer = _compute_last_logits(model, inputs)
    rows = [trace.sample for trace in pruning.trace]
    if not rows:
        raise InputError("no sample of the batch has a visual token: there is nothing to prune.")
    before = whole.list_sets()
    kept = [trace.kept for trace in pruning.trace]
    after = whole.list_sets(kept)
    tried: list[Move] = []
    for change in changes:
        probe, moved = run(change)
        tried += _measure_moves(before, probe.list_sets(probe.kept), answer, moved, rows)
    pruned = _measure_moves(before, after, answer, pruned_answer, rows)
    return LipschitzEstimate(tuple(tried), tuple(pruned))


@dataclass
class _ChangedTokens(Method):
    """Does something to the visual tokens before one block, and remembers what was there."""

    block: int
    change: Change
    positions: Any = "original"
    drops_newlines: bool = True
    merges: bool = True
    views: list[View] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        return (self.block,)

    def choose(self, view: View) -> Choice:
        choice = self.change(view)
        self.views.append(view)
        self.choices.append(choice)
        return choice

    @property
    def kept(self) -> Sequence[Tensor]:
        return self.choices[-1].kept

    def list_sets(self, kept: Sequence[Tensor] | None = None) -> list[Tensor]:
        """For each sample its visual tokens after the change, or some of them, and its words."""
        if not self.views:
            raise InputError("the inputs hold no image: there is nothing to prune.")
        view, states = self.views[-1], self.choices[-1].hidden_states
        states = view.hidden_states if states is None else states
        found = []
        for sample, mask in enumerate(view.mask):
            tokens = states[sample, mask]
            tokens = tokens if kept is None else tokens[kept[sample].to(tokens.device)]
            words = view.prompt[sample, view.prompt_mask[sample]]
            found.append(torch.cat([tokens.float(), words.float()]))
        return found


def _keep_everything(view: View) -> Choice:
    return Choice([torch.arange(count) for count in view.mask.sum(-1).tolist()], view.hidden_states)


def _keep_random_subset(generator: torch.Generator) -> Change:
    def change(view: View) -> Choice:
        kept = []
        for count in view.mask.sum(-1).tolist():
            left = int(torch.randint(1, count + 1, (), generator=generator))
            kept.append(torch.randperm(count, generator=generator)[:left])
        return Choice(kept, view.hidden_states)

    return change


def _nudge(generator: torch.Generator, size: float) -> Change:
    def change(view: View) -> Choice:
        noise = torch.randn(view.hidden_states.shape, generator=generator).to(view.hidden_states)
        length = view.hidden_states.norm(dim=-1, keepdim=True)
        step = noise * (size * length / math.sqrt(noise.shape[-1]))
        turned = torch.nn.functional.normalize(view.hidden_states + step, dim=-1) * length
        return Choice(_keep_everything(view).kept, turned)

    return change


def _get_only_layer(model: nn.Module, method: Method) -> int:
    blocks = method.pruning_layers(len(family_of(model).layers(model)))
    if len(blocks) != 1 or method.merges:
        raise InputError(
            f"{method!r} acts before {len(blocks)} decoder layers"
            f"{' and changes states' if method.merges else ''}: the estimate is for methods that "
            "drop tokens once, for example tc.MoB(budget=64)."
        )
    return blocks[0]


def _compute_last_logits(model: nn.Module, inputs: Mapping[str, Any]) -> Tensor:
    """Logits at the last token of each sample, ``(b, vocabulary)`` float32."""
    logits: Tensor = model(**inputs, use_cache=False).logits
    mask = inputs.get("attention_mask")
    if mask is None:
        return logits[:, -1].float()
    places = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask.bool(), places, -1).amax(-1)
    return logits[torch.arange(len(logits)), last.to(logits.device)].float()


def _measure_moves(
    before: list[Tensor], after: list[Tensor], old: Tensor, new: Tensor, rows: list[int]
) -> list[Move]:
    return [
        Move(float(hausdorff(first, second)), float((old[row] - new[row]).norm()))
        for first, second, row in zip(before, after, rows, strict=True)
    ]
