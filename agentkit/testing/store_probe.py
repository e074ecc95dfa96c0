"""`StoreProbe`: direct access to the database and the index of a memory, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Executable, Row

    from agentkit_memory import Memory
    from agentkit_memory.index.vector_index import VectorIndex


class StoreProbe:
    """Direct access to the database and the index of a memory without checks, for tests.

    A test can read and corrupt rows, store the rows that a crash would leave, and count statements. The probe supports
    SQLite, PostgreSQL and every index. Tables and columns can change in any version.
    """

    def __init__(self, memory: Memory) -> None:
        self._store = memory._store
        self._memory = memory

    @property
    def target(self) -> Path | str:
        """Target of `Memory`: the folder of `memory.db`, or the URL of the PostgreSQL database with password."""
        url = self.engine.url
        if url.get_backend_name() == "sqlite":
            return Path(str(url.database)).parent
        return url.set(drivername="postgresql").render_as_string(hide_password=False)

    @property
    def engine(self) -> Engine:
        """The SQLAlchemy engine of the database, for listeners of its events."""
        return self._store.database.engine

    @property
    def index(self) -> VectorIndex:
        """The open index that recalls read; opens it if necessary.

        Raises:
            IndexUnavailable: Another process owns the index.
            IndexBroken: The index cannot be opened, or contains the points of another database.
        """
        return self._store.indexes.get()

    @property
    def scope_number(self) -> int:
        """Number of the scope of the memory in rows and points; the scope is added if it is not stored."""
        from agentkit_memory.store.scope_rows import scope_id

        return scope_id(self._store.database, self._memory.scope)

    def items(self, kind: str | None = None) -> Sequence[Row[Any]]:
        """Return the items that recall can find: the rows of the table `items`, by scope, kind, owner and position.

        Args:
            kind: Only items of this kind: `chunk`, `image`, `turn` or `fact`.

        Returns:
            The columns of the table. `text` is the whole text of a turn, even if only its message stores the text; None
            if the message is corrupt. The place and the metadata of a chunk are from the shown generation.
        """
        from sqlalchemy import select

        from agentkit_memory.database.tables import document_chunks, documents, items
        from agentkit_memory.store.item_rows import PLACE, SHOWN_CHUNK, place_column
        from agentkit_memory.store.item_text import ITEM_TEXT

        columns = {column.name: column for column in items.c} | {name: place_column(name) for name in PLACE}
        columns["text"] = ITEM_TEXT
        rows = select(*columns.values()).select_from(items)
        rows = rows.outerjoin(documents, documents.c.id == items.c.document_id).outerjoin(document_chunks, SHOWN_CHUNK)
        owner = items.c["scope_id", "kind", "branch_id", "document_id"]
        chosen = rows.order_by(*owner, columns["position"], items.c.id)
        if kind is not None:
            chosen = chosen.where(items.c.kind == kind)
        return self.rows(chosen)

    def rows(self, statement: str | Executable, /, **values: object) -> Sequence[Row[Any]]:
        """Return the rows of a query: SQL text with parameters such as `:name`, or a SQLAlchemy statement."""
        with self._store.database.read() as connection:
            return connection.execute(_executable(statement), values).all()

    def values(self, statement: str | Executable, /, **values: object) -> list[Any]:
        """Return the first column of the rows of a query."""
        return [row[0] for row in self.rows(statement, **values)]

    def execute(self, statement: str | Executable, /, *rows: Mapping[str, object]) -> int:
        """Execute a statement in a transaction and return the number of changed rows.

        With several `rows`, the statement is executed for each row.

        Raises:
            StoreError: The database refuses the statement.
        """
        with self.transaction() as connection:
            return connection.execute(_executable(statement), list(rows) or None).rowcount

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yield a connection in a transaction: on SQLite, other writers wait until it ends."""
        with self._store.database.write() as connection:
            yield connection

    @contextmanager
    def statements(self) -> Iterator[list[str]]:
        """Yield a list that receives each statement of the memory, in any thread."""
        from sqlalchemy import event

        executed: list[str] = []

        def note(connection: object, cursor: object, statement: str, *_: object) -> None:
            executed.append(statement)

        event.listen(self.engine, "before_cursor_execute", note)
        try:
            yield executed
        finally:
            event.remove(self.engine, "before_cursor_execute", note)

    def dump(self) -> dict[str, Sequence[Row[Any]]]:
        """Return all rows of all tables, by the name of the table; a table follows the tables that it references."""
        from agentkit_memory.database.tables import METADATA

        return {table.name: self.rows(table.select()) for table in METADATA.sorted_tables}

    def fill_disk(self) -> None:
        """Stop the SQLite file from growing, as a full disk does, until the memory is closed."""
        with self.transaction() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

    def set_clock(self, clock: Callable[[], float]) -> None:
        """Replace the clock of the memory; it returns seconds since 1970."""
        self._store.database._clock = clock

    def pause(self) -> None:
        """Stop the threads that index new messages after a recall; a worker still indexes the messages."""
        self._store.upkeep.clear()


def _executable(statement: str | Executable) -> Executable:
    from sqlalchemy import text

    if isinstance(statement, str):
        return text(statement)
    return statement
