"""Engines for tests: small steps, so that prompts are prefilled in chunks beside other answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokencover.serving import get_served_model
from tokencover.serving.starting import read_architectures

STEP = 96
"""Tokens of one step: less than two short prompts have."""


def make_engine(folder: Path, settings: dict[str, Any] | None, **more: Any) -> Any:
    """A vLLM engine in this process, with pruning by these settings, or vLLM's own model."""
    from vllm import LLM

    overrides: dict[str, Any] = {}
    if settings is not None:
        served = get_served_model(read_architectures(str(folder)))
        overrides = {"architectures": [served.name], "tokencover": settings}
    options: dict[str, Any] = {
        "block_size": 32,
        "distributed_executor_backend": "uni",
        "dtype": "float32",
        "enforce_eager": True,
        "hf_overrides": overrides,
        "limit_mm_per_prompt": {"image": 8},
        "max_model_len": 1024,
        "max_num_batched_tokens": STEP,
        "max_num_seqs": 8,
        **more,
    }
    return LLM(str(folder), **options)
