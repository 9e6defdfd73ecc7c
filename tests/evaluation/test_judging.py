"""A judge is asked once for each answer, named in the results, and may go away at any time."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import call
from tokencover.cli.app import main
from tokencover.errors import InputError
from tokencover.evaluation import Example, Task, judging, read_folder
from tokencover.evaluation.judge import Judge, JudgeError, read_verdict
from tokencover.evaluation.judging import VERDICTS, judge_results, save_questions
from tokencover.evaluation.plan import Combination, Scoring
from tokencover.evaluation.records import Record, ResultsError, Scores
from tokencover.evaluation.store import ResultsFolder
from tokencover.methods import MoB

RIGHT = {"q0": "a cat", "q1": "two", "q2": "blue"}
SAID = {None: ["cat", "2", "red"], MoB(8): ["cat", "three", "red"]}


@dataclass
class StubServer:
    """Records its requests, and replies as set up."""

    say: Callable[[str], str]
    codes: list[int] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    error: str = "no"
    delay: float = 0.0
    finish: str = "stop"
    url: str = ""

    @contextmanager
    def running(self) -> Iterator[StubServer]:
        server, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    code = server.codes.pop(0) if server.codes else 200
                    server.asked.append(body)
                    server.keys.append(self.headers["Authorization"])
                reply = server.say(body["messages"][1]["content"])
                choice: dict[str, Any] = {"message": {"content": reply}}
                content = {"model": "stub-1", "choices": [choice]}
                choice["finish_reason"] = server.finish
                data = json.dumps(content if code == 200 else {"error": server.error}).encode()
                time.sleep(server.delay)
                self.send_response(code)
                for name, value in server.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with contextlib.suppress(OSError):  # of those who do not wait
                    self.wfile.write(data)

            def log_message(self, *arguments: object) -> None:
                pass

        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        self.url = f"http://127.0.0.1:{http.server_port}/v1"
        try:
            yield self
        finally:
            http.shutdown()
            thread.join()
            http.server_close()


def judge_words(words: str) -> str:
    """The stub's judgement: a cat is a cat, 2 is two, nothing else is right."""
    good = "Answer: cat" in words or "Answer: 2" in words
    return json.dumps({"pred": "yes" if good else "no", "score": 4 if good else 1})


@pytest.fixture
def answered(tmp_path: Path) -> Path:
    """Results of two methods, with answers for a judge."""
    folder = tmp_path / "results"
    examples = [
        Example(name, (), f"{name} is what ? Be short.", (right,), "c", prompt_words=f"{name} ?")
        for name, right in RIGHT.items()
    ]
    task = Task("MSVD", "video", lambda: iter(examples), lambda *_: 0.0, "five", judged=True)
    plain = Task("GQA", "weak", lambda: iter(examples), lambda *_: 0.0, "six")
    run = {"model": {"name": "pebble-clips"}, "settings": {"limit": 3}}
    results = ResultsFolder.open(folder, run)
    save_questions(folder, [task, plain])
    for method, said in SAID.items():
        records = [
            Record(name, "c", answer, 0.0, 8, 8.0, 0.5)
            for name, answer in zip(RIGHT, said, strict=True)
        ]
        for each in (task, plain):
            results.write(Scoring(Combination(method), each), Scores(tuple(records)))
    return folder


def read_scores(folder: Path) -> dict[str, list[float | None]]:
    stored = read_folder(folder)
    return {str(row.combination): [r.score for r in row.records["MSVD"]] for row in stored.rows}


def test_answers_are_judged_once_and_the_judge_is_named(answered: Path, tmp_path: Path) -> None:
    out = tmp_path / "judged"
    with StubServer(judge_words).running() as server:
        judge_results(answered, out, Judge(server.url, "stub", key="secret"))
        assert len(server.asked) == 4  # "cat" and "red" are both methods'
        assert set(server.keys) == {"Bearer secret"}
        words = [each["messages"][1]["content"] for each in server.asked]
        assert "Question: q0 ?\nRight answer: a cat\nAnswer: cat" in words
        judge_results(answered, out, Judge(server.url, "stub"))
        assert len(server.asked) == 4  # everything is known
    assert read_scores(out) == {"unpruned": [1.0, 1.0, 0.0], "mob 8": [1.0, 0.0, 0.0]}
    stored = read_folder(out)
    assert list(stored.groups) == ["MSVD"]
    assert stored.run["settings"]["judge"]["model"] == "stub"
    assert "secret" not in "".join(path.read_text() for path in out.iterdir())
    (unpruned,) = out.glob("scores-unpruned-*.json")
    assert json.loads(unpruned.read_text())["metrics"] == {"judge_score": 3.0}


