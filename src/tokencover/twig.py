"""Twigs: copies of some decoder layers with a norm and a head, which look ahead for TwigVLM."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from tokencover.bundled_models import get_entry, validate_installed
from tokencover.errors import InputError
from tokencover.files import write_atomically

PLAN_FILE: Final = "twig.json"
WEIGHTS_FILE: Final = "twig.safetensors"
KNOWN_MODULES = re.compile(r"transformers\.models\.\w+\.modeling_\w+")
"""Modules of decoder classes: a file must not name other code."""


@dataclass(frozen=True, slots=True)
class TwigPlan:
    """Everything needed to build a twig, without its weights; the fields of ``twig.json``.

    `decoder` is module and class of the base's text model (``transformers.models.*`` only),
    `config` its configuration. `after` is K, the layers of the base that run before the twig;
    `depth` is T, the layers of the twig, which start as copies of layers K to K + T - 1.
    `vocabulary` is the size of the head's output.
    """

    decoder: str
    config: Mapping[str, Any]
    after: int
    depth: int
    vocabulary: int
    head_bias: bool = False

    @property
    def width(self) -> int:
        """The hidden size."""
        return int(self.config["hidden_size"])

    @property
    def base_depth(self) -> int:
        """Number of layers of the base's text model."""
        return int(self.config["num_hidden_layers"])


class Twig(nn.Module):
    """Decoder layers, a norm and a head on the output of an early layer.

    Its weights are undefined until they are loaded; see `grow` and `load_twig`.
    """

    def __init__(self, plan: TwigPlan) -> None:
        super().__init__()
        _check_range(plan.after, plan.depth, plan.base_depth)
        kind = _get_decoder_class(plan.decoder)
        with torch.device("meta"):  # without allocating the base
            decoder = kind(kind.config_class.from_dict(dict(plan.config)))
            head = nn.Linear(plan.width, plan.vocabulary, bias=plan.head_bias)
        self.plan = plan
        self.config: Any = decoder.config
        # The layer indices of the base stay: some families choose the attention by them.
        self.blocks = nn.ModuleList(decoder.layers[plan.after : plan.after + plan.depth])
        self.norm: nn.Module = decoder.norm
        self.head = head

    def forward(self, states: Tensor, rows: tuple[Tensor, ...], **settings: Any) -> Tensor:
        """Compute logits ``(r, vocabulary)`` of the truncated network.

        `states` ``(b, s, d)`` are the input of the base's layer K, `rows` the samples and positions
        ``(r,)`` to compute logits for, `settings` the arguments of the base's layers.
        """
        for block in self.blocks:
            output = block(states, **settings)
            states = output[0] if isinstance(output, tuple) else output
        logits: Tensor = self.head(self.norm(states[rows]))
        return logits


def grow(model: nn.Module, after: int, depth: int) -> Twig:
    """Build an untrained twig: copies of the base's next layers, final norm and head.

    Parameters
    ----------
    model : PreTrainedModel
        The base; it is not changed, and no tensor is shared with it.
    after : int
        K, the layers of the base that run before the twig.
    depth : int
        T, its number of layers.
    """
    base: Any = model
    decoder, head = base.get_decoder(), base.get_output_embeddings()
    if not hasattr(decoder, "layers"):
        raise InputError(
            f"a twig cannot be grown on a {type(model).__name__}: its decoder, a "
            f"{type(decoder).__name__}, has no layers."
        )
    blocks = list(decoder.layers)
    _check_range(after, depth, len(blocks))
    kinds = set((getattr(decoder.config, "layer_types", None) or [""])[after : after + depth])
    if len(kinds) > 1:
        raise InputError(
            f"layers {after} to {after + depth - 1} have different attention types "
            f"({', '.join(sorted(kinds))}). Choose equal ones, for example with depth=1."
        )
    config = json.loads(decoder.config.to_json_string(use_diff=False))
    config.pop("_name_or_path", None)  # where it was read from
    plan = TwigPlan(
        decoder=f"{type(decoder).__module__}.{type(decoder).__name__}",
        config=config,
        after=after,
        depth=depth,
        vocabulary=head.weight.shape[0],
        head_bias=head.bias is not None,
    )
    twig = Twig(plan)
    parts = {"norm": decoder.norm, "head": head}
    parts |= {f"blocks.{number}": blocks[after + number] for number in range(depth)}
    fill_twig(
        twig,
        {
            f"{place}.{name}": tensor.detach().clone()
            for place, part in parts.items()
            for name, tensor in part.state_dict().items()
        },
    )
    twig.config._attn_implementation = decoder.config._attn_implementation
    return twig


