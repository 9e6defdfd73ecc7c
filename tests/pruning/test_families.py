"""What the families say about a model must be what the model itself does."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from inspect import signature
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import (
    LlavaNextConfig,
    LlavaNextModel,
    LlavaOnevisionConfig,
    LlavaOnevisionModel,
    PreTrainedModel,
)
from transformers.image_processing_utils import select_best_resolution

from tests.pruning.variants import sizes
from tests.zoo import ZOO, Enclosed, Grid, Inputs, Tiled, WithClass
from tests.zoo import Layout as Truth
from tests.zoo.anyres import BASE, PINPOINTS, SIDE
from tests.zoo.entry import noise
from tests.zoo.oracle import base_model, pooled
from tests.zoo.vision_encoders import PATCH as PATCH_SIZE
from tokencover.families import FAMILIES, Family, Media, family_of
from tokencover.families.layout import (
    CLASS,
    NEWLINE,
    PATCH,
    Layout,
    add_newline,
    grid,
    join_views,
)
from tokencover.families.llava import add_features, select_resolution
from tokencover.families.qwen import cut_deepstack

Place = tuple[int, int, int, int]

NAMES = tuple(ZOO)
CASES = [(name, kind) for name in NAMES for kind in ZOO[name].telling_kinds]
ROUTES = ("forward", "generate")
METHODS = {"images": "get_image_features", "videos": "get_video_features"}
MIXING = (
    "attn.proj", "attn.out_proj", "attn.o_proj", "attention.o", "attention.projection_layer",
)  # fmt: skip
"""The last step of self-attention in vision encoders; without it a patch attends to itself only."""

WITHOUT_PLACES = ("aria", "idefics2", "deepseek_ocr2")
"""Families whose tokens are read from the whole image, so none of them has a location."""

every_name = pytest.mark.parametrize("name", NAMES)


@cache
def model_of(name: str) -> PreTrainedModel:
    return ZOO[name].build(layers=2)


@cache
def local_model_of(name: str) -> PreTrainedModel:
    return without_mixing(ZOO[name].build(layers=2))


def without_mixing(model: PreTrainedModel) -> PreTrainedModel:
    encoders = family_of(model).vision_encoders
    for name, parameter in model.named_parameters():
        if name.startswith(encoders) and any(part in name for part in MIXING):
            nn.init.zeros_(parameter)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            _keep_middle(module)
    return model


@torch.no_grad()
def _keep_middle(convolution: nn.Conv2d) -> None:
    """Let a convolution that looks over the edge of a patch see its middle only."""
    middle = convolution.padding[0]
    if isinstance(middle, int) and middle > 0:
        weight = convolution.weight[..., middle, middle].clone()
        convolution.weight.zero_()
        convolution.weight[..., middle, middle] = weight


@contextmanager
def captured(model: PreTrainedModel) -> Iterator[dict[str, Mapping[str, Any]]]:
    """Collect the arguments of the encoder's calls; Qwen3-VL's video calls its image method."""
    base = base_model(model)
    calls: dict[str, Mapping[str, Any]] = {}
    inside = False

    def watch(name: str, original: Any) -> Any:
        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:
                return original(*args, **kwargs)
            bound = signature(original).bind(*args, **kwargs).arguments
            others = bound.pop("kwargs", {})
            calls[name] = {**bound, **others}
            inside = True
            try:
                return original(*args, **kwargs)
            finally:
                inside = False

        return call

    methods = {name: method for name, method in METHODS.items() if hasattr(base, method)}
    for name, method in methods.items():
        setattr(base, method, watch(name, getattr(base, method)))
    try:
        yield calls
    finally:
        for method in methods.values():
            delattr(base, method)


def media_of(model: PreTrainedModel, inputs: Inputs, route: str = "forward") -> Media:
    with captured(model) as calls, torch.no_grad():
        if route == "forward":
            model(**inputs)
        else:
            model.generate(**inputs, max_new_tokens=2, do_sample=False)  # type: ignore[operator]
    call = {name: inputs.get(name) for name in family_of(model).call_names}
    return Media(model.config, **calls, call=call)


def layouts_of(model: PreTrainedModel, media: Media) -> tuple[list[Layout], list[Layout]]:
    return family_of(model).layouts(media)


def features_of(model: PreTrainedModel, media: Media) -> Tensor:
    """All features of the images, or of the videos if there are no images, in order."""
    name = "images" if media.images is not None else "videos"
    arguments = {**(getattr(media, name) or {}), "return_dict": True}
    with torch.no_grad():
        features = pooled(getattr(base_model(model), METHODS[name])(**arguments))
    return torch.cat([feature.flatten(0, -2) for feature in features])


def places(layout: Layout) -> list[Place]:
    columns = (layout.kind, layout.frame, layout.row, layout.column)
    return [tuple(place) for place in torch.stack(columns, 1).tolist()]


def raster(shape: Grid) -> list[Place]:
    frames, rows, columns = (range(size) for size in shape)
    return [(PATCH, f, r, c) for f in frames for r in rows for c in columns]


def true_places(truth: Truth) -> list[Place]:
    """Write every token of the zoo's layout down, one by one."""
    if isinstance(truth, Grid):
        return raster(truth)
    if isinstance(truth, WithClass):
        of_frame = len(raster(truth.base)) // truth.base.frames
        found = raster(truth.base)
        for frame in reversed(range(truth.base.frames)):
            found.insert(frame * of_frame, (CLASS, frame, -1, -1))
        return found
    if isinstance(truth, Enclosed):
        found = [(NEWLINE, -1, -1, -1)]
        for row in range(truth.base.rows):
            found += [(PATCH, 0, row, column) for column in range(truth.base.columns)]
            found.append((NEWLINE, 0, -1, -1))
        return [*found, (NEWLINE, -1, -1, -1)]
    if truth.tiles is None:
        return [*raster(truth.base), (NEWLINE, -1, -1, -1)]
    found = raster(truth.base)
    for row in range(truth.tiles.rows):
        found += [(PATCH, 1, row, column) for column in range(truth.tiles.columns)]
        found.append((NEWLINE, 1, -1, -1))
    return found


