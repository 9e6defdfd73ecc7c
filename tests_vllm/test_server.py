"""`tokencover serve`: a whole server, good clients and bad ones."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import tokencover as tc
from chat_client import make_chat, post, read_answer, read_metrics, to_url
from server_runs import run, serve_pruned
from tests_vllm.comparing import (
    ANSWER_TOKENS,
    Asked,
    answer_in_transformers,
    check_same,
)
from tests_vllm.over_http import answer_over_http
from tokencover.prompting import make_inputs
from tokencover_models.pebble import load_pebble
from tokencover_models.pebble.data import PictureExample, make_examples

BUDGET = 64


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    log = tmp_path_factory.mktemp("server") / "log.txt"
    options = ["--budget", str(BUDGET), "--by-request", "--ceiling", "200"]
    more = ["--max-model-len", "1024", "--max-num-seqs", "32", "--limit-mm-per-prompt"]
    with run(serve_pruned("pebble", *options, *more, '{"image": 8}'), log) as found:
        yield found


@pytest.fixture(scope="module")
def examples() -> list[PictureExample]:
    return list(make_examples("test", 2))[:12]


@pytest.fixture(scope="module")
def expected(examples: list[PictureExample]) -> dict[tuple[int, str], list[str]]:
    """Answers of transformers, by budget and split."""
    model, processor = load_pebble()
    found = {}
    for budget, split in ((BUDGET, "paper"), (16, "paper"), (BUDGET, "weak")):
        method = make_mob(budget, split)
        answers = []
        for example in examples:
            inputs = make_inputs(processor, [([example.picture], example.question)])
            with tc.prune(model, method, processor=processor):
                out = model.generate(**inputs, max_new_tokens=ANSWER_TOKENS, do_sample=False)
            new = out[0, inputs["input_ids"].shape[1] :]
            answers.append(processor.tokenizer.decode(new, skip_special_tokens=True).strip())
        found[budget, split] = answers
    return found


def ask(port: int, example: PictureExample, **settings: Any) -> str:
    more = {"mm_processor_kwargs": {"tokencover": settings}} if settings else {}
    body = make_chat(example.question, to_url(example.picture), **more)
    return read_answer(post(port, body)).strip()


def test_eight_clients_get_the_answers_of_transformers(
    port: int, examples: Any, expected: Any
) -> None:
    """Budgets and methods in turn, so that a step of the engine has all of them."""
    kinds: list[tuple[tuple[int, str], dict[str, Any]]] = [
        ((BUDGET, "paper"), {}),
        ((16, "paper"), {"budget": 16}),
        ((BUDGET, "weak"), {"method": "mob:split=weak"}),
        ((BUDGET, "paper"), {"budget": BUDGET}),
    ]
    orders = [(kind, number) for number in range(len(examples)) for kind in range(len(kinds))]
    with ThreadPoolExecutor(8) as clients:
        found = list(
            clients.map(lambda order: ask(port, examples[order[1]], **kinds[order[0]][1]), orders)
        )
    assert found == [expected[kinds[kind][0]][number] for kind, number in orders]


def test_probabilities_are_those_of_transformers(port: int, examples: Any) -> None:
    model, processor = load_pebble()
    few = examples[:3]
    prompts = [Asked((each.picture,), f"USER: <image> {each.question} ASSISTANT:") for each in few]
    theirs, _ = answer_in_transformers((model, processor), make_mob(BUDGET), prompts)
    with ThreadPoolExecutor(8) as clients:
        ours = list(
            clients.map(lambda each: answer_over_http(port, each.question, [each.picture]), few)
        )
    check_same(ours, theirs)


def make_mob(budget: int, split: Any = "paper") -> tc.MoB:
    return tc.MoB(budget, split, after=0, per="image")


def settings(**asked: Any) -> dict[str, Any]:
    return {"mm_processor_kwargs": {"tokencover": asked}}


def make_hostile() -> dict[str, dict[str, Any]]:
    picture = to_url(Image.new("RGB", (192, 192), "red"))
    dot = to_url(Image.new("RGB", (1, 1), "blue"))
    return {
        "no tokens": make_chat("what ?", picture, **settings(budget=0)),
        "too many tokens": make_chat("what ?", picture, **settings(budget=10**9)),
        "above the ceiling": make_chat("what ?", picture, **settings(budget=201)),
        "an unknown method": make_chat("what ?", picture, **settings(method="best")),
        "a file": make_chat("what ?", picture, **settings(method="mob:split=/etc/passwd")),
        "not a number": make_chat("what ?", picture, **settings(budget=float("nan"))),
        "a negative share": make_chat("what ?", picture, **settings(budget=-0.5)),
        "a word": make_chat("what ?", picture, **settings(budget="many")),
        "an object": make_chat("what ?", picture, **settings(budget={"of": [64]})),
        "a list": make_chat("what ?", picture, **settings(method=["mob"])),
        "brackets": make_chat("what ?", picture, **settings(method="{" * 100_000)),
        "an unknown key": make_chat("what ?", picture, **settings(bugdet=64)),
        "half a letter": make_chat("what ?", picture, **settings(**{"\ud800": 64})),
        "settings that are none": make_chat("what ?", picture, mm_processor_kwargs=[1]),
        "no object": make_chat("what ?", picture, mm_processor_kwargs={"tokencover": [1]}),
        "other settings": make_chat("what ?", picture, mm_processor_kwargs={"do_resize": False}),
        "other reading": make_chat(
            "what ?", picture, media_io_kwargs={"image": {"image_mode": "L"}}
        ),
        "50 images": make_chat("what ?", *[dot] * 50),
        "20 MB of text": make_chat("what " * 4_000_000, picture),
        "broken base64": make_chat("what ?", "data:image/png;base64,////"),
        "no image there": make_chat("what ?", "data:image/png;base64,"),
    }


def test_hostile_requests_are_refused_and_the_server_goes_on(
    port: int, examples: Any, expected: Any
) -> None:
    before = read_metrics(port).get("tokencover:requests_refused_total", 0.0)
    for name, body in make_hostile().items():
        status, reply = post(port, body)
        assert 400 <= status < 500, (name, status, reply)
        assert ask(port, examples[0]) == expected[BUDGET, "paper"][0], name
    refused = read_metrics(port)["tokencover:requests_refused_total"] - before
    assert refused >= 16  # of the others some are refused by vLLM itself


def test_a_refusal_says_why(port: int) -> None:
    picture = to_url(Image.new("RGB", (192, 192), "red"))
    status, reply = post(port, make_chat("what ?", picture, **settings(budget=300)))
    assert status == 400
    assert "budget 300 keeps 300 of the 576" in reply["error"]["message"]
    assert "allows 200" in reply["error"]["message"]


def test_odd_requests_are_answered(port: int) -> None:
    read_answer(post(port, make_chat("what is there ?")))
    read_answer(post(port, make_chat("what ?", to_url(Image.new("RGB", (1, 1), "blue")))))
    read_answer(post(port, make_chat("", to_url(Image.new("RGB", (300, 20), "green")))))


def test_a_client_that_dies(port: int, examples: Any, expected: Any) -> None:
    client = textwrap.dedent(f"""
        from chat_client import *
        body = make_chat("what ?", to_url(Image.new("RGB", (192, 192), "red")), max_tokens=900,
                         ignore_eos=True, stream=True)
        connection = http.client.HTTPConnection("127.0.0.1", {port})
        connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(),
                           {{"Content-Type": "application/json"}})
        print(connection.getresponse().read(20), flush=True)
        import time
        time.sleep(100)
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", client],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1] / "benchmarks",
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    process.kill()
    process.wait()
    assert ask(port, examples[0]) == expected[BUDGET, "paper"][0]
    end = time.monotonic() + 60
    while read_metrics(port)["vllm:num_requests_running"] and time.monotonic() < end:
        time.sleep(0.2)
    assert read_metrics(port)["vllm:num_requests_running"] == 0


def test_none_of_500_requests_is_lost(port: int, examples: Any, expected: Any) -> None:
    before = read_metrics(port)
    with ThreadPoolExecutor(32) as clients:
        numbers = [number % len(examples) for number in range(500)]
        found = list(clients.map(lambda each: ask(port, examples[each]), numbers))
    assert found == [expected[BUDGET, "paper"][number] for number in numbers]
    after = read_metrics(port)
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    assert grown["tokencover:pictures_total"] == 500
    assert grown["tokencover:visual_tokens_saved_total"] == 500 * (576 - BUDGET)
    assert grown["tokencover:visual_tokens_kept_total"] == 500 * BUDGET
    assert after["tokencover:choosing_seconds_count"] > 0
    assert after["tokencover:tower_outputs_reused_total"] > 0
    assert after["tokencover:choices_failed_total"] == 0
