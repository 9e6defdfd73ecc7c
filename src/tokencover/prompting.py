"""What a model is asked: pictures or clips with a question, as its own processor wants them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from PIL import Image

from tokencover.errors import InputError

Medium = Image.Image | Sequence[Image.Image]
"""A picture, or the frames of a clip."""
Kind = Literal["image", "video"]
"""What processors of transformers call a picture and a clip."""
Prompt = tuple[Sequence[Medium], str]
"""What a model is shown, in this order, and what it is asked about it."""

WORDS: Final[dict[Kind, tuple[str, str]]] = {
    "image": ("pictures", "pebble"),
    "video": ("clips", "pebble-clips"),
}
"""Our word for each kind, and a model that takes it."""


def get_kind(medium: Medium) -> Kind:
    """Tell what a medium is."""
    return "image" if isinstance(medium, Image.Image) else "video"


def list_kinds(processor: Any) -> frozenset[Kind]:
    """List what a processor takes; it has a part for each kind, or else an argument."""
    parts: dict[Kind, str] = {"image": "image_processor", "video": "video_processor"}
    if any(hasattr(processor, part) for part in parts.values()):
        return frozenset(kind for kind, part in parts.items() if hasattr(processor, part))
    arguments = inspect.signature(processor).parameters
    return frozenset(kind for kind in parts if f"{kind}s" in arguments)


def check_kinds(processor: Any, kinds: Iterable[Kind], asked: str) -> None:
    """Refuse to show a model what its processor does not take.

    Parameters
    ----------
    processor
        The model's own.
    kinds : iterable of str
        What it would be shown.
    asked : str
        What cannot be asked of which model, for the error.
    """
    for kind in sorted(set(kinds) - list_kinds(processor)):
        media, model = WORDS[kind]
        raise InputError(
            f"{asked}: the model takes no {media}. Ask one that does, for example --model {model}, "
            "or ask about something else."
        )


def find_unknown_words(processor: Any, text: str) -> list[str]:
    """The words of a text that a model's tokenizer has no token for."""
    tokenizer = getattr(processor, "tokenizer", processor)
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None:
        return []
    return [
        word
        for word in dict.fromkeys(text.split())
        if unknown in tokenizer(word, add_special_tokens=False)["input_ids"]
    ]


def make_inputs(processor: Any, prompts: Sequence[Prompt]) -> Any:
    """Make a batch of chats with one user turn each, padded to one length.

    Parameters
    ----------
    processor
        The model's own.
    prompts : sequence of Prompt
        One for each sample of the batch.

    Returns
    -------
    BatchFeature
        What the model takes, on the CPU.
    """
    check_kinds(
        processor,
        {get_kind(medium) for media, _ in prompts for medium in media},
        "this cannot be asked",
    )
    pictures = [[each for each in media if isinstance(each, Image.Image)] for media, _ in prompts]
    clips = [
        list(each) for media, _ in prompts for each in media if not isinstance(each, Image.Image)
    ]
    shown: dict[str, Any] = {}
    if any(pictures):
        shown["images"] = pictures
    if clips:
        shown["videos"] = clips
        if hasattr(processor, "video_processor"):
            # Some would leave frames out; those that are given were chosen already.
            shown["do_sample_frames"] = False
    for _, question in prompts:
        _check_question(processor, question)
    texts = [_write_chat(processor, *prompt) for prompt in prompts]
    return processor(text=texts, padding=True, return_tensors="pt", **shown)


def _check_question(processor: Any, question: str) -> None:
    """Refuse the word that stands for a picture or clip: a processor would look for one more."""
    for kind, (media, _) in WORDS.items():
        mark = getattr(processor, f"{kind}_token", None)
        if isinstance(mark, str) and mark and mark in question:
            raise InputError(
                f"the question {question!r} has {mark!r} in it, which stands for {media} in this "
                "model's prompts: leave it out, it is put where it belongs."
            )


def _write_chat(processor: Any, media: Sequence[Medium], question: str) -> Any:
    content = [{"type": get_kind(medium)} for medium in media]
    turn = {"role": "user", "content": [*content, {"type": "text", "text": question}]}
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
