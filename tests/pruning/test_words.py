"""The prompt tokens, in the prompts of the model families people use."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pruning.tokenizers_for_words import (
    IMAGE,
    LLAMA2,
    QUESTION,
    SENTENCES,
    SHAPES,
    decoded,
    encode,
    every_kind,
    found,
    pad,
    said,
    tokenizer_for,
    words_for,
)

everywhere = pytest.mark.parametrize("family", SHAPES)
TEXTS = {
    "plain": QUESTION,
    "newlines": "Which colour?\n\n  - red\n  - blue\n\tor none",
    "outer-space": "  \n How many dogs are there? \n\n",
    "unicode": "¿Qué es esto? 这是什么 🦊🦊 é",
    "broken": "a \ufffd sign \ufffd",
    "private": "\U000f0000 a \U0010fffd sign \U0010ffff",
    "roles": "Who says USER: or assistant or user here, system?",
    "starts-with-role": "USER: is that a name?",
    "punctuation": ": ... (is it [red]?)",
    "empty": "",
    "spaces": " \n ",
}


@everywhere
@every_kind
@pytest.mark.parametrize("side", ["left", "right"])
def test_finds_exact_words_in_a_padded_batch(family: str, kind: str, side: str) -> None:
    chats = [[said("user", IMAGE, text)] for text in TEXTS.values()]
    assert found(family, kind, *chats, side=side) == [text.strip() for text in TEXTS.values()]


@everywhere
@every_kind
def test_finds_words_without_a_picture(family: str, kind: str) -> None:
    chats = [[said("user", text)] for text in TEXTS.values()]
    assert found(family, kind, *chats) == [text.strip() for text in TEXTS.values()]


@everywhere
@every_kind
@pytest.mark.parametrize("waits", [True, False])
def test_system_prompt_never_counts(family: str, kind: str, waits: bool) -> None:
    chat = [said("system", f"Answer this: {QUESTION} {QUESTION}"), said("user", IMAGE, QUESTION)]
    assert found(family, kind, chat, waits=waits) == [QUESTION]


@everywhere
@every_kind
def test_only_the_last_turn_counts_unless_asked(family: str, kind: str) -> None:
    chat = [
        said("system", "You are a helpful user."),
        said("user", IMAGE, "How many dogs?"),
        said("assistant", "Three dogs. Is this a user?"),
        said("user", "Which colour?"),
        said("assistant", "Red."),
        said("user", IMAGE, "How many dogs?"),
    ]
    assert found(family, kind, chat) == ["How many dogs?"]
    (words,) = found(family, kind, chat, turns="all")
    assert "".join(words.split()) == "Howmanydogs?Whichcolour?Howmanydogs?"


@everywhere
@every_kind
def test_words_of_an_answered_turn(family: str, kind: str) -> None:
    chat = [said("user", IMAGE, QUESTION), said("assistant", "A red bus, as I said.")]
    assert found(family, kind, chat, waits=False) == [QUESTION]


@everywhere
@every_kind
def test_several_pictures(family: str, kind: str) -> None:
    chat = [said("user", IMAGE, IMAGE, IMAGE, QUESTION)]
    assert found(family, kind, chat, [said("user", QUESTION)]) == [QUESTION] * 2


@every_kind
@pytest.mark.parametrize("family", ["qwen", "smolvlm", "internvl"])
def test_text_on_both_sides_of_a_picture(family: str, kind: str) -> None:
    chat = [said("user", "Here is a bus:", IMAGE, "and here a dog:", IMAGE, " Which is red?")]
    (words,) = found(family, kind, chat)
    assert "".join(words.split()) == "Hereisabus:andhereadog:Whichisred?"


@everywhere
def test_whole_words_tokenizer(family: str) -> None:
    chat = [
        said("system", "What is the red bus?"),
        said("user", IMAGE, "How many dogs are there?"),
        said("assistant", "Three dogs."),
        said("user", "What is the red bus?"),
    ]
    expected = ["What is the red bus ?", "How many dogs are there ?"]
    assert found(family, "words", chat, chat[1:2]) == expected


@every_kind
@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("llava", "What does USER: mean, and ASSISTANT:?"),
        ("llava-next", "What do [INST] and [/INST] mean?"),
        ("smolvlm", "What does\nAssistant: mean, and\nUser: too?"),
        ("qwen", "What does user\n or assistant\n mean?"),
    ],
)
def test_text_that_contains_the_marks_of_turns(family: str, kind: str, text: str) -> None:
    chat = [said("user", IMAGE, "So?"), said("assistant", "No."), said("user", IMAGE, text)]
    assert found(family, kind, chat, chat[2:]) == [text] * 2


def test_role_word_inside_a_word_is_no_mark() -> None:
    chat = [said("system", "The SUPERUSER: be kind."), said("user", QUESTION)]
    assert found("llava", "bytes", chat) == [QUESTION]


def test_answer_that_imitates_a_user_where_turns_follow_special_tokens() -> None:
    chat = [
        said("user", "Go."),
        said("assistant", "The log says User: root did it."),
        said("user", "Who?"),
    ]
    assert found("smolvlm", "bytes", chat, turns="all") == ["Go. Who?"]


def test_typed_names_of_special_tokens_stay_text() -> None:
    tokenizer = tokenizer_for("qwen", "bytes")
    text = "Is <|im_end|> a token?"
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    # The name is cut in two, as a sanitised template does, so that it is not taken for the token.
    parts = (prompt[: prompt.index("_end|>")], prompt[prompt.index("_end|>") :])
    rows = [tokenizer.encode(part, add_special_tokens=False) for part in parts]
    ids = torch.tensor([rows[0] + rows[1]])
    mask = words_for("qwen", "bytes").mask(ids, torch.zeros_like(ids, dtype=torch.bool))
    assert decoded(tokenizer, ids, mask) == [text]


def test_system_prompt_inside_the_users_turn() -> None:
    tokenizer = tokenizer_for("llama2", "llama")
    chats: list[list[dict[str, str]]] = [
        [{"role": "system", "content": QUESTION}, {"role": "user", "content": QUESTION}],
        [{"role": "user", "content": QUESTION}],
    ]
    assert found("llama2", "llama", *chats) == [QUESTION] * 2
    assert tokenizer.chat_template == LLAMA2


def test_words_that_the_template_writes_beside_a_picture() -> None:
    text = "Is this an image"
    assert found("kimi", "bytes", [said("user", text, IMAGE, IMAGE, text)]) == [text + text]
    tokenizer = tokenizer_for("kimi", "bytes")
    ids, visual = encode("kimi", "bytes", [said("user", {"type": "video"}, text)])
    visual |= ids == tokenizer.convert_tokens_to_ids("<|video_pad|>")
    assert decoded(tokenizer, ids, words_for("kimi", "bytes").mask(ids, visual)) == [text]


def test_numbers_that_the_template_gives_to_pictures() -> None:
    tokenizer, shape = tokenizer_for("qwen", "bytes"), SHAPES["qwen"]
    text = tokenizer.apply_chat_template(
        [said("user", IMAGE, IMAGE, "Is Picture 1: red?")],
        tokenize=False,
        add_generation_prompt=True,
        add_vision_id=True,
    )
    assert "Picture 2: " in text
    ids, visual = pad(tokenizer, [shape.expand(text)], shape.image, "left")
    mask = words_for("qwen", "bytes").mask(ids, visual)
    assert decoded(tokenizer, ids, mask) == ["Is Picture 1: red?"]


@pytest.mark.parametrize(
    ("family", "frames"),
    [
        ("qwen", "<0.5 seconds><|vision_start|>{}{}<|vision_end|><12.0 seconds><|vision_start|>{}"),
        ("internvl", "Frame1: <img>{}{}</img>\nFrame2: <img>{}</img>\n"),
        (
            "smolvlm",
            "You are provided the following series of twenty-two frames from a 0:00:22 [H:MM:SS] "
            "video.\n\nFrame from 00:01:<fake><global>{}<fake>\nFrame from 00:02:<fake>{}{}\n\n",
        ),
    ],
)
def test_labels_of_video_frames_are_not_the_users(family: str, frames: str) -> None:
    tokenizer, shape = tokenizer_for(family, "bytes"), SHAPES[family]
    (text,) = [
        tokenizer.apply_chat_template(
            [said("user", "Frame1: is IT"), said("assistant", "x"), said("user", "VIDEO", "Why?")],
            tokenize=False,
            add_generation_prompt=True,
        )
    ]
    text = text.replace("VIDEO", frames.format(*[shape.image] * 3)).replace("IT", shape.image)
    ids, visual = pad(tokenizer, [text], shape.image, "left")
    assert decoded(tokenizer, ids, words_for(family, "bytes").mask(ids, visual)) == ["Why?"]


def test_turn_that_continues_a_kept_cache() -> None:
    tokenizer = tokenizer_for("qwen", "bytes")
    text = "<|im_end|>\n<|im_start|>user\nWhich colour?<|im_end|>\n<|im_start|>assistant\n"
    ids, visual = pad(tokenizer, [text], "<|image_pad|>", "left")
    assert decoded(tokenizer, ids, words_for("qwen", "bytes").mask(ids, visual)) == [
        "Which colour?"
    ]


def test_ids_outside_the_vocabulary_are_no_words() -> None:
    ids, visual = encode("llava", "llama", [said("user", IMAGE, QUESTION)])
    odd = torch.where(visual, -200, ids)
    odd = torch.cat([odd, torch.tensor([[10**6, -100]])], dim=1)
    visual = torch.nn.functional.pad(visual, (0, 2))
    mask = words_for("llava", "llama").mask(odd, visual)
    assert decoded(tokenizer_for("llava", "llama"), odd, mask) == [QUESTION]
    assert not mask[0, -2:].any()


USER_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=30)
SENTENCE = st.lists(st.sampled_from(" ".join(SENTENCES[1:2]).split()), max_size=8).map(" ".join)


@everywhere
@every_kind
@settings(max_examples=40)
@given(
    text=USER_TEXT | SENTENCE,
    system=USER_TEXT | SENTENCE,
    earlier=SENTENCE,
    pictures=st.integers(0, 2),
)
def test_words_are_the_users_text(
    family: str, kind: str, *, text: str, system: str, earlier: str, pictures: int
) -> None:
    last = said("user", *[IMAGE] * pictures, text)
    long = [said("system", system), said("user", IMAGE, earlier), said("assistant", system), last]
    assert found(family, kind, [last], long) == [text.strip()] * 2
