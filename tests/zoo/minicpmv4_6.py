"""MiniCPM-V 4.6: slices of an image, positions of one axis, mostly linear attention."""

from transformers import MiniCPMV4_6Config, MiniCPMV4_6ForConditionalGeneration

from .minicpm_v import make_build, make_entry

build = make_build(MiniCPMV4_6ForConditionalGeneration, MiniCPMV4_6Config)
ENTRY = make_entry("minicpmv4_6", build)
