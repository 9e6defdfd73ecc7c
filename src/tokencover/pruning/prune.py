"""`tc.prune`: makes a model run a method.

Nothing of the model is replaced. A hook on the multimodal model locates the visual tokens, a hook
before each decoder layer shortens its inputs, a hook after the decoder spreads the result over the
original length, so logits, labels and ``[:, -1]`` keep their meaning.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from html import escape
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from tokencover.budget import Budget
from tokencover.errors import InputError
from tokencover.families import Family, family_of, needs_own_masks
from tokencover.methods import Method, make_method, parse_method
from tokencover.pruning.attention.reader import AttentionReader, Recorder, Upcoming, build_recorders
from tokencover.pruning.call_inputs import GivenMask, PassReader, PromptSelector
from tokencover.pruning.decoder.cache import Pruning
from tokencover.pruning.decoder.layers import (
    LayerInputs,
    check_layers,
    get_argument,
    keep_positions,
    resolve_stages,
)
from tokencover.pruning.hooks import Hooks, is_aside
from tokencover.pruning.internals import check_internals, warn_of_newer_versions
from tokencover.pruning.passes import CallState, ModelCalls, Pass, RerunPasses, runs_backward
from tokencover.pruning.prompt import resolve_prompt_selector
from tokencover.pruning.selection import Decoder, Selector, VisualTokens
from tokencover.pruning.tensor_parallel import get_tensor_parallel_group
from tokencover.pruning.trace import Trace
from tokencover.pruning.vision.encoder_calls import EncoderCalls, guess_vision_encoder
from tokencover.pruning.vision.encoder_memory import EncoderMemory
from tokencover.pruning.vision.encoder_reader import VisionReader
from tokencover.pruning.vision.merger import VisionMerger

CUT_SHARED = "_maybe_slice_kv_shared_inputs"
"""Where Gemma 4 cuts its inputs to the last tokens, before layers that share earlier keys."""

_pruned: Any = WeakIdKeyDictionary()


class Run:
    """A method running on a model: a context manager, or a handle with `remove`.

    What only some methods need (merging in the vision encoder, reading it, recording layers) is
    built for those alone.
    """

    def __init__(
        self,
        model: nn.Module,
        family: Family,
        method: Method,
        selector: PromptSelector | GivenMask,
        visual: GivenMask | None = None,
    ) -> None:
        own_masks = needs_own_masks(family, model)
        method = keep_positions(method, family, own_masks)
        self._model, self._family, self._method = model, family, method
        self._base = model.get_submodule(family.base)
        self._decoder = model.get_submodule(family.decoder)
        self._layers = family.layers(model)
        check_internals()
        warn_of_newer_versions()
        check_layers(self._layers, self._decoder.config)
        self._ranks = get_tensor_parallel_group(model)
        self._stages = resolve_stages(method, self._layers)
        self._state = CallState()
        self._build_vision_parts()
        groups = self._stages if self._merger is None else (0, *self._stages)
        pruning = Pruning(groups, method.positions, own_masks)
        self._inputs = LayerInputs(self._decoder, pruning, family.token_arguments)
        # Merging first: what is read is spread over the encoder's first tokens before.
        self._listeners = [each for each in (self._merger, self._reader) if each is not None]
        calls = EncoderCalls(model, family, self._listeners, self._state)
        self._encoder_calls, self._calls = calls, ModelCalls(model, self._state)
        self._pass_reader = PassReader(
            model, family, method, selector, visual, calls, self._calls, self._state
        )
        self._recorders: dict[int, Recorder] = {}
        if len(method.watched_layers(len(self._layers))):
            self._recorders = build_recorders(
                method, self._layers, self._stages, self._state, self._inputs
            )
        norm = self._decoder.get_submodule(family.norm)
        self._selector = Selector(
            method,
            Decoder(self._layers, self._decoder.config, norm),
            self._stages,
            self._read_attention,
            calls,
            self._merger,
            self._reader,
            self._ranks,
        )
        self._rerun = RerunPasses()
        self._hooks = Hooks()

    def _build_vision_parts(self) -> None:
        """Build what acts in the vision encoder, if the method does."""
        model, family, method = self._model, self._family, self._method
        self._merger: VisionMerger | None = None
        self._reader: VisionReader | None = None
        encoder = guess_vision_encoder(model.config)
        if len(method.vision_blocks(*encoder)):
            self._merger = VisionMerger(model, family, method, self._state)
        if method.watched_vision_blocks(*encoder) is not None:
            self._reader = VisionReader(model, family, method, self._merger, self._state)

    # ---- what users call ---------------------------------------------------------------------

    @property
    def trace(self) -> list[Trace]:
        """What was kept of each sample of the latest prompt that had visual tokens.

        It is empty before that; ``trace[0]`` then raises an error that says so.
        """
        return self._selector.trace

    def recall_with(self, memory: EncoderMemory) -> AbstractContextManager[None]:
        """Let an attached cache of image features serve this run meanwhile.

        The vision encoder runs nevertheless if the method acts in it.
        """
        reader = self._reader
        if self._merger is not None or (reader is not None and not reader.is_recalled):
            return memory.pause()
        return memory.serve(reader)

    def hold(self) -> AbstractContextManager[None]:
        """Reuse the selection of the first call for all later calls without a KV cache.

        A custom decoding loop with ``use_cache=False`` recomputes the whole sequence at every step,
        so a method that reads the last token would select different tokens each time. Inside this
        context, every call keeps the tokens selected by the first one, as `generate` does
        automatically.

        Examples
        --------
        >>> with tc.prune(model, tc.FastV(64)) as run, run.hold():          # doctest: +SKIP
        ...     for _ in range(32):
        ...         logits = model(**inputs, use_cache=False).logits
        """
        return self._calls.hold()

    def remove(self) -> None:
        """Restore the model. Calling it again does nothing."""
        self._end()  # an interrupt ends a pass without its hook
        self._hooks.remove()
        _pruned.pop(self._model, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"Run({self._method!r} on {type(self._model).__name__}, {self._family.name})"

    def _repr_html_(self) -> str:
        shown = "".join(each._repr_html_() for each in self.trace) or "<div>nothing yet</div>"
        return f"<div><div>{escape(repr(self))}</div>{shown}</div>"

    # ---- hooks -------------------------------------------------------------------------------

    def _install(self) -> None:
        """Attach all hooks to the model, or none if one fails."""
        try:
            self._install_calls()
            self._install_layers()
            self._install_vision()
            self._hooks.after(self._decoder, self._after_decoder)
            self._encoder_calls.watch(self._hooks)
            if hasattr(self._decoder, CUT_SHARED):
                cut = functools.partial(self._inputs.cut_shared, self._state)
                self._hooks.around(self._decoder, CUT_SHARED, cut)
        except BaseException:
            self.remove()
            raise
        _pruned[self._model] = self

    def _install_calls(self) -> None:
        self._calls.watch(self._hooks)
        if self._base is self._model:
            self._hooks.enclose(self._base, self._begin, self._end)
        else:
            self._hooks.before(self._base, self._begin)
            self._hooks.after(self._base, self._end, always_call=True)

    def _install_layers(self) -> None:
        for layer_idx, layer in enumerate(self._layers):
            self._hooks.before(layer, functools.partial(self._enter_layer, layer_idx))
        self._family.install(self._model, self._hooks, self._get_running)
        for layer_idx, layer in enumerate(self._layers):
            self._hooks.before(layer, functools.partial(self._before_layer, layer_idx))
        for layer_idx, recorder in self._recorders.items():
            if layer_idx == self._stages[-1]:  # read before it runs, and never after
                continue
            self._hooks.keep_uncompiled(self._layers[layer_idx])
            self._attach(recorder.list_hooks())

    def _install_vision(self) -> None:
        for module, name, wrapper in () if self._merger is None else self._merger.list_wraps():
            self._hooks.around(module, name, wrapper)
        for each in self._listeners:
            for block in each.list_watched():
                self._hooks.keep_uncompiled(block)
            self._attach(each.list_hooks())

    def _attach(self, hooks: Iterable[tuple[nn.Module, Any, bool]]) -> None:
        """Attach hooks that run before (else after) their modules."""
        for module, hook, before in hooks:
            (self._hooks.before if before else self._hooks.after)(module, hook)

    # ---- one pass ----------------------------------------------------------------------------

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = {**dict(zip(("input_ids",), args, strict=False)), **kwargs}
        self._state.current = self._pass_reader.read(arguments)

    def _end(self, *call: Any) -> None:
        # Gradient checkpointing calls a merging method again, when layers run backward.
        self._state.end_pass(keeps_inputs=self._method.merges and torch.is_grad_enabled())

    def _get_running(self) -> Pass | None:
        """The pass under way, or the one whose layer gradient checkpointing runs again."""
        if is_aside():
            return None
        is_rerun = self._state.is_rerun and runs_backward()
        return self._state.current or (self._get_entered() if is_rerun else None)

    def _get_entered(self) -> Pass | None:
        """The pass of the layer that began last, None if it belongs to none."""
        return None if self._state.entered is None else self._state.entered()

    def _after_decoder(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        current = self._state.current
        kept = current and current.find_kept(len(self._layers))
        if not current or not kept:
            return output
        states = output[0] if isinstance(output, tuple) else output.last_hidden_state
        if states.shape[1] != kept.index.shape[1]:  # Gemma 4 cut off all but the last tokens
            return output
        if isinstance(output, tuple):
            return (kept.put_back(output[0], current.length), *output[1:])
        output.last_hidden_state = kept.put_back(output.last_hidden_state, current.length)
        return output

    def _enter_layer(self, layer_idx: int, module: nn.Module, args: Any, kwargs: Any) -> None:
        if is_aside():
            return
        rotation = get_argument(kwargs, "position_embeddings", module)
        current = self._rerun.find_pass(self._state.current, layer_idx, args[0], rotation)
        self._state.entered = None if current is None else weakref.ref(current)
        # Since transformers 5.23, checkpointing runs no hooks of layers again, only inner ones.
        self._state.is_rerun = runs_backward()

    def _before_layer(
        self, layer_idx: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        current = None if is_aside() else self._get_entered()
        if current is None or (current.cut_from is not None and layer_idx >= current.cut_from):
            return None
        current.layer_idx, current.cache = layer_idx, kwargs.get("past_key_values")
        self._inputs.announce(layer_idx, current.cache)
        states = args[0]
        if current.tokens.has_visual:
            if layer_idx == 0 and self._reader is not None and self._reader.merges_spatially:
                current.entered = states if self._method.merges else states.detach()
            states = self._selector.prune(current, layer_idx, states, kwargs)
        changed = self._inputs.shorten(current, layer_idx, states, kwargs)
        if changed is None and states is args[0]:
            return None
        others = self._inputs.shorten_others(args[1:], current.find_kept(layer_idx))
        return (states, *others), kwargs if changed is None else changed

    def _read_attention(
        self, current: Pass, tokens: VisualTokens, upcoming: Upcoming
    ) -> AttentionReader:
        """The answers to what a method asks about attention before a layer."""
        return AttentionReader(
            current, tokens, upcoming, self._recorders, self._inputs, self._layers, self._ranks
        )


def prune(
    model: nn.Module,
    method: Method | str,
    *,
    budget: Budget | None = None,
    prompt: Tensor | str | Sequence[str] | PromptSelector | None = None,
    processor: Any = None,
    visual: Tensor | None = None,
) -> Run:
    """Make a model drop visual tokens, until the `with` block ends or `remove` is called.

    Parameters
    ----------
    model : PreTrainedModel
        A supported vision-language model, as ``from_pretrained`` returns it, or a PEFT model around
        one.
    method : Method or str
        What to keep, for example ``tc.MoB(budget=64)``, or a name as on the command line:
        ``"mob"``, ``"fastv:after=3"``.
    budget : int or float, optional
        With a name: K, a number of visual tokens, or a fraction of them.
    prompt : Tensor, str, list of str or callable, optional
        What counts as the prompt: a mask ``(batch, length)`` over ``input_ids``, such as
        ``inputs.prompt_mask`` of `tc.make_inputs`; a text that is part of it; or a callable that
        computes such a mask from ``input_ids`` and the mask of visual positions. By default the
        text of the last user turn, located by the chat template of the model's tokenizer.
    processor : processor or tokenizer, optional
        Source of the chat template; by default the tokenizer saved with the model's weights.
    visual : Tensor, optional
        Which positions are visual, a mask ``(batch, length)``, for calls with ``inputs_embeds``
        instead of ``input_ids``. Grid locations are unknown then: every run of visual positions
        counts as an image of one row.

    Examples
    --------
    >>> with tc.prune(model, tc.MoB(budget=64)) as run:          # doctest: +SKIP
    ...     answer = model.generate(**inputs, max_new_tokens=32)
    >>> run.trace[0].prompt_centers                              # doctest: +SKIP
    """
    # The model inside PEFT's wrapper, whose adapters are in its modules.
    get_base_model = getattr(model, "get_base_model", None)
    if isinstance(model, nn.Module) and get_base_model:
        model = get_base_model()
    family = family_of(model)
    method = _resolve_method(method, budget)
    if model in _pruned:
        raise InputError(
            f"This model is already pruned by {_pruned[model]!r}. Exit that `with` block or call "
            "its remove() first."
        )
    if isinstance(prompt, Tensor):
        selector: PromptSelector | GivenMask = GivenMask(prompt)
    else:
        selector = resolve_prompt_selector(model, prompt, processor)
    run = Run(
        model, family, method, selector, None if visual is None else GivenMask(visual, "visual")
    )
    run._install()
    return run


def _resolve_method(method: Method | str, budget: Budget | None) -> Method:
    """The method itself, or the one with this name and budget."""
    if isinstance(method, str):
        spec = parse_method(method)
        return make_method(spec if budget is None else {**spec, "budget": budget})
    if not isinstance(method, Method):
        raise InputError(
            "method must be a method such as tc.MoB(budget=64) or a name such as 'mob', got "
            f"{method!r}."
        )
    if budget is not None:
        raise InputError(
            f"budget={budget} goes with the name of a method. Set it in the method instead: "
            f"tc.{type(method).__name__}(budget={budget})."
        )
    return method
