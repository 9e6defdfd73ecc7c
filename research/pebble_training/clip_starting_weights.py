"""Weights that the model for videos starts from: those of the look-up model, fitted to frames.

Frames are a quarter of an image, so positions are those of its upper left quarter. The words for
frames take over the vectors of rows and columns, which videos do not need: these are orthogonal to
everything else that is described. Which frame it is stands in one corner, where no patch of a
image would look; one head of the vision encoder starts by looking there. Of the decoder's heads
that look things up, one matches frames where it matched regions, and two tell frames as well.
"""

from __future__ import annotations

import os
from typing import Any, Final

import torch
from torch import Tensor
from transformers import LlavaForConditionalGeneration, VideoLlavaForConditionalGeneration

from research.pebble_training.lookup_starting_weights import (
    LOOKUP_BLOCKS,
    SEEN_AXIS,
    match_words,
    pass_words,
)
from research.pebble_training.starting_weights import HEAD
from tokencover.errors import InputError
from tokencover_models.pebble import load_pebble
from tokencover_models.pebble.data import (
    COUNTER,
    FRAME_GRID,
    GRID,
    draw_clip,
    list_seeds,
    make_clip,
)
from tokencover_models.pebble.model import (
    CLIP_BLOCKS,
    CheckpointError,
    make_clip_model,
    normalise_clip,
)
from tokencover_models.pebble.vocabulary import (
    ANIMALS,
    CLIP_WORD_IDS,
    CLIP_WORDS,
    COLUMN_WORDS,
    FRAMES,
    PICTURE_WORD_IDS,
    PICTURE_WORDS,
    ROW_WORDS,
)

# Of `lookup_starting_weights.LOOKUPS`: finds things, and finds animals by name or region.
THING_HEAD: Final = 0
ANIMAL_HEAD: Final = 3
WATCHING_LAYER: Final = 2
ATTENTION: Final = 2.0
SAMPLE: Final = 2
POSITIONS: Final = "embeddings.position_embedding.weight"
# Words that describe nothing; new ones are made of them.
_BLANK_WORDS: Final = [
    PICTURE_WORD_IDS[word] for word in ("on", "of", "in", "it", "has", "with", "have", "find")
]


def load_lookup_model(folder: str | os.PathLike[str]) -> LlavaForConditionalGeneration:
    """Load a model that a model for videos can start from."""
    advice = "leave --start out to train the look-up model that videos start from"
    try:
        model: LlavaForConditionalGeneration = load_pebble(folder)[0]
    except CheckpointError as error:
        raise InputError(f"{folder} holds no checkpoint that can be read; {advice}") from error
    config: Any = model.config
    blocks = config.text_config.num_hidden_layers
    if blocks != CLIP_BLOCKS:
        raise InputError(
            f"{folder} has {blocks} decoder layers, and a model for videos grows from one with "
            f"{CLIP_BLOCKS}; {advice}"
        )
    return model


def start_clip_model(
    seed: int, lookup_folder: str | os.PathLike[str]
) -> VideoLlavaForConditionalGeneration:
    """Make a model for videos out of the look-up model.

    Parameters
    ----------
    seed
        Of the vectors of new words.
    lookup_folder
        Checkpoint to start from.
    """
    picture = load_lookup_model(lookup_folder)
    model = make_clip_model()
    with torch.no_grad():
        _fit_words(model, picture, seed)
        _fit_tower(model, picture)
    for part in ("layers", "norm"):
        target: Any = getattr(model.model.language_model, part)
        target.load_state_dict(getattr(picture.model.language_model, part).state_dict())
    projector: Any = model.model.multi_modal_projector
    projector.load_state_dict(picture.model.multi_modal_projector.state_dict())
    with torch.no_grad():
        _watch_counter(model.model.video_tower)
        _look_up_frames(model)
    share_tower(model)
    model.train()
    return model


def share_tower(model: VideoLlavaForConditionalGeneration) -> None:
    """Give the vision encoder for single images what the vision encoder for videos has learned."""
    towers: Any = model.model
    towers.image_tower.load_state_dict(towers.video_tower.state_dict())


def _fit_words(
    model: VideoLlavaForConditionalGeneration, picture: LlavaForConditionalGeneration, seed: int
) -> None:
    sources: tuple[Any, Any] = picture.get_input_embeddings(), model.get_input_embeddings()
    known: Tensor = sources[0].weight
    words: Tensor = sources[1].weight
    rng = torch.Generator().manual_seed(seed)
    mixed = torch.randn(len(CLIP_WORDS), len(_BLANK_WORDS), generator=rng) @ known[_BLANK_WORDS]
    length = known.norm(dim=1).median()
    words.copy_(length * torch.nn.functional.normalize(mixed, dim=1))
    taken = [PICTURE_WORD_IDS[place] for place in (*ROW_WORDS, *COLUMN_WORDS)][: len(FRAMES)]
    kept = [index for index in range(len(PICTURE_WORDS)) if index not in taken]
    # Two words with one vector could not be reported apart in an answer, so these are swapped.
    words[kept] = known[kept]
    frames = known[taken]
    # Rows and columns are never asked about; frames are, and must not look like parts of an image.
    frames[:, SEEN_AXIS] = 0
    words[[CLIP_WORD_IDS[frame] for frame in FRAMES]] = frames


def _fit_tower(
    model: VideoLlavaForConditionalGeneration, picture: LlavaForConditionalGeneration
) -> None:
    towers: Any = model.model
    source: Any = picture.model.vision_tower
    weights = source.state_dict()
    whole = weights[POSITIONS]
    corner = whole[1:].view(GRID, GRID, -1)[:FRAME_GRID, :FRAME_GRID].flatten(0, 1)
    weights[POSITIONS] = torch.cat([whole[:1], corner])
    towers.video_tower.load_state_dict(weights)


def _watch_counter(tower: Any) -> None:
    """Let all tokens look at the frame's number with one head, whatever they are themselves."""
    clips = [make_clip(seed) for seed in list_seeds("train", SAMPLE)]
    pixels = torch.cat([normalise_clip(draw_clip(clip)) for clip in clips])
    states = tower.pre_layrnorm(tower.embeddings(pixels))
    for layer in tower.encoder.layers[:WATCHING_LAYER]:
        states = layer(states, None)
    layer = tower.encoder.layers[WATCHING_LAYER]
    patches = layer.layer_norm1(states)[:, 1:]
    counter = COUNTER[0] * FRAME_GRID + COUNTER[1]
    difference = patches[:, counter].mean(0) - patches.mean((0, 1))
    query, key = layer.self_attn.q_proj, layer.self_attn.k_proj
    for projection in (query, key):
        projection.weight[:HEAD] = 0
        projection.bias[:HEAD] = 0
    query.bias[0] = HEAD**0.5
    key.weight[0] = ATTENTION * difference / difference.norm()


def _look_up_frames(model: VideoLlavaForConditionalGeneration) -> None:
    decoder: Any = model.model.language_model
    frames = decoder.embed_tokens.weight[[CLIP_WORD_IDS[frame] for frame in FRAMES]]
    for block in LOOKUP_BLOCKS:
        attention = decoder.layers[block].self_attn
        match_words(attention, ANIMAL_HEAD, frames, start=len(ANIMALS))
        for head in (THING_HEAD, ANIMAL_HEAD):
            pass_words(attention, head, frames, start=HEAD - len(FRAMES))
