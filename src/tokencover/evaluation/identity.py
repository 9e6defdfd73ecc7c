"""What all results of one run have in common."""

from __future__ import annotations

import hashlib
import importlib.metadata
from typing import Any

import torch

from tokencover.evaluation.loading import VisionLanguageModel

LEADING = 16
"""Values of each weight that tell two models of one name apart."""
PACKAGES = ("tokencover", "torch", "transformers")


def describe_run(model: VisionLanguageModel, **settings: Any) -> dict[str, Any]:
    """Model, versions and settings; results of two runs that differ in any of it do not mix.

    Parameters
    ----------
    model : VisionLanguageModel
        The model that is asked.
    **settings
        Whatever else answers depend on.
    """
    network = model.model
    return {
        "model": {
            "name": model.name,
            "class": type(network).__name__,
            "dtype": str(network.dtype).removeprefix("torch."),
            "device": torch.device(network.device).type,
            "weights": _fingerprint(network),
        },
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "settings": settings,
    }


def _fingerprint(network: torch.nn.Module) -> str:
    """Of the names, shapes and leading values of all weights: quick, even for a large model."""
    digest = hashlib.sha256()
    for name, weight in network.named_parameters():
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        if not weight.is_meta:  # weights that accelerate keeps elsewhere
            leading = weight.detach().flatten()[:LEADING].float().cpu()
            digest.update(leading.numpy().tobytes())
    return digest.hexdigest()[:16]
