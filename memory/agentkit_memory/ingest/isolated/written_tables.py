"""Tables as text: one line for each row, with ` | ` between cells."""

from __future__ import annotations

from collections.abc import Iterable

from agentkit_memory.ingest.isolated.written_rows import PIECE, write_block

_MAX_HEAD = 10_000
"""Maximum characters of the names of the columns."""


def write_table(rows: Iterable[list[str]]) -> None:
    """Write the rows of a table as one block, whose head is the first row.

    Empty cells keep their columns, except after the last text of a row. A table of one column is text.
    """
    head: str | None = None
    lines, size = list[str](), 0
    continues = False
    kind = "text"
    for cells in rows:
        line = " | ".join(cell.replace("|", "\\|") for cell in cells).rstrip("| \t")
        if not line:
            continue
        if len(cells) > 1:
            kind = "table"
            if head is None:
                # Each block repeats the head.
                head = f"{line}\n" if len(line) <= _MAX_HEAD else ""
        lines.append(line + "\n")
        size += len(lines[-1])
        if size >= PIECE // 2:
            write_block(kind, "".join(lines), head=head or "", continues=continues)
            lines, size, continues = [], 0, True
    if lines or continues:
        write_block(kind, "".join(lines) + "\n", head=head or "", continues=continues)
