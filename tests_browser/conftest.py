"""A browser, and a studio for it to visit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
import torch
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tokencover.studio import StudioSettings, open_studio

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 375, "height": 800}
LIMIT = 120_000
"""Milliseconds to wait for anything; machines are slow at times."""
expect.set_options(timeout=LIMIT)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, or the one that CHROMIUM names."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("no Chromium: `apt-get install chromium`, or say where it is by CHROMIUM=PATH.")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh window; everything that it asks of another computer fails the test."""
    window = browser.new_page(viewport=WIDE)
    window.set_default_timeout(LIMIT)
    strangers: list[str] = []
    window.on(
        "request",
        lambda request: (
            strangers.append(request.url)
            if not request.url.startswith(("http://127.0.0.1", "file:", "data:", "blob:"))
            else None
        ),
    )
    yield window
    window.close()
    assert strangers == []


@pytest.fixture(scope="session")
def studio() -> Iterator[str]:
    """The address of an open studio."""
    torch.set_num_threads(1)
    told: list[str] = []
    settings = StudioSettings(port=0, max_megabytes=2, max_pixels=4_000_000)
    opened = open_studio(settings, on_open=told.append, wait=False)
    yield told[0]
    opened.close()
