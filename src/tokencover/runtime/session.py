"""Makes a model run a method: hooks that shorten the sequence between decoder blocks.

Nothing of the model is replaced. A hook on the multimodal model learns which positions are visual,
a hook before each block shortens what the block receives, a hook behind the decoder spreads the
result over the original length, so that logits, labels and ``[:, -1]`` keep their meaning.
"""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from tokencover.errors import InputError
from tokencover.methods.base import Choice, Method
from tokencover.runtime.family import Family, Media
from tokencover.runtime.forward_pass import PIXELS, ForwardPass, places_of, tokens_of
from tokencover.runtime.memory import CacheMemory
from tokencover.runtime.probe import Probe, recorders_of
from tokencover.runtime.sequence import Kept
from tokencover.runtime.tower import towers_of
from tokencover.runtime.trace import Trace
from tokencover.runtime.views import VisualTokens, traces_of, view_of

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
        self._groups = self._stages if self._towers is None else (0, *self._stages)
        self._local = threading.local()
        self._recorders = recorders_of(
            method, self._blocks, self._stages, self._current_pass, self._past_columns
        )
        self._passes: Any = WeakIdKeyDictionary()
        self._memories: Any = WeakIdKeyDictionary()
        self._undo: list[Callable[[], object]] = []

    # ---- coming and going -------------------------------------------------------------------

    def install(self) -> None:
        """Put the hooks on the model; all of them, or none if one fails."""
        try:
            self._hook(self._base, self._begin, before=True)
            self._hook(self._base, self._end, always_call=True)
            for number, block in enumerate(self._blocks):
                self._hook(block, functools.partial(self._before_block, number), before=True)
            for number, recorder in self._recorders.items():
                # Compiled code of another block may be run for this one, and skip its inner hooks.
                self._wrap(self._blocks[number], "forward", _uncompiled)
                for watched, hook, before in recorder.hooks():
                    self._hook(watched, hook, before=before)
            for module, hook, before in () if self._towers is None else self._towers.hooks():
                self._hook(module, hook, before=before)
            self._hook(self._decoder, self._after_decoder)
            for name in ("image", "video"):
                self._watch_encoder(name)
            if self.family.deepstack:
                self._wrap(self._decoder, "_deepstack_process", self._deepstack)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Take everything off the model again."""
        while self._undo:
            self._undo.pop()()

    def _hook(
        self, module: nn.Module, hook: Any, before: bool = False, always_call: bool = False
    ) -> None:
        hook = torch.compiler.disable(hook)
        if before:
            handle = module.register_forward_pre_hook(hook, with_kwargs=True)
        else:
            handle = module.register_forward_hook(hook, with_kwargs=True, always_call=always_call)
        self._undo.append(handle.remove)

    def _wrap(self, owner: nn.Module, name: str, around: Callable[..., Any]) -> None:
        """Let `around` see the calls of a module's method, which is its first argument."""
        original = getattr(owner, name)
        wrapped = functools.wraps(original)(functools.partial(around, original))
        own = {name: original} if name in vars(owner) else {}  # accelerate puts some there
        vars(owner)[name] = torch.compiler.disable(wrapped)
        self._undo.append(lambda: (vars(owner).pop(name), vars(owner).update(own)))

    def _watch_encoder(self, name: str) -> None:
        """Remember how pictures were encoded: their grids are known nowhere else."""
        method = f"get_{name}_features"
        if not hasattr(self._base, method):
            return

        def record(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if getattr(self._local, "encoding", False):  # videos may pass through the image encoder
                return original(*args, **kwargs)
            bound = inspect.signature(original).bind(*args, **kwargs)
            setattr(self._local, name, dict(bound.arguments))
            self._local.encoding = True
            try:
                return original(*args, **kwargs)
            finally:
                self._local.encoding = False
                if self._towers is not None:
                    self._towers.remember(name)

        self._wrap(self._base, method, record)

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
        current.prompt = self._words(input_ids, visual) & current.real & ~visual
        self._local.input_ids = input_ids
        for name in ("image", "video"):
            if raw or encoded.get(name) is None:  # the model is going to encode, or there is none
                setattr(self._local, name, None)
                if self._towers is not None:
                    self._towers.forget(name)

    def _end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        current = self._current_pass()
        # Gradient checkpointing will ask a merging method again, when the blocks run backward.
        if current is not None and not (self.method.merges and torch.is_grad_enabled()):
            current.recorded.clear()
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
        group = max((stage for stage in self._groups if stage <= number), default=None)
        current = self._pass_of(kwargs)
        if current is None or group is None:
            return None
        states, cache = args[0], kwargs.get("past_key_values")
        if number == 0 and self._towers is not None and current.visual is not None:
            states = self._drop_merged(current, states)
        if number in self._stages and current.visual is not None:
            states = self._prune(current, number, states)
        kept = current.left_at(number)
        memory = self._memory_of(cache)
        if kept is None and (memory is None or group not in memory):
            return ((states, *args[1:]), kwargs) if states is not args[0] else None
        changed = {**kwargs, "position_ids": self._position_ids(kwargs.get("position_ids"), kept)}
        changed["attention_mask"] = self._mask(current, group, number, states, cache)
        if kept is not None:
            changed["position_embeddings"] = tuple(map(kept.take, kwargs["position_embeddings"]))
        return (states, *args[1:]), changed

    def _position_ids(self, position_ids: Tensor | None, kept: Kept | None) -> Tensor | None:
        """Positions for attentions that scale by them; flash attention would misread the gaps."""
        attention = getattr(self._decoder.config, "_attn_implementation", None)
        if position_ids is None or position_ids.dim() != 2 or "flash" in str(attention):
            return None
        return position_ids if kept is None else kept.take(position_ids)

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

    def _memory_of(self, cache: Any) -> CacheMemory | None:
        if cache is None:
            return None
        if cache not in self._memories:
            self._memories[cache] = CacheMemory(cache)
        memory: CacheMemory = self._memories[cache]
        return memory

    def _past_columns(self, number: int, cache: Any) -> Tensor | None:
        """Which cached columns of a block are real tokens, None if all are."""
        group = max((stage for stage in self._groups if stage <= number), default=None)
        memory, current = self._memory_of(cache), self._current_pass()
        if memory is not None and group is not None and group in memory:
            return memory.columns(group)
        return None if current is None else current.past

    def _mask(
        self, current: ForwardPass, group: int, number: int, states: Tensor, cache: Any
    ) -> Any:
        """The attention mask of a group of blocks, made once per pass and group."""
        if group not in current.masks:
            from transformers.masking_utils import create_causal_mask

            kept = current.left_at(number)
            columns = current.real if kept is None else kept.valid
            memory = self._memory_of(cache)
            if memory is not None:
                memory.forget_if_empty()
                past = memory.columns(group) if group in memory else current.past
                if past is not None:
                    columns = torch.cat([past.to(columns.device), columns], dim=1)
            arguments = {
                "config": self._decoder.config,
                "inputs_embeds": states,
                "attention_mask": columns,
                "past_key_values": cache,
                "layer_idx": number,
            }
            if memory is None:
                current.masks[group] = create_causal_mask(**arguments)
            else:
                with memory.measuring():
                    current.masks[group] = create_causal_mask(**arguments)
                memory.remember(group, columns)
                if number == 0 and kept is not None:
                    memory.pretend_full_length(cache, current.length - kept.index.shape[1])
        mask = current.masks[group]
        return mask.to(states.device) if isinstance(mask, Tensor) else mask

    def _prune(self, current: ForwardPass, number: int, states: Tensor) -> Tensor:
        """Ask the method what to keep before this block, and shorten the states."""
        earlier = current.left_at(number - 1)
        # With gradient checkpointing this runs again in backward: the choice stands, but merged
        # states must be computed once more, or they would have no gradient.
        if number not in current.kept or self.method.merges:
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.method.merges):
                chosen = self._choose(current, number, states, earlier)
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
            self._find_places(current)
            first = self._towers.first_of_groups(self._local.input_ids, self._media())
            keep = current.real & first
            everything = bool((keep == current.real).all()) and not self.always_gather
            current.kept[IN_TOWER] = None if everything else Kept.where(keep)
            tokens = VisualTokens.at(current, None, newlines=True)
            stages, depth = (IN_TOWER, *self._stages), len(self._blocks)
            self.trace = traces_of(current, tokens, Choice([]), keep, stages, depth)
            for each in self.trace:
                each.seconds = self._towers.seconds()
        kept = current.kept[IN_TOWER]
        return states if kept is None else kept.take(states)

    def _choose(
        self, current: ForwardPass, number: int, states: Tensor, earlier: Kept | None
    ) -> Tensor:
        self._find_places(current)
        tokens = VisualTokens.at(current, earlier, self.method.drops_newlines)
        if len(tokens.samples) == 0:
            current.kept[number] = None
            return states
        probe = Probe(current, tokens, self._recorders, states.device)
        view = view_of(current, tokens, states, earlier, number, len(self._blocks), probe)
        begin = time.perf_counter()
        choice: Choice = self.method.choose(view)
        seconds = time.perf_counter() - begin
        keep, states = tokens.apply(choice, current, states, earlier)
        nothing_dropped = bool((keep | ~current.real).all()) and earlier is None
        current.kept[number] = (
            None if nothing_dropped and not self.always_gather else Kept.where(keep)
        )
        stages = self._stages if self._towers is None else (IN_TOWER, *self._stages)
        self.trace = traces_of(current, tokens, choice, keep, stages, len(self._blocks))
        for each in self.trace:
            each.seconds = seconds
        return states

    def _find_places(self, current: ForwardPass) -> None:
        if current.places is None:
            layouts = self.family.layouts(self._media())
            ids = self.family.visual_ids(self._config)
            current.places = places_of(self._local.input_ids, ids, *layouts)

    def _media(self) -> Media:
        images, videos = (getattr(self._local, name, None) for name in ("image", "video"))
        return Media(self._config, images, videos)

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


def _uncompiled(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return original(*args, **kwargs)


def _checked_stages(method: Method, depth: int) -> tuple[int, ...]:
    stages = tuple(method.blocks(depth))
    if list(stages) != sorted(set(stages)) or any(not 0 <= each < depth for each in stages):
        raise InputError(
            f"{type(method).__name__} wants to act before blocks {stages}: they must ascend and "
            f"lie between 0 and {depth - 1} in this model."
        )
    return stages
