"""Links of README and docs lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import FENCE, RAW, REPOSITORY, ROOT, read_pages

LINK = re.compile(r"\]\(([^)\s]+)\)")
LARGEST_IMAGE = 150_000
"""Bytes: pages and the repository stay light."""


def list_links(text: str) -> list[str]:
    return LINK.findall(FENCE.sub("", text))


def list_anchors(text: str) -> set[str]:
    """Anchors of headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", text), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", each)) for each in headings]
    return {each.strip().lower().replace(" ", "-") for each in plain}


def test_readme_links_are_absolute() -> None:
    """It is read on a package index too, where there is nothing beside it."""
    links = list_links(read_pages()["README.md"])
    assert len(links) > 10
    assert [link for link in links if not link.startswith("https://")] == []


def test_links_into_the_repository_lead_somewhere() -> None:
    wrong = [f"{page}: {link}" for page, link, target, anchor in list_own_links()
             if not leads_somewhere(target, anchor)]  # fmt: skip
    assert not wrong, "\n".join(wrong)


def leads_somewhere(target: Path, anchor: str) -> bool:
    made = {ROOT / name: text for name, text in read_pages().items()}
    if not (target.exists() or target in made):
        return False
    if not anchor:
        return True
    text = made[target] if target in made else target.read_text("utf-8")
    return anchor in list_anchors(text)


def list_own_links() -> Iterator[tuple[str, str, Path, str]]:
    """Page, link, the file that it means and the anchor in it."""
    for page, text in read_pages().items():
        for link in list_links(text):
            address, _, anchor = link.partition("#")
            if address.startswith(RAW):
                yield page, link, ROOT / address.removeprefix(f"{RAW}/"), anchor
            elif address.startswith((f"{REPOSITORY}/blob/main/", f"{REPOSITORY}/tree/main/")):
                yield page, link, ROOT / address.split("/main/", 1)[1], anchor
            elif "://" not in address:
                here = ROOT / page
                yield page, link, (here.parent / address).resolve() if address else here, anchor


def test_a_link_that_leads_nowhere_is_found() -> None:
    assert leads_somewhere(ROOT / "docs" / "reference" / "methods.md", "what-k-counts")
    assert not leads_somewhere(ROOT / "docs" / "reference" / "methods.md", "no-such-heading")
    assert not leads_somewhere(ROOT / "docs" / "no-such-page.md", "")


def test_images_are_small_and_all_used() -> None:
    images = sorted((ROOT / "docs" / "images").glob("*"))
    shown = {link.rpartition("/")[2] for text in read_pages().values() for link in list_links(text)}
    assert images
    for image in images:
        assert image.stat().st_size < LARGEST_IMAGE
        assert image.name in shown
