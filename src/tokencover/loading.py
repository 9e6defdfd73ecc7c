"""Load models by name."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import torch
from safetensors import SafetensorError

from tokencover.bundled_models import MODELS, ModelEntry, get_entry, validate_installed
from tokencover.errors import (
    InputError,
    LoadError,
    MissingPackageError,
    get_install_command,
    import_extra,
)

QUANTIZATIONS: Final = ("4bit", "8bit")
QUANTIZED_PACKAGES: Final = ("bitsandbytes", "accelerate")
PACKAGE_USES: Final = {
    "torchvision": ("processor needs", "vision"),
    "num2words": ("processor needs", "vision"),
    "bitsandbytes": ("quantized weights need", "quantized"),
    "accelerate": ("quantized weights need", "quantized"),
}
"""Packages that transformers may miss: what needs one, and the extra that has it."""
HUB_OPTIONS: Final = (
    "cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token",
    "trust_remote_code",
)  # fmt: skip
"""Options of `from_pretrained` for the configuration and the processor, too."""
PLACING: Final = {"device_map", "distributed_config", "tp_plan", "tp_size"}
"""Options of `from_pretrained` that assign devices."""
PROXIES: Final = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def load(
    name: str,
    *,
    device: str | None = None,
    dtype: str | None = None,
    quantization: str | None = None,
    attn_implementation: str | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """Load a model and its processor, ready to answer.

    Parameters
    ----------
    name : str
        A test model of the package ``tokencover-models`` (`"pebble"`, `"pebble-clips"`,
        `"boulder"`), a local path, or a Hugging Face Hub ID.
    device : str, optional
        Device, or "auto" for all GPUs; by default this process's GPU, or else the CPU.
    dtype : str, optional
        Weight dtype, for example "bfloat16"; by default that of the checkpoint.
    quantization : "4bit" or "8bit", optional
        Quantize linear layers with bitsandbytes (extra ``quantized``): "4bit" is NF4 with double
        quantization, which computes in the model's dtype, "8bit" is LLM.int8().
    attn_implementation : str, optional
        For example "sdpa" or "eager"; by default transformers chooses.
    **options
        Further options of ``from_pretrained``, for example ``revision="main"``.

    Raises
    ------
    MissingPackageError
        If the model needs a package that is not installed, with the command that installs it.
    """
    if dtype not in (None, "auto"):
        if not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise InputError(
                f"torch has no dtype {dtype!r}. Use for example float32, bfloat16 or float16."
            )
        options["dtype"] = getattr(torch, dtype)
    if attn_implementation is not None:
        options["attn_implementation"] = attn_implementation
    _validate_name(name, options)
    entry = get_entry(name)
    _validate_quantization(entry, quantization, options)
    device = _choose_device(entry, device)
    if device == "auto":
        options.setdefault("device_map", "auto")
    if entry is not None and entry.folder is None:
        model, processor = _load_assembled(entry, options)
    elif entry is not None and not options and quantization is None:
        model, processor = entry.load()
    else:
        model, processor = _load_pair(name, options, device, quantization)
    is_placed = bool(PLACING & options.keys()) or _is_quantized(model.config)
    if device is not None and not is_placed:
        try:
            model.to(device)
        except (RuntimeError, AssertionError) as error:  # torch raises many types
            is_full = isinstance(error, torch.OutOfMemoryError)
            raise (LoadError if is_full else InputError)(
                f"Cannot move the model to device {device!r}: {error}. Use --device cpu, or "
                "--dtype bfloat16 if it is too large."
            ) from error
    return model.eval(), processor


def _choose_device(entry: ModelEntry | None, device: str | None) -> str | None:
    """Use this process's GPU by default; a model without a folder uses one device only."""
    if device == "auto" and entry is not None and entry.folder is None:
        device = None
    if device is None and torch.cuda.is_available():
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return device


def _validate_quantization(
    entry: ModelEntry | None, quantization: str | None, options: Mapping[str, Any]
) -> None:
    """Raise an error for what cannot be quantized, and for missing packages."""
    if quantization is None:
        return
    if quantization not in QUANTIZATIONS:
        raise InputError(
            f"quantization must be '4bit' or '8bit', got {quantization!r}. For other kinds pass "
            "quantization_config, as from_pretrained takes it."
        )
    if entry is not None and entry.folder is None:
        raise InputError(
            f"{entry.name} cannot be quantized: it is assembled from two packages, not loaded by "
            "from_pretrained. Omit quantization, or use 'pebble'."
        )
    if "quantization_config" in options:
        raise InputError(
            f"quantization={quantization!r} and quantization_config are exclusive. Pass one of "
            "them."
        )
    for package in QUANTIZED_PACKAGES:
        purpose = f"quantization={quantization!r}"
        import_extra(package, purpose, "tokencover[quantized]", "leave quantization out")


