"""Twigs on disk: ``twig.json`` says what to build, ``twig.safetensors`` has the weights."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Final

import torch

from tokencover.errors import InputError
from tokencover.files import write_atomically
from tokencover.twig.twig_module import Twig, TwigPlan, fill_twig

PLAN_FILE: Final = "twig.json"
WEIGHTS_FILE: Final = "twig.safetensors"
SHIPPED_TWIGS: Final = {"pebble": Path(__file__).parent / "pebble"}
"""Twigs that come with the package, by the name `load_twig` knows them by."""


def save_twig(twig: Twig, folder: str | os.PathLike[str]) -> None:
    """Write a twig, its draft head included, to a folder that is made if need be.

    Parameters
    ----------
    twig : Twig
        With weights of any type and on any device.
    folder : str or path
        Gets two files; older ones are replaced.
    """
    from safetensors.torch import save

    path = Path(folder)
    weights = {name: each.detach().cpu().contiguous() for name, each in twig.state_dict().items()}
    write_atomically(path / WEIGHTS_FILE, save(weights, metadata={"format": "pt"}))
    text = json.dumps(dataclasses.asdict(twig.plan), indent=2, sort_keys=True)
    write_atomically(path / PLAN_FILE, text + "\n")


def load_twig(folder: str | os.PathLike[str]) -> Twig:
    """Read a twig, ready to look ahead: on the CPU, in evaluation mode, without gradients.

    Parameters
    ----------
    folder : str or path
        Where `save_twig` wrote, or the name of a twig that comes with the package: ``"pebble"``.

    Raises
    ------
    InputError
        If there is no twig, or its files are damaged or do not belong together.
    """
    path = SHIPPED_TWIGS.get(str(folder), Path(folder))
    missing = [name for name in (PLAN_FILE, WEIGHTS_FILE) if not (path / name).is_file()]
    if missing:
        raise InputError(
            f"{path} has no {' and no '.join(missing)}: give the folder that "
            "tokencover.twig.save_twig wrote, or train a twig with tokencover.twig.train."
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
            f"{path} does not describe a twig ({type(error).__name__}: {error}): take the file "
            "that tokencover.twig.save_twig wrote."
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
