"""Prompts to a server, with probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image

from chat_client import make_chat, post, to_url
from tests_vllm.comparing import ANSWER_TOKENS, SHOWN, Answered


def answer_over_http(
    port: int, question: str, pictures: Sequence[Image.Image], **more: Any
) -> Answered:
    """Ask by the chat endpoint, greedily."""
    body = make_chat(
        question,
        *map(to_url, pictures),
        logprobs=True,
        top_logprobs=SHOWN,
        return_tokens_as_token_ids=True,
        **{"max_tokens": ANSWER_TOKENS, **more},
    )
    status, reply = post(port, body)
    assert status == 200, reply
    steps = reply["choices"][0]["logprobs"]["content"]
    scores = [{read_id(each): each["logprob"] for each in step["top_logprobs"]} for step in steps]
    return Answered([read_id(step) for step in steps], scores)


def read_id(told: dict[str, Any]) -> int:
    """The id of a token that is reported as ``token_id:5``."""
    return int(told["token"].removeprefix("token_id:"))
