"""The web page's image: what it says under the pointer, and what it is made of."""

from __future__ import annotations

import base64
import io
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image

import tokencover as tc
from tests.visualization.traces import make_trace
from tokencover.colors import KEPT_COLOR, PROMPT_COLOR, VISUAL_COLOR, to_css
from tokencover.visualization import describe, hover_html

SVG = "{http://www.w3.org/2000/svg}"


def tokens_in(html: str) -> dict[str, ElementTree.Element]:
    """Every token of a page by its title."""
    figure = ElementTree.fromstring(html)
    return {each.findtext(f"{SVG}title", ""): each for each in figure.iter(f"{SVG}rect")}


def test_every_kept_token_says_what_it_is() -> None:
    trace = make_trace({(0, 0): (4, 5)}, [(0, 0, 3, 0), (0, 0, 1, 2)], [(0, 0, 0, 4)])
    tokens = tokens_in(hover_html(Image.new("RGB", (50, 40)), trace, ["red", "fish & chips"]))
    assert {title: token.get("stroke") for title, token in tokens.items()} == {
        "row 4, column 1 · prompt center 1 · chosen by “red”": to_css(PROMPT_COLOR),
        "row 2, column 3 · prompt center 2 · chosen by “fish & chips”": to_css(PROMPT_COLOR),
        "row 1, column 5 · visual center 1": to_css(VISUAL_COLOR),
    }
    token = tokens["row 2, column 3 · prompt center 2 · chosen by “fish & chips”"]
    middle = [
        float(token.get(at, "")) + float(token.get(length, "")) / 2
        for at, length in (("x", "width"), ("y", "height"))
    ]
    assert middle == pytest.approx([1000 * 2.5 / 5, 800 * 1.5 / 4], abs=0.02)


def test_veil_has_hole_per_kept_token() -> None:
    kept = [(0, 0, 0, 1), (0, 0, 2, 0)]
    figure = ElementTree.fromstring(
        hover_html(Image.new("RGB", (30, 30)), make_trace({(0, 0): (3, 3)}, others=kept))
    )
    (veil,) = figure.iter(f"{SVG}path")
    assert veil.get("fill-rule") == "evenodd"
    assert (veil.get("d") or "").split("z")[:-1] == [
        "M0 0H1000V1000H0",
        "M333.33 0.00h333.33v333.33h-333.33",
        "M0.00 666.67h333.33v333.33h-333.33",
    ]


def test_the_image_comes_along() -> None:
    image = Image.radial_gradient("L").convert("RGB")
    figure = ElementTree.fromstring(hover_html(image, make_trace({(0, 0): (2, 2)})))
    (element,) = figure.iter(f"{SVG}image")
    head, data = (element.get("href") or "").split(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as sent:
        assert sent.tobytes() == image.tobytes()


def test_method_without_centers_shows_locations_only() -> None:
    trace = make_trace({(0, 0): (2, 2)}, others=[(0, 0, 1, 0)])
    tokens = tokens_in(hover_html(Image.new("RGB", (20, 20)), trace))
    assert {title: each.get("stroke") for title, each in tokens.items()} == {
        "row 2, column 1 · kept": to_css(KEPT_COLOR)
    }


def test_view_and_frame_have_separate_images() -> None:
    grids = {(0, 0): (2, 2), (1, 0): (2, 2), (1, 1): (2, 2)}
    trace = make_trace(grids, visual=[(0, 0, 0, 0), (1, 1, 1, 1)])
    frames = [Image.new("RGB", (20, 20))] * 2
    html = hover_html(frames, trace, medium=1)
    assert html.count("<svg") == 2
    assert list(tokens_in(html)) == ["row 2, column 2 · visual center 2"]
    assert "video 2, frame 2: 2 x 2 tokens, 1 kept" in html
    with pytest.raises(tc.InputError, match="no image 2"):
        hover_html(frames, trace, medium=2)


def test_the_caption_counts_tokens_without_a_place() -> None:
    grids = {(0, 0): (2, 2), (0, 1): (3, 2)}
    trace = make_trace(grids, [(0, 0, 0, 0)], [(0, 1, 2, 1), (0, 1, 0, 0)], newlines=True)
    assert describe(trace) == (
        "6 of 13 visual tokens kept, 1 chosen for the question, 2 chosen to cover the rest, "
        "3 without a grid location (newline or class tokens)"
    )
    assert f"<figcaption>{describe(trace)}</figcaption>" in hover_html(
        Image.new("RGB", (9, 9)), trace
    )


def test_the_caption_counts_merged_states() -> None:
    trace = make_trace({(0, 0): (2, 2)}, others=[(0, 0, 0, 0), (0, 0, 1, 1)])
    for plane in (trace.kept, trace.medium, trace.frame, trace.row, trace.column):
        plane[1] = -1
    assert describe(trace) == "2 of 4 visual tokens kept, 1 merged of several"
    assert list(tokens_in(hover_html(Image.new("RGB", (9, 9)), trace))) == [
        "row 1, column 1 · kept"
    ]


def test_caption_mentions_wipe() -> None:
    trace = make_trace({(0, 0): (2, 2)}, wiped=torch.tensor([0, 3]))
    assert describe(trace).startswith("2 of 4 visual tokens kept until the last layers and 0 in")
