"""Pictures beside and above each other, on white."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image


def flow(images: Sequence[Image.Image], width: int, gap: int) -> Image.Image:
    """Side by side, in as many rows as it takes to stay within `width`."""
    rows: list[list[Image.Image]] = [[]]
    for image in images:
        used = sum(each.width + gap for each in rows[-1])
        if rows[-1] and used + image.width > width:
            rows.append([])
        rows[-1].append(image)
    return stack([_row(row, gap) for row in rows], gap)


def stack(images: Sequence[Image.Image], gap: int) -> Image.Image:
    """One below the other."""
    height = sum(image.height for image in images) + gap * (len(images) - 1)
    sheet = Image.new("RGB", (max(image.width for image in images), height), "white")
    top = 0
    for image in images:
        sheet.paste(image, (0, top))
        top += image.height + gap
    return sheet


def framed(image: Image.Image, margin: int) -> Image.Image:
    """The picture with a white margin on all sides."""
    sheet = Image.new("RGB", (image.width + 2 * margin, image.height + 2 * margin), "white")
    sheet.paste(image, (margin, margin))
    return sheet


def _row(images: Sequence[Image.Image], gap: int) -> Image.Image:
    width = sum(image.width for image in images) + gap * (len(images) - 1)
    sheet = Image.new("RGB", (width, max(image.height for image in images)), "white")
    left = 0
    for image in images:
        sheet.paste(image, (left, 0))
        left += image.width + gap
    return sheet
