"""The word-level tokenizers, as stock fast tokenizers of transformers, and the shape of prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Sequence, Split, WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from tokencover_models.pebble.vocabulary import (
    ASSISTANT,
    BEGIN,
    CLIP_WORD_IDS,
    END,
    IMAGE,
    PAD,
    PICTURE_WORD_IDS,
    SPECIAL,
    UNKNOWN,
    USER,
    VIDEO,
)

LONGEST_PROMPT: Final = 1024
LONGEST_CLIP_PROMPT: Final = 2048


def make_chat_template(media: str) -> str:
    """Chats with pictures (``"image"``) or clips (``"video"``) before the words of a turn."""
    part = f"{{% for part in message['content'] if part['type'] == '{media}' %}}<{media}> "
    return (
        "{% for message in messages %}"
        "{{ message['role'].upper() }}: "
        "{% if message['content'] is string %}{{ message['content'] }} "
        "{% else %}" + part + "{% endfor %}"
        "{% for part in message['content'] if part['type'] == 'text' %}"
        "{{ part['text'] }} {% endfor %}"
        "{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
    )


def make_prompt(question: str, media: str = IMAGE) -> str:
    """Put a question about one picture, or one clip, as the model is given it.

    Parameters
    ----------
    question
        Words of the question; case does not matter.
    media
        What stands for the picture.
    """
    return f"{USER} {media} {question} {ASSISTANT}"


def make_picture_tokenizer() -> PreTrainedTokenizerFast:
    """Make the tokenizer of the model for pictures."""
    return _make_tokenizer(PICTURE_WORD_IDS, (IMAGE,), LONGEST_PROMPT)


def make_clip_tokenizer() -> PreTrainedTokenizerFast:
    """Make the tokenizer of the model for clips, which brings the shape of chats with it."""
    tokenizer = _make_tokenizer(CLIP_WORD_IDS, (IMAGE, VIDEO), LONGEST_CLIP_PROMPT)
    tokenizer.chat_template = make_chat_template("video")
    return tokenizer


def _make_tokenizer(
    word_ids: Mapping[str, int], media: tuple[str, ...], longest: int
) -> PreTrainedTokenizerFast:
    """One token a word, padding on the left.

    Parameters
    ----------
    word_ids
        Every word with its token id.
    media
        Words that stand for pictures and clips.
    longest
        Tokens of the longest prompt.
    """
    core = Tokenizer(WordLevel(vocab=dict(word_ids), unk_token=UNKNOWN))
    core.normalizer = Lowercase()
    core.pre_tokenizer = Sequence([WhitespaceSplit(), Split(Regex("[?:,.!]"), "isolated")])
    core.post_processor = TemplateProcessing(
        single=f"{BEGIN} $A",
        pair=f"{BEGIN} $A $B",
        special_tokens=[(BEGIN, PICTURE_WORD_IDS[BEGIN])],
    )
    # Added tokens are found before the text is lowered, so the turn markers keep their capitals.
    core.add_special_tokens(
        [
            AddedToken(word, special=True, normalized=False)
            for word in dict.fromkeys((*SPECIAL, *media, USER, ASSISTANT))
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        bos_token=BEGIN,
        eos_token=END,
        padding_side="left",
        extra_special_tokens=[*media, USER, ASSISTANT],
        model_max_length=longest,
    )
