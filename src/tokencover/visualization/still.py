"""Still images of what was kept: one view, or all views of a prompt on one sheet.

Dropped tokens are faded, kept tokens are unchanged in a colored frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from PIL import Image, ImageDraw, ImageFont, ImageOps

from tokencover.colors import DROPPED_COLOR, FADING, ROLE_COLORS, Color, to_css
from tokencover.prompting import Medium
from tokencover.pruning import Trace
from tokencover.visualization.kept_tokens import (
    ROLE_TEXTS,
    KeptToken,
    KeptTokens,
    count_words,
    describe,
    describe_view,
    get_kept_tokens,
    number_words,
)
from tokencover.visualization.shown_images import ShownView, check_media, get_grid, list_views

TEXT_COLOR: Color = (45, 45, 45)
_SIZE, _TAG_SIZE, _SWATCH = 15, 10, 14


def flow(images: Sequence[Image.Image], width: int, gap: int) -> Image.Image:
    """Arrange images side by side, in as many rows as fit `width`."""
    rows: list[list[Image.Image]] = [[]]
    for image in images:
        used = sum(each.width + gap for each in rows[-1])
        if rows[-1] and used + image.width > width:
            rows.append([])
        rows[-1].append(image)
    return stack([stack(row, gap, across=True) for row in rows], gap)


def stack(images: Sequence[Image.Image], gap: int, *, across: bool = False) -> Image.Image:
    """Arrange images one below the other, or side by side."""
    step = int(not across)
    size = [max(image.size[axis] for image in images) for axis in (0, 1)]
    size[step] = sum(image.size[step] for image in images) + gap * (len(images) - 1)
    sheet = Image.new("RGB", (size[0], size[1]), "white")
    start = 0
    for image in images:
        sheet.paste(image, (start, 0) if across else (0, start))
        start += image.size[step] + gap
    return sheet


def draw_caption(text: str, width: int) -> Image.Image:
    """Draw text on white, no wider than `width`: lines break at spaces."""
    lines, font = [""], _load_font(_SIZE)
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    height = _SIZE + 5
    image = Image.new("RGB", (width, height * len(lines)), "white")
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text((0, number * height), line, fill=TEXT_COLOR, font=font)
    return image


def draw_key(color: Color, text: str, number: str = "") -> Image.Image:
    """Draw an entry of the legend: a patch of the color, with or without a number, and the text."""
    font = _load_font(_SIZE)
    image = Image.new("RGB", (2 * _SIZE + round(font.getlength(text)), _SIZE + 7), "white")
    draw = ImageDraw.Draw(image)
    if number:
        draw_tag(draw, (0, 2), number, color, size=_SIZE - 2)
    else:
        draw.rectangle((0, 3, _SWATCH, 3 + _SWATCH), fill=color, outline=TEXT_COLOR)
    draw.text((_SIZE + 8, 1), text, fill=TEXT_COLOR, font=font)
    return image


def draw_tag(
    draw: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    text: str,
    color: Color,
    size: int = _TAG_SIZE,
) -> None:
    """Draw a small number on its color, with its top left corner at `corner`."""
    (left, top), font = corner, _load_font(size)
    width = round(font.getlength(text))
    draw.rectangle((left, top, left + width + 3, top + size + 1), fill=color)
    draw.text((left + 2, top), text, fill="black", font=font)


@cache
def _load_font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


GAP, MARGIN = 14, 16
"""Pixels between panels, and around the whole."""
NARROWEST, WIDEST, LARGEST_PANEL = 520, 1600, 1280
"""Pixels: minimum width of captions, maximum of a row, maximum of a panel by default."""
_SIDES = ((1, 768), (2, 512), (4, 384))
"""Maximum number of panels, and pixels along the longer side of each."""
MIN_TAGGED_SIDE = 16
"""Pixels along a token's shorter side for a legible number."""
TINT = 0.65
"""The fraction of the role's color in a tinted token."""
_SMALLEST = 768
"""Minimum pixels along the longer side of a single view."""
PixelBox = tuple[int, int, int, int]
"""Left, top, right and bottom."""


