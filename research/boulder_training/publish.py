"""Write what a run learned as the checkpoint that `tokencover.load_boulder` reads."""

from __future__ import annotations

import argparse
from pathlib import Path

from research.boulder_training.assembly import prepare
from tokencover_models.boulder import BOULDER_CHECKPOINT


def main() -> None:
    """Convert the state named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, default=Path("runs/boulder/state.pt"))
    parser.add_argument("--out", type=Path, default=BOULDER_CHECKPOINT)
    arguments = parser.parse_args()
    boulder = prepare()
    boulder.load(arguments.state)
    boulder.publish(arguments.out)
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
