"""A language model that judges answers, asked as OpenAI's servers are."""

from __future__ import annotations

import ast
import http.client
import json
import re
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from tokencover.errors import InputError, TokenCoverError

PROMPT: Final = "tokencover-1"
"""The name of the instruction below, for the results: another one would be another judge."""
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
"""Tokens of a reply: a verdict has twenty, and a model that thinks first needs room for that."""
LONGEST_PAUSE: Final = 120.0
"""Seconds that a server may ask us to wait."""
NEWER_NAMES: Final = {"max_tokens": "max_completion_tokens"}
"""What a server wants that refuses a setting; one that has no newer name is left out."""
TOO_BUSY: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Answers of a server that may be others a little later."""


class JudgeError(TokenCoverError):
    """The judge cannot be asked, or says nothing that can be read."""


class _RefusedSettingError(Exception):
    """The server takes the request, but for one of its settings."""


@dataclass(frozen=True)
class Verdict:
    """What the judge said.

    Attributes
    ----------
    match : bool, optional
        Whether the answer is right; None if the judge's reply cannot be read.
    score : float, optional
        From 0 to 5.
    reply : str
        Its words, if they cannot be read.
    served : str
        The model as the server names it.
    """

    match: bool | None
    score: float | None
    reply: str = ""
    served: str = ""


@dataclass(frozen=True)
class Judge:
    """A server with a model.

    Attributes
    ----------
    url : str
        Its address up to ``/v1``, or with ``/chat/completions``.
    model : str
        The model's name.
    key : str
        What the server wants to know; never written anywhere.
    pause : float
        Seconds before a server that was too busy is asked again; twice as many each time.
    patience : float
        Seconds to wait for a reply.
    longest_reply : int
        In tokens.
    """

    url: str
    model: str
    key: str = ""
    pause: float = 2.0
    patience: float = PATIENCE
    longest_reply: int = LONGEST_REPLY
    _refused: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

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
        """What results say of it: no key, and nothing of the address that may hold one."""
        parts = urlsplit(self.url)
        place = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
        address = urlunsplit((parts.scheme, place, parts.path, "", ""))
        return {"model": self.model, "url": address, "prompt": PROMPT}

    def ask(
        self,
        question: str,
        right: str,
        answer: str,
        *,
        attempts: int = ATTEMPTS,
        leaving: threading.Event | None = None,
    ) -> Verdict:
        """Let it judge an answer.

        Parameters
        ----------
        question, right, answer : str
            What was asked, the right answer, and what was said.
        attempts : int
            How often a server that cannot be reached is tried; one that says that it is too busy is
            there, and is tried `ATTEMPTS` times in any case.
        leaving : threading.Event, optional
            Once it is set, no further attempt is made.

        Raises
        ------
        JudgeError
            If the server refuses, or cannot be reached in so many attempts.
        """
        words = f"Question: {question}\nRight answer: {right}\nAnswer: {answer}"
        content = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": INSTRUCTION},
                {"role": "user", "content": words},
            ],
            "temperature": 0,
            "max_tokens": self.longest_reply,
        }
        found = self._post(content, attempts, leaving or threading.Event())
        try:
            choice = found["choices"][0]
            reply = choice["message"]["content"] or ""
            served = str(found.get("model", ""))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise JudgeError(
                f"the judge at {self.description['url']} does not answer as OpenAI's servers do: "
                f"{json.dumps(found)[:200]}."
            ) from error
        verdict = read_verdict(str(reply), served=served)
        if verdict.match is None and choice.get("finish_reason") == "length":
            cut = f"{verdict.reply} ... (cut off after {self.longest_reply} tokens)"
            return Verdict(None, None, cut, served)
        return verdict

    def _post(self, content: dict[str, Any], attempts: int, leaving: threading.Event) -> Any:
        """Send a request; settings that the server does not know are left out from then on."""
        while True:
            known = {
                NEWER_NAMES.get(name, name) if name in self._refused else name: value
                for name, value in content.items()
                if name not in self._refused or name in NEWER_NAMES
            }
            try:
                return self._try(json.dumps(known).encode(), attempts, leaving)
            except _RefusedSettingError as refusal:
                self._refused.add(str(refusal))

    def _try(self, body: bytes, attempts: int, leaving: threading.Event) -> Any:
        request = self._make_request(body)
        for attempt in range(ATTEMPTS):
            wanted = 0.0
            try:
                with urllib.request.urlopen(request, timeout=self.patience) as reply:
                    return json.loads(reply.read())
            except urllib.error.HTTPError as error:
                told = error.read().decode(errors="replace")[:300]
                reason = f"it answers {error.code} {error.reason}: {told}"
                if error.code not in TOO_BUSY:
                    _check_settings(error.code, told, body)
                    raise self._make_error(reason) from error
                failure: Exception = error
                wanted, last = _read_pause(error.headers.get("Retry-After")), ATTEMPTS
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason, failure, last = f"{type(error).__name__}: {error}", error, attempts
            if attempt + 1 >= last or leaving.wait(max(wanted, self.pause * 2**attempt)):
                break
        raise self._make_error(f"{reason}, in {attempt + 1} attempts") from failure

    def _make_request(self, body: bytes) -> urllib.request.Request:
        address = self.url.rstrip("/")
        if not address.endswith("/chat/completions"):
            address += "/chat/completions"
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        return urllib.request.Request(address, body, headers)

    def _make_error(self, reason: str) -> JudgeError:
        return JudgeError(
            f"the judge {self.model!r} at {self.description['url']} cannot be asked ({reason}). "
            "What it said before is kept, and the same command goes on from there."
        )


def read_verdict(reply: str, served: str = "") -> Verdict:
    """Find yes or no and a score in a judge's words; what it only thought does not count."""
    said_in_the_end = re.sub(r"<think>.*?(</think>|\Z)", "", reply, flags=re.DOTALL)
    for text in re.findall(r"\{[^{}]*\}", said_in_the_end.rpartition("</think>")[2]):
        found = _read_mapping(text)
        said = str(found.get("pred", "")).strip().lower()
        try:
            score = float(found.get("score", ""))
        except (TypeError, ValueError):
            continue
        if said in ("yes", "no") and 0 <= score <= BEST:
            return Verdict(said == "yes", score, served=served)
    return Verdict(None, None, reply[:300], served)


def _read_mapping(text: str) -> dict[str, Any]:
    """A JSON object, or one in Python's quotes as some models write it."""
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
        except (ValueError, SyntaxError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def _check_settings(code: int, told: str, body: bytes) -> None:
    """Models that think take neither a temperature nor a length by its old name."""
    quoted = told.replace('"', "'")
    for name in ("max_tokens", "temperature"):
        if code == HTTPStatus.BAD_REQUEST and name in json.loads(body) and f"'{name}'" in quoted:
            raise _RefusedSettingError(name)


def _read_pause(header: str | None) -> float:
    """How long a server asks us to wait, in seconds; dates are not read."""
    try:
        return min(max(float(header or 0), 0.0), LONGEST_PAUSE)
    except ValueError:
        return 0.0
