"""The paper's Tables 6 and 7 in LaTeX."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.paper.tables import main
from tests.evaluation.made_results import open_folder, write
from tokencover.errors import InputError
from tokencover.evaluation import vary_folds

RIGHT = {"GQA": [1, 1, 1, 1], "POPE": [1, 1, 1, 1], "VizWiz": [1, 1, 1, 1]}


def score(count: int) -> dict[str, list[float | None]]:
    return {task: [float(place < count) for place in range(4)] for task in RIGHT}


def test_fold_table_from_ablation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = open_folder(tmp_path / "results")
    write(results, None, RIGHT)
    for place, setting in enumerate(vary_folds([64], [1 / 16, 1 / 8, 1], 0.5)):
        write(results, setting.method, score(1 + place), tokens=64, flops=0.1)
    main(["--ablation", str(tmp_path)])
    text = capsys.readouterr().out
    assert r"$\langle K, K_{\rm p}\rangle$ & $2$ & $4$ & $32$ \\" in text
    assert "tab:costs" not in text


def test_results_without_folds_raise(tmp_path: Path) -> None:
    results = open_folder(tmp_path)
    write(results, None, RIGHT)
    with pytest.raises(InputError, match="several folds"):
        main(["--ablation", str(tmp_path)])


def test_cost_table_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--costs"])
    # N * L * d multiply-adds for the Hausdorff distance.
    text = capsys.readouterr().out
    assert r"Compute $d_H$ & 2.4e-05 & 2.4e-05 & 2.4e-05 & 2.4e-05 \\" in text
