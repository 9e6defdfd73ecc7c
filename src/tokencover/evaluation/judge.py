"""A language model that judges answers, behind an API like OpenAI's."""

from __future__ import annotations

import ast
import json
import re
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from tokencover.errors import InputError, TokenCoverError, import_extra

PROMPT: Final = "tokencover-1"
"""The name of the instruction below, for the results: a changed one needs a new name."""
INSTRUCTION: Final = (
    "You compare an answer to a question about a video with the right answer. They match if they "
    "mean the same: synonyms, other forms of a word and more detail do not matter, another thing, "
    "number or colour does. Reply with a JSON object and nothing else: "
    '{"pred": "yes" or "no", "score": a whole number from 0 (nothing in common) to 5 (the same)}.'
)
BEST: Final = 5
ATTEMPTS: Final = 5
PATIENCE: Final = 120.0
"""Seconds to wait for a reply."""
LONGEST_REPLY: Final = 1024
"""Tokens of a reply: a verdict has twenty, the rest is for models that think first."""
LONGEST_PAUSE: Final = 120.0
"""Seconds that a server may tell us to wait."""
NEWER_NAMES: Final = {"max_tokens": "max_completion_tokens"}
"""Settings that newer servers rename; other rejected settings are left out."""
TOO_BUSY: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Status codes that may change a little later."""


class JudgeError(TokenCoverError):
    """The judge cannot be reached, or its replies cannot be read."""


class _RejectedSettingError(Exception):
    """The server accepts the request, but not one of its settings."""


@dataclass(frozen=True)
class Verdict:
    """Whether the answer is correct, and a score from 0 to 5; both None if the reply is unreadable.

    `reply` is the unreadable reply, `served` the model's name in the reply.
    """

    match: bool | None
    score: float | None
    reply: str = ""
    served: str = ""


@dataclass(frozen=True)
class Judge:
    """A server with a model.

    `url` ends in ``/v1`` or ``/chat/completions``. `key` is the API key, which is never written
    anywhere. A busy server is tried again after `pause` seconds, doubled each time; `patience` is
    the seconds to wait for a reply of up to `longest_reply` tokens.
    """

    url: str
    model: str
    key: str = field(default="", repr=False)
    pause: float = 2.0
    patience: float = PATIENCE
    longest_reply: int = LONGEST_REPLY
    _rejected: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"--url takes an address like http://host:8000/v1, got {self.url!r}.")
        if not self.model.strip():
            raise InputError("the judge has no name: give --model the name that the server uses.")
        if not self.patience > 0 or self.longest_reply < 1:
            raise InputError(
                f"a judge needs time and room for its reply, got {self.patience} seconds and "
                f"{self.longest_reply} tokens."
            )

    @property
    def description(self) -> dict[str, str]:
        """The judge in results: without key, and without parts of the URL that may contain one."""
        parts = urlsplit(self.url)
        host = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
        address = urlunsplit((parts.scheme, host, parts.path, "", ""))
        return {"model": self.model, "url": address, "prompt": PROMPT}

    def ask(
        self,
        question: str,
        reference: str,
        answer: str,
        *,
        attempts: int = ATTEMPTS,
        leaving: threading.Event | None = None,
    ) -> Verdict:
        """Judge an answer; raises `JudgeError` if the server rejects the request or is unreachable.

        A server that cannot be reached is tried `attempts` times; one that reports that it is busy,
        `ATTEMPTS` times in any case. Once `leaving` is set, no further attempt is made.
        """
        text = f"Question: {question}\nRight answer: {reference}\nAnswer: {answer}"
        content = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": INSTRUCTION},
                {"role": "user", "content": text},
            ],
            "temperature": 0,
            "max_tokens": self.longest_reply,
        }
        response = self._post(content, attempts, leaving or threading.Event())
        try:
            choice = response["choices"][0]
            reply = choice["message"]["content"] or ""
            served = str(response.get("model", ""))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise JudgeError(
                f"the judge at {self.description['url']} does not answer as OpenAI's servers do: "
                f"{json.dumps(response)[:200]}."
            ) from error
        verdict = read_verdict(str(reply), served=served)
        if verdict.match is None and choice.get("finish_reason") == "length":
            cut = f"{verdict.reply} ... (cut off after {self.longest_reply} tokens)"
            return Verdict(None, None, cut, served)
        return verdict

    def _post(self, content: dict[str, Any], attempts: int, leaving: threading.Event) -> Any:
        """Send a request; settings that the server rejects are left out from then on."""
        while True:
            known = {
                NEWER_NAMES.get(name, name) if name in self._rejected else name: value
                for name, value in content.items()
                if name not in self._rejected or name in NEWER_NAMES
            }
            try:
                return self._try(known, attempts, leaving)
            except _RejectedSettingError as rejection:
                self._rejected.add(str(rejection))

    def _try(self, content: dict[str, Any], attempts: int, leaving: threading.Event) -> Any:
        client = import_extra(
            "httpx2", "judging answers", "tokencover[judge]", "use the benchmark's word count"
        )
        address = self.url.rstrip("/")
        if not address.endswith("/chat/completions"):
            address += "/chat/completions"
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        for attempt in range(ATTEMPTS):
            pause, last = 0.0, attempts
            try:
                reply = client.post(address, json=content, headers=headers, timeout=self.patience)
                if reply.is_success:
                    return reply.json()
                reason = f"it answers {reply.status_code} {reply.reason_phrase}: {reply.text[:300]}"
                if reply.status_code not in TOO_BUSY:
                    _check_settings(reply, content)
                    raise self._make_error(reason)
                pause, last = _parse_pause(reply.headers.get("Retry-After")), ATTEMPTS
            except (OSError, ValueError, client.HTTPError, client.InvalidURL) as error:
                reason = f"{type(error).__name__}: {error}"
            if attempt + 1 >= last or leaving.wait(max(pause, self.pause * 2**attempt)):
                break
        raise self._make_error(f"{reason}, in {attempt + 1} attempts")

    def _make_error(self, reason: str) -> JudgeError:
        if self.key:
            reason = reason.replace(self.key, "...")
        return JudgeError(
            f"the judge {self.model!r} at {self.description['url']} cannot be asked ({reason}). "
            "Its earlier verdicts are saved, and the same command resumes there."
        )


def read_verdict(reply: str, served: str = "") -> Verdict:
    """Parse yes or no and a score from a judge's reply; its thinking does not count."""
    conclusion = re.sub(r"<think>.*?(</think>|\Z)", "", reply, flags=re.DOTALL)
    for text in re.findall(r"\{[^{}]*\}", conclusion.rpartition("</think>")[2]):
        verdict = _parse_mapping(text)
        match = str(verdict.get("pred", "")).strip().lower()
        try:
            score = float(verdict.get("score", ""))
        except (TypeError, ValueError):
            continue
        if match in ("yes", "no") and 0 <= score <= BEST:
            return Verdict(match == "yes", score, served=served)
    return Verdict(None, None, reply[:300], served)


def _parse_mapping(text: str) -> dict[str, Any]:
    """A JSON object, or one in Python's quotes as some models write it."""
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
        except (ValueError, SyntaxError):
            continue
        if isinstance(value, dict):
            return value
    return {}


def _check_settings(reply: Any, content: dict[str, Any]) -> None:
    """Models that think accept neither a temperature nor a length by its old name."""
    quoted = reply.text[:300].replace('"', "'")
    for name in ("max_tokens", "temperature"):
        is_bad = reply.status_code == HTTPStatus.BAD_REQUEST
        if is_bad and name in content and f"'{name}'" in quoted:
            raise _RejectedSettingError(name)


def _parse_pause(header: str | None) -> float:
    """Seconds that a server tells us to wait; dates are not read."""
    try:
        return min(max(float(header or 0), 0.0), LONGEST_PAUSE)
    except ValueError:
        return 0.0
