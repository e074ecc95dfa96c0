"""Parts of a zip file (DOCX, XLSX, PPTX, EPUB), with limits of their number and size, and XML without DTDs."""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import unquote

from agentkit_memory.ingest.isolated.written_rows import Unreadable, write
from agentkit_prompts.extras import install

_MAX_PART = 256 * 1024 * 1024
"""Maximum bytes of an unpacked part that is read. The process has less memory for its tree."""
_PIECE = 65536
"""Bytes that are read at once."""
_MAX_PARTS = 100_000
_MAX_DEPTH = 400
"""Maximum depth of XML elements. The readers follow nested elements by recursion."""
_ENCRYPTED = 1
"""Flag of a part that is encrypted."""
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""First bytes of a Word, Excel or PowerPoint file before 2007, and of an encrypted file of today."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of a part of an Office file to another part."""

    kind: str
    """Last word of its type, such as `footnotes`."""
    target: str
    """Name of the other part, or an address outside of the file."""


class ZipParts:
    """The parts of a zip file.

    Raises:
        Unreadable: The file is not a zip file, or contains too many parts.
    """

    def __init__(self, stream: BinaryIO) -> None:
        head = stream.read(8)
        stream.seek(0)
        if head == _OLE:
            raise Unreadable("is encrypted, or in the format of Office before 2007; save it in the current format")
        with _refused_damage("is corrupt, or not a zip file"):
            self._zip = zipfile.ZipFile(stream)
        self.names = self._zip.namelist()
        if len(self.names) > _MAX_PARTS:
            raise Unreadable(f"contains {len(self.names):,} parts, at most {_MAX_PARTS:,} are read: it may be a bomb")
        # Some programs write other cases or backslashes in the names of parts than in the references to parts.
        self._real = {name.replace("\\", "/").lstrip("/").lower(): name for name in reversed(self.names)}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._real

    def read(self, name: str) -> bytes:
        """Return the bytes of a part.

        Raises:
            Unreadable: The part is missing, encrypted, corrupt or too large.
        """
        with self._open(name) as part, _refused_damage(f"has a corrupt part {name!r}"):
            content: bytes = part.read(_MAX_PART + 1)
        if len(content) > _MAX_PART:
            raise Unreadable(f"has a part {name!r} of more than {_MAX_PART >> 20} MiB: it may be a zip bomb")
        return content

    def xml(self, name: str) -> Any:
        """Return the root element of an XML part.

        Raises:
            Unreadable: The part cannot be read, is not XML, declares a DTD, or is nested too deeply.
        """
        root = None
        for event, element in self.elements(name):
            if event == "start" and root is None:
                root = element
        if root is None:
            raise Unreadable(f"has an empty part {name!r}")
        return root

    def elements(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield events "start" and "end" with elements of an XML part, while the part is read.

        Raises:
            Unreadable: See `xml`.
        """
        try:
            from lxml import etree  # pyright: ignore[reportAttributeAccessIssue] - it has no types
        except ImportError:
            raise Unreadable(f"needs lxml: {install('ingest')}") from None
        # `huge_tree` only removes limits of the parser for long texts: this process has limits for memory and time.
        parser = etree.XMLPullParser(
            ("start", "end"), resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True
        )
        depth = fed = 0
        with self._open(name) as part:
            while True:
                with _refused_damage(f"has a corrupt part {name!r}"):
                    piece = part.read(_PIECE)
                    fed += len(piece)
                    try:
                        if piece:
                            parser.feed(piece)
                        else:
                            parser.close()
                    except etree.XMLSyntaxError as error:
                        raise Unreadable(f"has a part {name!r} that is not XML ({error})") from None
                if fed > _MAX_PART:
                    raise Unreadable(f"has a part {name!r} of more than {_MAX_PART >> 20} MiB: it may be a zip bomb")
                for event, element in parser.read_events():
                    depth += 1 if event == "start" else -1
                    if depth > _MAX_DEPTH:
                        raise Unreadable(f"has a part {name!r} with more than {_MAX_DEPTH} nested elements")
                    if depth == 1 and event == "start" and _defines_entities(element):
                        raise Unreadable(f"has a part {name!r} that defines entities: it may be an attack")
                    yield event, element
                if not piece:
                    return

    def relations(self, name: str) -> Mapping[str, Relation]:
        """Return the relations of a part by their ids."""
        folder, file = posixpath.split(name)
        relations = posixpath.join(folder, "_rels", f"{file}.rels")
        if relations not in self:
            return {}
        result = {}
        for each in self.xml(relations):
            target = each.get("Target", "")
            if each.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, unquote(target).replace("\\", "/"))).lstrip("/")
            result[each.get("Id", "")] = Relation(each.get("Type", "").rsplit("/", 1)[-1], target)
        return result

    def main_part(self) -> str:
        """Return the name of the main part of an Office file.

        Raises:
            Unreadable: The file has none.
        """
        for relation in self.relations("").values():
            if relation.kind == "officeDocument" and relation.target in self:
                return relation.target
        raise Unreadable("is not an Office file: it has no main part")

    def title(self) -> str:
        """Return the title of an Office file, or empty text."""
        for relation in self.relations("").values():
            if relation.kind == "core-properties" and relation.target in self:
                texts = [each.text for each in self.xml(relation.target) if local_name(each) == "title"]
                return (texts[:1] or [""])[0] or ""
        return ""

    def _open(self, name: str) -> Any:
        real = self._real.get(name.lower())
        if real is None:
            raise Unreadable(f"has no part {name!r}")
        if self._zip.getinfo(real).flag_bits & _ENCRYPTED:
            raise Unreadable("is encrypted; decrypt it first")
        with _refused_damage(f"has a corrupt part {name!r}"):
            return self._zip.open(real)


@contextmanager
def _refused_damage(problem: str) -> Iterator[None]:
    """Raise `Unreadable` with a problem if the zip file is damaged."""
    try:
        yield
    except (MemoryError, Unreadable):
        raise
    # The errors of damaged zip files have no common class: `zlib.error` is not an OSError.
    except Exception as error:
        raise Unreadable(f"{problem} ({error})") from None


@contextmanager
def reported_damage(part: str) -> Iterator[None]:
    """Report a part that cannot be read, by its name for the user, so that the other parts are read."""
    try:
        yield
    except Unreadable as error:
        write("problem", f"{part} {error}")


def _defines_entities(root: Any) -> bool:
    """Return True if the document of an element has a DTD with entities, which no program writes into such files."""
    dtd = root.getroottree().docinfo.internalDTD
    return dtd is not None and any(True for _ in dtd.iterentities())


def local_name(element: Any) -> str:
    """Return the name of an element without its namespace; empty text for comments."""
    tag = element.tag
    if not isinstance(tag, str):
        return ""
    return tag.rsplit("}", 1)[-1]


def current_choice(alternatives: Any) -> Any:
    """Return the content of an element `AlternateContent` for current programs. The fallbacks repeat it."""
    return alternatives[0] if len(alternatives) else alternatives


def forget(element: Any) -> None:
    """Remove the content of an element that was read, and the elements before it, from the tree."""
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]


def attribute(element: Any, name: str) -> str:
    """Return the value of an attribute by its name without a namespace; empty text if it is missing."""
    for key, value in element.attrib.items():
        if key.rsplit("}", 1)[-1] == name:
            return str(value)
    return ""
