"""LFM3-VL: grids of patches before a decoder of convolutions, windows and full attention."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.patch_grids import find_layouts

FAMILY = Family(
    name="LFM3-VL",
    model_types=("lfm3_vl",),
    layouts=find_layouts,
    norm="embedding_norm",
    windows=True,
    reads_attention=False,
    needs={"lfm3_vl": "5.23"},
)
