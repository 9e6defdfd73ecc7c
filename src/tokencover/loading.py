"""Models by name."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import torch
from safetensors import SafetensorError

from tokencover.boulder import load_boulder, load_boulder_processor
from tokencover.errors import InputError, LoadError, MissingPackageError
from tokencover.extras import get_install_command
from tokencover.pebble import CLIP_CHECKPOINT, PICTURE_CHECKPOINT, load_pebble, load_pebble_clips

BUNDLED: Final = {"pebble": PICTURE_CHECKPOINT, "pebble-clips": CLIP_CHECKPOINT}
"""Models that come with tokencover, and where they lie."""
BOULDER: Final = "boulder"
"""The model that is put together when it is loaded: half of it is in another package."""
NAMES: Final = (*BUNDLED, BOULDER)
VISION_PACKAGES: Final = ("torchvision", "num2words")
"""What some processors of transformers need and others do not: the extra `vision`."""
PROXIES: Final = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def load(name: str, *, device: str | None = None, dtype: str | None = None) -> tuple[Any, Any]:
    """Load a model and its processor, ready to answer.

    Parameters
    ----------
    name : str
        "pebble" or "pebble-clips" for the bundled models, "boulder" for the one whose decoder is in
        another package (see `load_boulder`), else a folder or a hub name.
    device : str, optional
        Where to run, "auto" for all GPUs; by default this process's GPU, or else the CPU.
    dtype : str, optional
        Of the weights, for example "bfloat16"; by default that of the files.
    """
    options: dict[str, Any] = {}
    if dtype not in (None, "auto"):
        if not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise InputError(
                f"torch has no dtype {dtype!r}; it has float32, bfloat16, float16, ..."
            )
        options["dtype"] = getattr(torch, dtype)
    if device == "auto":
        options["device_map"] = "auto"
    _check_place(name)
    if name == BOULDER:
        model, processor = load_boulder()
        model.to(options.get("dtype", model.dtype))
        device = None if device == "auto" else device
    else:
        model, processor = _load_pair(name, options)
    if device is None and torch.cuda.is_available():
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    if device not in (None, "auto"):
        try:
            model.to(device)
        except (RuntimeError, AssertionError) as error:  # torch's own, of which there are many
            is_full = isinstance(error, torch.OutOfMemoryError)
            raise (LoadError if is_full else InputError)(
                f"the model cannot be moved to device {device!r}: {error}. Give --device cpu, or "
                "--dtype bfloat16 if it is too large."
            ) from error
    return model.eval(), processor


def load_processor(name: str) -> Any:
    """Load a model's processor alone, which is small; see `load` for the name."""
    if name == BOULDER:
        return load_boulder_processor()
    _check_place(name)
    return _load_parts(name, _find_source(name), lambda source, processor: processor)


def load_config(name: str) -> Any:
    """Load the configuration of a model in a folder or on the hub, which says its type."""
    from transformers import AutoConfig

    _check_place(name)
    source = _find_source(name)
    with _explain_errors(name, source):
        return AutoConfig.from_pretrained(source)


def _check_place(name: str) -> None:
    """Refuse a folder that is not there at once: the hub would be asked for it, again and again.

    A name of the hub is ``owner/model``; anything else is a folder, and so is that if there is a
    folder called like the owner.
    """
    if not name.strip():
        raise InputError(
            f"the model name is empty. Give {', '.join(map(repr, NAMES))}, a folder or a hub name."
        )
    if name in NAMES or Path(name).expanduser().is_dir():
        return
    owner, slash, rest = name.partition("/")
    is_hub_name = (
        slash and rest and not set(rest) & {"/", "\\"} and owner not in ("", ".", "..", "~")
    )
    if is_hub_name and not Path(owner).is_dir():
        _check_hub(name)
        return
    if Path(name).is_file():
        raise InputError(f"the model {name!r} cannot be loaded: it is a file, give its folder.")
    bundled = ", ".join(map(repr, NAMES))
    raise InputError(
        f"the model {name!r} cannot be loaded: there is no such folder. Give {bundled}, a folder, "
        "or a hub name like 'llava-hf/llava-1.5-7b-hf'."
    )


