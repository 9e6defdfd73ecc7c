"""Model types of transformers' image-text-to-text classes that no family serves, and why.

A type that a family claims counts as supported whatever stands here. Every other type of
``MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES`` must stand here; a test says which are missing.
"""

from __future__ import annotations

_CROSS = "its text reads the picture through cross-attention: the sequence has no visual tokens"
_ENCODER_DECODER = "it is an encoder-decoder: its decoder's sequence has no visual tokens"
_LINEAR = "most of its blocks are linear attention, whose state every token changes"
_INDEXED = "its blocks choose the tokens that they attend to themselves (indexed attention)"
_BOTH = "the tokens of a picture attend in both directions, not only to those before them"
_QUERIES = "its visual tokens answer learned queries and have no place in the picture"
_DISCRETE = "its pictures are codes of its vocabulary: there is no vision tower or projector"

REFUSALS: dict[str, str] = {
    "blip": _CROSS,
    "blip-2": _QUERIES,
    "chameleon": _DISCRETE,
    "cohere_compass": "visual features are added between blocks with windows: that is not tested",
    "deepseek_ocr2": _QUERIES,
    "diffusion_gemma": "it writes blocks of text by diffusion, not one token after the other",
    "emu3": _DISCRETE,
    "evolla": "it reads proteins, not pictures, and those through cross-attention",
    "florence2": _ENCODER_DECODER,
    "fuyu": "it has no vision tower: patches go straight into the decoder",
    "gemma3n": "its states are four streams of which a block reads one: that is not tested",
    "gemma4_unified": "it has no vision tower: patches go straight into the decoder",
    "git": _BOTH,
    "glm5_next": f"{_LINEAR}, and the others are indexed attention",
    "hunyuan_vl": (
        "it numbers pictures through the whole batch, so that a prompt's positions depend on the "
        "other prompts"
    ),
    "idefics": _CROSS,
    "inkling_mm_model": "all of its blocks have short convolutions, which mix neighbours",
    "instructblip": _QUERIES,
    "instructblipvideo": _QUERIES,
    "kosmos-2": _QUERIES,
    "kosmos-2.5": _QUERIES,
    "mistral4": "it is a text model without pictures",
    "minimax_m3_vl": _INDEXED,
    "mistral_large4": _INDEXED,
    "mllama": _CROSS,
    "muse_glimmer": "its blocks without windows get no positions: that is not tested",
    "muse_spark": "its blocks without windows get no positions: that is not tested",
    "nemotron_h_omni": "most blocks of its text stack are Mamba, whose state every token changes",
    "pi0": f"it predicts a robot's actions, not text, and {_BOTH}",
    "pix2struct": _ENCODER_DECODER,
    "pp_formulanet": _ENCODER_DECODER,
    "qwen4_exp": f"{_LINEAR}, and the others are indexed attention",
    "shieldgemma2": "it is a Gemma 3 that answers yes or no: prune the model inside, `model.model`",
    "t5gemma2": _ENCODER_DECODER,
    "udop": _ENCODER_DECODER,
    "unlimited_ocr": (
        "its blocks attend to the prompt and to a sliding window of the answer, through a cache of "
        "their own"
    ),
    "vision-encoder-decoder": _ENCODER_DECODER,
}
"""From ``config.model_type`` to one sentence."""
