"""`TableRows`: rows of a table as lines, in which every cell stays in its column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CELL = "\x1f"
"""Character between two cells until the block is complete."""

_MAX_SPAN = 100
"""Maximum columns that a cell or a row is filled up to."""
_MAX_REPEATED = 400
"""Maximum characters of cells of rows above that are repeated in a row."""


@dataclass(slots=True)
class _Cell:
    start: int
    rows: int
    columns: int


@dataclass(slots=True)
class TableRows:
    """The row that is being read, and the cells of rows above that reach into it."""

    is_layout: bool = False
    """True if the table only arranges parts of the page."""
    is_open: bool = False
    """True if a row has started."""
    is_split: bool = False
    """True if the start of the row has been emitted, so that its cells cannot be arranged any more."""
    row: int = 0
    """Index of the row in the texts of the block."""
    _cells: list[_Cell] = field(default_factory=list)
    # Rows that are left, and text, by column.
    _spans: dict[int, tuple[int, str]] = field(default_factory=dict)
    _has_grid: bool = False

    def start_row(self, at: int) -> None:
        """Start a row at an index in the texts of the block."""
        self.is_open, self.is_split, self.row, self._cells = True, False, at, []

    def start_cell(self, at: int, attributes: Mapping[str, str]) -> None:
        """Start a cell at an index in the texts of the block."""
        self._cells.append(_Cell(at, _span(attributes, "rowspan", 65534), _span(attributes, "colspan", _MAX_SPAN)))

    def split(self) -> None:
        """Forget the cells of the row, because its texts have been emitted."""
        self.is_split, self._cells = True, []
        self._spans.clear()

    def end_row(self, texts: list[str]) -> str | None:
        """Return the line of the row, or None if the row stays as it was read."""
        self.is_open = False
        cells, self._cells = self._cells, []
        if self.is_split or not cells:
            return None
        if self._has_no_columns(cells):
            return None
        ends = [cell.start for cell in cells[1:]] + [len(texts)]
        contents = ["".join(texts[cell.start : end]) for cell, end in zip(cells, ends, strict=True)]
        if self.is_layout or (not self._has_grid and any(_is_grid(content) for content in contents)):
            return "\n".join(contents)
        if len(cells) > 1 or self._spans:
            self._has_grid = True
        return CELL.join(self._columns(cells, [_one_line(content) for content in contents]))

    def _has_no_columns(self, cells: list[_Cell]) -> bool:
        """True if a row is one cell, in a table whose rows so far are one cell each."""
        if self._has_grid or self._spans or len(cells) > 1:
            return False
        return cells[0].columns == 1 and cells[0].rows == 1

    def _columns(self, cells: list[_Cell], contents: list[str]) -> list[str]:
        """Return the text of each column of the row, with the cells of rows above that reach into it."""
        columns: list[str] = []
        spans: dict[int, tuple[int, str]] = {}
        repeated = 0

        def fill() -> None:
            nonlocal repeated
            while span := self._spans.pop(len(columns), None):
                rows, text = span
                repeated += len(text)
                if repeated > _MAX_REPEATED:
                    text = ""
                if rows > 1:
                    spans[len(columns)] = (rows - 1, text)
                columns.append(text)

        for cell, content in zip(cells, contents, strict=True):
            fill()
            start = len(columns)
            columns.append(content)
            if len(columns) < _MAX_SPAN:
                columns += [""] * (cell.columns - 1)
            if cell.rows > 1:
                repetition = content if len(content) <= _MAX_REPEATED // 2 else ""
                for column in range(start, len(columns)):
                    spans[column] = (cell.rows - 1, repetition if column == start else "")
        fill()
        # These cells of rows above follow after a gap: the row is too short.
        later = {column: (rows - 1, text) for column, (rows, text) in self._spans.items() if rows > 1}
        self._spans = {**later, **spans}
        return columns


def _span(attributes: Mapping[str, str], name: str, limit: int) -> int:
    value = attributes.get(name, "").strip()
    if not value.isascii() or not value.isdigit() or len(value) > 6:
        return 1
    number = int(value)
    if number == 0 and name == "rowspan":
        # The cell reaches to the last row.
        return limit
    return max(1, min(number, limit))


def _is_grid(content: str) -> bool:
    """True if a cell contains a table of several rows and columns, so that the outer table is an arrangement."""
    return sum(CELL in line for line in content.split("\n")) > 1


def _one_line(content: str) -> str:
    if CELL not in content:
        return " ".join(content.split())
    lines = (" ".join(line.replace(CELL, ", ").split()) for line in content.split("\n"))
    return "; ".join(line for line in lines if line)