def _is_quantized(config: Any) -> bool:
    """Whether weights are stored quantized, or were quantized while loading."""
    return getattr(config, "quantization_config", None) is not None


def _configure_quantization(quantization: str, dtype: torch.dtype | None) -> Any:
    from transformers import BitsAndBytesConfig

    if quantization == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    nf4 = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=dtype, **nf4)


def _load_assembled(entry: ModelEntry, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Load a model without a folder, and apply the options that need none."""
    unknown = sorted(set(options) - {"dtype", "attn_implementation"})
    if unknown:
        raise InputError(
            f"{entry.name} does not take {', '.join(unknown)}: it is not loaded by "
            "from_pretrained. Omit these options."
        )
    model, processor = entry.load()
    if "attn_implementation" in options:
        model.set_attn_implementation(options["attn_implementation"])
    return model.to(options.get("dtype", model.dtype)), processor


def find_quantization(network: Any) -> str | None:
    """Return "4bit", "8bit" (bitsandbytes), "torchao", ...; None if the weights are not quantized.

    Transformers records it in the configuration, for stored and for loaded weights.
    """
    config = getattr(network.config, "quantization_config", None)
    if config is None:
        return None
    values = config if isinstance(config, Mapping) else config.to_dict()
    bits = next((bits for bits in QUANTIZATIONS if values.get(f"load_in_{bits}")), None)
    method = values.get("quant_method", "quantized")
    return bits or str(getattr(method, "value", method))


def list_stored(tensor: Any) -> list[torch.Tensor]:
    """Return a tensor, or the parts of one that a quantization library composes.

    Of a tensor that is split over ranks, return the part of this rank.
    """
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in list_stored(getattr(tensor, name))]


def describe_loading(model: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Describe quantization and options of `load` for files of results; empty without them.

    Access tokens are excluded, and other values than JSON's are written by ``repr``.
    """
    plain = {
        key: value if isinstance(value, str | int | float | bool | None) else repr(value)
        for key, value in options.items()
        if key != "token"
    }
    facts = {"quantization": find_quantization(model), "options": plain}
    return {key: value for key, value in facts.items() if value}


def load_processor(name: str) -> Any:
    """Load a model's processor alone, which is small; see `load` for the name."""
    _validate_name(name, {})
    if name in MODELS:
        return MODELS[name].load_processor(None)
    source = get_source(name)
    with _explain_errors(name, source, {}):
        return _load_config_and_processor(source, {})[1]


def load_config(name: str) -> Any:
    """Load the configuration of a model in a folder or on the Hub."""
    from transformers import AutoConfig

    _validate_name(name, {})
    source = get_source(name)
    with _explain_errors(name, source, {}):
        return AutoConfig.from_pretrained(source)


def _validate_name(name: str, options: Mapping[str, Any]) -> None:
    """Raise an error at once for a missing folder, instead of repeated requests to the Hub.

    A Hub ID is ``owner/model``; anything else is a folder, and so is that if there is a folder
    ``owner``.
    """
    if not name.strip():
        raise InputError(f"the model name is empty. Pass {_list_names()}a local path or Hub ID.")
    if name in MODELS or Path(name).expanduser().is_dir():
        return
    validate_installed(name)
    owner, slash, rest = name.partition("/")
    is_hub_name = (
        slash and rest and not set(rest) & {"/", "\\"} and owner not in ("", ".", "..", "~")
    )
    if is_hub_name and not Path(owner).is_dir():
        _validate_hub_access(name, options)
        return
    if Path(name).is_file():
        raise InputError(f"the model {name!r} cannot be loaded: it is a file. Pass its folder.")
    raise InputError(
        f"the model {name!r} cannot be loaded: there is no such folder. Pass {_list_names()}a "
        "local path, or a Hub ID like 'llava-hf/llava-1.5-7b-hf'."
    )


def _list_names() -> str:
    """Return the installed test models as the beginning of a list."""
    return "".join(f"{entry.name!r}, " for entry in MODELS)


def _validate_hub_access(name: str, options: Mapping[str, Any]) -> None:
    """Raise an error at once for a Hub ID that is not cached if the Hub has no address here.

    Requests would be repeated for long. Behind a proxy addresses mean nothing.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    if constants.HF_HUB_OFFLINE or any(os.environ.get(each) for each in PROXIES):
        return
    where = {key: options[key] for key in ("cache_dir", "revision") if key in options}
    if isinstance(try_to_load_from_cache(name, "config.json", **where), str):
        return
    host = urlsplit(constants.ENDPOINT).hostname
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        raise LoadError(
            f"the model {name!r} cannot be loaded: it is neither a folder nor in the cache, and "
            f"{host} cannot be reached ({error})."
        ) from error


def _load_pair(
    name: str, options: dict[str, Any], device: str | None, quantization: str | None
) -> tuple[Any, Any]:
    from transformers import AutoModelForImageTextToText

    source, given = get_source(name), dict(options)
    with _explain_errors(name, source, options):
        # First, because it is small and more often lacks something than gigabytes of weights.
        config, processor = _load_config_and_processor(source, options)
        if quantization is not None:
            if _is_quantized(config):
                raise InputError(f"the model {name!r} is already quantized: omit quantization.")
            dtype = options.get("dtype") or config.dtype
            given["quantization_config"] = _configure_quantization(quantization, dtype)
        is_quantized = "quantization_config" in given or _is_quantized(config)
        if device is not None and is_quantized and not PLACING & given.keys():
            given["device_map"] = {"": device}  # such weights cannot be moved later
        with warnings.catch_warnings():  # older versions of transformers know no other name
            warnings.filterwarnings("ignore", "Passing `tp_plan`", FutureWarning)
            return AutoModelForImageTextToText.from_pretrained(source, **given), processor


def get_source(name: str) -> str | Path:
    """Return what ``from_pretrained`` takes for a model name: a folder, or a hub name."""
    if name in MODELS:
        folder = MODELS[name].folder
        if folder is None:
            raise InputError(
                f"{name!r} has no folder: it is assembled when it is loaded. Save the result of "
                f"tokencover.load({name!r}) by save_pretrained(FOLDER), and use FOLDER."
            )
        return folder
    folder = Path(name).expanduser()
    return folder if folder.is_dir() else name


def _load_config_and_processor(source: str | Path, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Load both; a folder without a processor may hold a retrained test model."""
    from transformers import AutoConfig, AutoProcessor

    shared = {key: options[key] for key in HUB_OPTIONS if key in options}
    config = AutoConfig.from_pretrained(source, **shared)
    folder = Path(source)
    if folder.is_dir() and not _has_processor(folder):
        for entry in MODELS:
            is_same = entry.model_type == config.model_type
            if is_same and entry.folder and not _has_processor(entry.folder):
                return config, entry.load_processor(folder)
    return config, AutoProcessor.from_pretrained(source, **shared)


@contextmanager
def _explain_errors(name: str, source: str | Path, options: Mapping[str, Any]) -> Iterator[None]:
    """Name the model in errors while its parts are loaded, and a solution."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(_explain_missing(name, str(error))) from error
    except (OSError, ValueError, SafetensorError) as error:
        raise (InputError if _is_wrong_name(source, error) else LoadError)(
            f"the model {name!r} cannot be loaded: {str(error).rstrip('. ')}. Pass "
            f"{_list_names()}a local path or Hub ID."
        ) from error
    except TypeError as error:
        unknown = [key for key in options if repr(key) in str(error)]
        if not unknown:
            raise
        raise InputError(
            f"the model {name!r} does not take the option {unknown[0]!r}. Omit it, or pass one of "
            "from_pretrained, for example revision."
        ) from error


def _is_wrong_name(source: str | Path, error: Exception) -> bool:
    """Whether there is no such model; otherwise loading it failed."""
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
    """Explain an error of transformers about a missing package."""
    begin = f"the model {name!r} cannot be loaded: "
    for package, (part, extra) in PACKAGE_USES.items():
        if package in error.lower():
            command = get_install_command(f"tokencover[{extra}]")
            return f"{begin}its {part} {package}, which is not installed. Run: {command}"
    return f"{begin}{' '.join(error.split())}"


def _has_processor(folder: Path) -> bool:
    """Whether a checkpoint has the configuration of a processor."""
    return any(folder.glob("*processor_config.json"))
