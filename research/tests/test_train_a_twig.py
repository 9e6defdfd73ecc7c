"""The script that trains a twig on pebble runs from start to end."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from research.twig.train_a_twig import main


def test_it_trains_saves_and_prunes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "twig"
    monkeypatch.setattr(sys, "argv", ["train_a_twig", "--out", str(folder)])
    main()
    printed = capsys.readouterr().out
    assert len(re.findall(r"loss ([\d.]+)", printed)) == 2
    assert str([576] * 2 + [64] * 6 + [0] * 3) in printed
    assert (folder / "twig.safetensors").is_file()
