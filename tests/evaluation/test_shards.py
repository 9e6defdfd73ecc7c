"""Parts of an ablation, done by several processes, are what one process does."""

from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.evaluation.running import contents

FEW = ("--what", "fold", "--budgets", "64", "--values", "0.5", "--tasks", "pebble/color")


def test_an_ablation_can_be_done_in_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (*FEW, "--limit", "1", "--threads", "1", "--out")
    call("ablate", *arguments, str(tmp_path / "whole"))
    capsys.readouterr()
    call("ablate", *arguments, str(tmp_path / "parts"), "--shard", "1/2")
    assert "part 1 of 2 is done, other parts are not" in capsys.readouterr().out
    assert not (tmp_path / "parts" / "fold").exists()
    call("ablate", *arguments, str(tmp_path / "parts"), "--shard", "0/2")
    whole, parts = (contents(tmp_path / name / "results") for name in ("whole", "parts"))
    assert parts == whole
    assert (tmp_path / "parts" / "fold" / "ablation.md").read_text() == (
        tmp_path / "whole" / "fold" / "ablation.md"
    ).read_text()