def truths(name: str, inputs: Inputs) -> tuple[list[Truth], list[Truth]]:
    """The zoo's layouts; an image of several crops counts as that many where no one says more."""
    images, videos = ZOO[name].layouts(inputs)
    if ZOO[name].crops:
        crops = [(each, each.frames) for each in images if isinstance(each, Grid)]
        images = [each._replace(frames=1) for each, count in crops for _ in range(count)]
    return images, videos


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_layouts_are_those_of_the_zoo(name: str, kind: str, route: str) -> None:
    entry, model = ZOO[name], model_of(name)
    inputs = entry.inputs(kind, "left")
    media = media_of(model, inputs, route)
    assert (media.images is not None) == ("pixel_values" in inputs)
    assert (media.videos is not None) == ("pixel_values_videos" in inputs)
    for found, expected in zip(layouts_of(model, media), truths(name, inputs), strict=True):
        assert [places(layout) for layout in found] == [true_places(truth) for truth in expected]
        for layout, truth in zip(found, expected, strict=True):
            assert layout.shape == (truth if isinstance(truth, Grid) else truth.base)
            assert len(layout) == truth.tokens
            newlines, classes = ((layout.kind == kind).nonzero().flatten() for kind in (1, 2))
            assert newlines.tolist() == truth.newline_offsets()
            assert classes.tolist() == truth.class_offsets()


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_layouts_have_one_entry_for_each_visual_token_of_a_row(name: str, kind: str) -> None:
    """Layouts follow each other row by row: the tokens of a row end where a layout ends."""
    entry, model = ZOO[name], model_of(name)
    inputs = entry.inputs(kind, "right")
    found = layouts_of(model, media_of(model, inputs))
    for layouts, token in zip(found, (entry.image_token_id, entry.video_token_id), strict=True):
        ends = torch.tensor([0, *(len(layout) for layout in layouts)]).cumsum(0)
        in_rows = (inputs["input_ids"] == token).sum(1) if token is not None else torch.zeros(1)
        assert set(in_rows.long().cumsum(0).tolist()) <= set(ends.tolist())
        assert int(in_rows.sum()) == int(ends[-1])


@every_name
def test_family_knows_the_modules(name: str) -> None:
    entry, model = ZOO[name], model_of(name)
    family = family_of(model)
    assert model.config.model_type in family.model_types
    assert family.layers(model) == list(model.get_submodule(f"{family.decoder}.layers").children())
    assert len(family.layers(model)) == model.config.get_text_config().num_hidden_layers == 2
    assert (family.decoder_hooks is cut_deepstack) == entry.deepstack
    assert (family.decoder_hooks is add_features) == (name == "granite4_vision")
    ids = {entry.image_token_id, entry.video_token_id} - {None}
    if family.frames_as_images:
        ids = {entry.image_token_id}
    assert set(family.visual_ids(model.config)) == ids
    seen = modules_that_ran(model, entry.inputs(entry.kinds[-1]))
    assert {family.base, family.projector} <= seen
    assert seen & set(family.vision_encoders)
    width = model.config.get_text_config().hidden_size
    assert _last_width(model.get_submodule(family.projector)) == width


