"""The base model's tokenizer, with two things that questions about images want."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from tokencover_models.pebble.model import IMAGE

BEGIN: Final = "<|im_start|>"
END: Final = "<|im_end|>"
UNKNOWN: Final = "<|endoftext|>"
# A token of the base model's training on code, which no question holds, stands for the image: so
# its table of words keeps its size.
IMAGE_STAND_IN: Final = "<empty_output>"
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "{% if message['content'] is string %} {{ message['content'] }}"
    "{% else %}"
    "{% for part in message['content'] if part['type'] == 'image' %}<image>{% endfor %}"
    "{% for part in message['content'] if part['type'] == 'text' %} {{ part['text'] }}{% endfor %}"
    "{% endif %}{% endfor %}"
)
"""A question stands behind its image, the answer behind the question, without marks of turns."""


def make_tokenizer(words: Sequence[str], merges: Sequence[str]) -> PreTrainedTokenizerFast:
    """Make the tokenizer; digits stand without the space that would cost a token.

    Parameters
    ----------
    words
        The text of every token in the order of ids; special ones first, as the base model has it.
    merges
        Pairs of texts with a space between them.
    """
    named = [IMAGE if word == IMAGE_STAND_IN else word for word in words]
    special = named[: named.index(IMAGE) + 1]
    core = Tokenizer(
        BPE({word: index for index, word in enumerate(named)}, [_split(pair) for pair in merges])
    )
    core.normalizer = Replace(Regex(r" (?=\d)"), "")
    core.pre_tokenizer = ByteLevel(add_prefix_space=False)
    core.decoder = ByteLevelDecoder()
    core.post_processor = TemplateProcessing(
        single=f"{BEGIN} $A",
        pair=f"{BEGIN} $A $B",
        special_tokens=[(BEGIN, named.index(BEGIN))],
    )
    core.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        extra_special_tokens=[IMAGE],
        chat_template=CHAT_TEMPLATE,
    )


def _split(pair: str) -> tuple[str, str]:
    first, second = pair.split(" ")
    return first, second
