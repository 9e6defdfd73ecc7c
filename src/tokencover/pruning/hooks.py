"""Attaches hooks to a model, and removes all of them."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from tokencover.errors import InputError

Result = TypeVar("Result")

_ASIDE: contextvars.ContextVar[bool] = contextvars.ContextVar("aside", default=False)
_OWNERS: Any = WeakIdKeyDictionary()
"""The owner of each module that has hooks."""


class Hooks:
    """Everything that was put on a model; hooks are never compiled.

    Every module with hooks temporarily gets a derived class. Code compiled for the module before is
    made for the former class and does not run, code compiled now does not run afterwards, and
    copies or replicas, which would stay hooked unnoticed, are rejected.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def remove(self) -> None:
        """Remove everything, last things first."""
        while self._undo:
            self._undo.pop()()

    def before(self, module: nn.Module, hook: Any) -> None:
        """Call ``hook(module, args, kwargs)`` before a module's forward."""
        self._claim(module)
        hook = torch.compiler.disable(hook)
        self._undo.append(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

    def after(self, module: nn.Module, hook: Any, always_call: bool = False) -> None:
        """Call ``hook(module, args, kwargs, output)`` after a module's forward."""
        self._claim(module)
        handle = module.register_forward_hook(
            torch.compiler.disable(hook), with_kwargs=True, always_call=always_call
        )
        self._undo.append(handle.remove)

    def around(
        self, owner: nn.Module, name: str, wrapper: Callable[..., Any], *, compiled: bool = False
    ) -> None:
        """Let `wrapper` receive the calls of a module's method, which is its first argument.

        What the method calls is not compiled, unless `compiled`.
        """
        self._claim(owner)
        original = getattr(owner, name)

        @functools.wraps(original)  # a function: torch 2.6 cannot keep a partial from compiling
        def call(*arguments: Any, **settings: Any) -> Any:
            return wrapper(original, *arguments, **settings)

        uncompiled = torch.compiler.disable(call, recursive=not compiled)

        @functools.wraps(original)
        def check_and_call(*arguments: Any, **settings: Any) -> Any:
            reject_recording()
            return uncompiled(*arguments, **settings)

        own = {name: original} if name in vars(owner) else {}  # accelerate puts some there
        vars(owner)[name] = check_and_call
        self._undo.append(lambda: (vars(owner).pop(name), vars(owner).update(own)))

    def enclose(self, module: nn.Module, before: Any, after: Any) -> None:
        """Call hooks before and after a module's forward, which adapters call directly."""
        before, after = torch.compiler.disable(before), torch.compiler.disable(after)

        def run(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            before(module, args, kwargs)
            output = None
            try:
                output = original(*args, **kwargs)
                return output
            finally:
                after(module, args, kwargs, output)

        self.around(module, "forward", run, compiled=True)

    def keep_uncompiled(self, module: nn.Module) -> None:
        """Run a module uncompiled: code compiled for another one may skip its inner hooks."""
        self.around(module, "forward", lambda original, *args, **kwargs: original(*args, **kwargs))

    def _claim(self, module: nn.Module) -> None:
        """Give a module a derived class, unless another model has hooks on it."""
        owner = _OWNERS.get(module)
        if owner is self:
            return
        kind = type(module)
        if owner is not None:
            raise InputError(
                f"This model shares its {kind.__name__} with another one that is pruned now. Exit "
                "that `with` block or call its remove() first."
            )
        try:
            module.__class__ = _derive(kind, (_Quiet, kind))
        except TypeError:  # its first base class is not a module (quanto): only its own layout fits
            module.__class__ = _derive(kind, (kind,))
        _OWNERS[module] = self

        def release() -> None:
            _OWNERS.pop(module, None)
            module.__class__ = kind

        self._undo.append(release)


def _derive(kind: type, bases: tuple[type, ...]) -> type:
    """The class of a module of class `kind` while it has hooks."""
    copied = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    guards = {"__reduce_ex__": _reject_copy, "_replicate_for_data_parallel": _reject_replica}
    return type(kind.__name__, bases, {**copied, **guards})


class _Quiet:
    """Precedes a model's class: its annotations are not read again, as transformers' own does."""

    def __init_subclass__(cls) -> None:
        """Do nothing."""


def _reject_copy(module: nn.Module, protocol: Any) -> Any:
    raise InputError(
        f"This {type(module).__name__} belongs to a model that is being pruned, and a copy would "
        "stay pruned. Copy or pickle it before tc.prune, or after remove()."
    )


def _reject_replica(module: nn.Module) -> Any:
    raise InputError(
        f"This {type(module).__name__} belongs to a model that is being pruned, and DataParallel "
        "needs replicas on several devices, which would share one pruning. Run one process per "
        "device (DistributedDataParallel), or give DataParallel one device."
    )


def reject_recording() -> None:
    """Reject tracing and export: they would record the selection of one prompt for all prompts."""
    is_tracing: bool = torch._C._get_tracing_state() is not None
    if is_tracing or torch.compiler.is_exporting():
        how = "torch.jit.trace" if is_tracing else "torch.export"
        raise InputError(
            f"{how} would record the selection of this prompt for all prompts. Trace or export the "
            "model outside the `with` block of tc.prune."
        )


def run_aside(compute: Callable[[], Result]) -> Result:
    """Run the model's own modules outside of its pass, without gradients.

    Hooks of runs stay quiet, and so do those with which transformers collects ``hidden_states`` and
    ``attentions``: they are armed by context variables, and this context has none.
    """
    context = contextvars.Context()
    context.run(_ASIDE.set, True)
    with torch.no_grad():
        return context.run(compute)


def move_to(module: nn.Module, tensor: Tensor) -> Tensor:
    """A tensor on the device of a module; offloaded modules fetch it themselves."""
    weight = next(module.parameters(), None)
    if weight is None or weight.device.type == "meta":
        return tensor
    return tensor.to(weight.device)


def is_aside() -> bool:
    """Whether modules run for `run_aside` now."""
    return _ASIDE.get()
