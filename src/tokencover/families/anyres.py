"""Pictures of any resolution: a base view, then a tiled view without its padding.

LLaVA-Next, LLaVA-OneVision and Granite 4 Vision share it. The tiles cover the picture at the
resolution, among those the model was trained on, that loses least of it; what the tiles have beyond
the picture is cut away again, so the tiled view's rows and columns span the picture from edge to
edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tokencover.families.layout import Media


def measure_base(media: Media) -> int:
    """Tokens along one side of a view; fewer than patches where a share of them is left."""
    vision = media.config.vision_config
    side: int = vision.image_size // vision.patch_size
    rate = getattr(media.config, "downsample_rate", None)
    return side if rate is None else int(side * Fraction(rate))


def measure_tiles(media: Media, size: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of the tiled view of a picture of this height and width."""
    view: int = media.config.vision_config.image_size
    best = choose_resolution(size, media.config.image_grid_pinpoints)
    rows, columns = (length // view * measure_base(media) for length in best)
    return cut_padding(size, rows, columns)


def choose_resolution(size: Sequence[int], resolutions: Sequence[Sequence[int]]) -> tuple[int, int]:
    """The resolution that keeps most of the picture's pixels, then the one with least padding."""
    height, width = size

    def rate_loss(resolution: Sequence[int]) -> tuple[int, int]:
        tall, wide = resolution
        scale = min(wide / width, tall / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return -kept, tall * wide - kept

    tall, wide = min(resolutions, key=rate_loss)
    return tall, wide


def cut_padding(size: Sequence[int], rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns that are left when the padding is cut from both sides alike."""
    height, width = size
    # Rounded before it is cut to an integer: the models do so, against errors like 2.9999999999.
    if width / height > columns / rows:
        filled = int(round(height * (columns / width), 7))
        return rows - (rows - filled) // 2 * 2, columns
    filled = int(round(width * (rows / height), 7))
    return rows, columns - (columns - filled) // 2 * 2
