"""Putting things on a model, and taking all of them off again."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

Result = TypeVar("Result")

_ASIDE: contextvars.ContextVar[bool] = contextvars.ContextVar("aside", default=False)


class Hooks:
    """Everything that was put on a model; hooks are never compiled."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def remove(self) -> None:
        """Take everything off, last things first."""
        while self._undo:
            self._undo.pop()()

    def before(self, module: nn.Module, hook: Any) -> None:
        """Call ``hook(module, args, kwargs)`` before a module's forward."""
        hook = torch.compiler.disable(hook)
        self._undo.append(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

    def after(self, module: nn.Module, hook: Any, always_call: bool = False) -> None:
        """Call ``hook(module, args, kwargs, output)`` after a module's forward."""
        handle = module.register_forward_hook(
            torch.compiler.disable(hook), with_kwargs=True, always_call=always_call
        )
        self._undo.append(handle.remove)

    def around(self, owner: nn.Module, name: str, wrapper: Callable[..., Any]) -> None:
        """Let `wrapper` see the calls of a module's method, which is its first argument."""
        original = getattr(owner, name)
        wrapped = functools.wraps(original)(functools.partial(wrapper, original))
        own = {name: original} if name in vars(owner) else {}  # accelerate puts some there
        vars(owner)[name] = torch.compiler.disable(wrapped)
        self._undo.append(lambda: (vars(owner).pop(name), vars(owner).update(own)))

    def keep_uncompiled(self, module: nn.Module) -> None:
        """Run a module as it is: code compiled for another one may skip this one's inner hooks."""
        self.around(module, "forward", _call_plainly)


def _call_plainly(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return original(*args, **kwargs)


def run_aside(compute: Callable[[], Result]) -> Result:
    """Run the model's own modules for something that is no part of its pass.

    Hooks of sessions stay quiet, and so do those with which transformers collects
    ``hidden_states`` and ``attentions``: they are armed by context variables, and this context has
    none.
    """
    context = contextvars.Context()
    context.run(_ASIDE.set, True)
    return context.run(compute)


def is_aside() -> bool:
    """Whether modules run for `run_aside` now."""
    return _ASIDE.get()
