"""Models by name."""

from __future__ import annotations

import os
from typing import Any

import torch

from tokencover.errors import InputError
from tokencover.pebble.loader import SHIPPED, load_pebble


def load(name: str, *, device: str | None = None, dtype: str | None = None) -> tuple[Any, Any]:
    """Load a model and its processor, ready to answer.

    Parameters
    ----------
    name : str
        "pebble" for the bundled model, else a folder or a hub name.
    device : str, optional
        Where to run, "auto" for all GPUs; by default this process's GPU, or else the CPU.
    dtype : str, optional
        Of the weights, "bfloat16" say; by default that of the files.
    """
    options: dict[str, Any] = {}
    if dtype not in (None, "auto"):
        if not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise InputError(
                f"torch has no dtype {dtype!r}; it has float32, bfloat16, float16, ..."
            )
        options["dtype"] = dtype
    if device == "auto":
        options["device_map"] = "auto"
    model, processor = _from_pretrained(name, options)
    if device is None and torch.cuda.is_available():
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    if device not in (None, "auto"):
        try:
            model.to(device)
        except (RuntimeError, AssertionError) as error:  # torch's own, of which there are many
            raise InputError(
                f"the model cannot be moved to device {device!r}: {error}. Give --device cpu, or "
                "--dtype bfloat16 if it is too large."
            ) from error
    return model.eval(), processor


def _from_pretrained(name: str, options: dict[str, Any]) -> tuple[Any, Any]:
    if name == "pebble" and not options:
        return load_pebble()
    from transformers import AutoModelForImageTextToText, AutoProcessor

    source = SHIPPED if name == "pebble" else name
    try:
        model = AutoModelForImageTextToText.from_pretrained(source, **options)
        return model, AutoProcessor.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise InputError(
            f"the model {name!r} cannot be loaded: {error} Give 'pebble', a folder or a hub name."
        ) from error
