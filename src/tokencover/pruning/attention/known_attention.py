"""Attention of a make that we know: its weights can be computed without running it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.families import TextModel, get_text_model
from tokencover.pruning.hooks import move_to, run_aside

KNOWN_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm", "rotary_emb"}
"""Of an attention whose weights are the softmax of scaled products of rotated projections."""

Letter = Literal["q", "k"]
"""Queries or keys."""


class KnownAttention:
    """The queries and keys of one decoder block.

    Parameters
    ----------
    block : nn.Module
        The decoder block; its attention is ``self_attn``.
    name : str
        What messages call it.

    Raises
    ------
    InputError
        If the attention may compute its weights otherwise: wrong rows would go unseen.
    """

    def __init__(self, block: nn.Module, name: str) -> None:
        attention: Any = getattr(block, "self_attn", None)
        _refuse_unknown(name, attention)
        self.name, self.module = name, attention
        self.scaling = float(attention.scaling)
        self.layer: Any = block
        self._rotate: Callable[..., tuple[Tensor, Tensor]] = _find_rotation(self.module)

    def find_last_part(self, letter: Letter) -> nn.Module:
        """The module whose output `finish` makes queries or keys of, not yet rotated.

        Not a norm of heads: some models norm heads before tokens, others tokens before heads.
        """
        norm = self._find_norm(letter)
        bare = norm is None or self._measure(norm) == self.module.head_dim
        found: nn.Module = getattr(self.module, f"{letter}_proj") if bare else norm
        return found

    def finish(self, letter: Letter, recorded: Tensor) -> Tensor:
        """Queries or keys ``(b, m, heads, head_dim)``, from the output of that module."""
        heads, norm = self.split_heads(self._drop_gates(letter, recorded)), self._find_norm(letter)
        if norm is None or self._measure(norm) != self.module.head_dim:
            return heads
        with torch.no_grad():
            found: Tensor = run_aside(lambda: norm(move_to(norm, heads)))
        return found

    def split_heads(self, projected: Tensor) -> Tensor:
        """From ``(b, m, ...)`` to ``(b, m, heads, head_dim)``."""
        return projected.reshape(*projected.shape[:2], -1, self.module.head_dim)

    def norm(self, states: Tensor) -> Tensor:
        """What the block hands to its attention, for states ``(b, m, d)`` that come in."""
        norm = getattr(self.layer, "input_layernorm", None)
        if norm is None:
            raise InputError(
                f"{self.name} cannot be asked before it runs: it has no input_layernorm, so what "
                "its attention will get is not known. Ask for it at a later place, after it ran."
            )
        found: Tensor = norm(move_to(norm, states))
        return found

    def project(self, letter: Letter, normed: Tensor) -> Tensor:
        """Queries or keys ``(b, m, heads, head_dim)`` of normed states ``(b, m, d)``."""
        projection, norm = getattr(self.module, f"{letter}_proj"), self._find_norm(letter)
        wide = self._drop_gates(letter, projection(move_to(projection, normed)))
        if norm is None:
            return self.split_heads(wide)
        width = self._measure(norm)
        if width == self.module.head_dim:
            found: Tensor = norm(self.split_heads(wide))
            return found
        if width == wide.shape[-1]:
            return self.split_heads(norm(wide))
        raise InputError(
            f"{self.name} cannot be asked before it runs: its {letter}_norm has width {width}, "
            f"neither that of a head, {self.module.head_dim}, nor of all, {wide.shape[-1]}. Ask "
            "for it at a later place, after it ran."
        )

    def count_heads(self, letter: Letter, found: int) -> int:
        """Number of heads of the whole layer, `found` if its projection does not say.

        A rank of tensor parallelism computes only some of them.
        """
        width = getattr(getattr(self.module, f"{letter}_proj"), "out_features", None)
        if width is None:
            return found
        size: int = self.module.head_dim * (2 if self._has_gates(letter, width) else 1)
        return int(width) // size

    def _has_gates(self, letter: Letter, width: int) -> bool:
        """Whether each query is projected with a gate after it for the output of its head."""
        output = getattr(self.module, "o_proj", None)
        return letter == "q" and width == 2 * getattr(output, "in_features", 0)

    def _drop_gates(self, letter: Letter, wide: Tensor) -> Tensor:
        """The queries alone."""
        projection = getattr(self.module, f"{letter}_proj")
        if not self._has_gates(letter, getattr(projection, "out_features", wide.shape[-1])):
            return wide
        return self.split_heads(wide)[:, :, ::2].flatten(2)

    def rotate(self, letter: Letter, heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """Queries or keys ``(b, heads, q, head_dim)`` turned by tables ``(b, q, rotated dims)``."""
        if not _rotates(self.module):
            return heads
        none = heads[:, :0]  # of the other kind: the model's own function rotates both at once
        if letter == "q":
            return self._rotate(heads, none, cosines, sines)[0]
        return self._rotate(none, heads, cosines, sines)[1]

    def _measure(self, norm: nn.Module) -> int | None:
        """How many numbers are normed together, None if the norm does not tell."""
        weight = getattr(norm, "weight", None)
        return None if weight is None else int(weight.shape[-1])

    def _find_norm(self, letter: Letter) -> Any:
        norm = getattr(self.module, f"{letter}_norm", None)
        return None if isinstance(norm, nn.Identity) else norm


def _refuse_unknown(block: str, attention: Any) -> None:
    name = type(attention).__name__
    parts = {part for part, _ in attention.named_children()} if attention is not None else set()
    reason = None
    if attention is None or not {"q_proj", "k_proj"} <= parts:
        reason = "it has no self_attn with q_proj and k_proj"
    elif unknown := parts - KNOWN_PARTS:
        reason = f"its {name} has parts that may change the weights: {', '.join(sorted(unknown))}"
    elif own := [part for part, _ in attention.named_parameters(recurse=False)]:
        reason = f"its {name} has weights of its own: {', '.join(own)}"
    elif getattr(attention, "attn_logit_softcapping", None) is not None:
        reason = f"its {name} caps the products before the softmax"
    elif _scales_by_position(attention):
        reason = f"its {name} scales queries by their position"
    elif _get_text_model(attention).hides_rotations and not _rotates(attention):
        reason = f"its {name} is told no rotations"
    elif not hasattr(attention, "scaling") or _find_rotation(attention) is None:
        reason = f"its {name} does not tell its scaling or its rotation"
    if reason is not None:
        raise InputError(
            f"{block} cannot be watched: {reason}. Use a method that needs neither keys nor "
            "attention, for example tc.MoB."
        )


def _scales_by_position(attention: Any) -> bool:
    parameters = getattr(getattr(attention, "config", None), "rope_parameters", None) or {}
    return parameters.get("llama_4_scaling_beta") is not None


def _rotates(attention: Any) -> bool:
    """Whether it rotates at all; that of some models does only where it has windows."""
    if not _get_text_model(attention).rotates_windows_only:
        return True
    if hasattr(attention, "is_sliding"):  # EXAONE 4: in all blocks if none has windows
        return bool(attention.sliding_window is None or attention.is_sliding)
    return attention.sliding_window is not None


def _get_text_model(attention: Any) -> TextModel:
    return get_text_model(getattr(attention, "config", None))


def _find_rotation(attention: Any) -> Any:
    """The function with which the model itself rotates: halves, pairs, or only some dimensions."""
    return getattr(sys.modules[type(attention).__module__], "apply_rotary_pos_emb", None)
