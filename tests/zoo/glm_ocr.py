"""GLM-OCR: GLM-4V with a smaller decoder."""

from transformers import GlmOcrConfig, GlmOcrForConditionalGeneration

from .glm4v import builder, entry

ENTRY = entry("glm_ocr", builder(GlmOcrForConditionalGeneration, GlmOcrConfig))
