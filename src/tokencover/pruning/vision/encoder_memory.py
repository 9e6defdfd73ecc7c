"""A cache of image features, shared by questions about one image and by methods.

Methods that read the vision encoder also get what was recorded there.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from tokencover.families import Family, family_of
from tokencover.pruning.passes import PIXELS
from tokencover.pruning.vision.encoder_calls import KINDS
from tokencover.pruning.vision.encoder_reader import Recording, VisionReader

ROOM: Final = 2 << 30
"""Bytes of features that are kept."""
UNUSED: Final = ("hidden_states", "attentions")
"""Outputs of encoders that no model reads, though they are many times as large as features."""


class EncoderMemory:
    """Caches what the encoders of a model returned, while it is attached.

    Where every image is encoded independently (`Family.encodes_singly`), images are cached and
    encoded one by one. In all other families whole calls are cached. `room` is in bytes; when it is
    full, nothing is evicted, since evaluations loop over the same images. The model's weights must
    not change meanwhile.
    """

    def __init__(self, model: nn.Module, room: int = ROOM) -> None:
        self._family: Family = family_of(model)
        self._base = model.get_submodule(self._family.base)
        self._room = room
        self._found: dict[bytes, _Encoded] = {}
        self._idle = False
        self._reader: VisionReader | None = None
        self.encoded = self.recalled = 0

    @contextmanager
    def attach(self) -> Iterator[None]:
        """Wrap the encoders; hooks of a method go around this and observe every call."""
        names = [f"get_{kind}_features" for kind in KINDS]
        wrapped = [name for name in names if hasattr(self._base, name)]
        before = {name: vars(self._base)[name] for name in wrapped if name in vars(self._base)}
        for name in wrapped:
            original = getattr(self._base, name)
            recall = functools.wraps(original)(functools.partial(self._recall, name, original))
            vars(self._base)[name] = torch.compiler.disable(recall, recursive=False)
        try:
            yield
        finally:
            for name in wrapped:
                del vars(self._base)[name]
            vars(self._base).update(before)
            self._found.clear()

    @contextmanager
    def serve(self, reader: VisionReader | None) -> Iterator[None]:
        """Serve a run whose method reads the vision encoder, or leaves it alone (None)."""
        self._reader = reader
        try:
            yield
        finally:
            self._reader = None

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Let the encoders run: something changes or measures them."""
        self._idle = True
        try:
            yield
        finally:
            self._idle = False

    def _recall(self, name: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._idle or torch.is_grad_enabled():
            return original(*args, **kwargs)
        arguments = inspect.signature(original).bind(*args, **kwargs).arguments
        arguments.update(arguments.pop("kwargs", {}))
        pixels = next((each for each in PIXELS if isinstance(arguments.get(each), Tensor)), None)
        if pixels is None:
            return original(*args, **kwargs)
        others = {key: value for key, value in arguments.items() if key != pixels}
        parts = [arguments]
        if self._family.encodes_singly and not any(map(_has_tensor, others.values())):
            parts = [{**others, pixels: one} for one in arguments[pixels].split(1)]
        found = [self._encode(name, original, part) for part in parts]
        if self._reader is not None:
            self._reader.set_latest([each.recording for each in found])
        return _join([each.output for each in found])

    def _encode(
        self, name: str, original: Callable[..., Any], arguments: dict[str, Any]
    ) -> _Encoded:
        read = "" if self._reader is None else f"{self._reader.blocks}"
        key = _make_key(f"{name} {read}", arguments)
        if key is not None and key in self._found:
            self.recalled += 1
            return self._found[key]
        self.encoded += 1
        output = _drop_unused(original(**arguments))
        found = _Encoded(output, None if self._reader is None else self._reader.get_latest())
        size = found.count_bytes()
        if key is not None and size <= self._room:
            self._room -= size
            self._found[key] = found
        return found


@dataclass(frozen=True, slots=True)
class _Encoded:
    """The output of an encoder, and the recording of that call."""

    output: Any
    recording: Recording | None

    def count_bytes(self) -> int:
        """Its size in memory."""
        read = self.recording
        if read is None:
            return _count_bytes(self.output)
        outputs = [value for each in read.blocks.values() for value in each.outputs.values()]
        return _count_bytes([self.output, read.features, *outputs])


def _make_key(name: str, arguments: Mapping[str, Any]) -> bytes | None:
    """A digest of all argument values; None if some have no digest."""
    digest = hashlib.blake2b(name.encode(), digest_size=20)
    for key in sorted(arguments):
        value = arguments[key]
        if isinstance(value, Tensor):
            digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
            flat = value.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().data)
        elif value is None or isinstance(value, bool | int | float | str | list | tuple):
            if _has_tensor(value):
                return None
            digest.update(f"{key} {value!r}".encode())
        else:
            return None
    return digest.digest()


def _has_tensor(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_tensor, value))
    return isinstance(value, Tensor)


def _drop_unused(output: Any) -> Any:
    """The output without what no model reads."""
    return _rebuild(output, dict.fromkeys(UNUSED)) if is_dataclass(output) else output


def _rebuild(output: Any, changes: Mapping[str, Any]) -> Any:
    """A copy of an encoder's output with changed values; extra attributes stay."""
    values = {**vars(output), **{key: changes[key] for key in changes if key in vars(output)}}
    names = [each.name for each in fields(output)]
    copy = type(output)(**{name: values[name] for name in names})
    vars(copy).update(values)
    return copy


def _count_bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if is_dataclass(value):
        return sum(map(_count_bytes, vars(value).values()))
    return sum(map(_count_bytes, value)) if isinstance(value, list | tuple) else 0


def _join(outputs: list[Any]) -> Any:
    """Join the outputs of single images. The result is always a copy: the model may modify it."""
    first = outputs[0]
    if not is_dataclass(first):
        return list(first) if isinstance(first, list) else first
    return _rebuild(
        first, {name: _join_values([vars(each)[name] for each in outputs]) for name in vars(first)}
    )


def _join_values(values: list[Any]) -> Any:
    if len(values) == 1 or values[0] is None:
        return values[0]
    if isinstance(values[0], Tensor):
        return torch.cat(values)
    return [each for value in values for each in value]
