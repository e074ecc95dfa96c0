"""Reader of XLSX: each sheet as a table, row by row, with values as the sheet shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, BinaryIO

from agentkit_memory.ingest.isolated.written_rows import Unreadable, write, write_block, write_title
from agentkit_memory.ingest.isolated.written_tables import write_table
from agentkit_memory.ingest.isolated.zip_parts import Relation, ZipParts, attribute, forget, local_name, reported_damage

_REFERENCE = re.compile(r"([A-Z]{1,3})[0-9]{1,7}")
_DATE_IDS = frozenset({*range(14, 18), 22, *range(27, 37), *range(50, 59)})
_TIME_IDS = frozenset({18, 19, 20, 21, 45, 47})
_ELAPSED_ID = 46
_PERCENT_IDS = {9: 0, 10: 2}
"""Decimal places of the built-in percent formats."""
_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")
"""A character that XML cannot contain, or an underscore that would start such an escape."""
_QUOTED = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!(?:h+|m+|s+)\])[^][]*\]', re.IGNORECASE)
"""Parts of a number format that are text, space, colours or conditions."""
_MAX_GAP = 64
"""Maximum empty cells between two cells that keep their columns; a wider gap becomes this wide."""
_MAX_MISSING = 100
"""Maximum cells without their shared text that are reported."""
_BOOLEANS = {"0": "FALSE", "1": "TRUE"}


def read(stream: BinaryIO) -> None:
    """Write the rows of a file."""
    parts = ZipParts(stream)
    main = parts.main_part()
    write_title(parts.title())
    if not main.endswith(".xml"):
        raise Unreadable("is a binary workbook (XLSB); save it as XLSX")
    relations = parts.relations(main)
    book = _Book(parts, relations.values())
    root = parts.xml(main)
    book.starts_1904 = any(
        local_name(each) == "workbookPr" and attribute(each, "date1904") in ("1", "true") for each in root
    )
    read_parts: set[str] = set()
    for sheet in root.iter():
        if local_name(sheet) != "sheet":
            continue
        name = attribute(sheet, "name")
        relation = relations.get(attribute(sheet, "id"))
        if attribute(sheet, "state") in ("hidden", "veryHidden"):
            write("gap", "sheet", name, "hidden, not read; show the sheet, and ingest again")
        elif relation is None or relation.target not in parts:
            write("problem", f"sheet {name!r} is missing")
        elif relation.target in read_parts:
            write("gap", "sheet", name, "repeats another sheet")
        elif relation.kind == "worksheet":
            read_parts.add(relation.target)
            write("section", {"sheet": name[:200]})
            with reported_damage(f"sheet {name!r}"):
                book.write_sheet(name, relation.target)
        else:
            write("gap", "sheet", name, "a chart or a dialog without cells")


class _Book:
    """The texts and formats that the sheets of a workbook share."""

    def __init__(self, parts: ZipParts, relations: Any) -> None:
        self._parts = parts
        self.starts_1904 = False
        self._texts: list[str] = []
        self._formats: list[str] = []
        self._missing = 0
        related: Sequence[Relation] = list(relations)
        for relation in related:
            if relation.target not in parts:
                continue
            if relation.kind == "sharedStrings":
                self._texts = list(_shared_texts(parts, relation.target))
            elif relation.kind == "styles":
                self._formats = _cell_formats(parts.xml(relation.target))

    def write_sheet(self, name: str, part: str) -> None:
        """Write the cells of a sheet, and its notes and text boxes."""
        is_empty = True

        def rows() -> Iterator[list[str]]:
            nonlocal is_empty
            for row in self._rows(part):
                if is_empty:
                    write_block("heading", name + "\n\n", 1)
                is_empty = False
                yield row

        write_table(rows())
        for relation in self._parts.relations(part).values():
            if relation.kind in ("comments", "threadedComment", "drawing") and relation.target in self._parts:
                text = _note_text(self._parts.xml(relation.target))
                is_empty = is_empty and not text
                if text:
                    write_block("text", text + "\n\n")
        if is_empty:
            write("gap", "sheet", name, "no text")

    def _rows(self, part: str) -> Iterator[list[str]]:
        """Yield the rows that have cells. Memory does not depend on the number of rows."""
        cells: dict[int, str] = {}
        column = 0
        for event, element in self._parts.elements(part):
            name = local_name(element)
            if event == "start":
                if name == "row":
                    cells, column = {}, 0
                continue
            if name == "c":
                match = _REFERENCE.fullmatch(attribute(element, "r"))
                column = _column(match[1]) if match else column + 1
                text = self._text(element)
                if text:
                    cells[column] = text
            elif name == "row":
                if cells:
                    yield _filled(cells)
                forget(element)

    def _text(self, cell: Any) -> str:
        """Return the text of a cell as the sheet shows it."""
        kind = cell.get("t", "n")
        value, formula = _content(cell)
        if not value.strip():
            # A program that does not calculate wrote the file. The type `str` is the type of a calculated text.
            return f"={formula}" if formula and kind != "str" else ""
        if kind == "s":
            return self._shared_text(cell, value.strip())
        if kind == "b":
            return _BOOLEANS.get(value.strip(), value)
        if kind == "n":
            style = cell.get("s", "0")
            position = int(style) if style.isdecimal() else 0
            form = self._formats[position] if position < len(self._formats) else ""
            return _shown_number(value.strip(), form, starts_1904=self.starts_1904)
        return _line(value)

    def _shared_text(self, cell: Any, value: str) -> str:
        position = int(value) if value.isdecimal() else -1
        if not 0 <= position < len(self._texts):
            self._missing += 1
            if self._missing <= _MAX_MISSING:
                write("problem", f"cell {attribute(cell, 'r')} refers to a missing text")
            return ""
        return self._texts[position]


def _content(cell: Any) -> tuple[str, str]:
    """Return the value and the formula of a cell."""
    value = formula = ""
    for child in cell:
        name = local_name(child)
        if name == "v":
            value = child.text or ""
        elif name == "f":
            formula = child.text or ""
        elif name == "is":
            value = _rich_text(child)
    return value, formula


def _filled(cells: dict[int, str]) -> list[str]:
    row: list[str] = []
    last = 0
    for column in sorted(cells):
        row += [""] * min(column - last - 1, _MAX_GAP)
        row.append(cells[column])
        last = column
    return row


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


def _shared_texts(parts: ZipParts, name: str) -> Iterator[str]:
    for event, element in parts.elements(name):
        if event == "end" and local_name(element) == "si":
            yield _rich_text(element)
            forget(element)


def _rich_text(element: Any) -> str:
    """Return the text of a cell in one line, without the reading aids of Japanese texts."""
    pieces = [
        each.text
        for each in element.iter()
        if local_name(each) == "t" and each.text and local_name(each.getparent()) != "rPh"
    ]
    return _line("".join(pieces))


def _line(text: str) -> str:
    """Return a stored text in one line: the format writes a carriage return as `_x000D_`."""
    return " ".join(_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).split())


def _note_text(root: Any) -> str:
    texts: list[str] = []
    for element in root.iter():
        if local_name(element) in ("comment", "threadedComment", "txBody"):
            pieces = [each.text for each in element.iter() if local_name(each) in ("t", "text") and each.text]
            text = _line("".join(pieces))
            place = attribute(element, "ref")
            label = f"[note at {place}] " if place else ""
            if text:
                texts.append(label + text)
    return "\n".join(texts)


def _cell_formats(root: Any) -> list[str]:
    """Return the kind of number format of each cell style: date, time, elapsed, percent N, or empty."""
    codes: dict[int, str] = {}
    by_number: dict[int, str] = {}
    kinds: list[str] = []
    for element in root.iter():
        if local_name(element) == "numFmt" and attribute(element, "numFmtId").isdecimal():
            codes[int(attribute(element, "numFmtId"))] = attribute(element, "formatCode")
    for element in root:
        if local_name(element) != "cellXfs":
            continue
        for style in element:
            if local_name(style) == "xf":
                number = attribute(style, "numFmtId")
                identifier = int(number) if number.isdecimal() else 0
                if identifier not in by_number:
                    by_number[identifier] = _format_kind(identifier, codes)
                kinds.append(by_number[identifier])
    return kinds


def _format_kind(number: int, codes: dict[int, str]) -> str:
    if number not in codes:
        if number in _DATE_IDS:
            return "date"
        if number in _TIME_IDS:
            return "time"
        if number == _ELAPSED_ID:
            return "elapsed"
        return f"percent {_PERCENT_IDS[number]}" if number in _PERCENT_IDS else ""
    code = _QUOTED.sub("", codes[number].split(";")[0]).lower()
    if "%" in code:
        return f"percent {len(code.partition('.')[2].rstrip('%').strip())}"
    has_time = "h" in code or "s" in code
    has_date = "y" in code or "d" in code or ("m" in code and not has_time)
    if "general" in code:
        return ""
    if "[" in code:
        return "elapsed"
    if has_date:
        return "date"
    return "time" if has_time else ""


def _shown_number(value: str, form: str, *, starts_1904: bool) -> str:
    """Return a number as a date, a time, a percentage or a decimal number."""
    try:
        number = float(value)
    except ValueError:
        return value
    if form.startswith("percent"):
        return f"{number * 100:.{max(int(form[8:]), 0)}f}%" if abs(number) < 1e15 else value
    if form in ("date", "time", "elapsed") and 0 <= number < 2_958_466:
        return _shown_date(number, form, starts_1904=starts_1904)
    if abs(number) < 1e15 and number == int(number):
        return str(int(number))
    # Files contain 17 digits, of which programs show 15 at most: 0.1 + 0.2 is 0.3 in a sheet.
    return f"{number:.15g}"


def _shown_date(number: float, form: str, *, starts_1904: bool) -> str:
    if form != "date":
        seconds = round(number * 86400)
        if form == "time":
            # The number of days is not shown.
            seconds %= 86400
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    start = datetime(1904, 1, 1) if starts_1904 else datetime(1899, 12, 30)
    if not starts_1904 and number < 60:
        # The format counts a 29 February 1900, a day that did not exist.
        start += timedelta(days=1)
    moment = start + timedelta(seconds=round(number * 86400))
    if number == int(number):
        return moment.date().isoformat()
    return moment.isoformat(" ", "seconds")
