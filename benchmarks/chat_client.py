"""A client of an OpenAI-compatible server, with nothing but the standard library."""

from __future__ import annotations

import base64
import http.client
import io
import json
from typing import Any

from PIL import Image

Reply = tuple[int, Any]


def to_url(picture: Image.Image) -> str:
    """An image as a data URL."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def make_chat(question: str, *urls: str, **more: Any) -> dict[str, Any]:
    """The body of a request: images, then the question.

    Templates of LLaVA begin without a token for the beginning; transformers' processor adds it.
    """
    content: list[Any] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {
        "model": "served",
        "messages": [{"role": "user", "content": [*content, {"type": "text", "text": question}]}],
        "temperature": 0.0,
        "max_tokens": 6,
        "add_special_tokens": True,
        **more,
    }


def post(port: int, body: dict[str, Any] | bytes, path: str = "/v1/chat/completions") -> Reply:
    """Send a request; gives the status and what came back."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text or b"null")
    finally:
        connection.close()


def get(port: int, path: str) -> tuple[int, str]:
    """Read a page of the server."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def read_answer(reply: Reply) -> str:
    """The text of a successful reply."""
    status, body = reply
    assert status == 200, body
    found: str = body["choices"][0]["message"]["content"]
    return found


def read_metrics(port: int) -> dict[str, float]:
    """Values of all counters, summed over their labels."""
    found: dict[str, float] = {}
    for line in get(port, "/metrics")[1].splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found