def _check_hub(name: str) -> None:
    """Refuse a hub name at once if it is not in the cache and the hub has no address here.

    Asking for it would be tried again and again. Behind a proxy addresses mean nothing.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    if constants.HF_HUB_OFFLINE or any(os.environ.get(each) for each in PROXIES):
        return
    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    host = urlsplit(constants.ENDPOINT).hostname
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        raise LoadError(
            f"the model {name!r} cannot be loaded: it is neither a folder nor in the cache of the "
            f"hub, and {host} cannot be reached ({error})."
        ) from error


def _load_pair(name: str, options: dict[str, Any]) -> tuple[Any, Any]:
    if name in BUNDLED and not options:
        return load_pebble() if name == "pebble" else load_pebble_clips()
    from transformers import AutoModelForImageTextToText

    def load_both(source: str | Path, processor: Any) -> tuple[Any, Any]:
        return AutoModelForImageTextToText.from_pretrained(source, **options), processor

    found: tuple[Any, Any] = _load_parts(name, _find_source(name), load_both)
    return found


def _find_source(name: str) -> str | Path:
    if name in BUNDLED:
        return BUNDLED[name]
    folder = Path(name).expanduser()
    return folder if folder.is_dir() else name


def _load_parts(name: str, source: str | Path, go_on: Callable[[str | Path, Any], Any]) -> Any:
    """Load the processor, and what `go_on` loads then; says what is wrong with either."""
    from transformers import AutoConfig

    with _explain_errors(name, source):
        kind = AutoConfig.from_pretrained(source).model_type
        # First, because it is small and more often lacks something than gigabytes of weights.
        return go_on(source, _load_processor(source, kind))


@contextmanager
def _explain_errors(name: str, source: str | Path) -> Iterator[None]:
    """Name the model in what goes wrong while parts of it are loaded, with the way out."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(_explain_missing(name, str(error))) from error
    except (OSError, ValueError, SafetensorError) as error:
        bundled = ", ".join(map(repr, NAMES))
        raise (InputError if _is_wrong_name(source, error) else LoadError)(
            f"the model {name!r} cannot be loaded: {str(error).rstrip('. ')}. Give {bundled}, a "
            "folder or a hub name."
        ) from error


def _is_wrong_name(source: str | Path, error: Exception) -> bool:
    """Whether there is no such model, or none that answers; otherwise loading it failed."""
    from huggingface_hub.errors import RepositoryNotFoundError

    if isinstance(source, Path) and not (source / "config.json").is_file():
        return True
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    return isinstance(error, ValueError) or any(
        isinstance(each, RepositoryNotFoundError) for each in causes
    )


def _explain_missing(name: str, error: str) -> str:
    """What transformers says about a package that is not there, with the way out."""
    begin = f"the model {name!r} cannot be loaded: "
    package = next((each for each in VISION_PACKAGES if each in error.lower()), None)
    if package is None:
        return f"{begin}{' '.join(error.split())}"
    return (
        f"{begin}its processor needs {package}, which is not installed. "
        f"Run: {get_install_command('tokencover[vision]')}"
    )


def _load_processor(source: str | Path, model_type: str) -> Any:
    """Load the model's own; a model for clips that we trained has a tokenizer and nothing else."""
    from transformers import AutoProcessor, PreTrainedTokenizerFast

    from tokencover.pebble.model import ClipProcessor

    folder = Path(source)
    ours = model_type == "video_llava" and folder.is_dir()
    if ours and not any(folder.glob("*processor_config.json")):
        return ClipProcessor(PreTrainedTokenizerFast.from_pretrained(source))
    return AutoProcessor.from_pretrained(source)
