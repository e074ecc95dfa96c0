"""The files of the page as they are sent: its modules as one script, and every address with a hash of the content.

A browser that has nothing yet waits for each request; one that has them asks for the page only.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

__all__ = ["page_files"]

_PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:(?:async )?function|class|const|let) (\w+))", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*|\bimport\(.*", re.MULTILINE)


class PageFile(NamedTuple):
    """A file as it is sent."""

    plain: bytes
    packed: bytes
    """With gzip."""
    media_type: str
    version: str
    """A hash of the content: an address that ends with `?version` has this content for ever."""


def page_files() -> dict[str, PageFile]:
    """Return the files of the page by their names: no other ones can be asked for."""
    parts = {path.name: path.read_text("utf-8") for path in sorted(_PAGE.iterdir()) if path.suffix in _TYPES}
    page = parts.pop("index.html")
    script = _joined(parts, "main.js")
    found = {name: _file(name, text) for name, text in parts.items() if not name.endswith(".js")}
    found["main.js"] = _file("main.js", script)
    for name, one in found.items():
        page = page.replace(f'="{name}"', f'="{name}?{one.version}"')
    return {**found, "index.html": _file("index.html", page)}


def _file(name: str, text: str) -> PageFile:
    data = text.encode()
    version = blake2b(data, digest_size=8).hexdigest()
    return PageFile(data, gzip.compress(data, mtime=0), _TYPES[Path(name).suffix], version)


def _joined(parts: Mapping[str, str], main: str) -> str:
    """Return one script that does what a module and those that it imports do: each is a function, in their order.

    Raises:
        ValueError: A module imports or exports in another way than the page does; the error names it.
    """
    written: dict[str, str] = {}

    def write(name: str) -> None:
        text = parts[name]
        for _, imported in _IMPORT.findall(text):
            if f"{imported}.js" not in written:
                write(f"{imported}.js")
        exported = ", ".join(_EXPORT.findall(text))
        text = _IMPORT.sub(lambda one: f"const {one[1].replace(' as ', ': ')} = ${one[2]};\n", text)
        text = _EXPORT.sub("", text)
        if other := _OTHER.search(text):
            raise ValueError(f"{name}: expected `import {{ a }} from` a file beside it, and named exports: {other[0]}")
        written[name] = f"const ${Path(name).stem} = (() => {{\n{text}\nreturn {{ {exported} }};\n}})();\n"

    write(main)
    return "".join(written.values())
