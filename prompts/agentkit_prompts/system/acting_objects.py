"""Objects of a database that run with each read or write of our tables: triggers, views, rules, virtual tables.

A database file from another person can contain them, and they would run with the rights of this program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

__all__ = ["ActingObject", "RowsOf", "acting_objects", "other_tables"]

RowsOf: TypeAlias = Callable[[str], Iterable[Sequence[Any]]]
"""Function that executes a statement and returns its rows."""

_SQLITE_OBJECTS = "SELECT type, name, tbl_name, rootpage FROM sqlite_master WHERE type IN ('trigger', 'view', 'table')"
_SQLITE_REFERENCES = (
    'SELECT tables.name, keys."table" FROM sqlite_master AS tables, pragma_foreign_key_list(tables.name) AS keys '
    "WHERE tables.type = 'table'"
)
_POSTGRES_OBJECTS = (
    "SELECT 'trigger', t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
    "WHERE NOT t.tgisinternal AND pg_table_is_visible(c.oid) UNION ALL "
    "SELECT 'rule', r.rulename, c.relname FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class "
    "WHERE c.relkind IN ('r', 'p') AND pg_table_is_visible(c.oid) UNION ALL "
    "SELECT CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' ELSE 'foreign table' END, c.relname, "
    "c.relname FROM pg_class c "
    "WHERE c.relkind IN ('v', 'm', 'f') AND pg_table_is_visible(c.oid) AND c.relnamespace <> 'pg_catalog'::regnamespace"
)


class ActingObject(NamedTuple):
    """An object that would run statements, or replace a table."""

    kind: str
    """`trigger`, `view`, `virtual table` of SQLite, or `rule`, `materialized view`, `foreign table` of PostgreSQL."""
    name: str
    table: str
    """Table that is read or written when the object acts."""
    belongs_to_table: bool = False
    """True if the statement that removes the object names its table: triggers and rules of PostgreSQL."""

    def __str__(self) -> str:
        if self.name == self.table:
            return f"the {self.kind} {self.name!r:.80}"
        return f"the {self.kind} {self.name!r:.80} on the table {self.table!r:.80}"

    @property
    def removal(self) -> str:
        """Statement that removes the object."""
        # SQLite drops a virtual table as it drops any table.
        statement = f"DROP {self.kind.removeprefix('virtual ').upper()} {_quoted(self.name)}"
        if self.belongs_to_table:
            statement += f" ON {_quoted(self.table)}"
        return statement


def acting_objects(rows_of: RowsOf, tables: Collection[str], *, is_sqlite: bool) -> list[ActingObject]:
    """Return the objects of other authors that act when the given tables are read or written.

    On SQLite these are also triggers on a table whose foreign keys lead to one of the tables: a deleted row can change
    rows there. All other objects are left alone.

    Args:
        rows_of: Executes a statement in the database.
        tables: Names of the tables, none of which has a trigger.
        is_sqlite: True for SQLite, False for PostgreSQL.
    """
    if not is_sqlite:
        rows_of_server = rows_of(_POSTGRES_OBJECTS)
        objects = [ActingObject(kind, name, table, kind in ("trigger", "rule")) for kind, name, table in rows_of_server]
        return [each for each in objects if each.table in tables]
    ours = {_folded(name) for name in tables}
    rows = [*rows_of(_SQLITE_OBJECTS)]
    if any(kind == "trigger" for kind, *_ in rows):
        ours |= _referring(rows_of, ours)
    return [each for each in _sqlite_objects(rows) if _folded(each.table) in ours]


def other_tables(rows_of: RowsOf, tables: Collection[str]) -> list[str]:
    """Return the names of the tables of a SQLite database that are not among `tables`, without tables of SQLite."""
    ours = {_folded(name) for name in tables}
    names = [str(name) for kind, name, *_ in rows_of(_SQLITE_OBJECTS) if kind == "table"]
    return sorted([name for name in names if _folded(name) not in ours and not _folded(name).startswith("sqlite_")])


def _sqlite_objects(rows: Iterable[Sequence[Any]]) -> Iterator[ActingObject]:
    for kind, name, table, root_page in rows:
        if kind == "table":
            # Only a virtual table has no root page.
            if not root_page:
                yield ActingObject("virtual table", str(name), str(name))
        else:
            yield ActingObject(kind, str(name), str(table))


def _referring(rows_of: RowsOf, tables: Collection[str]) -> set[str]:
    """Return the tables whose foreign keys lead to one of `tables`, also through other tables."""
    references = [(_folded(name), _folded(target)) for name, target in rows_of(_SQLITE_REFERENCES)]
    referring: set[str] = set()
    targets = set(tables)
    while targets:
        targets = {name for name, target in references if target in targets} - referring - set(tables)
        referring |= targets
    return referring


def _folded(name: object) -> str:
    # SQLite compares names without the case of ASCII letters only.
    return str(name).translate(_LOWER)


_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