def modules_that_ran(model: PreTrainedModel, inputs: Inputs) -> set[str]:
    seen: set[str] = set()
    handles = [
        module.register_forward_hook(lambda *_, name=name: seen.add(name))
        for name, module in model.named_modules()
    ]
    with torch.no_grad():
        model(**inputs)
    for handle in handles:
        handle.remove()
    return seen


def _last_width(module: nn.Module) -> int:
    if isinstance(module, nn.Embedding):  # Ovis2's visual vocabulary
        return module.embedding_dim
    linear = [each for each in module.modules() if isinstance(each, nn.Linear)]
    if not linear:  # Gemma 3 multiplies with a weight of its own
        return next(module.parameters(recurse=False)).shape[-1]
    return linear[-1].out_features


class Before:
    """What the features were at first, and which token each of them makes."""

    def __init__(self, model: PreTrainedModel, media: Media) -> None:
        images, videos = layouts_of(model, media)
        self.features = features_of(model, media)
        self.places = [
            (number, *place) for number, one in enumerate(images or videos) for place in places(one)
        ]

    def list_changed(self, model: PreTrainedModel, after: Media) -> list[tuple[int, ...]]:
        """The places of tokens that other media give other features."""
        change = (features_of(model, after) - self.features).abs().amax(-1)
        return [self.places[index] for index in (change > 1e-5).nonzero().flatten().tolist()]


@pytest.mark.parametrize("kind", ["single", "video"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_PLACES])
def test_a_token_is_where_its_pixels_are(name: str, kind: str) -> None:
    """Without attention, other pixels at one location change the token of that location."""
    entry, model = ZOO[name], local_model_of(name)
    if kind not in entry.kinds or name == "llava_onevision":  # its frames blend into each other
        kind = "ragged"
    sample = entry.samples(kind)[0]
    before = media_of(model, entry.collate([sample]))
    images, videos = layouts_of(model, before)
    _, rows, columns = (images or videos)[0].shape
    first = Before(model, before)
    for token in range(0, rows * columns, 3):
        after = media_of(model, entry.collate([sample.repainted(0, token)]))
        expected = [(0, PATCH, 0, *divmod(token, columns))]
        assert first.list_changed(model, after) == expected


