"""What the zoo knows about one model family: a tiny model, its inputs, and where everything is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .layout import Layout
from .vocabulary import (
    ASSISTANT,
    FIRST_WORD,
    IMAGE,
    PAD,
    SPECIAL_IDS,
    USER,
    Ids,
    words,
)

Inputs = dict[str, Tensor]
Side = Literal["left", "right"]

SIDES: tuple[Side, ...] = ("left", "right")


class Build(Protocol):
    """Give the tiny model: seeded, in eval mode, always with the same weights."""

    def __call__(
        self,
        attn_implementation: str = "sdpa",
        layers: int = 5,
        dtype: torch.dtype = torch.float32,
    ) -> PreTrainedModel: ...


@dataclass(frozen=True)
class Medium:
    """One image or video as the processor of the family would hand it on.

    ``pixels`` is ``(crops or frames, 3, height, width)``, or ``(patches, values)`` for the Qwens.
    ``token_side`` is the side in pixels of the region of one token, 0 if ``pixels`` are patches of
    which ``patches_per_token`` consecutive ones make a token.
    """

    pixels: Tensor
    layout: Layout
    video: bool = False
    size: tuple[int, ...] = ()
    token_side: int = 0
    patches_per_token: int = 4

    @property
    def columns(self) -> int:
        grid = self.layout if isinstance(self.layout, tuple) else self.layout.base
        return grid.columns

    def repainted(self, token: int | None = None) -> "Medium":
        """Change all pixels, or those under one token of the first crop or frame."""
        pixels = self.pixels.clone()
        if token is None:
            pixels = pixels.flip(-1) * 0.7 - 0.3
        elif self.token_side == 0:
            first = token * self.patches_per_token
            pixels[first : first + self.patches_per_token] += 1.0
        else:
            top, left = (self.token_side * part for part in divmod(token, self.columns))
            rows, columns = slice(top, top + self.token_side), slice(left, left + self.token_side)
            pixels[0, :, rows, columns] = 1.0 - pixels[0, :, rows, columns]  # no norm undoes it
        return replace(self, pixels=pixels)


@dataclass(frozen=True)
class Sample:
    """One row of a batch: its token ids and its media in the order of the prompt."""

    ids: tuple[int, ...]
    media: tuple[Medium, ...] = ()

    def repainted(self, medium: int = 0, token: int | None = None) -> "Sample":
        media = list(self.media)
        media[medium] = media[medium].repainted(token)
        return replace(self, media=tuple(media))


@dataclass(frozen=True)
class Span:
    """Where one medium lies in the batch: its row, the positions of its tokens, its layout."""

    row: int
    positions: Tensor
    layout: Layout
    video: bool


@dataclass(frozen=True)
class ZooEntry:
    """One family. ``build`` gives the model, ``inputs`` what its forward takes.

    Parameters
    ----------
    name
        Name of the family, the module's name.
    build
        Makes the tiny model.
    chat
        Writes one user turn around its parts.
    write
        The tokens of one medium with the tags that stand around it.
    media
        Makes the media of a sample from what :data:`RECIPES` says.
    pack
        Stacks the media of a batch into the tensors that the model takes.
    layouts
        Reads the layouts of all images and of all videos of a batch back from the tensors.
    kinds
        The kinds of batch that the family supports, see :data:`RECIPES`.
    crops
        Whether the model is not told which crops make one image.
    deepstack
        Whether visual features are added again between the first blocks.
    recurrent
        Whether some blocks are linear attention or convolutions.
    flash
        Whether the class itself is right under flash attention and can be pruned with it; not if
        its blocks get positions of several axes, which transformers reads as several documents, nor
        if they have masks of their own.
    own_masks
        Whether blocks do not see all tokens before them, and those alone: windows, or tokens of a
        image that see each other.
    counts_images
        Whether positions count the images of the whole batch, so that only the first row with
        images can be what it is alone.
    alike
        Another entry whose blocks are called in the same way, if there is one: every method runs
        on that one, so that it need not run on this one too.
    """

    name: str
    build: Build
    chat: Callable[[Sequence[Ids]], Ids]
    write: Callable[[Medium], Ids]
    media: Callable[["Recipe"], tuple[Medium, ...]]
    pack: Callable[[Sequence[Sample], Inputs], Inputs]
    layouts: Callable[[Inputs], tuple[list[Layout], list[Layout]]]
    kinds: tuple[str, ...]
    image_token_id: int = IMAGE
    video_token_id: int | None = None
    special_ids: frozenset[int] = SPECIAL_IDS
    crops: bool = False
    deepstack: bool = False
    recurrent: bool = False
    flash: bool = True
    own_masks: bool = False
    counts_images: bool = False
    alike: str | None = None

    @property
    def telling_kinds(self) -> tuple[str, ...]:
        """Those kinds that tell something new: fewer for an entry built like another."""
        few = ("ragged", "mixed", "video")
        return self.kinds if self.alike is None else tuple(k for k in self.kinds if k in few)

    def equals_single_runs(self, kind: str) -> bool:
        """Whether the rows of a batch of this kind are what they are alone, unpruned too."""
        with_images = [recipe for recipe in RECIPES[kind] if recipe.images or recipe.videos]
        return len(with_images) <= 1 or not self.counts_images

    def samples(self, kind: str) -> list[Sample]:
        """Give the rows of a batch of this kind, not padded."""
        if kind not in self.kinds:
            raise ValueError(f"{self.name} has no inputs of kind {kind!r}, only {self.kinds}")
        return [self._sample(recipe) for recipe in RECIPES[kind]]

    def collate(self, samples: Sequence[Sample], padding_side: Side = "left") -> Inputs:
        """Pad the rows to one length and stack their media."""
        length = max(len(sample.ids) for sample in samples)
        input_ids = torch.full((len(samples), length), PAD)
        attention_mask = torch.zeros_like(input_ids)
        for row, sample in enumerate(samples):
            count = len(sample.ids)
            here = slice(length - count, length) if padding_side == "left" else slice(0, count)
            input_ids[row, here] = torch.tensor(sample.ids)
            attention_mask[row, here] = 1
        text = {"input_ids": input_ids, "attention_mask": attention_mask}
        return {**text, **self.pack(samples, text)}

    def inputs(self, kind: str, padding_side: Side = "left") -> Inputs:
        """Give a batch of this kind as the processor of the family would."""
        return self.collate(self.samples(kind), padding_side)

    def visual(self, inputs: Inputs) -> Tensor:
        """Mask ``(batch, length)`` of the visual tokens, newline and class tokens included."""
        mask = inputs["input_ids"] == self.image_token_id
        if self.video_token_id is not None:
            mask = mask | (inputs["input_ids"] == self.video_token_id)
        return mask

    def user_words(self, inputs: Inputs) -> Tensor:
        """Mask ``(batch, length)`` of the prompt tokens."""
        ids = inputs["input_ids"]
        in_turn = (ids == USER).cumsum(1) > (ids == ASSISTANT).cumsum(1)
        return in_turn & (ids >= FIRST_WORD)

    def newline(self, inputs: Inputs) -> Tensor | None:
        """Mask ``(batch, length)`` of newline tokens among the visual ones, None without any."""
        return self._marked(inputs, [span.layout.newline_offsets() for span in self.spans(inputs)])

    def class_tokens(self, inputs: Inputs) -> Tensor | None:
        """Mask ``(batch, length)`` of class tokens among the visual ones, None without any."""
        return self._marked(inputs, [span.layout.class_offsets() for span in self.spans(inputs)])

    def grids(self, inputs: Inputs) -> list[list[Layout]]:
        """Give per row the layouts of its media in the order of the prompt."""
        rows: list[list[Layout]] = [[] for _ in inputs["input_ids"]]
        for span in self.spans(inputs):
            rows[span.row].append(span.layout)
        return rows

    def spans(self, inputs: Inputs) -> list[Span]:
        """Find every medium of the batch, row by row, in the order of the prompt."""
        images, videos = (iter(layouts) for layouts in self.layouts(inputs))
        found = []
        for row, ids in enumerate(inputs["input_ids"]):
            found += self._spans_of_row(row, ids, images, videos)
        return found

    def _spans_of_row(
        self, row: int, ids: Tensor, images: Iterator[Layout], videos: Iterator[Layout]
    ) -> list[Span]:
        spans = []
        for token, layouts in ((self.image_token_id, images), (self.video_token_id, videos)):
            left = torch.nonzero(ids == token).flatten() if token is not None else ids[:0]
            while len(left):
                layout = next(layouts)
                spans.append(Span(row, left[: layout.tokens], layout, layouts is videos))
                left = left[layout.tokens :]
        return sorted(spans, key=lambda span: int(span.positions[0]))

    def _marked(self, inputs: Inputs, offsets: Sequence[Sequence[int]]) -> Tensor | None:
        mask = torch.zeros_like(inputs["input_ids"], dtype=torch.bool)
        for span, chosen in zip(self.spans(inputs), offsets, strict=True):
            mask[span.row, span.positions[list(chosen)]] = True
        return mask if mask.any() else None

    def _sample(self, recipe: "Recipe") -> Sample:
        media = self.media(recipe)
        parts = [self.write(medium) for medium in media]
        if len(parts) > 1:
            parts.insert(1, words(recipe.seed + 1, 2))
        parts.append(words(recipe.seed, recipe.words))
        return Sample(tuple(self.chat(parts)), media)


@dataclass(frozen=True)
class Recipe:
    """What a row holds: shapes of its images and videos (an index each), number of words."""

    images: tuple[int, ...]
    words: int
    seed: int
    videos: tuple[int, ...] = ()


RECIPES: dict[str, tuple[Recipe, ...]] = {
    "single": (Recipe((0,), 5, 1),),
    "ragged": (Recipe((1,), 4, 2), Recipe((0,), 9, 3), Recipe((2,), 6, 4)),
    "two_images": (Recipe((0, 1), 4, 5), Recipe((2, 0), 7, 6)),
    "text_only": (Recipe((), 6, 7), Recipe((), 9, 8)),
    "mixed": (Recipe((), 8, 9), Recipe((1,), 5, 10)),
    "video": (Recipe((), 5, 11, (0,)), Recipe((), 8, 12, (1,))),
    "image_and_video": (Recipe((0,), 4, 13), Recipe((1,), 6, 14, (0,))),
}


def noise(seed: int, *shape: int) -> Tensor:
    """Give pixels that depend on the seed alone."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