def overlay(
    image: Image.Image,
    trace: Trace,
    words: Sequence[str] | None = None,
    *,
    medium: int = 0,
    frame: int = 0,
) -> Image.Image:
    """Fade what was dropped, and frame what was kept.

    Prompt centers are framed orange, visual centers blue, tokens of methods that have neither pink.
    For captions and a legend see `panels`.

    Parameters
    ----------
    image : Image
        What the model was shown, or the frame of a video. A small one is enlarged.
    trace : Trace
        What happened to the sample.
    words : sequence of str, optional
        The word of each prompt center, from `words_of_centers`; each prompt center then has the
        number of its word, 1 for the word that selected most.
    medium, frame : int
        Which image or video of the prompt, and which view or frame of it.
    """
    grid = get_grid(trace, medium, frame)
    scale = max(1, -(-_SMALLEST // max(image.size)))
    large = image.convert("RGB").resize(
        (image.width * scale, image.height * scale), Image.Resampling.NEAREST
    )
    kept = get_kept_tokens(trace, words)
    return draw_view(large, grid, kept.of_view(medium, frame), number_words(words))


def tint_tokens(image: Image.Image, trace: Trace, *, side: int = 2) -> Image.Image:
    """Draw a tiny image for terminals: kept tokens are tinted, `side` pixels each."""
    rows, columns = get_grid(trace, 0, 0)
    size = columns * side, rows * side
    crisp = image.convert("RGB").resize(size, Image.Resampling.BOX)
    tiny = Image.blend(crisp, Image.new("RGB", size, "white"), FADING)
    for token in get_kept_tokens(trace).of_view(0, 0):
        box = _locate_pixels(token, (rows, columns), size)
        part = crisp.crop(box)
        tint = Image.new("RGB", part.size, ROLE_COLORS[token.role])
        tiny.paste(Image.blend(part, tint, TINT), box[:2])
    return tiny


def list_legend(trace: Trace) -> list[tuple[str, str]]:
    """Return the colors of kept tokens in this trace, each with its meaning."""
    kept = get_kept_tokens(trace)
    return [
        (to_css(ROLE_COLORS[role]), text) for role, text in ROLE_TEXTS.items() if kept.count(role)
    ]


def panels(
    images: Sequence[Medium],
    trace: Trace,
    words: Sequence[str] | None = None,
    *,
    title: str = "",
    side: int | None = None,
) -> Image.Image:
    """Draw what was kept of every image of a prompt.

    Each image is one panel, or two: its base view and its tiles. A video is a strip of frames.

    Parameters
    ----------
    images : sequence of Image or of list of Image
        The images and videos of the prompt in its order, a video as the list of its frames.
    trace : Trace
        What happened to the sample.
    words : sequence of str, optional
        The word of each prompt center, from `words_of_centers`. Prompt centers have the number of
        their word, and the legend lists the words.
    title : str
        A line above everything, for example the question.
    side : int, optional
        Approximate pixels of a panel's longer side; by default it depends on the number of panels.
    """
    check_media(images, trace)
    kept, numbers = get_kept_tokens(trace, words), number_words(words)
    rows = [list_views(image, trace, medium) for medium, image in enumerate(images)]
    count = sum(len(row) for row in rows)
    drawn = [
        [_draw_panel(shown, kept, numbers, side or _choose_side(shown, count)) for shown in row]
        for row in rows
    ]
    body = flow([flow(row, WIDEST, GAP) for row in drawn], WIDEST, GAP)
    width = max(body.width, NARROWEST)
    head = [draw_caption(text, width) for text in (title, describe(trace)) if text]
    keys = [
        flow(row, width, GAP) for row in (_draw_legend(kept), _draw_word_keys(words or ())) if row
    ]
    return ImageOps.expand(stack([stack(head, 2), body, *keys], GAP), MARGIN, "white")


def _choose_side(shown: ShownView, count: int) -> int:
    """Return more pixels for fewer panels, and enough for a legible number in every token."""
    side = next((pixels for most, pixels in _SIDES if count <= most), 300)
    (rows, columns), (width, height) = shown.grid, shown.image.size
    legible = MIN_TAGGED_SIDE * max(width, height) / min(width / columns, height / rows)
    return max(side, min(LARGEST_PANEL, round(legible)))


def _draw_panel(
    shown: ShownView, kept: KeptTokens, numbers: dict[str, int], side: int
) -> Image.Image:
    large = fit_to_grid(shown.image, shown.grid, side)
    here = kept.of_view(shown.medium, shown.frame)
    text = describe_view(kept, shown.medium, shown.frame, shown.grid)
    image = draw_view(large, shown.grid, here, numbers)
    return stack([draw_caption(f"{shown.title}: {text}", image.width), image], 2)


def _draw_legend(kept: KeptTokens) -> list[Image.Image]:
    """Draw the meaning of the colors that occur."""
    keys = [
        draw_key(ROLE_COLORS[role], text) for role, text in ROLE_TEXTS.items() if kept.count(role)
    ]
    return [*keys, draw_key(DROPPED_COLOR, "faded: dropped")]


def _draw_word_keys(words: Sequence[str]) -> list[Image.Image]:
    """Draw the number of each word, the word, and how many centers it selected."""
    return [
        draw_key(ROLE_COLORS["prompt"], f"{word} ({count})", number=str(number))
        for number, (word, count) in enumerate(count_words(words), start=1)
    ]


def draw_view(
    image: Image.Image,
    grid: tuple[int, int],
    kept: Iterable[KeptToken],
    numbers: Mapping[str, int],
) -> Image.Image:
    """Fade dropped tokens, frame kept ones, and number their words; `image` has its final size."""
    crisp = image.convert("RGB")
    faded = Image.blend(crisp, Image.new("RGB", crisp.size, "white"), FADING)
    draw = ImageDraw.Draw(faded)
    for token in kept:
        box = _locate_pixels(token, grid, crisp.size)
        short = min(box[2] - box[0], box[3] - box[1])
        faded.paste(crisp.crop(box), box[:2])
        left, top, right, bottom = box
        draw.rectangle(
            (left, top, max(left, right - 1), max(top, bottom - 1)),
            outline=ROLE_COLORS[token.role],
            width=min(3, max(1, short // 12)),
        )
        if token.word is not None and token.word in numbers and short >= MIN_TAGGED_SIDE:
            draw_tag(draw, (left, top), str(numbers[token.word]), ROLE_COLORS[token.role])
    return faded


def fit_to_grid(image: Image.Image, grid: tuple[int, int], side: int) -> Image.Image:
    """Resize to a longer side of about `side` pixels, with all tokens of one size."""
    rows, columns = grid
    scale = side / max(image.size)
    width = columns * max(1, round(image.width * scale / columns))
    height = rows * max(1, round(image.height * scale / rows))
    whole = width % image.width == 0 and height % image.height == 0
    how = Image.Resampling.NEAREST if whole else Image.Resampling.LANCZOS
    return image.convert("RGB").resize((width, height), how)


def _locate_pixels(token: KeptToken, grid: tuple[int, int], size: tuple[int, int]) -> PixelBox:
    """Return the box of a token in the image."""
    (rows, columns), (width, height) = grid, size
    return (
        token.column * width // columns,
        token.row * height // rows,
        (token.column + 1) * width // columns,
        (token.row + 1) * height // rows,
    )
