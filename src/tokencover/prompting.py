"""Images or videos with a question, as the inputs of a model."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from PIL import Image

from tokencover.errors import InputError

if TYPE_CHECKING:
    from tokencover.pruning.prompt_inputs import PromptInputs

Medium = Image.Image | Sequence[Image.Image]
"""An image, or the frames of a video."""
Kind = Literal["image", "video"]
"""Names of media types in transformers' processors."""
Prompt = tuple[Sequence[Medium], str]
"""Images and videos in order, and a question about them."""

BUNDLED: Final[dict[Kind, str]] = {"image": "pebble", "video": "pebble-clips"}
"""A bundled model for each type of media."""
SENTINEL: Final = "Zqaqz"
"""Stands for a question, to see what the chat template writes after it."""


def get_kind(medium: Medium) -> Kind:
    """The type of a medium."""
    return "image" if isinstance(medium, Image.Image) else "video"


def list_kinds(processor: Any) -> frozenset[Kind]:
    """The media types that a processor takes: it has a part for each, or else an argument."""
    parts: dict[Kind, str] = {"image": "image_processor", "video": "video_processor"}
    if any(hasattr(processor, part) for part in parts.values()):
        return frozenset(kind for kind, part in parts.items() if hasattr(processor, part))
    arguments = inspect.signature(processor).parameters
    return frozenset(kind for kind in parts if f"{kind}s" in arguments)


def check_kinds(processor: Any, kinds: Iterable[Kind], asked: str) -> None:
    """Raise if a model's processor does not take these media; `asked` begins the message."""
    for kind in sorted(set(kinds) - list_kinds(processor)):
        raise InputError(
            f"{asked}: the model takes no {kind}s. Use one that does, for example --model "
            f"{BUNDLED[kind]}, or other media."
        )


def list_unknown_words(processor: Any, text: str) -> list[str]:
    """The words of a text without a token in the model's tokenizer."""
    tokenizer = getattr(processor, "tokenizer", processor)
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None:
        return []
    return [
        word
        for word in dict.fromkeys(text.split())
        if unknown in tokenizer(word, add_special_tokens=False)["input_ids"]
    ]


def make_inputs(processor: Any, prompts: Sequence[Prompt]) -> PromptInputs:
    """Build a batch of chats with one user turn each, padded to one length.

    Parameters
    ----------
    processor
        The model's processor.
    prompts : sequence of Prompt
        One per sample of the batch: its images and videos, and the question about them.

    Returns
    -------
    PromptInputs
        The model's inputs, a `BatchFeature` on the CPU. Its attribute ``prompt_mask`` ``(batch,
        length)`` bool marks the tokens of the questions. It is not an item, so ``model(**inputs)``
        does not get it, and it is on the device of ``input_ids``.

    Examples
    --------
    >>> inputs = tc.make_inputs(processor, [([image], "What is this?")])   # doctest: +SKIP
    >>> with tc.prune(model, "mob", budget=64, prompt=inputs.prompt_mask):  # doctest: +SKIP
    ...     answer = model.generate(**inputs, max_new_tokens=32)
    """
    from tokencover.pruning.prompt_inputs import PromptInputs  # transformers is slow to import

    check_kinds(
        processor,
        {get_kind(medium) for media, _ in prompts for medium in media},
        "These prompts are not supported",
    )
    images = [[each for each in media if isinstance(each, Image.Image)] for media, _ in prompts]
    videos = [
        list(each) for media, _ in prompts for each in media if not isinstance(each, Image.Image)
    ]
    shown: dict[str, Any] = {}
    if any(images):
        shown["images"] = images
    if videos:
        shown["videos"] = videos
        if hasattr(processor, "video_processor"):
            # Some would sample frames, but the given ones were sampled already.
            shown["do_sample_frames"] = False
    for _, question in prompts:
        _check_question(processor, question)
    chats = [([get_kind(medium) for medium in media], question) for media, question in prompts]
    texts = [_write_chat(processor, *chat) for chat in chats]
    inputs = processor(text=texts, padding=True, return_tensors="pt", **shown)
    return PromptInputs(dict(inputs), processor, partial(_list_questions, processor, chats))


def _list_questions(
    processor: Any, chats: Sequence[tuple[Sequence[str], str]]
) -> list[tuple[str, str]]:
    """Each question, and the text that the chat template writes after it."""
    texts = [_write_chat(processor, kinds, SENTINEL) for kinds, _ in chats]
    endings = [text.rpartition(SENTINEL)[2] for text in texts]
    return [(question, ending) for (_, question), ending in zip(chats, endings, strict=True)]


def _check_question(processor: Any, question: str) -> None:
    """Reject the placeholder of an image or video: a processor would look for one more."""
    for kind in BUNDLED:
        mark = getattr(processor, f"{kind}_token", None)
        if isinstance(mark, str) and mark and mark in question:
            raise InputError(
                f"The question {question!r} has {mark!r} in it, which stands for {kind}s in this "
                "model's prompts. Omit it: make_inputs inserts it."
            )


def _write_chat(processor: Any, kinds: Sequence[str], question: str) -> Any:
    content = [*({"type": kind} for kind in kinds), {"type": "text", "text": question}]
    turn = {"role": "user", "content": content}
    try:
        return processor.apply_chat_template([turn], add_generation_prompt=True)
    except ValueError as error:
        owners = (processor, getattr(processor, "tokenizer", None))
        if any(getattr(owner, "chat_template", None) for owner in owners):
            raise
        name = type(processor).__name__
        raise InputError(
            f"This {name} has no chat template, so a question cannot be written as a chat. Save "
            "the model's template as chat_template.jinja beside its processor files, or set "
            "processor.chat_template. Without one, write the prompt yourself: "
            "processor(text=..., images=...), and tc.prune(..., prompt=question)."
        ) from error
