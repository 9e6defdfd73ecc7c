"""Check the contents of the wheels and sdists of both distributions.

python tools/check_dist.py dist
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Distribution:
    """What a distribution must hold, and how large its files may be."""

    name: str
    source: Path
    needed: tuple[str, ...]
    also_in_sdist: tuple[str, ...]
    largest_wheel: int
    largest_sdist: int


DISTRIBUTIONS = (
    Distribution(
        "tokencover",
        ROOT / "src",
        ("tokencover/__init__.pyi", "tokencover/catalog.json", "tokencover/py.typed"),
        ("LICENSE", "README.md", "CHANGELOG.md", "constraints.txt", "tests/test_layout.py"),
        largest_wheel=2_000_000,
        largest_sdist=5_000_000,
    ),
    Distribution(
        "tokencover_models",
        ROOT / "models" / "src",
        (
            "tokencover_models/boulder/checkpoint/boulder.safetensors",
            "tokencover_models/lmms/pebble_pictures.yaml",
            "tokencover_models/pebble/checkpoints/clips/model.safetensors",
            "tokencover_models/pebble/checkpoints/pictures/chat_template.jinja",
            "tokencover_models/pebble/checkpoints/pictures/model.safetensors",
            "tokencover_models/pebble/checkpoints/pictures/tokenizer.json",
            "tokencover_models/twigs/pebble/twig.safetensors",
        ),
        ("README.md",),
        largest_wheel=45_000_000,
        largest_sdist=45_000_000,
    ),
)


def main(folder: Path) -> int:
    """Check all files; returns the exit code."""
    wrong = [line for each in DISTRIBUTIONS for line in list_faults(folder, each)]
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        sizes = [f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in folder.iterdir()]
        print(f"complete: {', '.join(sorted(sizes))}")
    return int(bool(wrong))


def list_faults(folder: Path, distribution: Distribution) -> list[str]:
    """List what a wheel and an sdist lack, or have too much of."""
    wheel = get_only_file(folder, f"{distribution.name}-*.whl")
    sdist = get_only_file(folder, f"{distribution.name}-*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as packed:
        in_sdist = {name.partition("/")[2] for name in packed.getnames()}
    source = distribution.source
    ours = {
        path.relative_to(source).as_posix()
        for path in (source / distribution.name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wrong = [
        f"{wheel.name} lacks {name}" for name in sorted({*distribution.needed, *ours} - in_wheel)
    ]
    roots = {name.partition("/")[0] for name in in_wheel}
    wrong += [
        f"{wheel.name} has {root}/ too"
        for root in sorted(roots)
        if root != distribution.name and not root.endswith(".dist-info")
    ]
    wanted = {*distribution.also_in_sdist, *(f"src/{name}" for name in ours)}
    wrong += [f"{sdist.name} lacks {name}" for name in sorted(wanted - in_sdist)]
    limits = ((wheel, distribution.largest_wheel), (sdist, distribution.largest_sdist))
    return wrong + [
        f"{path.name} has {path.stat().st_size} bytes, at most {limit} are allowed"
        for path, limit in limits
        if path.stat().st_size > limit
    ]


def get_only_file(folder: Path, pattern: str) -> Path:
    """Return the only file that a pattern matches."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"{folder} has {len(found)} files {pattern}. Run `make dist`.")
    return found[0]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
