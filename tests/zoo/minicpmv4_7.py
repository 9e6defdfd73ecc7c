"""MiniCPM-V 4.7: as 4.6, with positions on the canvas of an image."""

from dataclasses import replace

from transformers import MiniCPMV4_7Config, MiniCPMV4_7ForConditionalGeneration

from .minicpm_v import MARKS, make_build, make_entry, pack

build = make_build(MiniCPMV4_7ForConditionalGeneration, MiniCPMV4_7Config, **MARKS)
ENTRY = replace(make_entry("minicpmv4_7", build), pack=pack)
