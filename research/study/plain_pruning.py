"""A plain way to choose and drop visual tokens after a block, to see whether the benchmark bites.

Forward hooks on the stock model, for images of one size and prompts of one length; the library's
runtime does this properly for any input. Keeping it apart lets the benchmark be checked without
trusting the runtime, and the other way round.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from PIL import Image
from torch import Tensor, nn
from transformers import LlavaForConditionalGeneration, LlavaProcessor

from tokencover.budget import paper_split
from tokencover.covering import mob
from tokencover.errors import InputError
from tokencover_models.pebble.data import GRID, PICTURE_TOKENS, PictureExample
from tokencover_models.pebble.model import IMAGE, PICTURE_WORD_IDS, PICTURE_WORDS, make_prompt

Selector = Callable[[Tensor, Tensor], Tensor]
"""Visual states (n, d) and the states of the question's words (l, d) to indices to keep."""

BEFORE_PICTURE: Final = 2
"""Tokens of a prompt before its image."""
SELECTORS: Final = ("random", "grid", "farthest", "nearest", "mob")


def answer(
    model: LlavaForConditionalGeneration,
    processor: LlavaProcessor,
    examples: Iterable[PictureExample],
    selector: Selector | None = None,
    *,
    after: int = 1,
    batch_size: int = 16,
    sight: Sight | None = None,
) -> list[tuple[PictureExample, str]]:
    """Answer examples with one word each, greedily.

    Parameters
    ----------
    model, processor
        Pebble.
    examples
        What to answer.
    selector
        Chooses the visual tokens to keep; None keeps all.
    after
        How many blocks run before tokens are dropped.
    batch_size
        Questions at a time.
    sight
        What was seen of the images before, when they are asked about more than once.

    Returns
    -------
    list of (PictureExample, str)
        In the order of the examples.
    """
    asked = list(examples)
    replies: list[str] = [""] * len(asked)
    sight = sight or Sight(model, processor)
    for group in _group_by_length(asked, batch_size):
        embeds = sight.embed([asked[index] for index in group])
        with torch.inference_mode(), drop_tokens(model, selector, after):
            logits = model(inputs_embeds=embeds, use_cache=False, logits_to_keep=1).logits
        for index, word in zip(group, logits[:, -1].argmax(1).tolist(), strict=True):
            replies[index] = PICTURE_WORDS[word]
    return list(zip(asked, replies, strict=True))


def measure_accuracy(results: Sequence[tuple[PictureExample, str]]) -> dict[str, float]:
    """Share of correct answers of each kind."""
    hits: dict[str, list[bool]] = defaultdict(list)
    for example, reply in results:
        hits[example.kind].append(reply == example.answer)
    return {kind: sum(right) / len(right) for kind, right in hits.items()}


def _group_by_length(asked: Sequence[PictureExample], batch_size: int) -> Iterator[list[int]]:
    """Batches of questions with equally many words, so that nothing needs padding."""
    groups: dict[int, list[int]] = defaultdict(list)
    for index, example in enumerate(asked):
        groups[len(example.question.split())].append(index)
    for members in groups.values():
        for start in range(0, len(members), batch_size):
            yield members[start : start + batch_size]


class Sight:
    """Runs the vision encoder once an image and remembers what it saw."""

    def __init__(self, model: LlavaForConditionalGeneration, processor: LlavaProcessor) -> None:
        self.model = model
        self.processor = processor
        self.known: dict[int, tuple[Image.Image, Tensor]] = {}

    def embed(self, batch: Sequence[PictureExample]) -> Tensor:
        """What the decoder is given for examples whose questions have equally many words."""
        texts = [make_prompt(example.question) for example in batch]
        tokens = self.processor.tokenizer(texts, return_tensors="pt").input_ids
        with torch.inference_mode():
            words = self.model.get_input_embeddings()(tokens)
            seen = torch.stack([self._see(example) for example in batch])
        at = int((tokens[0] == PICTURE_WORD_IDS[IMAGE]).nonzero()[0, 0])
        return torch.cat([words[:, :at], seen, words[:, at + 1 :]], dim=1)

    def _see(self, example: PictureExample) -> Tensor:
        picture = example.picture
        if id(picture) not in self.known:
            pixels = self.processor.image_processor(picture, return_tensors="pt")
            features = self.model.get_image_features(**pixels).pooler_output[0]
            # The image is kept too: nothing else may get its id.
            self.known[id(picture)] = (picture, features)
        return self.known[id(picture)][1]


