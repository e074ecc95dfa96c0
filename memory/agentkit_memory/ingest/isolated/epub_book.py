"""Reader of EPUB: the chapters in reading order, as HTML pages."""

from __future__ import annotations

import posixpath
from typing import Any, BinaryIO
from urllib.parse import unquote

from agentkit_memory.ingest.isolated.written_rows import Unreadable, write, write_html, write_title
from agentkit_memory.ingest.isolated.zip_parts import ZipParts, attribute, local_name, reported_damage
from agentkit_prompts.pages.encodings import declared_encoding, marked_encoding

_CONTAINER = "META-INF/container.xml"
_PAGE_TYPES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml", "text/x-oeb1-document")
_FONT_ALGORITHMS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
"""Algorithms that hide fonts only: texts are readable."""


def read(stream: BinaryIO) -> None:
    """Write the rows of a file."""
    parts = ZipParts(stream)
    if _CONTAINER not in parts:
        raise Unreadable("is not an EPUB: it has no META-INF/container.xml")
    _refuse_encrypted(parts)
    package = _package_name(parts)
    root = parts.xml(package)
    folder = posixpath.dirname(package)
    titles = [each.text for each in root.iter() if local_name(each) == "title" and each.text]
    write_title((titles or [""])[0])
    items = {attribute(each, "id"): each for each in root.iter() if local_name(each) == "item"}
    number = 0
    read_items: set[str] = set()
    for reference in root.iter():
        if local_name(reference) != "itemref":
            continue
        number += 1
        identifier = attribute(reference, "idref")
        if identifier in read_items:
            write("gap", "chapter", number, "repeats another chapter")
            continue
        read_items.add(identifier)
        _write_chapter(parts, folder, number, items.get(identifier))
    if not number:
        raise Unreadable("has no chapters: its package names no pages in reading order")


def _write_chapter(parts: ZipParts, folder: str, number: int, item: Any) -> None:
    if item is None:
        write("problem", f"chapter {number} is missing")
        return
    if "nav" in attribute(item, "properties").split():
        # The table of contents repeats the titles of the chapters.
        return
    name = posixpath.normpath(posixpath.join(folder, unquote(attribute(item, "href").partition("#")[0]))).lstrip("/")
    kind = attribute(item, "media-type")
    if name not in parts:
        write("problem", f"chapter {number} ({name}) is missing")
    elif kind not in _PAGE_TYPES:
        write("gap", "chapter", number, f"no text ({kind or 'unknown type'})")
    else:
        with reported_damage(f"chapter {number}"):
            content = parts.read(name)
            write("section", {"chapter": number})
            write_html(_decoded(content, number))


def _decoded(content: bytes, number: int) -> str:
    """Return the text of a page, and report bytes that are not in its encoding."""
    marked, length = marked_encoding(content)
    encoding = marked or declared_encoding(content)
    try:
        return content[length:].decode(encoding)
    except UnicodeDecodeError:
        write("problem", f"chapter {number} is not {encoding.upper()} text")
        return content[length:].decode(encoding, "replace")


def _package_name(parts: ZipParts) -> str:
    for each in parts.xml(_CONTAINER).iter():
        name = attribute(each, "full-path")
        if local_name(each) == "rootfile" and name in parts:
            return name
    raise Unreadable("is not an EPUB: its container names no package")


def _refuse_encrypted(parts: ZipParts) -> None:
    name = "META-INF/encryption.xml"
    if name not in parts:
        return
    for each in parts.xml(name).iter():
        algorithm = attribute(each, "Algorithm")
        if local_name(each) == "EncryptionMethod" and not algorithm.startswith(_FONT_ALGORITHMS):
            raise Unreadable("is encrypted (DRM); only an EPUB without DRM can be read")
