"""The package as a whole: its names, and that they cost nothing before they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tokencover as tc
import tokencover.methods

HEAVY = ("torch", "transformers", "numpy", "PIL")


def run(code: str, *, path: Path | None = None) -> str:
    """What a fresh interpreter prints."""
    environment = dict(os.environ)
    if path is not None:
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(path), *([before] if before else [])])
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_it_is_light() -> None:
    """Loading torch and transformers takes seconds; that must wait until a model is used."""
    code = f"import sys, tokencover; print([each for each in {HEAVY} if each in sys.modules])"
    assert run(code).strip() == "[]"


def test_package_names_known_before_import() -> None:
    code = (
        "import sys, tokencover as tc; print({'FastV', 'prune', '__version__'} <= set(dir(tc)), "
        "'MoB' in tc.__all__, 'torch' in sys.modules)"
    )
    assert run(code).split() == ["True", "True", "False"]


def test_all_public_names_exist() -> None:
    for name in tc.__all__:
        assert getattr(tc, name) is not None


def test_the_names_that_users_know_are_there() -> None:
    settled = (
        "DART METHODS SCOPE BalancedSplit BudgetedMethod CDPruner Certificate Choice CouplingSplit "
        "Cover DivPrune Downsample FarthestOnly FastV FasterVLM FiCoCoV FinalWipe GlobalCom2 HiRED "
        "InputError LookAhead Method MoB MoBStages MustDrop NearestOnly OnlineSplit PruMerge "
        "PruMergePlus PyramidDrop Random SparseVLM Split ToMe TokenCarve TokenCoverError TwigVLM "
        "UniformGrid View VisionZip certify coupling farthest_points from_json get_method "
        "load_boulder load_pebble load_pebble_clips mob nearest_points paper_split prune to_json"
    )
    assert set(settled.split()) <= set(tc.__all__)


def test_everything_can_be_imported_at_once() -> None:
    names: dict[str, object] = {}
    exec("from tokencover import *", names)
    assert names["FastV"] is tc.FastV
    assert set(tc.__all__) <= set(names)


def test_methods_exported_by_both_packages() -> None:
    for kind in tc.METHODS:
        assert getattr(tc, kind.__name__) is kind
        assert getattr(tokencover.methods, kind.__name__) is kind
        assert kind.__name__ in tc.__all__
        assert kind.__name__ in tokencover.methods.__all__


def test_rooms_are_attributes() -> None:
    assert run("import tokencover as tc; print(tc.covering.coupling is tc.coupling)") == "True\n"


def test_unknown_name_suggests_nearest() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'FastW' \(did you mean 'FastV'\?\)"):
        tc.FastW  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(tc, "_hidden")
    with pytest.raises(ImportError):
        exec("from tokencover import nothing_like_it")


def test_dir_shows_the_public_names_alone() -> None:
    code = "import tokencover as tc, tokencover.evaluation; tc.mob; print(*dir(tc))"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert names.stdout.split() == sorted(["__version__", *tc.__all__])
