"""Reader of DOCX: the body with its text boxes, notes and comments, and the headers and footers of pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from agentkit_memory.ingest.isolated.word_runs import Runs
from agentkit_memory.ingest.isolated.word_styles import Styles
from agentkit_memory.ingest.isolated.written_rows import Unreadable, write, write_block, write_title
from agentkit_memory.ingest.isolated.written_tables import write_table
from agentkit_memory.ingest.isolated.zip_parts import ZipParts, attribute, current_choice, local_name, reported_damage

_NOTES = {"footnotes": "footnote", "endnotes": "endnote", "comments": "comment"}
"""Parts with notes, and the name of their elements."""
_GRAPHICS = ("diagramData", "chart")
_MAX_SPAN = 64
"""Maximum columns of a cell, or before the first cell of a row."""


def read(stream: BinaryIO) -> None:
    """Write the rows of a file."""
    parts = ZipParts(stream)
    main = parts.main_part()
    write_title(parts.title())
    relations = parts.relations(main)
    by_kind: dict[str, list[str]] = {}
    for relation in relations.values():
        by_kind.setdefault(relation.kind, []).append(relation.target)
    reader = _Reader(Styles.of(parts, by_kind), parts, main)
    for name in [*by_kind.get("header", []), *by_kind.get("footer", [])]:
        with reported_damage("a header or footer"):
            reader.margin(name)
    body = next((each for each in parts.xml(main) if local_name(each) == "body"), None)
    if body is None:
        raise Unreadable("has no body of text")
    reader.blocks(body)
    for kind in _GRAPHICS:
        for name in by_kind.get(kind, []):
            with reported_damage("a diagram or chart"):
                reader.graphic(name)
    for kind, element in _NOTES.items():
        for name in by_kind.get(kind, []):
            with reported_damage(f"the part of {kind}"):
                reader.notes(name, element)


class _Reader:
    def __init__(self, styles: Styles, parts: ZipParts, main: str) -> None:
        self._styles = styles
        self._parts = parts
        self._main = main
        # Headers and footers of sections mostly repeat the same text.
        self._margin_texts: set[str] = set()

    def margin(self, name: str) -> None:
        """Write the text of a header or footer, unless another header or footer has the same text."""
        if name in self._parts:
            text = "\n".join(_texts(self._parts.xml(name)))
            if text and text not in self._margin_texts:
                self._margin_texts.add(text)
                write_block("text", text + "\n\n")

    def notes(self, name: str, element: str) -> None:
        """Write footnotes, endnotes or comments with their numbers."""
        if name not in self._parts:
            return
        for note in self._parts.xml(name):
            # Notes of the types `separator` and `continuationSeparator` are lines above the notes of a page.
            if local_name(note) != element or attribute(note, "type").lower().endswith("separator"):
                continue
            text = " ".join(_texts(note))
            author = attribute(note, "author")
            label = f"[{element} {attribute(note, 'id')}]"
            if author:
                label = f"[{element} of {author}]"
            if text:
                write_block("text", f"{label} {text}\n\n")

    def graphic(self, name: str) -> None:
        """Write the texts of a diagram or a chart."""
        if name in self._parts:
            texts = [
                each.text.strip()
                for each in self._parts.xml(name).iter()
                if local_name(each) in ("t", "v") and each.text
            ]
            text = "\n".join(text for text in texts if text)
            if text:
                write_block("text", text + "\n\n")

    def blocks(self, container: Any) -> None:
        """Write the blocks of the body, of a text box, or of another element that contains paragraphs."""
        items: list[str] = []
        for element in _block_elements(container):
            name = local_name(element)
            if name == "p":
                self._paragraph(element, items)
            elif name == "tbl":
                self._end_list(items)
                write_table(_rows(element))
            else:
                self._end_list(items)
                write("gap", "embedded document", "", "not read; copy its text into the document")
        self._end_list(items)

    def _end_list(self, items: list[str]) -> None:
        if items:
            write_block("list", "\n".join(items) + "\n\n")
            items.clear()

    def _paragraph(self, element: Any, items: list[str]) -> None:
        runs = Runs(element)
        level = self._styles.heading_level(element)
        label, depth = self._styles.number(element)
        text = runs.text.strip()
        if text and level is not None:
            self._end_list(items)
            words = " ".join(f"{label} {text}".split())
            write_block("heading", words + "\n\n", level)
        elif text and label:
            items.append("  " * depth + f"{label} {text}")
        elif text:
            self._end_list(items)
            write_block("text", text + "\n\n")
        for box in runs.boxes:
            self._end_list(items)
            self.blocks(box)


def _rows(table: Any) -> Iterator[list[str]]:
    """Yield the cells of each row; a cell that spans columns or rows is followed by empty cells."""
    for row in _children(table, "tr"):
        cells: list[str] = []
        properties = _properties(row, "trPr")
        cells += [""] * _number(properties.get("gridBefore"), 0)
        for cell in _children(row, "tc"):
            settings = _properties(cell, "tcPr")
            merge = settings.get("vMerge")
            text = ""
            if merge is None or attribute(merge, "val") == "restart":
                text = "; ".join(" ".join(each.split()) for each in _texts(cell))
            cells.append(text)
            cells += [""] * (_number(settings.get("gridSpan"), 1) - 1)
        yield cells


def _texts(container: Any) -> list[str]:
    """Return the texts of the paragraphs, text boxes and rows of a cell, a note, a header or a footer."""
    texts: list[str] = []
    for element in _block_elements(container):
        if local_name(element) == "p":
            runs = Runs(element)
            texts.append(runs.text.strip())
            for box in runs.boxes:
                texts += _texts(box)
        elif local_name(element) == "tbl":
            texts += [", ".join(filter(None, row)) for row in _rows(element)]
    return [text for text in texts if text]


def _block_elements(container: Any) -> Iterator[Any]:
    """Yield paragraphs, tables and embedded documents, also in content controls, insertions and similar elements."""
    for element in container:
        name = local_name(element)
        if name in ("p", "tbl", "altChunk"):
            yield element
        elif name in ("sdt", "sdtContent", "ins", "moveTo", "customXml", "smartTag"):
            yield from _block_elements(element)
        elif name == "AlternateContent":
            yield from _block_elements(current_choice(element))


def _children(container: Any, wanted: str) -> Iterator[Any]:
    """Yield rows or cells, also in content controls and insertions."""
    for element in container:
        name = local_name(element)
        if name == wanted and not (wanted == "tr" and "del" in _properties(element, "trPr")):
            yield element
        elif name in ("sdt", "sdtContent", "ins", "customXml"):
            yield from _children(element, wanted)


def _properties(element: Any, name: str) -> Mapping[str, Any]:
    for child in element:
        if local_name(child) == name:
            return {local_name(each): each for each in child}
    return {}


def _number(element: Any, default: int) -> int:
    if element is None:
        return default
    value = attribute(element, "val")
    return min(int(value), _MAX_SPAN) if value.isdecimal() and len(value) < 6 else default
