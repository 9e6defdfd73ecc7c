"""Still pictures of what was kept: one view by itself, or all views of a prompt on one sheet.

Dropped tokens fade, kept ones stay crisp in a coloured frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from PIL import Image, ImageDraw

from tokencover.prompting import Medium
from tokencover.pruning import Trace
from tokencover.visualization.center_words import count_words, number_words
from tokencover.visualization.colors import DROPPED_COLOR, FADING, ROLE_COLORS, to_css
from tokencover.visualization.kept_tokens import (
    ROLE_TEXTS,
    KeptToken,
    KeptTokens,
    describe,
    describe_view,
    find_kept_tokens,
)
from tokencover.visualization.sheet_layout import (
    add_margin,
    draw_caption,
    draw_key,
    draw_tag,
    flow,
    stack,
)
from tokencover.visualization.shown_pictures import ShownView, check_media, find_grid, list_views

GAP, MARGIN = 14, 16
"""Pixels between panels, and around the whole."""
NARROWEST, WIDEST, LARGEST_PANEL = 520, 1600, 1280
"""Pixels of the captions at least, of a row at most, and of a panel that is chosen by itself."""
_ROOM = ((1, 768), (2, 512), (4, 384))
"""Up to so many panels have so many pixels along their longer side."""
LEAST_FOR_TAGS = 16
"""Pixels that a token needs along its shorter side for a number to be read in it."""
TINT = 0.65
"""How much of a tiny token is the colour of its role."""
_SMALLEST = 768
"""Pixels along the longer side of a view that is drawn by itself, at least."""
PixelBox = tuple[int, int, int, int]
"""Left, top, right and bottom."""


def overlay(
    picture: Image.Image,
    trace: Trace,
    words: Sequence[str] | None = None,
    *,
    medium: int = 0,
    frame: int = 0,
) -> Image.Image:
    """Fade what was dropped, and frame what was kept.

    Prompt centres are framed orange, visual centres blue, tokens of methods that have neither
    pink. The picture has nothing else on it; for captions and a legend see `panels`.

    Parameters
    ----------
    picture : Image
        What the model was shown, or the frame of a video. A small one is enlarged.
    trace : Trace
        What happened to the sample.
    words : sequence of str, optional
        The word of each prompt centre, from `words_of_centers`; each prompt centre then bears the
        number of its word, 1 for the word that chose most.
    medium, frame : int
        Which image or video of the prompt, and which view or frame of it.
    """
    grid = find_grid(trace, medium, frame)
    scale = max(1, -(-_SMALLEST // max(picture.size)))
    large = picture.convert("RGB").resize(
        (picture.width * scale, picture.height * scale), Image.Resampling.NEAREST
    )
    kept = find_kept_tokens(trace, words)
    return draw_view(large, grid, kept.of_view(medium, frame), number_words(words))


def tint_tokens(picture: Image.Image, trace: Trace, *, side: int = 2) -> Image.Image:
    """A tiny picture for coarse screens: kept tokens are tinted, because no frame would be seen.

    Parameters
    ----------
    picture : Image
        What the model was shown.
    trace : Trace
        What happened to the sample.
    side : int
        Pixels of a token.
    """
    rows, columns = find_grid(trace, 0, 0)
    size = columns * side, rows * side
    crisp = picture.convert("RGB").resize(size, Image.Resampling.BOX)
    tiny = Image.blend(crisp, Image.new("RGB", size, "white"), FADING)
    for token in find_kept_tokens(trace).of_view(0, 0):
        box = _locate_pixels(token, (rows, columns), size)
        part = crisp.crop(box)
        tint = Image.new("RGB", part.size, ROLE_COLORS[token.role])
        tiny.paste(Image.blend(part, tint, TINT), box[:2])
    return tiny


def list_legend(trace: Trace) -> list[tuple[str, str]]:
    """The colours that a picture of this has, each with what it means."""
    kept = find_kept_tokens(trace)
    return [
        (to_css(ROLE_COLORS[role]), text) for role, text in ROLE_TEXTS.items() if kept.count(role)
    ]


def panels(
    pictures: Sequence[Medium],
    trace: Trace,
    words: Sequence[str] | None = None,
    *,
    title: str = "",
    side: int | None = None,
) -> Image.Image:
    """Draw what was kept of every picture of a prompt.

    Each image is one panel, or two: its base view and its tiles. A video is a strip of frames.

    Parameters
    ----------
    pictures : sequence of Image or of list of Image
        The images and videos of the prompt in its order, a video as the list of its frames.
    trace : Trace
        What happened to the sample.
    words : sequence of str, optional
        The word of each prompt centre, from `words_of_centers`. Prompt centres bear the number of
        their word, and the legend tells the words.
    title : str
        What to write above everything, for example the question.
    side : int, optional
        Pixels of a panel's longer side, about; by default as many as there is room for.
    """
    check_media(pictures, trace)
    kept, numbers = find_kept_tokens(trace, words), number_words(words)
    rows = [list_views(picture, trace, medium) for medium, picture in enumerate(pictures)]
    count = sum(len(row) for row in rows)
    made = [
        [_draw_panel(shown, kept, numbers, side or _choose_side(shown, count)) for shown in row]
        for row in rows
    ]
    body = flow([flow(row, WIDEST, GAP) for row in made], WIDEST, GAP)
    width = max(body.width, NARROWEST)
    head = [draw_caption(text, width) for text in (title, describe(trace)) if text]
    keys = [
        flow(row, width, GAP) for row in (_draw_legend(kept), _draw_word_keys(words or ())) if row
    ]
    return add_margin(stack([stack(head, 2), body, *keys], GAP), MARGIN)


def _choose_side(shown: ShownView, count: int) -> int:
    """More pixels for fewer panels, but enough for a number in every token."""
    room = next((pixels for most, pixels in _ROOM if count <= most), 300)
    (rows, columns), (width, height) = shown.grid, shown.picture.size
    legible = LEAST_FOR_TAGS * max(width, height) / min(width / columns, height / rows)
    return max(room, min(LARGEST_PANEL, round(legible)))


def _draw_panel(
    shown: ShownView, kept: KeptTokens, numbers: dict[str, int], side: int
) -> Image.Image:
    large = fit_to_grid(shown.picture, shown.grid, side)
    here = kept.of_view(shown.medium, shown.frame)
    told = describe_view(kept, shown.medium, shown.frame, shown.grid)
    image = draw_view(large, shown.grid, here, numbers)
    return stack([draw_caption(f"{shown.title}: {told}", image.width), image], 2)


def _draw_legend(kept: KeptTokens) -> list[Image.Image]:
    """What the colours mean that there are."""
    keys = [
        draw_key(ROLE_COLORS[role], text) for role, text in ROLE_TEXTS.items() if kept.count(role)
    ]
    return [*keys, draw_key(DROPPED_COLOR, "faded: dropped")]


def _draw_word_keys(words: Sequence[str]) -> list[Image.Image]:
    """The number of each word, the word, and how many centres it chose."""
    return [
        draw_key(ROLE_COLORS["prompt"], f"{word} ({count})", number=str(number))
        for number, (word, count) in enumerate(count_words(words), start=1)
    ]


def draw_view(
    picture: Image.Image,
    grid: tuple[int, int],
    kept: Iterable[KeptToken],
    numbers: Mapping[str, int],
) -> Image.Image:
    """Fade what was dropped, frame what was kept, number the words.

    Parameters
    ----------
    picture : Image
        What the model was shown, in the size to draw it.
    grid : tuple of int
        Rows and columns of tokens.
    kept : iterable of KeptToken
        The kept tokens of this view.
    numbers : mapping
        The number that stands for each word.
    """
    crisp = picture.convert("RGB")
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
        if token.word is not None and token.word in numbers and short >= LEAST_FOR_TAGS:
            draw_tag(draw, (left, top), str(numbers[token.word]), ROLE_COLORS[token.role])
    return faded


def fit_to_grid(picture: Image.Image, grid: tuple[int, int], side: int) -> Image.Image:
    """The picture with a longer side of about `side` pixels, and all tokens of one size."""
    rows, columns = grid
    scale = side / max(picture.size)
    width = columns * max(1, round(picture.width * scale / columns))
    height = rows * max(1, round(picture.height * scale / rows))
    whole = width % picture.width == 0 and height % picture.height == 0
    how = Image.Resampling.NEAREST if whole else Image.Resampling.LANCZOS
    return picture.convert("RGB").resize((width, height), how)


def _locate_pixels(token: KeptToken, grid: tuple[int, int], size: tuple[int, int]) -> PixelBox:
    """Left, top, right and bottom of a token's part of the picture."""
    (rows, columns), (width, height) = grid, size
    return (
        token.column * width // columns,
        token.row * height // rows,
        (token.column + 1) * width // columns,
        (token.row + 1) * height // rows,
    )
