"""Attention that has not happened yet: of the block about to run, or after some blocks more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.pruning.attention.attention_rows import Projections
from tokencover.pruning.attention.block_recorder import Past
from tokencover.pruning.attention.known_attention import KnownAttention
from tokencover.pruning.forward_pass import Kept
from tokencover.pruning.hooks import move_to, run_aside


@dataclass(frozen=True, slots=True)
class UpcomingBlock:
    """The whole sequence before a block, with nothing dropped there yet; ``m`` tokens are left.

    Attributes
    ----------
    number : int
        Of the block about to run.
    states : Tensor
        ``(b, m, d)``.
    left : Kept or None
        Which tokens the ``m`` are; None if they are all.
    real : Tensor
        ``(b, m)`` bool, False for padding.
    past : callable
        Gives the cached keys that the block will attend to, None if there are none.
    positions : callable
        Gives the arguments ``position_ids`` and ``position_embeddings`` that the block would get if
        nothing were dropped.
    blocks : sequence of nn.Module
        All decoder blocks of the model.
    mask : callable or None
        Gives what each token would see if nothing were dropped, for models whose blocks have masks
        of their own, see `Projections`.
    """

    number: int
    states: Tensor
    left: Kept | None
    real: Tensor
    past: Callable[[], Past | None]
    positions: Callable[[], dict[str, Any]]
    blocks: Sequence[nn.Module]
    mask: Callable[[], Tensor | None] | None = None

    def project(self, attention: KnownAttention) -> Projections:
        """What the block about to run would attend with.

        Parameters
        ----------
        attention : KnownAttention
            Of that block.
        """
        rotation = self.positions()["position_embeddings"]
        mask = None if self.mask is None else self.mask()
        return self._project(attention, self.states.detach(), rotation, self.past(), mask)

    def look_ahead(self, blocks: Sequence[nn.Module | int]) -> Projections:
        """What the last of some blocks would attend with if they ran on the sequence.

        Parameters
        ----------
        blocks : sequence of nn.Module or int
            Decoder blocks, at least one; a number is one of the model's own. Nothing happens
            between them, and no cache is written.
        """
        if len(blocks) == 0:
            raise InputError("there are no blocks to look ahead with: give at least one.")
        if self.mask is not None:
            raise InputError(
                "blocks of this model do not see all tokens before them, and what other blocks "
                "would see is not known before they run: use a method that does not look ahead, "
                "for example tc.MoB."
            )
        modules = [self._find_module(each) for each in blocks]
        past = self.past()
        if past is not None:
            raise InputError(
                f"{past.length} tokens are cached before this pass, and what other blocks would "
                "see of them is not known: a chat of several turns over a kept cache is not "
                "possible with a method that looks ahead. Give the whole chat without a cache."
            )
        known = [KnownAttention(each, f"look-ahead block {n}") for n, each in enumerate(modules)]
        positions = self.positions()
        states = self.states.detach()
        for block in modules[:-1]:
            states = self._run(block, states, positions)
        return self._project(known[-1], states, positions["position_embeddings"], None)

    def _find_module(self, block: nn.Module | int) -> nn.Module:
        if isinstance(block, nn.Module):
            return block
        if not 0 <= block < len(self.blocks):
            raise InputError(
                f"block {block} cannot be run ahead: the model has blocks 0 to "
                f"{len(self.blocks) - 1}."
            )
        return self.blocks[block]

    def _run(self, block: Any, states: Tensor, positions: dict[str, Any]) -> Tensor:
        from transformers.masking_utils import create_causal_mask

        states = move_to(block, states)
        mask = create_causal_mask(
            config=block.self_attn.config,
            inputs_embeds=states,
            attention_mask=self.real.to(states.device),
            past_key_values=None,
        )
        numbers, tables = positions["position_ids"], positions["position_embeddings"]
        rotation = tuple(table.to(states.device) for table in tables)
        arguments = {
            **positions,
            "attention_mask": mask,
            "position_ids": None if numbers is None else numbers.to(states.device),
            "position_embeddings": rotation,
            "past_key_values": None,
            "use_cache": False,
        }
        with _gather_weights(block):
            output = _run_quietly(lambda: block(states, **arguments))
        found: Tensor = output[0] if isinstance(output, tuple) else output
        return found

    def _project(
        self,
        attention: KnownAttention,
        states: Tensor,
        rotation: tuple[Tensor, Tensor],
        past: Past | None,
        mask: Tensor | None = None,
    ) -> Projections:
        with _gather_weights(attention.layer):
            normed = _run_quietly(lambda: attention.norm(states))
            keys = _run_quietly(lambda: attention.project("k", normed))

        def project_queries(samples: Tensor, slots: Tensor) -> Tensor:
            chosen = normed[samples.to(normed.device), slots.to(normed.device)]
            with _gather_weights(attention.layer):
                queries: Tensor = _run_quietly(lambda: attention.project("q", chosen))
            return queries

        return Projections(
            attention,
            keys,
            project_queries,
            rotation,
            self.left,
            self.real,
            past,
            has_run=False,
            mask=mask,
        )


@contextmanager
def _gather_weights(layer: nn.Module) -> Iterator[None]:
    """Let a layer that FSDP splits over ranks have its weights outside its own forward."""
    unshard, reshard = (getattr(layer, name, None) for name in ("unshard", "reshard"))
    if unshard is None or reshard is None:
        yield
        return
    restore = reshard if _is_sharded(layer) else unshard
    unshard()
    try:
        yield
    finally:
        restore()


def _is_sharded(layer: nn.Module) -> bool:
    from torch.distributed.tensor import DTensor  # slow to import

    return any(isinstance(parameter, DTensor) for parameter in layer.parameters())


def _run_quietly(compute: Callable[[], Any]) -> Any:
    """Neither hooks nor gradients may take this for a part of the pass."""
    with torch.no_grad():
        return run_aside(compute)
