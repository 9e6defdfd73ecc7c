"""mkdocs hook: adds generated pages, see `make_pages.py`, and completes written ones.

Links out of docs/ lead to the repository, so a page works on GitHub and on the site.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from make_pages import make_pages, make_reference, name_file, read_catalog
from mkdocs.structure.files import File

LINK = re.compile(r"\]\((\.\./[^)\s]+)\)")
SECTIONS = (("Methods", "methods", "title"), ("Model families", "families", "name"))
"""Heading in the navigation, folder and entry of the catalog, key of the title."""


def on_config(config: Any) -> Any:
    """Add generated pages to the navigation, and pages that it does not name at its end."""
    catalog = read_catalog()
    (reference,) = (part["Reference"] for part in config.nav if "Reference" in part)
    sections = {title: part for entry in reference for title, part in entry.items()}
    for section, folder, title in SECTIONS:
        sections[section] += [
            {entry[title]: f"reference/{folder}/{name_file(entry['name'])}.md"}
            for entry in catalog[folder]
        ]
    listed = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    root = Path(config.docs_dir)
    written = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.md"))
    if missing := [name for name in written if name not in listed]:
        config.nav.append({"More": missing})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add generated pages."""
    for path, text in make_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fill in the API, link methods and families to their pages, and links out of docs/."""
    source = page.file.src_uri
    if source == "reference/api.md":
        markdown += f"\n{make_reference()}"
    if source in ("reference/methods.md", "reference/families.md"):
        markdown = link_entries(markdown)

    def resolve_link(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), link[1]))
        if target.startswith("docs/"):
            return link[0]
        return f"]({config.repo_url}/blob/main/{target})"

    return LINK.sub(resolve_link, markdown)


def link_entries(markdown: str) -> str:
    """Turn names in the tables of methods and families into links."""
    catalog = read_catalog()
    for entry in catalog["methods"]:
        name = entry["name"]
        markdown = markdown.replace(
            f" | `{name}` | ", f" | [`{name}`](methods/{name_file(name)}.md) | "
        )
    for entry in catalog["families"]:
        name = entry["name"]
        markdown = markdown.replace(
            f"\n| {name} | `", f"\n| [{name}](families/{name_file(name)}.md) | `"
        )
    return markdown
