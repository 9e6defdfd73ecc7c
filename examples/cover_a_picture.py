"""Cover a picture's patches: some for the words that were asked, the rest for everything else.

    python examples/cover_a_picture.py --words red yellow --budget 64 --out demo

No model is needed to see the idea. The 576 patches of a drawn landscape are the visual tokens
(their pixels, less the mean patch), a patch of plain colour stands for each word, and the balanced
cover of the paper (Algorithm 1) chooses which patches to keep.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from PIL import Image, ImageColor, ImageDraw
from torch import Tensor

import tokencover as tc

SIDE, PATCH = 384, 16
GRID = SIDE // PATCH
PROMPT_COLOR, VISUAL_COLOR = (255, 140, 0), (0, 120, 255)


def landscape() -> Image.Image:
    """A meadow with a house, a tree, a sun and a red balloon."""
    picture = Image.new("RGB", (SIDE, SIDE))
    draw = ImageDraw.Draw(picture)
    for line in range(SIDE):
        sky, share = line < 230, line / SIDE
        color = (int(110 + 150 * share), int(170 + 80 * share), 245) if sky else (70, 150, 60)
        shade = 0 if sky else (line - 230) // 3
        draw.line((0, line, SIDE, line), fill=(color[0], color[1] - shade, color[2]))
    draw.ellipse((300, 20, 356, 76), fill=(255, 214, 60))
    for left, top in ((40, 50), (70, 40), (96, 54), (180, 90), (206, 82)):
        draw.ellipse((left, top, left + 54, top + 28), fill=(250, 250, 252))
    draw.polygon([(60, 250), (120, 200), (180, 250)], fill=(120, 60, 40))
    draw.rectangle((72, 250, 168, 330), fill=(226, 205, 170))
    draw.rectangle((108, 282, 134, 330), fill=(90, 60, 40))
    draw.rectangle((82, 264, 102, 284), fill=(150, 200, 230))
    draw.rectangle((282, 240, 300, 320), fill=(105, 75, 45))
    draw.ellipse((246, 160, 336, 260), fill=(30, 105, 45))
    draw.ellipse((200, 130, 232, 168), fill=(214, 30, 40))
    draw.line((216, 168, 222, 250), fill=(60, 60, 60), width=2)
    return picture


def patches(picture: Image.Image) -> Tensor:
    """``(n, d)``: the pixels of each patch, row by row."""
    pixels = torch.tensor(list(picture.tobytes()), dtype=torch.float32)
    pixels = pixels.view(GRID, PATCH, -1, PATCH, 3)
    return pixels.transpose(1, 2).reshape(-1, PATCH * PATCH * 3)


def word_tokens(words: list[str]) -> Tensor:
    """One patch of plain colour a word."""
    colors = torch.tensor([ImageColor.getrgb(word)[:3] for word in words], dtype=torch.float32)
    return colors.repeat(1, PATCH * PATCH)


def overlay(picture: Image.Image, cover: tc.Cover) -> Image.Image:
    """Fade what is dropped; frame prompt centres orange and visual centres blue."""
    faded = Image.blend(picture, Image.new("RGB", picture.size, "white"), 0.75)
    draw = ImageDraw.Draw(faded)
    kinds = ((cover.visual_centers, VISUAL_COLOR), (cover.prompt_centers, PROMPT_COLOR))
    for centers, color in kinds:
        for index in centers.tolist():
            left, top = index % GRID * PATCH, index // GRID * PATCH
            box = (left, top, left + PATCH, top + PATCH)
            faded.paste(picture.crop(box), box[:2])
            draw.rectangle((left, top, left + PATCH - 1, top + PATCH - 1), outline=color, width=2)
    return faded


def main() -> None:
    """Choose, say what was chosen, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", nargs="+", default=["red", "yellow"], help="names of colours")
    parser.add_argument("--budget", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    arguments = parser.parse_args()

    picture = landscape()
    tokens = patches(picture)
    mean = tokens.mean(0)
    visual, prompt = tokens - mean, word_tokens(arguments.words) - mean
    split = tc.paper_split(arguments.budget, len(visual))
    cover = tc.mob(
        visual, prompt, budget=split.budget, prompt_budget=split.prompt_budget, fold=split.fold
    )
    assert isinstance(cover, tc.Cover)

    arguments.out.mkdir(parents=True, exist_ok=True)
    overlay(picture, cover).save(arguments.out / "kept.png")
    picture.save(arguments.out / "picture.png")
    print(f"asked about       {', '.join(arguments.words)}")
    print(f"visual tokens     {len(visual)}, kept {len(cover)}")
    print(f"prompt centres    {len(cover.prompt_centers)} (orange), {split.fold} proposed a word")
    print(f"visual centres    {len(cover.visual_centers)} (blue)")
    print(f"coupling eta      {float(tc.coupling(visual, prompt)):.3f}")
    print(f"see {arguments.out / 'picture.png'} and {arguments.out / 'kept.png'}")


if __name__ == "__main__":
    main()
