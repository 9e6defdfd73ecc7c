"""GOT-OCR 2 and PP-Chart2Table (the same model): crops, 4 x 4 patches become one token."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, count_patches, grid, read_pixels

STRIDE = 4
"""Two convolutions of stride 2 stand between the tower and the decoder."""


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each crop, in order: the model is not told which crops make one image."""
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "crops channels height width", "pixel_values")
    rows, columns = (-(-side // STRIDE) for side in count_patches(media, *values.shape[-2:]))
    return [grid(1, rows, columns)] * len(values), []


FAMILY = Family(name="GOT-OCR 2", model_types=("got_ocr2", "pp_chart2table"), layouts=find_layouts)
