"""`tokencover methods` and `tokencover models`: one line each at 80 columns, details by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokencover as tc
from tests.cli.calling import call
from tests.test_tables import lines_of, open_terminal
from tokencover.bundled_models import MODELS
from tokencover.catalog import read_families, read_methods, read_refused
from tokencover.cli.app import main
from tokencover.cli.lists import resolve_family
from tokencover.errors import InputError
from tokencover_models.pebble import PICTURE_CHECKPOINT


def print_lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_methods_one_line_each_in_80_columns(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_terminal:
        screen = open_terminal(monkeypatch, width=80)
        call("methods")
        lines = lines_of(screen)
    else:
        lines = print_lines(capsys, "methods")
    starts = [line.split()[0] for line in lines if line]
    for method in read_methods():
        assert starts.count(method.name) == 1
        line = next(each for each in lines if each.startswith(f"{method.name} "))
        assert method.pruning_point in line
    assert max(map(len, lines)) <= 80
    assert len(lines) <= len(read_methods()) + 6


def test_methods_count_the_families(capsys: pytest.CaptureFixture[str]) -> None:
    cells = {line.split()[0]: line.split() for line in print_lines(capsys, "methods") if line}
    assert cells["mob"][-1] == "all"
    assert cells["divprune"][-1] == "all*"
    assert cells["globalcom2"][-1] == "2"


def test_one_method_in_detail(capsys: pytest.CaptureFixture[str]) -> None:
    lines = print_lines(capsys, "methods", "fastv")
    facts = {line.split("  ")[0]: line for line in lines if not line.startswith(" ")}
    assert "FastV, 2024, 2403.06764" in facts["name"]
    assert facts["prunes"].endswith("after 2 decoder layers")
    assert facts["settings"].endswith("budget, budget_mode=exact, positions=original, after=2")
    assert facts["class"].endswith("tokencover.methods.fastv.FastV")
    assert "LLaVA-1.5, LLaVA-Next, Qwen2-VL" in "\n".join(lines)
    assert max(map(len, lines)) < 120
    assert not any("](" in line for line in print_lines(capsys, "methods", "mob"))


def test_settings_in_the_catalog_are_those_of_the_classes() -> None:
    settings = {each.name: each.settings for each in read_methods()}
    assert settings["random"] == (
        "budget", "budget_mode=exact", "positions=original", "after=1", "seed=0",
    )  # fmt: skip
    assert "stages=None" in settings["sparsevlm"]


@pytest.mark.parametrize(
    "model", ["pebble", "LLaVA-1.5", "llava-1.5", "llava", "boulder", str(PICTURE_CHECKPOINT)]
)
def test_methods_of_a_model(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = print_lines(capsys, "methods", "--model", model)
    names = {line.split()[0].rstrip("*") for line in lines[1:29] if line}
    expected = {each.name for each in read_methods() if "LLaVA-1.5" in each.families}
    assert expected <= names
    assert f"{len(expected)} methods run on LLaVA-1.5." in lines
    assert "not supported: globalcom2" in lines


def test_methods_of_a_model_mark_positions(capsys: pytest.CaptureFixture[str]) -> None:
    lines = print_lines(capsys, "methods", "--model", "qwen2_vl")
    assert any(line.startswith("prumerge* ") for line in lines)
    assert any(line.startswith("mob ") for line in lines)
    assert "* needs the setting positions=original" in lines


def test_methods_of_a_model_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--model", "llava_next", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "globalcom2" in [each["name"] for each in found]
    assert all("LLaVA-Next" in each["families"] for each in found)
    assert main(["methods", "mob", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["mob"]


def test_bundled_models_have_the_types_listed() -> None:
    for name, kind in ((entry.name, entry.model_type) for entry in MODELS):
        if name != "boulder":
            assert tc.load(name)[0].config.model_type == kind
    assert resolve_family("pebble-clips").name == "Video-LLaVA"


def test_omni_model_is_found_by_the_part_that_reads_text(tmp_path: Path) -> None:
    from transformers import Qwen2_5OmniConfig

    Qwen2_5OmniConfig().save_pretrained(tmp_path / "omni")
    assert resolve_family(str(tmp_path / "omni")).name == "Qwen2.5-Omni"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["methods", "mobb"], "no method 'mobb' (did you mean 'mob'?)"),
        (["methods", ""], "no method ''"),
        (
            ["methods", "--model", "lava"],
            "no such model, family or model type: 'lava' (did you mean",
        ),
        (["methods", "--model", ""], "no such model, family or model type: ''"),
        (["methods", "--model", "mllama"], "'mllama' cannot be pruned: its text reads the image"),
        (["methods", "globalcom2", "--model", "pebble"], "globalcom2 does not run on LLaVA-1.5"),
        (["models", "mllama"], "through cross-attention: the sequence has no visual tokens"),
        (["models", "nothing"], "no such model, family or model type: 'nothing'"),
    ],
)
def test_wrong_names(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_model_of_unknown_type(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(InputError, match="type 'gpt2' cannot be pruned: its family is not known"):
        resolve_family(str(tmp_path))


def test_models_one_line_each_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    lines = print_lines(capsys, "models")
    assert max(map(len, lines)) <= 80
    for family in read_families():
        assert sum(line.startswith(f"{family.name}  ") for line in lines) == 1
    for refused in read_refused():
        assert sum(line.startswith(f"{refused.model_type}  ") for line in lines) == 1


def test_one_family_in_detail(capsys: pytest.CaptureFixture[str]) -> None:
    lines = print_lines(capsys, "models", "glm_ocr")
    assert lines[0] == "family          GLM-4V"
    assert lines[1] == "model types     glm4v, glm4v_moe, glm46v, glmga, glm_ocr"
    assert any(line.startswith("methods         mob, nearest, farthest") for line in lines)
    assert max(map(len, lines)) < 120
