"""What boulder is shown in one step: parts of pictures, with texts about what they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from boulder.assembly import Boulder, see
from boulder.easy_questions import limit_phrasings
from boulder.question_trees import Text, TextTree, grow_tree
from boulder.stages import Stage
from tokencover.pebble.data import (
    NONE,
    PICTURE_TOKENS,
    SCENE_GROUP_INDEX,
    Phrase,
    Question,
    Scene,
    describe_objects,
    draw_scene,
    label_scene,
    make_scene,
    restrict_scene,
)
from tokencover.pebble.model import normalise_pictures
from tokencover.pebble.training import deal_parts
from tokencover.pebble.vocabulary import REGIONS

PHRASE: Final = "phrase"
SALT: Final = 0xB01D


@dataclass(frozen=True)
class PartLesson:
    """Parts of pictures, all with as many patches.

    Attributes
    ----------
    features
        The tower's, of the patches shown, shape (parts, patches, width).
    positions
        Which patches these are, shape (parts, patches).
    trees
        Texts about each part.
    """

    features: Tensor
    positions: Tensor
    trees: list[TextTree]


def write_question(boulder: Boulder, question: Question) -> Text:
    """A question with its answer; the end would cost a token of each, and is learned at once."""
    asked = boulder.encode(" " + question.text)
    answer = boulder.encode_answer(question.answer)
    return Text(question.kind, (*asked, answer), len(asked), len(asked))


def write_phrase(boulder: Boulder, phrase: Phrase) -> Text:
    """An object's words; without where it lies, which would take several tokens."""
    words = [word for word in phrase.words if word not in REGIONS]
    tokens = boulder.encode(" the " + " ".join(words))
    return Text(PHRASE, tokens, 1, len(tokens) - 1)


def make_lesson(
    boulder: Boulder, stage: Stage, seeds: list[int], coin: np.random.Generator
) -> PartLesson:
    """Make what a step shows; the same for the same seeds and coin.

    Parameters
    ----------
    boulder
        Its tower sees, its tokenizer writes.
    stage
        What to show and to ask.
    seeds
        Of the scenes.
    coin
        Draws how many patches there are.
    """
    scenes = [make_scene(seed) for seed in seeds]
    with torch.no_grad():
        seen = see(boulder.llava, normalise_pictures([draw_scene(scene) for scene in scenes]))
    patches = int(coin.choice(stage.patches))
    questions = limit_phrasings(stage.phrasings)
    features, positions, trees = [], [], []
    for scene, its_features in zip(scenes, seen, strict=True):
        rng = np.random.default_rng([scene.seed, SALT])
        for part in deal_parts(rng, find_ground(scene), stage.things, patches)[: stage.parts]:
            shown = restrict_scene(scene, part)
            asked = dict.fromkeys(questions.ask(shown, stage.kinds))
            told = describe_objects(shown, rng)[: stage.phrases]
            texts = [write_question(boulder, question) for question in asked]
            texts += [write_phrase(boulder, phrase) for phrase in told]
            features.append(its_features[torch.from_numpy(part)])
            positions.append(torch.from_numpy(part))
            trees.append(grow_tree(texts))
    return PartLesson(torch.stack(features), torch.stack(positions), trees)


def find_ground(scene: Scene) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which patches hold no object's centre and no animal, shape (576,)."""
    stuff = label_scene(scene)[:, SCENE_GROUP_INDEX["stuff"]]
    return np.asarray(stuff != NONE).reshape(PICTURE_TOKENS)
