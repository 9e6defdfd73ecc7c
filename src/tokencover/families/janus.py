"""Janus, which is built like DeepSeek-VL where it reads pictures; drawing them is not pruned."""

from __future__ import annotations

from dataclasses import replace

from tokencover.families import deepseek_vl

FAMILY = replace(deepseek_vl.FAMILY, name="Janus", model_types=("janus",))
