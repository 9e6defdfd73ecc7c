"""Makes a model run a method: hooks that shorten the sequence between decoder blocks.

Nothing of the model is replaced. A hook on the multimodal model learns which positions are visual,
a hook before each block shortens what the block receives, a hook behind the decoder spreads the
result over the original length, so that logits, labels and ``[:, -1]`` keep their meaning.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from tokencover.errors import InputError
from tokencover.methods import Choice, Encoded, Method
from tokencover.runtime.ahead import Upcoming
from tokencover.runtime.block_inputs import BlockInputs
from tokencover.runtime.cost import block_cost
from tokencover.runtime.encoder import Encoder, encoder_of
from tokencover.runtime.encoder_calls import KINDS, EncoderCalls
from tokencover.runtime.family import Family
from tokencover.runtime.forward_pass import PIXELS, ForwardPass, tokens_of
from tokencover.runtime.hooks import Hooks
from tokencover.runtime.probe import Probe
from tokencover.runtime.recording import is_aside, past_of, recorders_of
from tokencover.runtime.renumbering import Renumbering
from tokencover.runtime.sequence import Kept
from tokencover.runtime.tower import Towers, towers_of
from tokencover.runtime.trace import Trace
from tokencover.runtime.views import Decoder, VisualTokens, traces_of, view_of

Words = Callable[[Tensor, Tensor], Tensor]
"""Finds the prompt words: (input_ids, visual mask) -> mask, all ``(b, s)``."""


IN_TOWER = -1
"""In `ForwardPass.kept`, what is left of tokens merged in the vision tower; before all blocks."""


class Session:
    """One method on one model, from `install` to `remove`."""

    def __init__(self, model: nn.Module, family: Family, method: Method, words: Words) -> None:
        self.model, self.family, self.method = model, family, method
        self.trace: list[Trace] = []
        self.always_gather = False
        """Shorten the sequence even if everything is kept; tests compare both ways."""
        self._words = words
        self._config: Any = model.config
        self._base = model.get_submodule(family.base)
        self._decoder = model.get_submodule(family.decoder)
        self._blocks = family.blocks(model)
        self._stages = _checked_stages(method, len(self._blocks))
        self._towers = towers_of(model, family, method)
        self._encoder = encoder_of(model, family, method, self._towers)
        # In this order: what is read from the tower has been spread over its first tokens before.
        self._in_towers: list[Towers | Encoder] = [
            each for each in (self._towers, self._encoder) if each is not None
        ]
        groups = self._stages if self._towers is None else (0, *self._stages)
        renumbering = Renumbering.wanted_by(method, family, self._decoder)
        self._inputs = BlockInputs(self._decoder, groups, renumbering)
        self._calls = EncoderCalls(model, family, self._in_towers)
        self._local = threading.local()
        self._recorders = recorders_of(
            method, self._blocks, self._stages, self._current_pass, self._past_columns
        )
        norm = functools.partial(_normed, self._decoder)
        cost = block_cost(self._blocks, self._decoder.config)
        self._facts = Decoder(len(self._blocks), norm, cost)
        self._passes: Any = WeakIdKeyDictionary()
        self._hooks = Hooks()

    # ---- coming and going -------------------------------------------------------------------

    def install(self) -> None:
        """Put the hooks on the model; all of them, or none if one fails."""
        try:
            self._hooks.before(self._base, self._begin)
            self._hooks.after(self._base, self._end, always_call=True)
            for number, block in enumerate(self._blocks):
                self._hooks.before(block, functools.partial(self._before_block, number))
            for number, recorder in self._recorders.items():
                if number == self._stages[-1]:  # asked about before it runs, and never after
                    continue
                self._hooks.uncompiled(self._blocks[number])
                self._put(recorder.hooks())
            for module, name, wrapper in () if self._towers is None else self._towers.wraps():
                self._hooks.around(module, name, wrapper)
            for each in self._in_towers:
                for block in each.watched():
                    self._hooks.uncompiled(block)
                self._put(each.hooks())
            self._hooks.after(self._decoder, self._after_decoder)
            self._calls.watch(self._hooks)
            if self.family.deepstack:
                self._hooks.around(self._decoder, "_deepstack_process", self._deepstack)
        except BaseException:
            self.remove()
            raise

    def _put(self, hooks: Iterable[tuple[nn.Module, Any, bool]]) -> None:
        """Hooks that go before (else behind) their modules."""
        for module, hook, before in hooks:
            (self._hooks.before if before else self._hooks.after)(module, hook)

    def remove(self) -> None:
        """Take everything off the model again."""
        self._hooks.remove()

    # ---- the multimodal model ---------------------------------------------------------------

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = {**dict(zip(("input_ids",), args, strict=False)), **kwargs}
        input_ids = arguments.get("input_ids")
        if input_ids is None:
            raise InputError(
                "the model was called without input_ids, so nobody knows which positions are "
                "visual: pass input_ids instead of inputs_embeds while pruning."
            )
        cache = arguments.get("past_key_values")
        cached = 0 if cache is None else int(cache.get_seq_length())
        real, past = tokens_of(arguments, cached)
        current = ForwardPass(real, past)
        encoded = arguments.get("mm_encoder_outputs") or {}
        raw = [name for name in PIXELS if arguments.get(name) is not None]
        if raw or any(value is not None for value in encoded.values()):
            self._find_visual(current, input_ids, encoded, bool(raw))
        self._local.current = current

    def _find_visual(
        self, current: ForwardPass, input_ids: Tensor, encoded: dict[str, Any], raw: bool
    ) -> None:
        ids = torch.tensor(self.family.visual_ids(self._config), device=input_ids.device)
        visual = torch.isin(input_ids, ids) & current.real
        if not bool(visual.any()):
            return
        current.visual = visual
        words = self._words(input_ids, visual) if self.method.reads_prompt else ~current.real
        current.prompt = words & current.real & ~visual
        # If there are pixels, the model is going to encode them.
        known = [] if raw else [name for name in encoded if encoded[name] is not None]
        self._calls.begin(input_ids, known)

    def _end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        current = self._current_pass()
        # Gradient checkpointing will ask a merging method again, when the blocks run backward.
        if current is not None and not (self.method.merges and torch.is_grad_enabled()):
            current.recorded.clear()
            current.encodings = None
        if current is not None and current.visual is not None and self._encoder is not None:
            for kind in KINDS:
                self._encoder.forget(kind)
        self._local.current = None

    def _current_pass(self) -> ForwardPass | None:
        current: ForwardPass | None = getattr(self._local, "current", None)
        return current

    def _after_decoder(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        current: ForwardPass | None = getattr(self._local, "current", None)
        kept = current and current.left_at(len(self._blocks))
        if not current or not kept:
            return output
        if isinstance(output, tuple):
            return (kept.put_back(output[0], current.length), *output[1:])
        output.last_hidden_state = kept.put_back(output.last_hidden_state, current.length)
        return output

    # ---- the decoder's blocks ---------------------------------------------------------------

    def _before_block(
        self, number: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        current = None if is_aside() else self._pass_of(kwargs)
        if current is None or self._inputs.group_of(number) is None:
            return None
        states = args[0]
        if number == 0 and self._towers is not None and current.visual is not None:
            states = self._drop_merged(current, states)
        if number in self._stages and current.visual is not None:
            states = self._prune(current, number, states, kwargs)
        changed = self._inputs.as_shortened(current, number, states, kwargs)
        if changed is None and states is args[0]:
            return None
        return (states, *args[1:]), kwargs if changed is None else changed

    def _pass_of(self, kwargs: dict[str, Any]) -> ForwardPass | None:
        """The pass a block call belongs to.

        With gradient checkpointing a block runs again during backward, when another pass may be
        under way; the rotation table it is handed is still the one of its own pass.
        """
        rotation = kwargs["position_embeddings"][0]
        if rotation not in self._passes:
            current = getattr(self._local, "current", None)
            if current is None:
                return None
            self._passes[rotation] = current
        found: ForwardPass = self._passes[rotation]
        return found

    def _past_columns(self, number: int, cache: Any) -> Tensor | None:
        return self._inputs.past_columns(self._current_pass(), number, cache)

    def _prune(
        self, current: ForwardPass, number: int, states: Tensor, kwargs: dict[str, Any]
    ) -> Tensor:
        """Ask the method what to keep before this block, and shorten the states."""
        earlier = current.left_at(number - 1)
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

    def _drop_merged(self, current: ForwardPass, states: Tensor) -> Tensor:
        """Keep one visual token for each group that was merged in the vision tower."""
        if IN_TOWER not in current.kept:
            assert self._towers is not None
            current.places = self._calls.places()
            first = self._towers.first_of_groups(self._calls.input_ids, self._calls.media())
            keep = current.real & first
            everything = bool((keep == current.real).all()) and not self.always_gather
            current.kept[IN_TOWER] = None if everything else Kept.where(keep)
            tokens = VisualTokens.at(current, None, newlines=True)
            stages = (IN_TOWER, *self._stages)
            self.trace = traces_of(current, tokens, Choice([]), keep, stages, self._facts)
            current.seconds += self._towers.seconds()
            for each in self.trace:
                each.seconds = current.seconds
        kept = current.kept[IN_TOWER]
        return states if kept is None else kept.take(states)

    def _choose(
        self,
        current: ForwardPass,
        number: int,
        states: Tensor,
        earlier: Kept | None,
        kwargs: dict[str, Any],
    ) -> Tensor:
        current.places = current.places or self._calls.places()
        newlines = self.method.shows_newlines(number, len(self._blocks))
        tokens = VisualTokens.at(current, earlier, newlines)
        if len(tokens.samples) == 0:
            current.kept[number] = None
            return states
        upcoming = self._upcoming(current, number, states, earlier, kwargs)
        probe = Probe(current, tokens, self._recorders, upcoming)
        encoded = self._encoded(current, tokens, states)
        view = view_of(current, tokens, states, earlier, number, self._facts, probe, encoded)
        begin = time.perf_counter()
        try:
            choice: Choice = self.method.choose(view)
        finally:
            probe.close()
        current.seconds += time.perf_counter() - begin
        keep, states = tokens.apply(choice, current, states, earlier)
        if number not in current.kept:
            tokens.move(choice, current)
        nothing_dropped = bool((keep | ~current.real).all()) and earlier is None
        current.kept[number] = (
            None if nothing_dropped and not self.always_gather else Kept.where(keep)
        )
        stages = self._stages if self._towers is None else (IN_TOWER, *self._stages)
        self.trace = traces_of(current, tokens, choice, keep, stages, self._facts)
        for each in self.trace:
            each.seconds = current.seconds
        return states

    def _encoded(
        self, current: ForwardPass, tokens: VisualTokens, states: Tensor
    ) -> Encoded | None:
        if self._encoder is None:
            return None
        if current.encodings is None:
            current.encodings = self._encoder.take(self._calls.input_ids, self._calls.media())
        return current.encodings.shown(tokens, states)

    def _upcoming(
        self,
        current: ForwardPass,
        number: int,
        states: Tensor,
        left: Kept | None,
        kwargs: dict[str, Any],
    ) -> Upcoming:
        """What a stage's block would get if nothing were dropped there."""
        cache = kwargs.get("past_key_values")
        past_columns = functools.partial(self._past_columns, number, cache)
        return Upcoming(
            number,
            states,
            left,
            real=current.real if left is None else left.valid,
            past=functools.partial(past_of, cache, number, past_columns),
            positions=functools.partial(
                self._inputs.undropped_positions, current, number, states, left, kwargs
            ),
            blocks=self._blocks,
        )

    def _deepstack(
        self, original: Callable[..., Tensor], states: Tensor, positions: Tensor, features: Tensor
    ) -> Tensor:
        """Add visual features after an early block to those tokens that are left."""
        current: ForwardPass | None = getattr(self._local, "current", None)
        kept = current and current.left_at(len(self._blocks))
        if not current or not kept or states.shape[1] == current.length:
            return original(states, positions, features)
        spread = features.new_zeros(*positions.shape, features.shape[-1])
        spread[positions.to(features.device)] = features
        left = kept.take(positions.to(kept.index.device)) & kept.valid
        return original(states, left, kept.take(spread)[left.to(features.device)])


def _normed(decoder: Any, states: Tensor) -> Tensor:
    normed: Tensor = decoder.norm(states)
    return normed


def _checked_stages(method: Method, depth: int) -> tuple[int, ...]:
    stages = tuple(method.blocks(depth))
    if list(stages) != sorted(set(stages)) or any(not 0 <= each < depth for each in stages):
        raise InputError(
            f"{type(method).__name__} wants to act before blocks {stages}: they must ascend and "
            f"lie between 0 and {depth - 1} in this model."
        )
    return stages
