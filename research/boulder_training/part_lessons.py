"""What boulder is shown in one step: parts of images, with texts about what they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from research.boulder_training.assembly import Boulder, see
from research.boulder_training.easy_questions import limit_phrasings
from research.boulder_training.question_trees import Text, TextTree, grow_tree
from research.boulder_training.stages import Stage
from research.pebble_training import deal_parts
from research.pebble_training.patch_labels import NONE, SCENE_GROUP_INDEX, label_scene
from research.pebble_training.phrases import Phrase, describe_objects, restrict_scene
from tokencover_models.pebble.data import PICTURE_TOKENS, Question, Scene, draw_scene, make_scene
from tokencover_models.pebble.model import normalise_pictures
from tokencover_models.pebble.vocabulary import REGIONS

PHRASE: Final = "phrase"
SALT: Final = 0xB01D


@dataclass(frozen=True)
class PartLesson:
    """Parts of images, all with as many patches.

    Attributes
    ----------
    features
        The vision encoder's, of the patches shown, shape (parts, patches, width).
    positions
        Which patches these are, shape (parts, patches).
    trees
        Texts about each part.
    """

    features: Tensor
    positions: Tensor
    trees: list[TextTree]


def encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Token ids of a text, without the token that begins a prompt."""
    return tuple(tokenizer(text, add_special_tokens=False).input_ids)


def write_question(tokenizer: Any, question: Question, ended: bool = False) -> Text:
    """A question with its answer, and the end that would cost a token of each."""
    asked = encode(tokenizer, " " + question.text)
    answer = encode(tokenizer, " " + question.answer)
    end = (tokenizer.eos_token_id,) if ended else ()
    return Text(question.kind, (*asked, *answer, *end), len(asked), len(asked))


def write_phrase(tokenizer: Any, phrase: Phrase) -> Text:
    """An object's words; without where it lies, which would take several tokens."""
    words = [word for word in phrase.words if word not in REGIONS]
    tokens = encode(tokenizer, " the " + " ".join(words))
    return Text(PHRASE, tokens, 1, len(tokens) - 1)


def make_lesson(boulder: Boulder, stage: Stage, patches: int, seeds: list[int]) -> PartLesson:
    """Make what a step shows; the same for the same seeds.

    Parameters
    ----------
    boulder
        Its vision encoder sees, its tokenizer writes.
    stage
        What to show and to ask.
    patches
        Of each part.
    seeds
        Of the scenes.
    """
    scenes = [make_scene(seed) for seed in seeds]
    with torch.no_grad():
        seen = see(boulder.llava, normalise_pictures([draw_scene(scene) for scene in scenes]))
    kinds = (*stage.kinds, *(stage.whole_kinds if patches == PICTURE_TOKENS else ()))
    questions = limit_phrasings(stage.phrasings)
    features, positions, trees = [], [], []
    for scene, its_features in zip(scenes, seen, strict=True):
        rng = np.random.default_rng([scene.seed, SALT])
        ground = compute_ground_mask(scene)
        for part in deal_parts(rng, ground, stage.things, patches)[: stage.parts]:
            shown = restrict_scene(scene, part)
            asked = dict.fromkeys(questions.ask(shown, kinds))
            told = describe_objects(shown, rng)[: stage.phrases]
            ended = rng.random(len(asked)) < stage.ends
            texts = [
                write_question(boulder.tokenizer, *each) for each in zip(asked, ended, strict=True)
            ]
            texts += [write_phrase(boulder.tokenizer, phrase) for phrase in told]
            features.append(its_features[torch.from_numpy(part)])
            positions.append(torch.from_numpy(part))
            trees.append(grow_tree(texts))
    return PartLesson(torch.stack(features), torch.stack(positions), trees)


def compute_ground_mask(scene: Scene) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which patches hold no object's centre and no animal, shape (576,)."""
    stuff = label_scene(scene)[:, SCENE_GROUP_INDEX["stuff"]]
    return np.asarray(stuff != NONE).reshape(PICTURE_TOKENS)
