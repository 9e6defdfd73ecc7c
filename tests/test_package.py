"""The package as a whole."""

from __future__ import annotations

import subprocess
import sys

import tokencover as tc


def test_importing_it_is_light() -> None:
    """Loading transformers takes seconds; that must wait until a model is used."""
    code = "import sys, tokencover; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_public_names_exist() -> None:
    for name in tc.__all__:
        assert getattr(tc, name) is not None
