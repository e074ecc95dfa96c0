"""The files of the page: one script of all modules, one style sheet, and a hash of the content in each address.

A browser without a cache sends few requests; a browser with the files in its cache requests only the page.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

_PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:(?:async )?function|class|const|let) (\w+))", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*|\bimport\(.*", re.MULTILINE)


class PageFile(NamedTuple):
    """A file of the page, plain and compressed."""

    plain: bytes
    packed: bytes
    """Content, compressed with gzip."""
    media_type: str
    version: str
    """Hash of the content, which the page appends to the address, so that a browser can cache the file forever."""


def page_files() -> dict[str, PageFile]:
    """Return all files of the page by name."""
    texts = {path.name: path.read_text("utf-8") for path in sorted(_PAGE.iterdir()) if path.suffix in _TYPES}
    page = texts.pop("index.html")
    script = _joined(texts, "main.js")
    # The common rules first: the other sheets are sorted by name.
    sheets = [texts.pop("inspector.css"), *[texts.pop(name) for name in sorted(texts) if name.endswith(".css")]]
    files = {name: _file(name, text) for name, text in texts.items() if not name.endswith(".js")}
    files["main.js"] = _file("main.js", script)
    files["inspector.css"] = _file("inspector.css", "".join(sheets))
    for name, file in files.items():
        page = page.replace(f'="{name}"', f'="{name}?{file.version}"')
    return {**files, "index.html": _file("index.html", page)}


def _file(name: str, text: str) -> PageFile:
    data = text.encode()
    version = blake2b(data, digest_size=8).hexdigest()
    return PageFile(data, gzip.compress(data, mtime=0), _TYPES[Path(name).suffix], version)


def _joined(texts: Mapping[str, str], main: str) -> str:
    """Return one script with a module and the modules that it imports; each module becomes a function.

    Raises:
        ValueError: A module has an import or export that this function does not support.
    """
    functions: dict[str, str] = {}

    def write(name: str) -> None:
        text = texts[name]
        for _, imported in _IMPORT.findall(text):
            if f"{imported}.js" not in functions:
                write(f"{imported}.js")
        exported = ", ".join(_EXPORT.findall(text))
        text = _IMPORT.sub(lambda match: f"const {match[1].replace(' as ', ': ')} = ${match[2]};\n", text)
        text = _EXPORT.sub("", text)
        other = _OTHER.search(text)
        if other is not None:
            raise ValueError(
                f"{name}: expected `import {{ a }} from` a file of the same folder, and named exports, got {other[0]}"
            )
        functions[name] = f"const ${Path(name).stem} = (() => {{\n{text}\nreturn {{ {exported} }};\n}})();\n"

    write(main)
    return "".join(functions.values())
