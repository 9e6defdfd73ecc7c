"""Run every example as it is, in the folder that is given, and print what each of them printed.

    python -m tests.docs.run_examples FOLDER

One process, so that torch is loaded once; scripts run as ``__main__``, cells of the notebook one
after the other.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"


def main(folder: Path) -> None:
    """Run all of them."""
    told = {}
    for path in [*sorted(EXAMPLES.glob("*.py")), *sorted(EXAMPLES.glob("*.ipynb"))]:
        place = folder / path.stem
        place.mkdir()
        os.chdir(place)
        sys.argv = [str(path)]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if path.suffix == ".py":
                runpy.run_path(str(path), run_name="__main__")
            else:
                run_notebook(path)
        told[path.name] = printed.getvalue()
    print(json.dumps(told))


def run_notebook(path: Path) -> None:
    """Run its cells in order, in one session."""
    space: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, {cell['id']}", "exec"), space)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
