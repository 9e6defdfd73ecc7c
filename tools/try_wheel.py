"""Install the built wheel into an empty environment and follow the README there, word for word.

    python tools/try_wheel.py --only ask     install, and ask the bundled model a question
    python tools/try_wheel.py                every block of the README, in an empty folder

What the wheel depends on (torch, transformers ...) is installed once, into an environment that is
kept below --cache and copied; the wheel itself is installed again, by the README's own command,
with dist/ as the only index, so that a dependency that is not declared cannot come from anywhere.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
import zlib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ASK = "tokencover ask"
FROM_REPOSITORY = re.compile(
    r" @ git\+https://github\.com/tokencover/tokencover(#subdirectory=\w+)?"
)
"""The repository cannot be reached from here: without this, pip takes the wheels built from
the local checkout. Nothing else of the README's commands is changed."""
HUB_NAME = "llava-hf/llava-1.5-7b-hf"
STAND_INS = f"""
from pathlib import Path
from tokencover_models.pebble import PICTURE_CHECKPOINT
from tokencover_models.pebble.data import draw_scene, make_scene
Path("{HUB_NAME}").parent.mkdir()
Path("{HUB_NAME}").symlink_to(PICTURE_CHECKPOINT)
draw_scene(make_scene(7)).save("cat.png")
"""
"""The hub cannot be reached, and the reader's image is not ours: pebble is a LLaVA too."""
HEADING = ["method", "budget"]
"""How the table of methods begins."""
ANSWERS, COSTS = 1.5, 0.05
"""Points by which numbers may differ from the README's: one of a group's 70 answers on another
processor, which rounds sums otherwise; counts of tokens and operations are the same everywhere."""


@dataclass(frozen=True)
class Reader:
    """Follows instructions in an empty folder, with the new environment first on the path."""

    environment: Path
    folder: Path

    def run(self, command: list[str]) -> str:
        """What a command prints; ends the program if it fails."""
        began = time.monotonic()
        variables = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PIP_", "PYTHON", "VIRTUAL_ENV"))
        }
        variables |= {
            "PATH": os.pathsep.join([str(self.environment / "bin"), os.environ["PATH"]]),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(ROOT / "dist"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "HF_HUB_OFFLINE": "1",
        }
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=self.folder, env=variables
        )
        print(f"    {time.monotonic() - began:5.1f} s  {_shorten(command[-1])}", flush=True)
        if done.returncode:
            sys.exit(f"{command} failed:\n{done.stdout}{done.stderr}")
        return done.stdout


def main() -> None:
    """Make the environment, install, follow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "tokencover")
    parser.add_argument("--torch", default="cpu", choices=("cpu", "index"))
    parser.add_argument("--only", choices=("ask",), help="ask a question, and no more")
    options = parser.parse_args()
    base = build_base(options.cache, options.torch)
    with tempfile.TemporaryDirectory() as scratch:
        environment, folder = Path(scratch) / "environment", Path(scratch) / "empty"
        folder.mkdir()
        shutil.copytree(base, environment, symlinks=True, copy_function=os.link)
        reader = Reader(environment, folder)
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        if options.only:
            print("==> asking a question in an empty environment")
            reader.run(["bash", "-euc", "python -m pip install tokencover tokencover-models"])
            print(reader.run(["bash", "-euc", ASK]))
        else:
            print("==> following the README in an empty environment")
            follow(readme, reader)


def build_base(cache: Path, torch: str) -> Path:
    """An environment with all that the wheel depends on, and nothing else."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    constraints = ROOT / "constraints.txt"
    wanted = repr((project["dependencies"], constraints.read_text(), sys.version, torch))
    base = cache / f"base-{zlib.crc32(wanted.encode())}"
    ready = base / ".ready"
    if not ready.exists():
        print(f"==> creating {base} (1 GB, once)", flush=True)
        venv.create(base, with_pip=True, clear=True, symlinks=True)
        python = str(base / "bin" / "python")
        subprocess.run(["sh", "tools/install_torch.sh", python, torch], check=True, cwd=ROOT)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pins = ["--constraint", str(constraints)]
        subprocess.run([*pip, *pins, *project["dependencies"]], check=True)
        ready.touch()
    return base


def follow(readme: str, reader: Reader) -> None:
    """Do what each block says. Those that begin with make are for a clone, and run there."""
    printed = ""
    if not FROM_REPOSITORY.search(readme):
        sys.exit("the README does not install from the repository")
    for language, text in FENCE.findall(readme):
        if language == "sh" and not text.startswith("make "):
            # `pip` itself would run the base environment's, whose path is written into it.
            commands = FROM_REPOSITORY.sub("", text)
            for line in commands.replace("pip install", "python -m pip install").splitlines():
                printed += reader.run(["bash", "-euc", line])
        elif language == "python":
            if HUB_NAME in text:
                reader.run(["python", "-c", STAND_INS])
            told = reader.run(["python", "-W", "error", "-c", text])
            if "print(" in text and not told.strip():
                sys.exit(f"this printed nothing:\n{text}")
    compare_tables(read_table(readme), read_table(printed))
    pictures = sorted(path.name for path in (reader.folder / "demo").glob("kept-*.png"))
    if len(pictures) < 6:
        sys.exit(f"`{ASK}` was to draw six images, and drew {pictures}")


def read_table(text: str) -> dict[str, list[str]]:
    """The rows of the table of methods, by method; its headings are those of "method"."""
    rows: dict[str, list[str]] = {}
    for line in text.splitlines():
        plain = re.sub(r"\*\*|</?u>", "", line)
        cells = [cell.strip() for cell in plain.strip("|").split("|")]
        if cells[:2] == HEADING or (rows and len(cells) == len(rows[HEADING[0]])):
            rows[cells[0]] = cells
        elif rows:
            break
    return {name: cells for name, cells in rows.items() if not name.startswith("---")}


def compare_tables(written: dict[str, list[str]], printed: dict[str, list[str]]) -> None:
    """The README's table is what its command prints."""
    if list(written) != list(printed) or len(written) != 1 + 5:
        sys.exit(f"the README's table has rows {list(written)}, its command {list(printed)}")
    headings = written.pop(HEADING[0])
    if headings != printed[HEADING[0]]:
        sys.exit(f"the README's headings are {headings}, its command's {printed[HEADING[0]]}")
    costs = headings.index("tokens left")
    for method, cells in written.items():
        for place in range(2, headings.index("FLOPs %") + 1):
            tolerance = ANSWERS if place < costs else COSTS
            if abs(float(cells[place]) - float(printed[method][place])) > tolerance:
                sys.exit(f"the README says {cells}, its command {printed[method]}")
    print("    the README's table is what its command prints")


def _shorten(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if len(lines) == 1 else f"{lines[0]} ... ({len(lines)} lines)"


if __name__ == "__main__":
    main()
