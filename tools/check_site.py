"""The built documentation needs no network: nothing it shows comes from elsewhere.

python tools/check_site.py site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements whose address a browser fetches by itself."""
NOT_FETCHED = {"canonical", "next", "prev", "alternate", "edit"}


class Fetched(HTMLParser):
    """Collects the addresses that a browser would fetch from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at one element."""
        found = dict(attrs)
        address = found.get(LOADED.get(tag, "")) or ""
        if address.startswith(("http:", "https:", "//")) and found.get("rel") not in NOT_FETCHED:
            self.elsewhere.append(f"<{tag}> {address}")


def main(site: Path) -> int:
    """Say what is fetched from elsewhere; returns the exit code."""
    pages = sorted(site.rglob("*.html"))
    if not pages:
        print(f"{site} has no pages: run `make docs`", file=sys.stderr)
        return 1
    wrong = []
    for page in pages:
        parser = Fetched()
        parser.feed(page.read_text(encoding="utf-8"))
        wrong += [f"{page.relative_to(site)}: {address}" for address in parser.elsewhere]
    for style in sorted(site.rglob("*.css")):
        text = style.read_text(encoding="utf-8")
        if "url(http" in text or "url(//" in text or '@import url("http' in text:
            wrong.append(f"{style.relative_to(site)}: a style sheet that fetches")
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(pages)} pages, nothing fetched from elsewhere" if not wrong else "not offline")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
