"""Reader of PPTX: the texts, tables, diagrams and speaker notes of each slide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from agentkit_memory.ingest.isolated.written_rows import write, write_block, write_title
from agentkit_memory.ingest.isolated.written_tables import write_table
from agentkit_memory.ingest.isolated.zip_parts import ZipParts, attribute, current_choice, local_name, reported_damage

_TITLES = ("title", "ctrTitle")
_NOT_CONTENT = ("sldNum", "dt", "ftr", "hdr", "sldImg")
"""Placeholders of numbers, dates and footers, which every slide repeats."""


def read(stream: BinaryIO) -> None:
    """Write the rows of a file."""
    parts = ZipParts(stream)
    main = parts.main_part()
    write_title(parts.title())
    relations = parts.relations(main)
    number = 0
    read_parts: set[str] = set()
    for element in parts.xml(main).iter():
        if local_name(element) != "sldId":
            continue
        number += 1
        # The attribute `id` without a namespace is the number of the slide, and `r:id` its relation.
        ids = [str(value) for key, value in element.attrib.items() if key.startswith("{") and key.endswith("}id")]
        relation = relations.get((ids or [""])[0])
        if relation is None or relation.target not in parts:
            write("problem", f"slide {number} is missing")
            continue
        if relation.target in read_parts:
            write("gap", "slide", number, "repeats another slide")
            continue
        read_parts.add(relation.target)
        write("section", {"slide": number})
        with reported_damage(f"slide {number}"):
            _Slide(parts, relation.target).write(number)


class _Slide:
    def __init__(self, parts: ZipParts, name: str) -> None:
        self._parts = parts
        self._name = name
        self._is_empty = True

    def write(self, number: int) -> None:
        root = self._parts.xml(self._name)
        if attribute(root, "show") in ("0", "false"):
            write("gap", "slide", number, "hidden, not read; show the slide, and ingest again")
            return
        shapes = list(_shapes(root))
        # The title may be any shape of the tree, and is the first text of the slide.
        shapes.sort(key=lambda shape: _placeholder(shape) not in _TITLES)
        for shape in shapes:
            self._shape(shape)
        for relation in self._parts.relations(self._name).values():
            if relation.target not in self._parts:
                continue
            if relation.kind in ("diagramData", "chart", "chartEx", "comments"):
                self._texts(self._parts.xml(relation.target))
            elif relation.kind == "notesSlide":
                self._notes(self._parts.xml(relation.target))
        if self._is_empty:
            write("gap", "slide", number, "no text, perhaps only images")

    def _block(self, kind: str, text: str, level: int = 0) -> None:
        if text.strip():
            self._is_empty = False
            write_block(kind, text + "\n\n", level)

    def _shape(self, shape: Any) -> None:
        kind = _placeholder(shape)
        if kind in _NOT_CONTENT:
            return
        for element in shape:
            name = local_name(element)
            if name == "txBody" and kind in _TITLES:
                self._block("heading", " ".join(" ".join(_paragraphs(element)).split()), 1)
            elif name == "txBody":
                self._block("text", "\n".join(_paragraphs(element)))
            elif name in ("nvPicPr", "nvGraphicFramePr"):
                for properties in element:
                    description = attribute(properties, "descr")
                    if local_name(properties) == "cNvPr" and description:
                        self._block("text", f"[image: {description}]")
            elif name == "graphic":
                for table in element.iter():
                    if local_name(table) == "tbl":
                        rows = list(_rows(table))
                        self._is_empty = self._is_empty and not any(any(row) for row in rows)
                        write_table(rows)

    def _texts(self, root: Any) -> None:
        texts = [each.text.strip() for each in root.iter() if local_name(each) in ("t", "v", "text") and each.text]
        self._block("text", "\n".join(text for text in texts if text))

    def _notes(self, root: Any) -> None:
        texts = []
        for shape in _shapes(root):
            if _placeholder(shape) not in _NOT_CONTENT:
                texts += [line for each in shape if local_name(each) == "txBody" for line in _paragraphs(each)]
        text = "\n".join(texts).strip()
        if text:
            self._block("text", f"Notes: {text}")


def _shapes(root: Any) -> Iterator[Any]:
    """Yield shapes, pictures and frames in their order, also of groups. Hidden shapes are left out."""
    for element in root:
        name = local_name(element)
        if _is_hidden(element):
            continue
        if name in ("sp", "pic", "graphicFrame", "cxnSp"):
            yield element
        elif name == "AlternateContent":
            yield from _shapes(current_choice(element))
        elif name in ("cSld", "spTree", "grpSp"):
            yield from _shapes(element)


def _is_hidden(shape: Any) -> bool:
    """Return True for a shape, or a group of shapes, that the slide does not show."""
    names = [each for group in shape if local_name(group).startswith("nv") for each in group]
    return any(attribute(each, "hidden") in ("1", "true") for each in names if local_name(each) == "cNvPr")


def _placeholder(shape: Any) -> str:
    """Return the type of a placeholder; empty text for a shape that is not a placeholder."""
    for group in shape:
        if local_name(group).startswith("nv"):
            for each in group.iter():
                if local_name(each) == "ph":
                    return attribute(each, "type") or "body"
    return ""


def _paragraphs(body: Any) -> list[str]:
    """Return the paragraphs of a text, indented by their level."""
    lines = []
    for paragraph in body:
        if local_name(paragraph) != "p":
            continue
        pieces, depth = [], 0
        for element in paragraph.iter():
            name = local_name(element)
            if name == "pPr":
                level = attribute(element, "lvl")
                depth = int(level) if level.isdecimal() else 0
            elif name == "t":
                text = element.text or ""
                pieces.append(_raised(element) + text)
            elif name == "br":
                pieces.append("\n")
        text = "".join(pieces).strip()
        if text:
            lines.append("  " * min(depth, 8) + text)
    return lines


def _raised(text: Any) -> str:
    """Return "^" before a raised text: 10 with a raised 6 is not 106."""
    for sibling in text.itersiblings(preceding=True):
        baseline = attribute(sibling, "baseline")
        if local_name(sibling) == "rPr" and baseline and not baseline.startswith(("-", "0")):
            return "^"
    return ""


def _rows(table: Any) -> Iterator[list[str]]:
    for row in table:
        if local_name(row) == "tr":
            # Cells of a merged area exist, and are empty.
            yield [
                " ".join(" ".join(line for body in cell for line in _paragraphs(body)).split())
                for cell in row
                if local_name(cell) == "tc"
            ]