def test_an_interruption_costs_no_verdict(answered: Path, tmp_path: Path) -> None:
    out = tmp_path / "judged"
    with StubServer(judge_words, codes=[200, 200, 401]).running() as server:
        judge = Judge(server.url, "stub")
        with pytest.raises(JudgeError, match="401"):
            judge_results(answered, out, judge, parallel=1)
        assert not list(out.glob("scores-*"))
        with (out / VERDICTS).open("a") as file:
            file.write('{"asked": ["q2')  # what a killed process leaves
        lines = (out / VERDICTS).read_text().splitlines()
        known = [json.loads(line)["asked"][2] for line in lines if "}" in line]
        assert len(known) >= 2
        server.asked.clear()
        judge_results(answered, out, judge, parallel=1)
        said = [each["messages"][1]["content"].rsplit(": ", 1)[1] for each in server.asked]
        assert sorted(known + said) == ["2", "cat", "red", "three"]  # each once
        again = tmp_path / "again"
        judge_results(answered, again, judge)
    assert read_scores(out) == read_scores(again)


def test_a_busy_server_is_asked_again(answered: Path, tmp_path: Path) -> None:
    with StubServer(judge_words, codes=[200, 503, 429]).running() as server:
        judge_results(answered, tmp_path / "out", Judge(server.url, "stub", pause=0.0), parallel=1)
        assert len(server.asked) == 6


def test_a_server_that_is_busy_at_first_is_there(answered: Path, tmp_path: Path) -> None:
    with StubServer(
        judge_words, codes=[429, 500], headers={"Retry-After": "0.2"}
    ).running() as server:
        judge = Judge(server.url, "stub", pause=0.0)
        begun = time.monotonic()
        judge_results(answered, tmp_path / "out", judge, parallel=1)
        assert time.monotonic() - begun >= 0.4  # as long as the server asked for, twice
        assert len(server.asked) == 6


def test_a_server_that_stays_busy_ends_it(answered: Path, tmp_path: Path) -> None:
    with StubServer(judge_words, codes=[200] + [500] * 99).running() as server:
        judge = Judge(server.url, "stub", pause=0.0)
        with pytest.raises(JudgeError, match=r"500 .*in 5 attempts.*the same command resumes"):
            judge_results(answered, tmp_path / "out", judge, parallel=1)
        assert len(server.asked) == 6


def test_a_server_that_hangs_is_left(answered: Path, tmp_path: Path) -> None:
    with StubServer(judge_words, delay=0.5).running() as server:
        judge = Judge(server.url, "stub", patience=0.1)
        with pytest.raises(JudgeError, match=r"timed out.*in 1 attempts"):
            judge_results(answered, tmp_path / "out", judge)


