import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.pebble_training.patch_labels import NONE, SCENE_GROUPS, label_scene, weigh_words
from tokencover.errors import InputError
from tokencover_models.pebble.data import PICTURE_SIZE, draw_scene, make_scene
from tokencover_models.pebble.data.scene import mark_covered
from tokencover_models.pebble.data.sprites import ANIMAL_SPRITES, DECORATION_SPRITES, DIGIT_SPRITES
from tokencover_models.pebble.vocabulary import ANIMALS, DIGITS, PICTURE_WORD_IDS

SEEDS = st.integers(0, 2**40)


@given(SEEDS)
@settings(max_examples=20)
def test_the_same_seed_gives_the_same_scene_and_picture(seed: int) -> None:
    first, second = make_scene(seed), make_scene(seed)
    assert first == second
    assert np.array_equal(np.asarray(draw_scene(first)), np.asarray(draw_scene(second)))


def test_other_seeds_give_other_scenes() -> None:
    assert len({make_scene(seed).things for seed in range(50)}) == 50


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(InputError, match="-1"):
        make_scene(-1)


@given(SEEDS)
@settings(max_examples=50)
def test_nothing_overlaps_and_one_region_is_empty(seed: int) -> None:
    scene = make_scene(seed)
    patches = [
        (thing.row + down, thing.column + right)
        for thing in scene.things
        for down in (-1, 0, 1)
        for right in (-1, 0, 1)
    ]
    patches += [(animal.row, animal.column) for animal in scene.animals]
    assert len(patches) == len(set(patches))
    assert all(0 <= row < 24 and 0 <= column < 24 for row, column in patches)
    assert scene.empty_region not in {thing.region for thing in scene.things}
    assert 28 <= len(scene.things) <= 32
    assert 6 <= len(scene.animals) <= 9
    assert len({animal.kind for animal in scene.animals}) == len(scene.animals)
    assert len({animal.region for animal in scene.animals}) == len(scene.animals)


def test_ground_differs_from_patch_to_patch() -> None:
    for seed in range(20):
        scene = make_scene(seed)
        labels = label_scene(scene)[~mark_covered(scene.things).reshape(-1)]
        assert len(np.unique(labels, axis=0)) > 0.5 * len(labels)


def test_every_object_is_described_where_its_centre_is() -> None:
    scene = make_scene(3)
    weights = weigh_words(label_scene(scene))
    for thing in scene.things:
        patch = weights[thing.row * 24 + thing.column]
        words = (thing.color, thing.shape, thing.digit, thing.region)
        assert all(patch[PICTURE_WORD_IDS[word]] > 0 for word in words)
        assert np.count_nonzero(patch) == 6
    for animal in scene.animals:
        patch = weights[animal.row * 24 + animal.column]
        assert patch[PICTURE_WORD_IDS[animal.kind]] == patch[PICTURE_WORD_IDS[animal.color]] == 1


def test_labels_stay_within_their_groups() -> None:
    labels = label_scene(make_scene(5))
    assert labels.shape == (576, len(SCENE_GROUPS))
    for index, group in enumerate(SCENE_GROUPS):
        assert labels[:, index].min() >= NONE
        assert labels[:, index].max() < len(group.words)


def test_sprites_have_the_right_size() -> None:
    assert set(ANIMAL_SPRITES) == set(ANIMALS)
    assert set(DIGIT_SPRITES) == set(DIGITS)
    for sprite in (*ANIMAL_SPRITES.values(), *DECORATION_SPRITES.values()):
        assert [len(row) for row in sprite.split("/")] == [8] * 8
    for sprite in DIGIT_SPRITES.values():
        assert [len(row) for row in sprite.split("/")] == [4] * 6


def test_pictures_have_the_size_the_model_wants() -> None:
    picture = draw_scene(make_scene(0))
    assert picture.size == (PICTURE_SIZE, PICTURE_SIZE) == (192, 192)
    assert picture.mode == "RGB"
