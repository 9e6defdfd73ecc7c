"""Images in a terminal."""

from __future__ import annotations

import pytest
from PIL import Image

from tokencover.cli.terminal_image import HALF, draw_blocks, print_image


def test_two_pixels_share_a_letter() -> None:
    picture = Image.new("RGB", (2, 4), (255, 0, 0))
    picture.putpixel((1, 1), (0, 0, 255))
    found = draw_blocks(picture, 2)
    assert found.plain == f"{HALF * 2}\n{HALF * 2}\n"
    styles = [str(span.style) for span in found.spans]
    assert styles == [
        "#ff0000 on #ff0000",
        "#ff0000 on #0000ff",
        "#ff0000 on #ff0000",
        "#ff0000 on #ff0000",
    ]


def test_a_wide_picture_stays_wide() -> None:
    lines = draw_blocks(Image.new("L", (400, 100)), 40).plain.splitlines()
    assert [len(line) for line in lines] == [40] * 5


@pytest.mark.parametrize(("variables", "drawn"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_picture_is_drawn_where_colours_are(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    drawn: bool,
) -> None:
    """Without them every half block looks the same."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for name, value in {**terminal, **variables}.items():
        monkeypatch.setenv(name, value)
    print_image(Image.new("RGB", (4, 4), "red"))
    assert (HALF in capsys.readouterr().out) == drawn
