"""Answers what a method asks about keys and attention of decoder blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.pruning.attention.attention_rows import Projections
from tokencover.pruning.attention.block_recorder import Recorder
from tokencover.pruning.attention.known_attention import KnownAttention, Letter
from tokencover.pruning.attention.upcoming_block import UpcomingBlock
from tokencover.pruning.forward_pass import Kept, VisualPass
from tokencover.pruning.tensor_parallel import TensorParallelGroup
from tokencover.pruning.visual_tokens import VisualTokens, find_slots


class Probe:
    """Answers `View.keys`, `View.attention` and `View.ahead` for one view.

    Parameters
    ----------
    current : VisualPass
        The pass that the view belongs to.
    tokens : VisualTokens
        The visual tokens of the view.
    recorders : Mapping
        The watched blocks.
    block : int
        The block about to run.
    device : torch.device
        Where answers go.
    ranks : TensorParallelGroup or None
        The ranks among which the heads are split.
    upcoming : UpcomingBlock or None
        The sequence before that block; None if its moment is over.
    """

    def __init__(
        self,
        current: VisualPass,
        tokens: VisualTokens,
        recorders: Mapping[int, Recorder],
        block: int,
        device: torch.device,
        ranks: TensorParallelGroup | None,
        upcoming: UpcomingBlock | None,
    ) -> None:
        self._current, self._tokens, self._recorders = current, tokens, recorders
        self._block, self._device, self._upcoming = block, device, upcoming
        self._ranks = ranks
        self._foreseen: Projections | None = None

    def close(self) -> None:
        """Let go of the sequence, which a view that is kept would hold forever."""
        self._upcoming = self._foreseen = None

    def keys(self, block: int, places: Tensor | None = None, *, rotated: bool = False) -> Tensor:
        """The keys of tokens in a block that has run, or is about to.

        Parameters
        ----------
        block : int
            Number of a watched block.
        places : Tensor, optional
            ``(b, q)`` int64, places in the whole sequence, as in ``view.positions``; -1 fills up
            samples that ask for fewer. Padding and tokens that were dropped before the block have
            no keys. Without it, the view's visual tokens.
        rotated : bool
            Whether the keys are turned by their positions, as the block compares them with queries.
            If not they tell what a token is and not where.

        Returns
        -------
        Tensor
            ``(b, kv_heads, q or n, head_dim)``: after the block's key norm, if it has one. With
            grouped queries there are fewer key heads than query heads, and they are not repeated.
            Zero where `places` is -1 or the view's mask is False. Carries no gradient.
        """
        projections = self._find_projections(block)
        if places is None:
            places = self._tokens.index.masked_fill(~self._tokens.mask, -1)
        else:
            places = self._check(block, places, projections.left)
        slots = self._find_slots(places, projections.left)
        found = projections.keys_at(self._tokens.samples, slots, rotated)
        found = self._complete(projections.attention, "k", found)
        missing = (places < 0)[:, None, :, None]
        return found.masked_fill(missing.to(found.device), 0).to(self._device)

    def attention(self, block: int, queries: Tensor) -> Tensor:
        """The weights that chosen tokens give to the view's visual tokens in a block.

        Parameters
        ----------
        block : int
            Number of a watched block that has run, or is about to: then it is what it would attend
            to with nothing dropped.
        queries : Tensor
            ``(b, q)`` int64, as the places of `keys`.

        Returns
        -------
        Tensor
            ``(b, heads, q, n)`` float32. The softmax runs over all real tokens that the row sees:
            itself and those before it that are left when the block runs, words or visual, and in
            a pass over a kept cache the cached ones too. So rows sum to at most 1 over the visual
            tokens. Zero where the view's mask is False, where `queries` is -1, and for visual
            tokens that the row does not see: after the asking one, or outside its window. Carries
            no gradient.
        """
        projections = self._find_projections(block)
        return self._find_rows(projections, self._check(block, queries, projections.left))

    def ahead(self, blocks: Sequence[nn.Module | int], queries: Tensor) -> Tensor:
        """The weights that the last of some blocks would give if they ran on the sequence now.

        Parameters
        ----------
        blocks : sequence of nn.Module or int
            Decoder blocks of the model's kind, a branch trained beside it; or numbers of its own.
            What a model does between its blocks, such as adding visual features, is not done. Of
            the last one only its attention is computed.
        queries : Tensor
            ``(b, q)`` int64, as the places of `keys`.

        Returns
        -------
        Tensor
            ``(b, heads, q, n)`` float32, as `attention` gives them.
        """
        upcoming = self._find_upcoming(self._block)
        queries = self._check(self._block, queries, upcoming.left)
        return self._find_rows(upcoming.look_ahead(blocks), queries)

    def _find_projections(self, block: int) -> Projections:
        if block not in self._recorders:
            raise InputError(
                f"block {block} is not watched: name the block in the method's `watched` to see "
                "its keys or attention."
            )
        attention = self._recorders[block].attention
        if block == self._block:
            # Never what was recorded: with gradient checkpointing that is from after the drop.
            upcoming = self._find_upcoming(block)
            if self._foreseen is None:
                self._foreseen = upcoming.project(attention)
            return self._foreseen
        if block > self._block or block not in self._current.recorded:
            raise InputError(
                f"block {block} has not run yet, or its pass is over: ask in `choose` for blocks "
                "up to `view.layer_idx`."
            )
        recorded, left = self._current.recorded[block], self._current.find_left(block)
        queries = recorded.projections["queries"]

        def find_queries(samples: Tensor, slots: Tensor) -> Tensor:
            chosen = queries[samples.to(queries.device), slots.to(queries.device)]
            return attention.finish("q", chosen)

        return Projections(
            attention,
            attention.finish("k", recorded.projections["keys"]),
            find_queries,
            recorded.rotation,
            left,
            self._current.real if left is None else left.valid,
            recorded.past,
            has_run=True,
            mask=recorded.mask,
        )

    def _find_upcoming(self, block: int) -> UpcomingBlock:
        if self._upcoming is None:
            raise InputError(
                f"block {block} is no longer about to run, or its pass is over: ask in `choose`."
            )
        return self._upcoming

    def _find_slots(self, places: Tensor, left: Kept | None) -> Tensor:
        """Slots in a sequence of which this was left; any slot where a place is -1."""
        samples = self._tokens.samples
        return find_slots(places.clamp(min=0), places >= 0, samples, self._current, left)

    def _find_rows(self, projections: Projections, queries: Tensor) -> Tensor:
        """``(b, heads, q, n)``, the rows of the queries and the columns of the visual tokens."""
        tokens, left, asked = self._tokens, projections.left, queries >= 0
        weights = projections.weigh(tokens.samples, self._find_slots(queries, left), asked)
        columns = find_slots(tokens.index, tokens.mask, tokens.samples, self._current, left)
        columns = (columns + projections.past_length)[:, None, None, :]
        found = weights.gather(-1, columns.expand(*weights.shape[:3], -1).to(weights.device))
        found = self._complete(projections.attention, "q", found)
        missing = ~(asked[:, None, :, None] & tokens.mask[:, None, None, :])
        return found.masked_fill(missing.to(found.device), 0).to(self._device)

    def _complete(self, attention: KnownAttention, letter: Letter, found: Tensor) -> Tensor:
        """All heads ``(b, heads, ...)`` of a layer, if this rank has some of them."""
        heads = attention.count_heads(letter, found.shape[1])
        if heads != found.shape[1] and self._ranks is not None:
            found = self._ranks.gather_heads(found)
        if heads != found.shape[1]:
            raise InputError(
                f"{attention.name} has {heads} heads, but {found.shape[1]} of them are known here. "
                "To split a model over several processes, load it with tp_plan='auto'."
            )
        return found

    def _check(self, block: int, places: Tensor, left: Kept | None) -> Tensor:
        """Places that a method gave, on the device of the masks."""
        current, samples = self._current, self._tokens.samples
        if places.dim() != 2 or len(places) != len(samples) or places.dtype != torch.int64:
            raise InputError(
                f"places have shape {tuple(places.shape)} and type {places.dtype}: give int64 "
                f"places ({len(samples)}, q), a row for each sample of the view."
            )
        places = places.to(samples.device)
        if bool(((places < -1) | (places >= current.length)).any()):
            raise InputError(
                f"places lie between {int(places.min())} and {int(places.max())}: they are "
                f"places in a sequence of {current.length} tokens, or -1 for none."
            )
        alive = current.real if left is None else left.mask(current.length)
        wrong = (places >= 0) & ~alive[samples].gather(1, places.clamp(min=0))
        if bool(wrong.any()):
            shown, number = wrong.nonzero()[0].tolist()
            place = int(places[shown, number])
            real = bool(current.real[samples[shown], place])
            raise InputError(
                f"token {place} of sample {shown} of the view "
                f"{'was dropped before block' if real else 'is padding in block'} {block}, so it "
                "has neither key nor attention there: ask for tokens that were left."
            )
        return places
