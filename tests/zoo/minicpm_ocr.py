"""MiniCPM-OCR: the code of MiniCPM-V 4.6."""

from dataclasses import replace

from transformers import MiniCPMOcrConfig, MiniCPMOcrForConditionalGeneration

from .minicpm_v import make_build, make_entry

build = make_build(MiniCPMOcrForConditionalGeneration, MiniCPMOcrConfig)
ENTRY = replace(
    make_entry("minicpm_ocr", build),
    kinds=("single", "ragged", "text_only", "mixed"),
    alike="minicpmv4_6",
)
