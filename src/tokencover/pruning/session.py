"""Makes a model run a method: hooks that shorten the sequence between decoder blocks.

Nothing of the model is replaced. A hook on the multimodal model learns which positions are visual,
a hook before each block shortens what the block receives, a hook after the decoder spreads the
result over the original length, so that logits, labels and ``[:, -1]`` keep their meaning.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.families import Family, needs_own_masks
from tokencover.families.versions import warn_of_newer_versions
from tokencover.methods import Choice, Method, VisionOutputs
from tokencover.pruning import tensor_parallel
from tokencover.pruning.attention import Probe, Recorder, UpcomingBlock, find_past, make_recorders
from tokencover.pruning.decoder import (
    BlockInputs,
    Pruning,
    Renumbering,
    check_shared_keys,
    find_stages,
    keep_positions,
)
from tokencover.pruning.forward_pass import (
    ForwardPass,
    Kept,
    VisualPass,
)
from tokencover.pruning.generation import ModelCalls
from tokencover.pruning.hooks import Hooks, is_aside
from tokencover.pruning.internals import check_internals, check_layers, get_argument
from tokencover.pruning.model_calls import PassReader
from tokencover.pruning.prompt import GivenMask, Words
from tokencover.pruning.rerun_passes import RerunPasses, runs_backward
from tokencover.pruning.trace import Traces
from tokencover.pruning.vision import (
    KINDS,
    EncoderCalls,
    EncoderMemory,
    TowerMerger,
    TowerReader,
    guess_tower,
)
from tokencover.pruning.visual_tokens import Answers, Decoder, VisualTokens, make_traces, make_view

CUT_SHARED = "_maybe_slice_kv_shared_inputs"
"""Where Gemma 4 cuts its inputs to the last tokens, before blocks that share earlier keys."""
IN_TOWER = -1
"""In `ForwardPass.kept`, what is left of tokens merged in the vision tower; before all blocks."""


class Session:
    """One method on one model, from `install` to `remove`.

    What only some methods ask for (merging in the tower, reading from it, recording blocks, other
    positions) is built for those alone.
    """

    def __init__(
        self,
        model: nn.Module,
        family: Family,
        method: Method,
        words: Words,
        visual: GivenMask | None = None,
    ) -> None:
        own_masks = needs_own_masks(family, model)
        method = keep_positions(method, family, own_masks)
        self.model, self.family, self.method = model, family, method
        self.trace = Traces()
        self._base = model.get_submodule(family.base)
        self._decoder = model.get_submodule(family.decoder)
        self._blocks = family.layers(model)
        check_internals()
        warn_of_newer_versions()
        check_layers(self._blocks, self._decoder.config)
        self._ranks = tensor_parallel.get_tensor_parallel_group(model)
        self._stages = find_stages(method, len(self._blocks))
        check_shared_keys(method, self._blocks, self._stages)
        self._merger: TowerMerger | None = None
        self._reader: TowerReader | None = None
        tower = guess_tower(model.config)
        if len(method.vision_blocks(*tower)):
            self._merger = TowerMerger(model, family, method)
        if method.watched_vision_blocks(*tower) is not None:
            self._reader = TowerReader(model, family, method, self._merger)
        self._folds = self._reader is not None and self._reader.folds
        # In this order: what is read from the tower has been spread over its first tokens before.
        self._in_tower = [each for each in (self._merger, self._reader) if each is not None]
        renumbering = Renumbering(self._decoder) if method.positions != "original" else None
        groups = self._stages if self._merger is None else (0, *self._stages)
        pruning = Pruning(groups, method.positions, own_masks)
        self._inputs = BlockInputs(self._decoder, pruning, renumbering, family.token_arguments)
        self._calls = EncoderCalls(model, family, self._in_tower)
        self.calls_of_model = ModelCalls(model)
        self._pass_reader = PassReader(
            model, family, method, words, visual, self._calls, self.calls_of_model
        )
        self._local = threading.local()
        self._recorders: dict[int, Recorder] = {}
        if watched := tuple(method.watched_layers(len(self._blocks))):
            self._recorders = make_recorders(
                method,
                watched,
                self._blocks,
                self._stages,
                self._get_pass,
                self._find_past_columns,
                own_masks,
            )
        norm = self._decoder.get_submodule(family.norm)
        self._facts = Decoder(self._blocks, self._decoder.config, norm)
        self._rerun = RerunPasses()
        self._hooks = Hooks()

    def install(self) -> None:
        """Put the hooks on the model; all of them, or none if one fails."""
        try:
            self.calls_of_model.watch(self._hooks)
            if self._base is self.model:
                self._hooks.enclose(self._base, self._begin, self._end)
            else:
                self._hooks.before(self._base, self._begin)
                self._hooks.after(self._base, self._end, always_call=True)
            for number, block in enumerate(self._blocks):
                self._hooks.before(block, functools.partial(self._enter_block, number))
            self.family.install(self.model, self._hooks, self._get_running)
            for number, block in enumerate(self._blocks):
                self._hooks.before(block, functools.partial(self._before_block, number))
            for number, recorder in self._recorders.items():
                if number == self._stages[-1]:  # asked about before it runs, and never after
                    continue
                self._hooks.keep_uncompiled(self._blocks[number])
                self._put(recorder.list_hooks())
            for module, name, wrapper in () if self._merger is None else self._merger.list_wraps():
                self._hooks.around(module, name, wrapper)
            for each in self._in_tower:
                for block in each.list_watched():
                    self._hooks.keep_uncompiled(block)
                self._put(each.list_hooks())
            self._hooks.after(self._decoder, self._after_decoder)
            self._calls.watch(self._hooks)
            if hasattr(self._decoder, CUT_SHARED):
                cut = functools.partial(self._inputs.cut_shared, self._get_pass)
                self._hooks.around(self._decoder, CUT_SHARED, cut)
        except BaseException:
            self.remove()
            raise

    def _put(self, hooks: Iterable[tuple[nn.Module, Any, bool]]) -> None:
        """Hooks that go before (else after) their modules."""
        for module, hook, before in hooks:
            (self._hooks.before if before else self._hooks.after)(module, hook)

    def remove(self) -> None:
        """Take everything off the model again."""
        self._forget_pass()  # an interrupt ends a pass without `_end`
        self._hooks.remove()

    def recall_with(self, memory: EncoderMemory) -> AbstractContextManager[None]:
        """Let a memory answer for the vision tower meanwhile, unless the method must see it run."""
        reader = self._reader
        if self._merger is not None or (reader is not None and not reader.is_recalled):
            return memory.set_aside()
        return memory.serve(reader)

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = {**dict(zip(("input_ids",), args, strict=False)), **kwargs}
        self._local.current = self._pass_reader.read(arguments)

    def _end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        current = self._get_pass()
        if isinstance(current, VisualPass):
            # Gradient checkpointing will ask a merging method again, when blocks run backward.
            if not (self.method.merges and torch.is_grad_enabled()):
                current.recorded.clear()
                current.encodings = current.entered = None
            if self._reader is not None:
                for kind in KINDS:
                    self._reader.forget(kind)
        self._forget_pass()

    def _forget_pass(self) -> None:
        """The pass of this thread is over; after an error, too."""
        current = self._get_pass()
        if current is not None:
            self._inputs.end_pass(current.cache)
            current.cache = None
        self._local.current = None

    def _get_pass(self) -> ForwardPass | None:
        current: ForwardPass | None = getattr(self._local, "current", None)
        return current

    def _get_running(self) -> ForwardPass | None:
        """The pass under way, or the one whose block gradient checkpointing runs again."""
        if is_aside():
            return None
        is_rerun = runs_backward() and getattr(self._local, "is_rerun", False)
        return self._get_pass() or (self._get_entered() if is_rerun else None)

    def _get_entered(self) -> ForwardPass | None:
        """The pass of the block that began last, None if it belongs to none."""
        found: weakref.ref[ForwardPass] | None = getattr(self._local, "entered", None)
        return None if found is None else found()

    def _after_decoder(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        current = self._get_pass()
        kept = current and current.find_left(len(self._blocks))
        if not current or not kept:
            return output
        states = output[0] if isinstance(output, tuple) else output.last_hidden_state
        if states.shape[1] != kept.index.shape[1]:  # Gemma 4 cut off all but the last tokens
            return output
        if isinstance(output, tuple):
            return (kept.put_back(output[0], current.length), *output[1:])
        output.last_hidden_state = kept.put_back(output.last_hidden_state, current.length)
        return output

    def _enter_block(self, number: int, module: nn.Module, args: Any, kwargs: Any) -> None:
        if is_aside():
            return
        rotation = get_argument(kwargs, "position_embeddings", module)
        current = self._rerun.get_pass(self._get_pass(), number, args[0], rotation)
        self._local.entered = None if current is None else weakref.ref(current)
        # Since transformers 5.23, checkpointing runs no hooks of blocks again, only inner ones.
        self._local.is_rerun = runs_backward()

    def _before_block(
        self, number: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        current = None if is_aside() else self._get_entered()
        if current is None or (current.cut_from is not None and number >= current.cut_from):
            return None
        current.block, current.cache = number, kwargs.get("past_key_values")
        self._inputs.announce(number, current.cache)
        states = args[0]
        if number == 0 and isinstance(current, VisualPass) and self._folds:
            current.entered = states if self.method.merges else states.detach()
        if isinstance(current, VisualPass):
            if number == 0 and self._merger is not None:
                states = self._drop_merged(self._merger, current, states)
            if number in self._stages:
                states = self._prune(current, number, states, kwargs)
        group = self._inputs.find_group(number)
        changed = self._inputs.shorten(current, group, number, states, kwargs)
        if changed is None and states is args[0]:
            return None
        others = self._inputs.shorten_others(args[1:], current.find_left(number))
        return (states, *others), kwargs if changed is None else changed

    def _find_past_columns(self, number: int, cache: Any) -> Tensor | None:
        return self._inputs.find_past_columns(self._get_pass(), number, cache)

    def _prune(
        self, current: VisualPass, number: int, states: Tensor, kwargs: dict[str, Any]
    ) -> Tensor:
        """Ask the method what to keep before this block, and shorten the states."""
        earlier = current.find_left(number - 1)
        # With gradient checkpointing this runs again in backward: the choice stands, but merged
        # states must be computed once more, or they would have no gradient.
        if number not in current.kept or self.method.merges:
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.method.merges):
                chosen = self._choose(current, number, states, earlier, kwargs)
            states = chosen if self.method.merges else states
        kept = current.kept[number]
        if kept is None:
            return states
        within = kept if earlier is None else kept.within(earlier, current.length)
        return within.take(states)

    def _drop_merged(self, merger: TowerMerger, current: VisualPass, states: Tensor) -> Tensor:
        """Keep one visual token for each group that was merged in the vision tower."""
        if IN_TOWER not in current.kept:
            tokens = VisualTokens.at(current, None, newlines=True)
            first = merger.mark_first_of_groups(self._calls)
            keep = current.real & (first | current.used)
            tensor_parallel.check_same_on_all_ranks(self._ranks, self.method, keep)
            current.kept[IN_TOWER] = self._keep_where(keep, current, None)
            current.seconds += merger.seconds
            self._write_trace(current, tokens, Choice([]), keep)
        kept = current.kept[IN_TOWER]
        return states if kept is None else kept.take(states)

    def _choose(
        self,
        current: VisualPass,
        number: int,
        states: Tensor,
        earlier: Kept | None,
        kwargs: dict[str, Any],
    ) -> Tensor:
        newlines = self.method.shows_newlines(number, len(self._blocks))
        tokens = VisualTokens.at(current, earlier, newlines)
        if len(tokens.samples) == 0:
            current.kept[number] = None
            return states
        generation = current.generation
        if generation is not None and number in generation.choices:
            keep, states = tokens.apply(generation.choices[number], current, states, earlier)
            current.kept[number] = self._keep_where(keep, current, earlier)
            return states
        answers = Answers(
            functools.partial(
                Probe, current, tokens, self._recorders, number, states.device, self._ranks
            ),
            functools.partial(self._find_upcoming, current, number, states, earlier, kwargs),
        )
        encoded = self._find_encoded(current, tokens, states)
        view = make_view(current, tokens, states, earlier, number, self._facts, answers, encoded)
        begin = time.perf_counter()
        try:
            choice = tensor_parallel.choose_on_all_ranks(self._ranks, self.method, view)
        finally:
            answers.close()
        current.seconds += time.perf_counter() - begin
        if generation is not None:
            generation.choices[number] = choice
        keep, states = tokens.apply(choice, current, states, earlier)
        if number not in current.kept:
            tokens.move(choice, current)
        current.kept[number] = self._keep_where(keep, current, earlier)
        self._write_trace(current, tokens, choice, keep)
        return states

    def _keep_where(self, keep: Tensor, current: VisualPass, earlier: Kept | None) -> Kept | None:
        """The positions that stay; None if nothing was dropped, now or earlier."""
        if earlier is None and bool((keep | ~current.real).all()):
            return None
        return Kept.where(keep)

    def _write_trace(
        self, current: VisualPass, tokens: VisualTokens, choice: Choice, keep: Tensor
    ) -> None:
        stages = self._stages if self._merger is None else (IN_TOWER, *self._stages)
        self.trace = Traces(make_traces(current, tokens, choice, keep, stages, self._facts))

    def _find_encoded(
        self, current: VisualPass, tokens: VisualTokens, states: Tensor
    ) -> VisionOutputs | None:
        if self._reader is None:
            return None
        if current.encodings is None:
            current.encodings = self._reader.take(self._calls)
        if current.entered is not None:
            current.encodings.remember_states(current.entered)
        return current.encodings.show(tokens, states)

    def _find_upcoming(
        self,
        current: VisualPass,
        number: int,
        states: Tensor,
        left: Kept | None,
        kwargs: dict[str, Any],
    ) -> UpcomingBlock:
        """What a stage's block would get if nothing were dropped there."""
        cache = kwargs.get("past_key_values")
        past_columns = functools.partial(self._find_past_columns, number, cache)
        return UpcomingBlock(
            number,
            states,
            left,
            real=current.real if left is None else left.valid,
            past=functools.partial(find_past, cache, number, past_columns),
            positions=functools.partial(
                self._inputs.find_undropped_positions, current, number, states, left, kwargs
            ),
            blocks=self._blocks,
            mask=self._inputs.plan_undropped_mask(current, number, left, kwargs),
        )
