"""The other families over HTTP, a server for each: ``FAMILY=http_qwen2_vl pytest ...``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import tokencover as tc
from chat_client import make_chat, post, to_url
from server_runs import run, serve_pruned
from tests_vllm.comparing import (
    Answered,
    answer_in_transformers,
    check_same,
)
from tests_vllm.over_http import answer_over_http
from tests_vllm.tiny_models import MAKERS, load_pair
from tests_vllm.tiny_prompts import QUESTIONS, write_prompts

FAMILY = os.environ["FAMILY"].removeprefix("http_")
BUDGET = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(FAMILY)
    MAKERS[FAMILY](made)
    return made


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[Answered]:
    pair = load_pair(folder)
    method = tc.MoB(BUDGET, after=0, per="image")
    return answer_in_transformers(pair, method, write_prompts(pair[1]))[0]


@pytest.fixture(scope="module")
def port(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    options = ["--budget", str(BUDGET), "--max-model-len", "1024", "--max-num-batched-tokens", "64"]
    with run(serve_pruned(str(folder), *options), tmp_path_factory.mktemp("log") / "log") as found:
        yield found


def ask(port: int, number: int) -> Answered:
    return answer_over_http(port, QUESTIONS[number].text, QUESTIONS[number].pictures)


def test_eight_clients_get_the_answers_of_transformers(port: int, expected: Any) -> None:
    numbers = [number % len(QUESTIONS) for number in range(20)]
    with ThreadPoolExecutor(8) as clients:
        found = list(clients.map(lambda number: ask(port, number), numbers))
    for number, answer in zip(numbers, found, strict=True):
        check_same([answer], [expected[number]])


def test_videos_and_settings_are_refused(port: int, expected: Any) -> None:
    video = [{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}]
    chat = make_chat("What happens?")
    chat["messages"][0]["content"] += video
    untrusted = make_chat("What?", mm_processor_kwargs={"tokencover": {"budget": 9}})
    for body in (chat, untrusted):
        status, reply = post(port, body)
        assert 400 <= status < 500, reply
        check_same([ask(port, 0)], expected[:1])


@pytest.mark.parametrize("size", [(1, 1), (1, 600), (600, 1), (7, 300)])
def test_odd_pictures_fail_alone_if_at_all(port: int, expected: Any, size: Any) -> None:
    status, reply = post(port, make_chat("What?", to_url(Image.new("RGB", size, "red"))))
    assert status in (200, 400), reply
    assert status == 200 or max(size) > 200 * min(size), reply  # more than a Qwen takes
    check_same([ask(port, 0)], expected[:1])