@contextmanager
def drop_tokens(
    model: LlavaForConditionalGeneration, selector: Selector | None, after: int
) -> Iterator[None]:
    """Drop the visual tokens a selector does not choose, once `after` blocks have run."""
    layers = model.model.language_model.layers
    if not 0 < after < len(layers):
        raise InputError(f"after must be from 1 to {len(layers) - 1} blocks, got {after}")
    if selector is None:
        yield
        return
    kept: dict[str, Tensor] = {}

    def choose(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        states: Tensor = args[0]
        kept["rows"] = _get_kept_rows(states, selector)
        rows = kept["rows"][..., None].expand(-1, -1, states.shape[2])
        return (states.gather(1, rows), *args[1:]), _shorten(kwargs, kept["rows"])

    def follow(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args, _shorten(kwargs, kept["rows"])

    handles = [
        layer.register_forward_pre_hook(choose if index == 0 else follow, with_kwargs=True)
        for index, layer in enumerate(layers[after:])
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _get_kept_rows(states: Tensor, selector: Selector) -> Tensor:
    """Kept rows of every sequence, in their old order, shape (batch, kept)."""
    end = BEFORE_PICTURE + PICTURE_TOKENS
    after_picture = torch.arange(end, states.shape[1])
    rows = []
    for sequence in states:
        # The last token opens the answer; it is not one of the prompt tokens.
        chosen = selector(sequence[BEFORE_PICTURE:end], sequence[end:-1])
        in_picture = BEFORE_PICTURE + chosen.sort().values
        rows.append(torch.cat([torch.arange(BEFORE_PICTURE), in_picture, after_picture]))
    return torch.stack(rows)


def _shorten(kwargs: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    """Take the kept rows of what the blocks are reported about positions.

    There is no padding and order is kept, so the causal mask needs no rows of its own.
    """
    if kwargs.get("attention_mask") is not None:
        raise InputError("prompts must have one length, so that no attention mask is needed")
    cosine, sine = kwargs["position_embeddings"]
    index = rows[..., None].expand(-1, -1, cosine.shape[2])
    turned = tuple(table.expand(rows.shape[0], -1, -1).gather(1, index) for table in (cosine, sine))
    return {**kwargs, "position_embeddings": turned, "position_ids": None}


def make_selector(
    method: str, budget: int, prompt_budget: int | None = None, fold: int | None = None
) -> Selector:
    """Make a way to choose `budget` tokens.

    Parameters
    ----------
    method
        ``"random"``, ``"grid"`` (evenly over the image), ``"farthest"`` (farthest-point
        sampling alone), ``"nearest"`` (nearest to any word of the question) or ``"mob"``.
    budget
        How many tokens to keep.
    prompt_budget, fold
        Of MoB; by default the paper's split for the budget.
    """
    if method == "random":
        return _make_random_selector(budget)
    if method == "grid":
        return lambda visual, prompt: _select_grid(budget)
    if method == "farthest":
        return _make_cover_selector(budget, 0, 1)
    if method == "nearest":
        return _make_cover_selector(budget, budget, budget)
    if method == "mob":
        split = paper_split(budget, PICTURE_TOKENS)
        part = split.prompt_budget if prompt_budget is None else prompt_budget
        return _make_cover_selector(budget, part, split.fold if fold is None else fold)
    raise InputError(f"no method is called {method!r}; choose from {SELECTORS}")


def _make_cover_selector(budget: int, prompt_budget: int, fold: int) -> Selector:
    def select(visual: Tensor, prompt: Tensor) -> Tensor:
        cover = mob(visual, prompt, budget=budget, prompt_budget=prompt_budget, fold=fold)
        if isinstance(cover, list):
            raise InputError("a selector sees one image at a time, got a batch")
        return cover.indices

    return select


def _make_random_selector(budget: int) -> Selector:
    rng = torch.Generator().manual_seed(budget)
    return lambda visual, prompt: torch.randperm(len(visual), generator=rng)[:budget]


def _select_grid(budget: int) -> Tensor:
    """Tokens at even steps: rows and columns as near to a square lattice as the budget allows."""
    rows = max(1, round(math.sqrt(budget)))
    counts = [budget // rows + (index < budget % rows) for index in range(rows)]
    chosen = []
    for index, count in enumerate(counts):
        row = int((index + 0.5) * GRID / rows)
        chosen += [row * GRID + int((step + 0.5) * GRID / count) for step in range(count)]
    return torch.tensor(chosen)
