"""Where the class token of Pebble's vision encoder looks, block by block.

    python -m research.study.pebble_class_token --split validation --scenes 40

Several methods rank visual tokens by the class token's attention. That is a fair signal only if it
lies on what images hold, so this prints how much of it does, beside the share of patches that
hold something: equal shares mean that it looks anywhere.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from research.pebble_training.patch_labels import NONE, SCENE_GROUP_INDEX, label_scene
from tokencover_models.pebble import load_pebble
from tokencover_models.pebble.data import Scene, draw_scene, list_seeds, make_scene
from tokencover_models.pebble.model import VISION_FEATURE_LAYER, normalise_pictures


def main() -> None:
    """Print one line a block."""
    options = _read_options()
    torch.set_num_threads(1)
    model: Any = load_pebble(options.checkpoint)[0]
    tower = model.model.vision_tower
    tower.set_attn_implementation("eager")
    rows = []
    for seed in list_seeds(options.split, options.scenes):
        scene = make_scene(seed)
        objects, decorations = mark_patches(scene)
        with torch.inference_mode():
            seen = tower(normalise_pictures([draw_scene(scene)]), output_attentions=True)
        shares = [measure_share(weights, objects) for weights in seen.attentions]
        beside = [measure_share(weights, decorations) for weights in seen.attentions]
        rows.append([*shares, *beside, objects.mean(), decorations.mean()])
    *blocks, object_area, decoration_area = np.array(rows).mean(0)
    print(f"area: objects and animals {object_area:.1%}, decorations {decoration_area:.1%}")
    count = len(blocks) // 2
    for block in range(count):
        note = "  <- makes the visual tokens" if block == count + VISION_FEATURE_LAYER else ""
        print(
            f"block {block}: objects and animals {blocks[block]:.1%}, "
            f"decorations {blocks[count + block]:.1%}{note}"
        )


def mark_patches(scene: Scene) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Mark patches that hold an object's centre or an animal, and those with a decoration."""
    labels = label_scene(scene)
    objects = labels[:, SCENE_GROUP_INDEX["stuff"]] == NONE
    return objects, (labels[:, SCENE_GROUP_INDEX["color"]] != NONE) & ~objects


def measure_share(weights: Tensor, patches: NDArray[np.bool_]) -> float:
    """Fraction of the class token's attention to patches that some of them get, mean over heads.

    Parameters
    ----------
    weights
        Attention of one image, shape (1, heads, tokens, tokens), the class token first.
    patches
        Which ones, shape (patches,).
    """
    looks = weights[0, :, 0, 1:]
    return float((looks[:, torch.from_numpy(patches)].sum(1) / looks.sum(1)).mean())


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--checkpoint", type=Path, help="folder; by default the shipped model")
    parser.add_argument("--split", default="test", choices=("test", "validation"))
    parser.add_argument("--scenes", type=int, default=40, help="how many (default 40)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
