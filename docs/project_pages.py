"""Write `docs/project/*.md`, the pages of the root of the repository, for the site: `python docs/project_pages.py`.

`./scripts/docs` does the same before it builds the site. git ignores the pages.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent
FOLDER = DOCS / "project"
PAGES = ("SECURITY.md", "SUPPORT.md", "CHANGELOG.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md")
"""Pages of the root, in the order of the site."""
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)([^)]*)\)")


def pages() -> dict[Path, str]:
    """Return the text of each page."""
    return {FOLDER / _file(name): LINK.sub(_link, (DOCS.parent / name).read_text("utf-8")) for name in PAGES}


def _file(name: str) -> str:
    return name.lower().replace("_", "-")


def _link(match: re.Match[str]) -> str:
    """Return a link that leads to a page of the site, or the text of a link to another file."""
    text, target, anchor = match.groups()
    if target in PAGES:
        return f"[{text}]({_file(target)}{anchor})"
    if target.startswith("docs/"):
        return f"[{text}](../{target.removeprefix('docs/')}{anchor})"
    return text


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, "utf-8")
