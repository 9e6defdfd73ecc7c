"""GLM-4.6V: GLM-4V's parts under another head."""

from transformers import Glm46VConfig, Glm46VForConditionalGeneration

from .glm4v import builder, entry

ENTRY = entry("glm46v", builder(Glm46VForConditionalGeneration, Glm46VConfig))
