"""Model types of transformers' image-text-to-text classes that no family serves, and why.

A type that a family claims counts as supported whatever stands here. Every other type of
``MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES`` must stand here; a test says which are missing.
"""

from __future__ import annotations

_CROSS = "its text reads the picture through cross-attention: the sequence has no visual tokens"
_ENCODER_DECODER = "it is an encoder-decoder: its decoder's sequence has no visual tokens"
_INDEXED = "blocks that attend choose the tokens they attend to themselves (indexed attention)"
_BOTH = "the tokens of a picture attend in both directions, not only to those before them"
_QUERIES = "32 learned queries are all of a picture, and its text model (OPT, T5) has no rotations"
_SINES = "its text model adds positions to its embeddings, and calls its blocks without rotations"
_DISCRETE = "its pictures are codes of its vocabulary: there is no vision tower or projector"
_CONVOLVED = "its attention has short convolutions in it: that is not tested"

REFUSALS: dict[str, str] = {
    "blip": _CROSS,
    "blip-2": _QUERIES,
    "chameleon": _DISCRETE,
    "diffusion_gemma": "it writes blocks of text by diffusion, not one token after the other",
    "dots3_note": _INDEXED,
    "emu3": _DISCRETE,
    "evolla": "it reads proteins, not pictures, and those through cross-attention",
    "florence2": _ENCODER_DECODER,
    "fuyu": "it takes patches and their places in arguments of its own: that is not tested",
    "gemma3n": "its states are four streams of which a block reads one: that is not tested",
    "git": _BOTH,
    "glm5_next": _INDEXED,
    "idefics": _CROSS,
    "inkling2": _CONVOLVED,
    "inkling_mm_model": _CONVOLVED,
    "instructblip": _QUERIES,
    "instructblipvideo": _QUERIES,
    "kosmos-2": _SINES,
    "kosmos-2.5": _SINES,
    "mistral4": "it is a text model without pictures",
    "minimax_m3_vl": _INDEXED,
    "mistral_large4": _INDEXED,
    "mllama": _CROSS,
    "nemotron_h_omni": "most blocks of its text stack are Mamba: that is not tested",
    "pi0": f"it predicts a robot's actions, not text, and {_BOTH}",
    "pix2struct": _ENCODER_DECODER,
    "pp_formulanet": _ENCODER_DECODER,
    "qwen4_exp": _INDEXED,
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
