"""What mkdocs does with our pages before it builds them: see `make_pages.py` for those it adds.

Links out of docs/ lead to the repository, so that a page reads right there and on the site.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from make_pages import make_pages, make_reference, name_file, read_catalog
from mkdocs.structure.files import File

OUTSIDE = re.compile(r"\]\(\.\./([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Put the pages that are made into the navigation, and those it does not name at its end."""
    catalog = read_catalog()
    sections = {title: part for entry in config.nav for title, part in entry.items()}
    for section, folder in (("Methods", "methods"), ("Models", "families")):
        title = "name" if folder == "families" else "title"
        sections[section] += [
            {each[title]: f"{folder}/{name_file(each['name'])}.md"} for each in catalog[folder]
        ]
    named = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    more = [path.name for path in sorted(Path(config.docs_dir).glob("*.md"))]
    if more := [name for name in more if name not in named]:
        config.nav.insert(-2, {"More": more})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    for path, text in make_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fill the reference in, link methods and families to their pages, and links out of docs/."""
    if page.file.src_uri == "api.md":
        markdown += f"\n{make_reference()}"
    if page.file.src_uri in ("methods.md", "models.md"):
        markdown = link_entries(markdown)
    if "/" in page.file.src_uri:
        return markdown
    return OUTSIDE.sub(lambda found: f"]({config.repo_url}/blob/main/{found[1]})", markdown)


def link_entries(markdown: str) -> str:
    """Names in the tables of methods and families become links."""
    catalog = read_catalog()
    for each in catalog["methods"]:
        name = each["name"]
        markdown = markdown.replace(
            f" | `{name}` | ", f" | [`{name}`](methods/{name_file(name)}.md) | "
        )
    for each in catalog["families"]:
        name = each["name"]
        markdown = markdown.replace(
            f"\n| {name} | `", f"\n| [{name}](families/{name_file(name)}.md) | `"
        )
    return markdown
