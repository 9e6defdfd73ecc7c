"""What is in wheel and sdist: all that the library needs, and nothing that it does not.

python tools/check_dist.py dist
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

NEEDED = (
    "tokencover/__init__.pyi",
    "tokencover/boulder/checkpoint/boulder.safetensors",
    "tokencover/catalog.json",
    "tokencover/methods/__init__.pyi",
    "tokencover/pebble/checkpoints/clips/model.safetensors",
    "tokencover/pebble/checkpoints/pictures/chat_template.jinja",
    "tokencover/pebble/checkpoints/pictures/model.safetensors",
    "tokencover/pebble/checkpoints/pictures/tokenizer.json",
    "tokencover/py.typed",
    "tokencover/twig/pebble/twig.safetensors",
)
ALSO_IN_SDIST = ("LICENSE", "README.md", "CHANGELOG.md", "constraints.txt", "tests/test_layout.py")
LARGEST = 45_000_000
"""Bytes of either: weights of pebble and boulder are most of it."""


def main(folder: Path) -> int:
    """Look at both files; returns the exit code."""
    wheel, sdist = find_one(folder, "*.whl"), find_one(folder, "*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as packed:
        in_sdist = {name.partition("/")[2] for name in packed.getnames()}
    source = Path(__file__).parent.parent / "src"
    ours = {
        path.relative_to(source).as_posix()
        for path in (source / "tokencover").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wrong = [f"{wheel.name} lacks {name}" for name in sorted({*NEEDED, *ours} - in_wheel)]
    roots = {name.partition("/")[0] for name in in_wheel}
    wrong += [
        f"{wheel.name} has {root}/ too"
        for root in sorted(roots)
        if root != "tokencover" and not root.endswith(".dist-info")
    ]
    wanted = {*ALSO_IN_SDIST, *(f"src/{name}" for name in ours)}
    wrong += [f"{sdist.name} lacks {name}" for name in sorted(wanted - in_sdist)]
    wrong += [
        f"{path.name} has {path.stat().st_size} bytes"
        for path in (wheel, sdist)
        if path.stat().st_size > LARGEST
    ]
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        sizes = [f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in (wheel, sdist)]
        print(f"complete: {', '.join(sizes)}")
    return int(bool(wrong))


def find_one(folder: Path, pattern: str) -> Path:
    """The only file of a kind."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"{folder} has {len(found)} files {pattern}: run `make dist`")
    return found[0]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
