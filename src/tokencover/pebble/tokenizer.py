"""The word-level tokenizer, as a stock fast tokenizer of transformers."""

from __future__ import annotations

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

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ message['role'].upper() }}: "
    "{% if message['content'] is string %}{{ message['content'] }} "
    "{% else %}"
    "{% for part in message['content'] if part['type'] == 'image' %}<image> {% endfor %}"
    "{% for part in message['content'] if part['type'] == 'text' %}{{ part['text'] }} {% endfor %}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)


def prompt(question: str) -> str:
    """What the model is given for a question about one picture.

    Parameters
    ----------
    question
        Words of the question; case does not matter.
    """
    return f"{USER} {IMAGE} {question} {ASSISTANT}"


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Make the tokenizer of ``WORDS``, one token a word, padding on the left."""
    core = Tokenizer(WordLevel(vocab=dict(WORD_IDS), unk_token=UNKNOWN))
    core.normalizer = Lowercase()
    core.pre_tokenizer = Sequence([WhitespaceSplit(), Split(Regex("[?:,.!]"), "isolated")])
    core.post_processor = TemplateProcessing(
        single=f"{BEGIN} $A",
        pair=f"{BEGIN} $A $B",
        special_tokens=[(BEGIN, WORD_IDS[BEGIN])],
    )
    # Added tokens are found before the text is lowered, so the turn markers keep their capitals.
    core.add_special_tokens(
        [AddedToken(word, special=True, normalized=False) for word in (*SPECIAL, USER, ASSISTANT)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        bos_token=BEGIN,
        eos_token=END,
        padding_side="left",
        extra_special_tokens=[IMAGE, USER, ASSISTANT],
        model_max_length=1024,
    )
