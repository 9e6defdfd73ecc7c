"""A language model that judges answers, asked as OpenAI's servers are."""

from __future__ import annotations

import ast
import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
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
TOO_BUSY: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Answers of a server that may be others a little later."""


class JudgeError(TokenCoverError):
    """The judge cannot be asked."""


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
    """

    url: str
    model: str
    key: str = ""
    pause: float = 2.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"--url takes an address like http://host:8000/v1, got {self.url!r}.")

    @property
    def description(self) -> dict[str, str]:
        """What results say of it: no key, and nothing of the address that may hold one."""
        parts = urlsplit(self.url)
        place = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
        address = urlunsplit((parts.scheme, place, parts.path, "", ""))
        return {"model": self.model, "url": address, "prompt": PROMPT}

    def ask(self, question: str, right: str, answer: str, *, attempts: int = ATTEMPTS) -> Verdict:
        """Let it judge an answer.

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
            "max_tokens": 64,
        }
        found = self._post(json.dumps(content).encode(), attempts)
        try:
            reply = str(found["choices"][0]["message"]["content"])
        except (KeyError, IndexError, TypeError) as error:
            raise JudgeError(
                f"the judge at {self.description['url']} does not answer as OpenAI's servers do: "
                f"{json.dumps(found)[:200]}."
            ) from error
        return read_verdict(reply, served=str(found.get("model", "")))

    def _post(self, body: bytes, attempts: int) -> Any:
        address = self.url.rstrip("/")
        if not address.endswith("/chat/completions"):
            address += "/chat/completions"
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(address, body, headers)
        return self._try(lambda: _read_reply(request), attempts)

    def _try(self, post: Callable[[], Any], attempts: int) -> Any:
        for attempt in range(attempts):
            try:
                return post()
            except urllib.error.HTTPError as error:
                told = error.read().decode(errors="replace")[:300]
                reason = f"it answers {error.code} {error.reason}: {told}"
                if error.code not in TOO_BUSY:
                    raise self._make_error(reason) from error
                failure: Exception = error
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason, failure = f"{type(error).__name__}: {error}", error
            if attempt + 1 < attempts:
                time.sleep(self.pause * 2**attempt)
        raise self._make_error(f"{reason}, in {attempts} attempts") from failure

    def _make_error(self, reason: str) -> JudgeError:
        return JudgeError(
            f"the judge {self.model!r} at {self.description['url']} cannot be asked ({reason}). "
            "What it said before is kept, and the same command goes on from there."
        )


def read_verdict(reply: str, served: str = "") -> Verdict:
    """Find yes or no and a score in a judge's words."""
    for text in re.findall(r"\{[^{}]*\}", reply):
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


def _read_reply(request: urllib.request.Request) -> Any:
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return json.loads(reply.read())
