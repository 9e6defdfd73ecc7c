"""MoB beyond the paper: what was tried, at equal FLOPs, on validation scenes.

    python -m research.beyond.run --out results/beyond

What is done is kept in the folder, and the same command continues from there.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

import torch

import tokencover as tc
from research.beyond.variants import Variant
from research.study.plan import build_amounts, make_tasks
from tokencover.evaluation import load_model
from tokencover.tables import TextTable, print_table
from tokencover_models.pebble.data import PICTURE_TOKENS

TRIED: Final[dict[str, dict[str, Any]]] = {
    "the paper's MoB": {"method": "mob"},
    "its split: auto": {"method": "mob", "split": "auto"},
    "before the decoder": {"method": "mob", "after": 0},
    "before, split: auto": {"method": "mob", "after": 0, "split": "auto"},
    "before, visual half": {"method": "farthest", "after": 0},
    "before, weighed words": {"method": "variant", "stages": (0,), "first": "weighed"},
    "before, visual half, folded 0.3": {"method": "mob_stages", "stages": (0,), "folded": 0.3},
    "stages": {"method": "mob_stages"},
    "stages by cosines": {"method": "variant", "later": "words"},
    "stages by weighed words": {"method": "variant", "later": "weighed"},
    "stages, folded 0.3": {"method": "mob_stages", "folded": 0.3},
    "stages, first weighed": {"method": "variant", "first": "weighed"},
    "stages, mass 0.5": {"method": "variant", "mass": 0.5},
    "stages, mass 0.8": {"method": "variant", "mass": 0.8},
    "ratio 2": {"method": "mob_stages", "ratio": 2.0},
    "ratio 5": {"method": "mob_stages", "ratio": 5.0},
    "asked 0.3": {"method": "mob_stages", "asked": 0.3},
    "asked 1": {"method": "mob_stages", "asked": 1.0},
    "after 3": {"method": "mob_stages", "stages": (0, 3)},
    "after 5": {"method": "mob_stages", "stages": (0, 5)},
    "three stages": {"method": "mob_stages", "stages": (0, 3, 6), "ratio": 2.0},
    "stages, then wiped": {"method": "final_wipe", "inner": {"method": "mob_stages"}},
}


def main() -> None:
    """Ask, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--checkpoint", default="pebble", help="whom to ask")
    parser.add_argument("--scenes", type=int, default=40, help="validation scenes")
    parser.add_argument("--only", nargs="+", default=list(TRIED), choices=TRIED, help="ways")
    parser.add_argument("--out", type=Path, default=Path("results/beyond"), help="folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tc.register(Variant)
    model = load_model(options.checkpoint)
    amounts = build_amounts(model.model, "flops", PICTURE_TOKENS)
    specs = [_give(TRIED[name], each.budget) for name in options.only for each in amounts]
    results = tc.evaluate(
        model,
        methods=specs,
        tasks=make_tasks("pebble", "validation", options.scenes),
        split="validation",
        limit=options.scenes,
        batch_size=20,
        max_new_tokens=4,
        out=options.out,
    )
    unpruned, *rows = results.to_dicts()
    scores = [row["accuracy"] for row in rows]
    table = TextTable(
        ["right, %, at the cost of K =", *(str(each.cost) for each in amounts)],
        [
            ["unpruned", *[_tell(unpruned["accuracy"])] * len(amounts)],
            *(
                [name, *map(_tell, scores[place * len(amounts) :][: len(amounts)])]
                for place, name in enumerate(options.only)
            ),
        ],
    )
    print_table(table)


def _give(spec: dict[str, Any], budget: int) -> dict[str, Any]:
    """The same with a budget; what goes on top of another method has that one's."""
    if "inner" in spec:
        return {**spec, "inner": _give(spec["inner"], budget)}
    return {**spec, "budget": budget, "budget_mode": "flops"}


def _tell(score: float | None) -> str:
    return "-" if score is None else f"{100 * score:.1f}"


if __name__ == "__main__":
    main()