@pytest.mark.parametrize("name", ["llava_next", "llava_onevision"])
@pytest.mark.parametrize("tile", [0, 1])
def test_a_token_of_the_tiled_view_is_where_its_pixels_are(name: str, tile: int) -> None:
    entry, model = ZOO[name], local_model_of(name)
    sample = entry.samples("single")[0]
    inputs = entry.collate([sample])
    before = media_of(model, inputs)
    layout = layouts_of(model, before)[0][0]
    rows, columns = (int(axis[layout.frame == 1].max()) + 1 for axis in (layout.row, layout.column))
    tall, wide = (
        length // PATCH_SIZE for length in select_best_resolution(sample.media[0].size, PINPOINTS)
    )
    top, left = (tall - rows) // 2, (wide - columns) // 2
    first = Before(model, before)
    for token in range(SIDE * SIDE):
        row, column = divmod(token, SIDE)
        changed = painted(inputs["pixel_values"], (0, tile + 1), row, column, PATCH_SIZE)
        after = media_of(model, {**inputs, "pixel_values": changed})
        there = (
            row + tile // (wide // SIDE) * SIDE - top,
            column + tile % (wide // SIDE) * SIDE - left,
        )
        seen = 0 <= there[0] < rows and 0 <= there[1] < columns
        expected = [(0, PATCH, 1, *there)] if seen else []
        assert first.list_changed(model, after) == expected


def painted(pixels: Tensor, picture: tuple[int, ...], row: int, column: int, side: int) -> Tensor:
    changed = pixels.clone()
    rows, columns = (slice(side * first, side * (first + 1)) for first in (row, column))
    changed[picture][:, rows, columns] += 1.0
    return changed


def test_the_call_goes_before_the_configuration() -> None:
    model = model_of("llava")
    arguments = {"pixel_values": noise(1, 1, 3, 20, 20), "vision_feature_select_strategy": "full"}
    media = Media(model.config, arguments)
    images, _ = layouts_of(model, media)
    assert len(images[0]) == len(features_of(model, media)) == 26


def test_video_llava_knows_the_former_name_of_pixels() -> None:
    model = model_of("video_llava")
    media = Media(model.config, {"pixel_values_images": noise(1, 2, 3, 16, 16)})
    assert [layout.shape for layout in layouts_of(model, media)[0]] == [(1, 4, 4)] * 2


@pytest.mark.parametrize("name", ["smolvlm", "idefics3"])
def test_crops_of_zeros_are_left_out_as_the_model_does(name: str) -> None:
    model = model_of(name)
    pixels = noise(1, 2, 3, 3, 24, 24)
    pixels[0, 1] = pixels[1, 2] = 0.0
    media = Media(model.config, {"pixel_values": pixels})
    assert sum(map(len, layouts_of(model, media)[0])) == len(features_of(model, media)) == 4 * 9


@pytest.mark.parametrize("fine", [False, True])
def test_tiles_of_granite_docling_on_both_paths_of_its_connector(fine: bool) -> None:
    model = model_of("granite_docling")
    real = torch.tensor([[True, False], [True, True]])
    arguments = {"pixel_values": noise(1, 2, 2, 3, 24, 24), "pixel_attention_mask": real}
    if fine:
        arguments["tile_fine_mask"] = torch.ones(2, dtype=torch.bool)
    media = Media(model.config, arguments)
    tokens = 3 * 36 if fine else 3 * 9
    assert sum(map(len, layouts_of(model, media)[0])) == len(features_of(model, media)) == tokens


def test_smolvlm_keeps_one_of_the_crops_if_all_are_zeros() -> None:
    model = model_of("smolvlm")
    media = Media(model.config, {"pixel_values": torch.zeros(2, 2, 3, 24, 24)})
    assert sum(map(len, layouts_of(model, media)[0])) == len(features_of(model, media)) == 9


@pytest.mark.parametrize("given", [sizes((24, 14)), [(24, 14)], sizes((24, 14)).numpy()])
def test_sizes_may_be_a_tensor_an_array_or_a_list(given: Any) -> None:
    model = model_of("llava_next")
    images, _ = layouts_of(model, Media(model.config, {"image_sizes": given}))
    assert places(images[0]) == true_places(Tiled(BASE, Grid(1, 6, 4)))


@pytest.mark.parametrize("name", ["llava_next", "llava_onevision"])
@given(size=st.tuples(st.integers(28, 3000), st.integers(28, 3000)))
@example(size=(205, 656))  # 205 * (48 / 656) is 14.999999999999998
def test_views_of_real_size_are_those_of_the_model(name: str, size: tuple[int, int]) -> None:
    """The model's own packing, on features of width 1: newline tokens are 1, all others 0."""
    model_class, config = REAL_SIZE[name]
    side = config.vision_config.image_size // config.vision_config.patch_size
    tall, wide = select_best_resolution(size, config.image_grid_pinpoints)
    crops = 1 + tall * wide // config.vision_config.image_size**2
    media = Media(config, {"image_sizes": [size]})
    extra: dict[str, Any] = {"vision_feature_select_strategy": "default"}
    if name == "llava_onevision":
        extra = {"vision_aspect_ratio": config.vision_aspect_ratio}
    packed, _ = model_class.pack_image_features(
        SimpleNamespace(config=config),
        [torch.zeros(crops, side * side, 1)],
        [size],
        image_newline=torch.ones(1),
        **extra,
    )
    layout = family_of_type(name).layouts(media)[0][0]
    assert torch.equal(layout.kind == NEWLINE, packed[0][:, 0] == 1)


@given(
    st.permutations([(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)]),
    st.tuples(st.integers(28, 1000), st.integers(28, 1000)),
)
def test_best_resolution_is_the_one_of_the_processor_in_any_order(
    resolutions: list[tuple[int, int]], size: tuple[int, int]
) -> None:
    assert select_resolution(size, resolutions) == select_best_resolution(size, resolutions)


REAL_SIZE: dict[str, tuple[Any, Any]] = {
    "llava_next": (LlavaNextModel, LlavaNextConfig()),
    "llava_onevision": (LlavaOnevisionModel, LlavaOnevisionConfig()),
}


def family_of_type(model_type: str) -> Family:
    return next(family for family in FAMILIES if model_type in family.model_types)


def test_added_newlines_and_joined_views_count_frames_on() -> None:
    layout = join_views(grid(2, 1, 1), add_newline(grid(1, 1, 2)), grid(1, 1, 1))
    assert layout.frame.tolist() == [0, 1, 2, 2, -1, 3]
    assert layout.kind.tolist() == [PATCH, PATCH, PATCH, PATCH, NEWLINE, PATCH]
    assert layout.shape == (2, 1, 1)