def fill_twig(twig: Twig, weights: Mapping[str, Tensor]) -> None:
    """Load weights into a twig without copying them.

    Raises `InputError` if a weight is missing, unexpected, or has another shape.
    """
    wanted = {name: tuple(each.shape) for name, each in twig.state_dict().items()}
    given = {name: tuple(each.shape) for name, each in weights.items()}
    wrong = sorted(name for name in wanted.keys() | given if wanted.get(name) != given.get(name))
    if wrong:
        name = wrong[0]
        raise InputError(
            f"These weights do not fit a twig with {twig.plan.depth} layers of width "
            f"{twig.plan.width}: {name} has shape {given.get(name, 'none')}, expected "
            f"{wanted.get(name, 'none')} ({len(wrong)} differ). Use twig.json and "
            "twig.safetensors of one training."
        )
    twig.load_state_dict(dict(weights), assign=True)


def _check_range(after: int, depth: int, base_depth: int) -> None:
    if after < 0 or depth < 1 or after + depth > base_depth:
        raise InputError(
            f"A twig of {depth} layers after layer {after} does not fit a decoder of {base_depth} "
            "layers: it starts as a copy of the layers that follow."
        )


def _get_decoder_class(path: str) -> Any:
    from transformers import PreTrainedModel

    module, _, name = path.rpartition(".")
    found: Any = None
    if KNOWN_MODULES.fullmatch(module):
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ModuleNotFoundError:
            found = None
    if not (isinstance(found, type) and issubclass(found, PreTrainedModel)):
        raise InputError(
            f"{path!r} is not a text model of this version of transformers, so its twig cannot be "
            "built. Use a twig of another model."
        )
    return found


def save_twig(twig: Twig, folder: str | os.PathLike[str]) -> None:
    """Write a twig, including its draft head, to a folder.

    Parameters
    ----------
    twig : Twig
        With weights of any type and on any device.
    folder : str or path
        Gets two files; existing ones are replaced.
    """
    from safetensors.torch import save

    path = Path(folder)
    weights = {name: each.detach().cpu().contiguous() for name, each in twig.state_dict().items()}
    write_atomically(path / WEIGHTS_FILE, save(weights, metadata={"format": "pt"}))
    text = json.dumps(dataclasses.asdict(twig.plan), indent=2, sort_keys=True)
    write_atomically(path / PLAN_FILE, text + "\n")


def load_twig(folder: str | os.PathLike[str]) -> Twig:
    """Load a twig on the CPU, in evaluation mode, without gradients.

    Parameters
    ----------
    folder : str or path
        Where `save_twig` wrote, or the name of a test model that has a twig: ``"pebble"``.

    Raises
    ------
    InputError
        If there is no twig, or its files are damaged or of different twigs.
    """
    path = Path(folder)
    if not path.is_dir():
        validate_installed(str(folder))
        entry = get_entry(str(folder))
        path = (entry and entry.twig) or path
    missing = [name for name in (PLAN_FILE, WEIGHTS_FILE) if not (path / name).is_file()]
    if missing:
        raise InputError(
            f"{path} has no {' and no '.join(missing)}. Pass the folder that "
            "tokencover.twig.save_twig wrote, or train a twig with research/twig."
        )
    twig = Twig(_read_plan(path / PLAN_FILE))
    fill_twig(twig, _read_weights(path / WEIGHTS_FILE))
    return twig.eval().requires_grad_(False)


def _read_plan(path: Path) -> TwigPlan:
    try:
        found: Any = json.loads(path.read_text())
        plan = TwigPlan(**found)
        sizes = (plan.after, plan.depth, plan.vocabulary, plan.width, plan.base_depth)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{path} does not describe a twig ({type(error).__name__}: {error}). Use the file that "
            "tokencover.twig.save_twig wrote."
        ) from error
    if any(isinstance(size, bool) or not isinstance(size, int) for size in sizes):
        raise InputError(f"{path} does not describe a twig: its sizes {sizes} are not integers.")
    return plan


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is damaged ({error}): copy it again.") from error
