"""GLM-GA: GLM-4.6V's class under a configuration of its own."""

from transformers import Glm46VForConditionalGeneration, GlmgaConfig

from .glm4v import builder, entry

ENTRY = entry("glmga", builder(Glm46VForConditionalGeneration, GlmgaConfig))
