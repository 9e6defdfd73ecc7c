"""Trains a twig: the base stays as it is, the twig learns to answer in its place.

The network that is trained is a short one: the base's first blocks, then the twig with its norm and
head. It minimises the plain next-word loss on the answers.
"""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tokencover.errors import InputError
from tokencover.files import write_atomically
from tokencover.twig import Twig, grow

IGNORED: Final = -100
"""Label of what is not an answer."""
LARGEST_GRADIENT: Final = 1.0


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How to train; the defaults are the paper's where it gives them.

    Attributes
    ----------
    steps : int
        Updates, one batch each.
    after, depth : int
        K and T: blocks of the base before the twig, and blocks of the twig.
    rate : float
        Peak learning rate; it rises, then falls to zero along half a cosine.
    warm_up : float
        Fraction of the steps in which it rises.
    weight_decay : float
        Of AdamW.
    seed : int
        For dropout, if the model has any; there is no other chance in it.
    """

    steps: int
    after: int = 2
    depth: int = 3
    rate: float = 1e-4
    warm_up: float = 0.03
    weight_decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.rate <= 0 or not 0 <= self.warm_up < 1:
            raise InputError(
                f"steps={self.steps}, rate={self.rate} and warm_up={self.warm_up} train nothing: "
                "give at least one step, a positive rate and a fraction below 1."
            )

    def compute_rate(self, step: int) -> float:
        """The learning rate of a step, the first being 0."""
        rise = math.ceil(self.warm_up * self.steps)
        if step < rise:
            return self.rate * (step + 1) / rise
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - rise) / (self.steps - rise)))


def train(
    model: nn.Module,
    batches: Iterable[Mapping[str, Tensor]],
    settings: TrainingSettings,
    *,
    checkpoint: Path | None = None,
    save_every: int = 100,
    report: Callable[[int, float], object] | None = None,
    stop_after: int | None = None,
) -> Twig:
    """Train a twig for a model. The model itself is not changed.

    Parameters
    ----------
    model : PreTrainedModel
        The base, not pruned.
    batches : iterable of Mapping
        What the model's forward takes, on its device, and ``labels`` ``(b, s)`` int64: the token
        at each place if it is part of an answer, -100 elsewhere.
    settings : TrainingSettings
        How.
    checkpoint : Path, optional
        File for the state of the training. If it exists, training continues from there: `batches`
        must be the same ones from the beginning, those already seen are skipped. The result is
        the same as without an interruption.
    save_every : int
        Steps between two states.
    report : callable, optional
        Called with each step's number and loss.
    stop_after : int, optional
        Stop after so many steps in all, as an interruption would.

    Returns
    -------
    Twig
        In evaluation mode, of the model's type and on its device; see `save_twig`.
    """
    base: Any = model
    twig = grow(model, settings.after, settings.depth).float().train()
    optimizer = torch.optim.AdamW(
        twig.parameters(), lr=settings.rate, weight_decay=settings.weight_decay
    )
    done = 0
    if checkpoint is not None and checkpoint.exists():
        done = _load_state(checkpoint, twig, optimizer, settings)
    end = settings.steps if stop_after is None else min(stop_after, settings.steps)
    coming = itertools.islice(batches, done, None)
    with _hold_still(model):
        for step in range(done, end):
            batch = next(coming, None)
            if batch is None:
                raise InputError(
                    f"there were {step} batches for {settings.steps} steps: give more batches, or "
                    "ask for fewer steps."
                )
            loss = _update(base, twig, optimizer, settings, step, batch)
            if report is not None:
                report(step, loss)
            if checkpoint is not None and ((step + 1) % save_every == 0 or step + 1 == end):
                _save_state(checkpoint, twig, optimizer, settings, step + 1)
    return twig.to(base.dtype).eval().requires_grad_(False)


def _update(
    base: Any,
    twig: Twig,
    optimizer: torch.optim.Optimizer,
    settings: TrainingSettings,
    step: int,
    batch: Mapping[str, Tensor],
) -> float:
    """One step; its loss."""
    for group in optimizer.param_groups:
        group["lr"] = settings.compute_rate(step)
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed * 1_000_003 + step)  # a resumed run drops out the same
        loss = compute_twig_loss(base, twig, batch)
        loss.backward()
    nn.utils.clip_grad_norm_(twig.parameters(), LARGEST_GRADIENT)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())


def compute_twig_loss(model: nn.Module, twig: Twig, batch: Mapping[str, Tensor]) -> Tensor:
    """Mean cross-entropy of the truncated network on the tokens of the answers, a scalar.

    Parameters
    ----------
    model : PreTrainedModel
        The base; no gradient reaches it.
    twig : Twig
        Grown on it.
    batch : Mapping
        As in `train`.
    """
    labels = batch["labels"]
    states, handed = _reach_block(model, twig.plan.after, batch)
    if labels.shape != states.shape[:2]:
        raise InputError(
            f"labels have shape {tuple(labels.shape)}, the decoder works on "
            f"{tuple(states.shape[:2])} tokens: give each token a label, and train on a model that "
            "is not pruned."
        )
    samples, places = (labels[:, 1:] != IGNORED).nonzero(as_tuple=True)
    if len(samples) == 0:
        raise InputError("the labels of a batch are all -100: there is no answer to learn from.")
    dtype: torch.dtype = states.dtype
    with torch.autocast(states.device.type, dtype=dtype, enabled=dtype != torch.float32):
        logits = twig(states, (samples, places), **handed)
    return cross_entropy(logits.float(), labels[samples, places + 1].to(logits.device))


class _Reached(Exception):  # noqa: N818 - it is no error
    """The base has come to the block where the twig grows."""

    def __init__(self, states: Tensor, handed: dict[str, Any]) -> None:
        super().__init__()
        self.states, self.handed = states, handed


def _reach_block(
    model: nn.Module, after: int, batch: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Any]]:
    """States ``(b, s, d)`` before a block of the base, and what else the block would be handed."""

    def leave(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        raise _Reached(args[0], kwargs)

    base: Any = model
    hook = base.get_decoder().layers[after].register_forward_pre_hook(leave, with_kwargs=True)
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    try:
        with torch.no_grad():
            base(**inputs, use_cache=False)
    except _Reached as found:
        return found.states, found.handed
    finally:
        hook.remove()
    raise InputError(
        f"{type(model).__name__} ended before its block {after} ran: is it a decoder's forward?"
    )


@contextmanager
def _hold_still(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and afterwards for each part the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _save_state(
    path: Path,
    twig: Twig,
    optimizer: torch.optim.Optimizer,
    settings: TrainingSettings,
    done: int,
) -> None:
    """Write the state so that a crash in between leaves the previous one whole."""
    state = {"twig": twig.state_dict(), "optimizer": optimizer.state_dict(), "done": done}
    whole = {**state, "settings": asdict(settings)}
    write_atomically(path, lambda file: torch.save(whole, file))


def _load_state(
    path: Path, twig: Twig, optimizer: torch.optim.Optimizer, settings: TrainingSettings
) -> int:
    """Read a state; how many steps were done."""
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
        began = TrainingSettings(**state["settings"])
        if began == settings:
            twig.load_state_dict(state["twig"])
            optimizer.load_state_dict(state["optimizer"])
        done = int(state["done"])
    except (RuntimeError, KeyError, EOFError, TypeError, pickle.UnpicklingError) as error:
        raise InputError(
            f"{path} is not the state of a training of this twig ({error}): delete it to begin "
            "again, or name another file."
        ) from error
    if began != settings:
        raise InputError(
            f"{path} was begun with {began}, not {settings}: use the same settings, or name "
            "another file."
        )
    return done
