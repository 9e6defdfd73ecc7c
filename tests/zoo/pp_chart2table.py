"""PP-Chart2Table: GOT-OCR 2's class under a configuration of its own."""

from dataclasses import replace
from functools import partial

from transformers import PPChart2TableConfig

from . import got_ocr2

ENTRY = replace(
    got_ocr2.ENTRY,
    name="pp_chart2table",
    build=partial(got_ocr2.build, config_class=PPChart2TableConfig),
    kinds=("single", "ragged", "text_only", "mixed"),
    alike="got_ocr2",
)
