"""Headings and numbers of paragraphs of a Word document, by its styles and lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentkit_memory.ingest.isolated.zip_parts import ZipParts, attribute, local_name
from agentkit_prompts.pages.list_items import roman_numeral

_HEADING_NAME = re.compile(r"heading ([1-9])", re.IGNORECASE)
_MAX_PARENTS = 20
_REFERENCE = re.compile(r"%([1-9])")


@dataclass(slots=True)
class _Style:
    """The properties of a style that matter here."""

    level: int | None = None
    """Level of a heading; 0 for the title of the document, -1 for a style that is not a heading."""
    list_id: str | None = None
    depth: int | None = None
    parent: str = ""


@dataclass(slots=True)
class _ListLevel:
    """One level of a numbered list."""

    form: str = "decimal"
    text: str = ""
    start: int = 1


@dataclass(slots=True)
class Styles:
    """The styles and lists of a document."""

    _styles: Mapping[str, _Style]
    _lists: Mapping[str, Mapping[int, _ListLevel]]
    _default: str = ""
    _counts: dict[str, dict[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: ZipParts, by_kind: Mapping[str, list[str]]) -> Styles:
        """Return the styles of a document, from its parts by the kind of their relation."""
        styles: dict[str, _Style] = {}
        default = ""
        for name in by_kind.get("styles", []):
            if name in parts:
                for element in parts.xml(name):
                    if local_name(element) == "style" and attribute(element, "type") in ("paragraph", ""):
                        identifier = attribute(element, "styleId")
                        styles[identifier] = _style(element)
                        if attribute(element, "default") in ("1", "true"):
                            default = identifier
        lists: dict[str, Mapping[int, _ListLevel]] = {}
        for name in by_kind.get("numbering", []):
            if name in parts:
                lists.update(_lists(parts.xml(name)))
        return cls(styles, lists, default)

    def heading_level(self, paragraph: Any) -> int | None:
        """Return the level of a heading, 0 being the title of the document; None for another paragraph."""
        own = _paragraph_style(paragraph)
        for style in (own, *self._chain(own.parent)):
            if style.level is not None:
                return style.level if style.level >= 0 else None
        return None

    def number(self, paragraph: Any) -> tuple[str, int]:
        """Return the number or bullet of a paragraph and its depth; empty text if it has none. Counts the item."""
        own = _paragraph_style(paragraph)
        list_id, depth = own.list_id, own.depth
        for style in self._chain(own.parent):
            list_id = style.list_id if list_id is None else list_id
            depth = style.depth if depth is None else depth
        levels = self._lists.get(list_id or "0")
        if levels is None or list_id == "0":
            return "", 0
        depth = min(depth or 0, 8)
        level = levels.get(depth, _ListLevel())
        counts = self._counts.setdefault(list_id or "", {})
        counts[depth] = counts.get(depth, level.start - 1) + 1
        for deeper in [each for each in counts if each > depth]:
            del counts[deeper]
        if level.form == "none":
            return "", depth
        if level.form == "bullet":
            return "-", depth

        def numbered(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            other = levels.get(at, _ListLevel())
            return _as_number(counts.get(at, other.start), other.form)

        return _REFERENCE.sub(numbered, level.text), depth

    def _chain(self, name: str) -> list[_Style]:
        chain: list[_Style] = []
        style = self._styles.get(name or self._default)
        while style is not None and len(chain) < _MAX_PARENTS:
            chain.append(style)
            style = self._styles.get(style.parent)
        return chain


def _style(element: Any) -> _Style:
    style = _Style()
    for child in element:
        name = local_name(child)
        if name == "name":
            value = attribute(child, "val")
            match = _HEADING_NAME.fullmatch(value)
            if match:
                style.level = int(match[1])
            elif value.lower() == "title":
                style.level = 0
        elif name == "basedOn":
            style.parent = attribute(child, "val")
        elif name == "pPr":
            _read_properties(child, style)
    return style


def _paragraph_style(paragraph: Any) -> _Style:
    style = _Style()
    for child in paragraph:
        if local_name(child) == "pPr":
            _read_properties(child, style)
            break
    return style


def _read_properties(properties: Any, style: _Style) -> None:
    for child in properties:
        name, value = local_name(child), attribute(child, "val")
        if name == "pStyle":
            style.parent = value
        elif name == "outlineLvl" and value.isdecimal() and style.level is None:
            # Level 9 is body text.
            style.level = int(value) + 1 if int(value) < 9 else -1
        elif name == "numPr":
            for each in child:
                if local_name(each) == "numId":
                    style.list_id = attribute(each, "val")
                elif local_name(each) == "ilvl" and attribute(each, "val").isdecimal():
                    style.depth = int(attribute(each, "val"))


def _lists(root: Any) -> dict[str, Mapping[int, _ListLevel]]:
    abstract: dict[str, dict[int, _ListLevel]] = {}
    lists: dict[str, Mapping[int, _ListLevel]] = {}
    for element in root:
        if local_name(element) == "abstractNum":
            abstract[attribute(element, "abstractNumId")] = _levels(element)
    for element in root:
        if local_name(element) != "num":
            continue
        levels: dict[int, _ListLevel] = {}
        for child in element:
            if local_name(child) == "abstractNumId":
                levels = {**abstract.get(attribute(child, "val"), {}), **levels}
            elif local_name(child) == "lvlOverride":
                levels = {**levels, **_levels(child)}
                at = int(attribute(child, "ilvl") or 0)
                for each in child:
                    if local_name(each) == "startOverride" and at in levels:
                        old = levels[at]
                        levels[at] = _ListLevel(old.form, old.text, int(attribute(each, "val") or 1))
        lists[attribute(element, "numId")] = levels
    return lists


def _levels(element: Any) -> dict[int, _ListLevel]:
    levels = {}
    for child in element:
        if local_name(child) != "lvl":
            continue
        level = _ListLevel()
        for each in child:
            name, value = local_name(each), attribute(each, "val")
            if name == "numFmt":
                level.form = value
            elif name == "lvlText":
                level.text = value
            elif name == "start" and value.isdecimal():
                level.start = int(value)
        levels[int(attribute(child, "ilvl") or 0)] = level
    return levels


def _as_number(count: int, form: str) -> str:
    if form in ("lowerLetter", "upperLetter") and count > 0:
        # Word repeats a letter: bb after aa. Lists of web pages count aa, ab.
        letters = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 + 1)
        return letters.upper() if form == "upperLetter" else letters
    if form in ("lowerRoman", "upperRoman") and 0 < count < 4000:
        roman = roman_numeral(count)
        return roman.upper() if form == "upperRoman" else roman
    if form == "decimalZero":
        return f"{count:02d}"
    return str(count)
