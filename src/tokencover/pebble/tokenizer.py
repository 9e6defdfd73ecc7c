"""The word-level tokenizer, as a stock fast tokenizer of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Sequence, Split, WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from tokencover.pebble.vocabulary import (
    ASSISTANT,
    BEGIN,
    END,
    IMAGE,
    PAD,
    SPECIAL,
    UNKNOWN,
    USER,
    WORD_IDS,
)

LONGEST: Final = 1024


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


CHAT_TEMPLATE = make_chat_template("image")


def prompt(question: str, media: str = IMAGE) -> str:
    """What the model is given for a question about one picture, or one clip.

    Parameters
    ----------
    question
        Words of the question; case does not matter.
    media
        What stands for the picture.
    """
    return f"{USER} {media} {question} {ASSISTANT}"


def make_tokenizer(
    word_ids: Mapping[str, int] = WORD_IDS, media: tuple[str, ...] = (IMAGE,)
) -> PreTrainedTokenizerFast:
    """Make a tokenizer, one token a word, padding on the left.

    Parameters
    ----------
    word_ids
        Every word with its token id.
    media
        Words that stand for pictures and clips.
    """
    core = Tokenizer(WordLevel(vocab=dict(word_ids), unk_token=UNKNOWN))
    core.normalizer = Lowercase()
    core.pre_tokenizer = Sequence([WhitespaceSplit(), Split(Regex("[?:,.!]"), "isolated")])
    core.post_processor = TemplateProcessing(
        single=f"{BEGIN} $A",
        pair=f"{BEGIN} $A $B",
        special_tokens=[(BEGIN, WORD_IDS[BEGIN])],
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
        model_max_length=LONGEST,
    )