def test_one_judge_at_a_time_writes_a_folder(answered: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with StubServer(judge_words).running() as server:
        judge = Judge(server.url, "stub")
        judged = judge_results(answered, out, judge)
        with judged.claim(), pytest.raises(ResultsError, match="another process is writing"):
            judge_results(answered, out, judge)


def test_settings_that_a_server_refuses_are_left_out(answered: Path, tmp_path: Path) -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model."
    with StubServer(judge_words, codes=[400], error=said).running() as server:
        judge = Judge(server.url, "stub", longest_reply=77)
        judge_results(answered, tmp_path / "out", judge)
        assert [each.get("max_tokens") for each in server.asked] == [77, None, None, None, None]
        assert [each.get("max_completion_tokens") for each in server.asked] == [None, *[77] * 4]
        server.error, server.codes = "'temperature' does not support 0", [400]
        judge_results(answered, tmp_path / "again", judge)
        assert [each.get("temperature") for each in server.asked[5:]] == [0, None, None, None, None]
        server.error, server.codes = "'messages' must be shorter", [400]
        with pytest.raises(JudgeError, match=r"400 .*shorter"):
            judge_results(answered, tmp_path / "third", judge)


def test_a_reply_that_cannot_be_read_is_a_failure_and_not_a_no(
    answered: Path, tmp_path: Path
) -> None:
    def say(words: str) -> str:
        return "I think so." if "Answer: cat" in words else judge_words(words)

    out = tmp_path / "out"
    with StubServer(say, finish="length").running() as server:
        judge_results(answered, out, Judge(server.url, "stub", longest_reply=9))
        assert read_scores(out)["unpruned"] == [None, 1.0, 0.0]
        failed = [row.records["MSVD"][0].failed for row in read_folder(out).rows]
        said = "the judge's reply cannot be read: 'I think so. ... (cut off after 9 tokens)'"
        assert failed == [said, said]
        server.say = judge_words
        judge_results(answered, out, Judge(server.url, "stub"))
        assert len(server.asked) == 5  # only that one again
    assert read_scores(out)["unpruned"] == [1.0, 1.0, 0.0]


def test_a_judge_that_says_nothing_that_can_be_read_is_left(
    answered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "HOPELESS", 3)
    with StubServer(lambda words: "As a language model ...").running() as server:
        with pytest.raises(JudgeError, match=r"3 replies .* none can, for example 'As a language"):
            judge_results(answered, tmp_path / "out", Judge(server.url, "stub"), parallel=1)
        assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("reply", "match", "score"),
    [
        ('{"pred": "yes", "score": 4}', True, 4.0),
        ("{'pred': 'No', 'score': 0}", False, 0.0),
        ('Here: ```{"pred": "yes", "score": "5"}```', True, 5.0),
        ('<think>{"pred": "no", "score": 0}?</think>{"pred": "yes", "score": 4}', True, 4.0),
        ('{"pred": "no", "score": 0}? No.</think> {"pred": "yes", "score": 4}', True, 4.0),
        ('<think>Perhaps {"pred": "no", "score": 0}, but', None, None),
        ('{"pred": "yes", "score": 9}', None, None),
        ('{"pred": "maybe", "score": 3}', None, None),
        ("yes", None, None),
        ("{1, 2}", None, None),
    ],
)
def test_replies_are_read(reply: str, match: bool | None, score: float | None) -> None:
    verdict = read_verdict(reply)
    assert (verdict.match, verdict.score) == (match, score)


def test_the_command(answered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StubServer(judge_words).running() as server:
        call("judge", str(answered), "--url", server.url, "--model", "org/stub", "--parallel", "2")
    shown = capsys.readouterr()
    assert "| unpruned | - | 66.7 |" in shown.out
    assert "4 of 4 answers are judged" in shown.err
    assert read_scores(answered.with_name("results-judged-by-org_stub"))


def test_the_command_tells_how_many_replies_cannot_be_read(
    answered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def say(words: str) -> str:
        return "no idea" if "Answer: cat" in words else judge_words(words)

    with StubServer(say).running() as server:
        call("judge", str(answered), "--url", server.url, "--model", "stub", "--reply-tokens", "9")
        assert {each["max_tokens"] for each in server.asked} == {9}
    assert "2 replies of the judge could not be parsed" in capsys.readouterr().err


def test_the_command_for_programs(answered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StubServer(judge_words).running() as server:
        call("judge", str(answered), "--url", server.url, "--model", "stub", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["method"] == "unpruned"


def test_a_judge_that_is_not_there_is_told_at_once(
    answered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with StubServer(judge_words).running() as server:
        url = server.url
    assert main(["judge", str(answered), "--url", url, "--model", "stub"]) == 1
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "tokencover:" in each]
    assert "the judge 'stub' at http://127.0.0.1" in line
    assert "cannot be asked" in line


def test_what_cannot_be_judged_is_told(answered: Path, tmp_path: Path) -> None:
    judge = Judge("http://localhost:1/v1", "stub")
    with pytest.raises(InputError, match="no answers for a judge among GQA"):
        judge_results(answered, tmp_path / "out", judge, tasks=["GQA"])
    with pytest.raises(InputError, match="has no answers of MSVDD for a judge"):
        judge_results(answered, tmp_path / "out", judge, tasks=["MSVD", "MSVDD"])
    with pytest.raises(InputError, match="time and room"):
        Judge("http://localhost:1/v1", "stub", patience=0)
    with pytest.raises(InputError, match="holds no results"):
        judge_results(tmp_path / "nothing", tmp_path / "out", judge)
    with pytest.raises(InputError, match="takes an address"):
        Judge("localhost", "stub")
