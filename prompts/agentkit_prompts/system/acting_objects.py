"""Objects of a database that run with each read or write of our tables: triggers, views, rules, expressions.

A database file from another person can contain them, and they would run with the rights of this program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

RowsOf: TypeAlias = Callable[[str], Iterable[Sequence[Any]]]
"""Function that executes a statement and returns its rows."""

# No condition on `type`: SQLite also reads a trigger whose type is `TRIGGER`, a blob, or ends at a zero character.
_SQLITE_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_master"
_SQLITE_REFERENCES = (
    'SELECT tables.name, keys."table" FROM sqlite_master AS tables, pragma_foreign_key_list(tables.name) AS keys'
)
_TABLE = "CREATE TABLE "
"""Start of the statement of each table that is not virtual, as SQLite writes it."""
_EXPRESSION = re.compile(r"\b(?:as|check|collate|conflict|generated)\b|\bdefault\s*+[^\s'\w]|--|/\*", re.I)
"""Parts of the statement of a table that execute an expression or replace rows. Our tables have none of them; after a
comment, `default` could precede an expression."""
_UNIQUE = re.compile(r"\s*+create\s++unique\b", re.I)
"""Start of the statement of an index that refuses rows."""
_PLAIN_INDEX = re.compile(r"[^()]*+\([^()]*+\)[^()]*+")
"""Statement of an index without an expression, except comparisons of its columns."""
# PostgreSQL records that a default, a constraint, an index or a policy uses a function only for functions that are not
# built in.
_POSTGRES_OBJECTS = """
WITH ours AS (SELECT oid, relname, relkind FROM pg_class
              WHERE pg_table_is_visible(oid) AND relnamespace <> 'pg_catalog'::regnamespace),
     users AS (SELECT DISTINCT classid, objid FROM pg_depend
               WHERE refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass))
SELECT 'trigger', t.tgname, c.relname FROM pg_trigger t JOIN ours c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal
UNION ALL SELECT 'rule', r.rulename, c.relname FROM pg_rewrite r JOIN ours c ON c.oid = r.ev_class
    WHERE c.relkind IN ('r', 'p')
UNION ALL SELECT 'policy', p.polname, c.relname FROM pg_policy p JOIN ours c ON c.oid = p.polrelid
UNION ALL SELECT CASE a.attgenerated WHEN '' THEN 'default' ELSE 'column' END, a.attname, c.relname
    FROM pg_attrdef d JOIN ours c ON c.oid = d.adrelid
    JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    JOIN users u ON u.classid = 'pg_attrdef'::regclass AND u.objid = d.oid
UNION ALL SELECT 'constraint', k.conname, c.relname FROM pg_constraint k JOIN ours c ON c.oid = k.conrelid
    JOIN users u ON u.classid = 'pg_constraint'::regclass AND u.objid = k.oid
UNION ALL SELECT 'index', o.relname, c.relname FROM pg_index i JOIN ours c ON c.oid = i.indrelid
    JOIN pg_class o ON o.oid = i.indexrelid
    JOIN users u ON u.classid = 'pg_class'::regclass AND u.objid = i.indexrelid
UNION ALL SELECT CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' ELSE 'foreign table' END, relname,
    relname FROM ours WHERE relkind IN ('v', 'm', 'f')
"""
_PARTS_OF_TABLES = {
    "trigger": "DROP TRIGGER {} ON {}",
    "rule": "DROP RULE {} ON {}",
    "policy": "DROP POLICY {} ON {}",
    "default": "ALTER TABLE {1} ALTER COLUMN {0} DROP DEFAULT",
    "column": "ALTER TABLE {1} DROP COLUMN {0}",
    "constraint": "ALTER TABLE {1} DROP CONSTRAINT {0}",
}
"""Statement of PostgreSQL that removes a part of a table, by the kind of the part; the fields are its name and the name
of the table."""


class ActingObject(NamedTuple):
    """An object that would run statements, or replace a table."""

    kind: str
    """`trigger`, `view`, `index`; `virtual table`, `definition` of SQLite; or `rule`, `policy`, `default`, `column`,
    `constraint`, `materialized view`, `foreign table` of PostgreSQL.

    A `definition` is a table with an expression, a `column` is generated.
    """
    name: str
    table: str
    """Table that is read or written when the object acts."""
    is_part_of_table: bool = False
    """True if the statement that removes the object names its table: the kinds of `_PARTS_OF_TABLES`."""

    def __str__(self) -> str:
        if self.kind == _DEFINITION:
            return f"an expression in the definition of the table {self.table!r:.80}"
        if self.name == self.table:
            return f"the {self.kind} {self.name!r:.80}"
        return f"the {self.kind} {self.name!r:.80} on the table {self.table!r:.80}"

    @property
    def removal(self) -> str:
        """Statement that removes the object."""
        if self.kind == _DEFINITION:
            # SQLite has no such statement: a comment describes the change.
            return f"-- copy the rows of {_quoted(self.table)} to a table without expressions"
        if self.is_part_of_table:
            return _PARTS_OF_TABLES[self.kind].format(_quoted(self.name), _quoted(self.table))
        # SQLite drops a virtual table as it drops any table.
        return f"DROP {self.kind.removeprefix('virtual ').upper()} {_quoted(self.name)}"


def acting_objects(
    rows_of: RowsOf,
    tables: Collection[str],
    *,
    is_sqlite: bool,
    with_expressions: Collection[str] = (),
    unique_indexes: Collection[str] = (),
) -> list[ActingObject]:
    """Return the objects of other authors that act when the given tables are read or written.

    On SQLite these are also triggers on a table whose foreign keys lead to one of the tables: a deleted row can change
    rows there. All other objects are left alone.

    Args:
        rows_of: Executes a statement in the database.
        tables: Names of the tables, none of which has a trigger.
        is_sqlite: True for SQLite, False for PostgreSQL.
        with_expressions: Names of the tables that another library creates with expressions, which are not refused.
        unique_indexes: Statements that create the unique indexes of the tables. On SQLite another unique index is
            returned, because it refuses rows.
    """
    if not is_sqlite:
        rows_of_server = rows_of(_POSTGRES_OBJECTS)
        objects = [ActingObject(kind, name, table, kind in _PARTS_OF_TABLES) for kind, name, table in rows_of_server]
        return [each for each in objects if each.table in tables]
    ours = {_folded(name) for name in tables}
    objects = [*_sqlite_objects(rows_of, {_words(statement) for statement in unique_indexes})]
    referring: set[str] = set()
    if any(each.kind == "trigger" for each in objects):
        referring = _referring(rows_of, ours)
    tables_by_kind = {
        "trigger": ours | referring,
        "index": ours.difference(with_expressions),
        _DEFINITION: ours.difference(with_expressions),
    }
    return [each for each in objects if _folded(each.table) in tables_by_kind.get(each.kind, ours)]


def other_tables(rows_of: RowsOf, tables: Collection[str]) -> list[str]:
    """Return the names of the tables of a SQLite database that are not among `tables`, without tables of SQLite."""
    ours = {_folded(name) for name in tables}
    names = [_read(name) for kind, name, *_ in rows_of(_SQLITE_OBJECTS) if _folded(kind) == "table"]
    return sorted([name for name in names if _folded(name) not in ours and not _folded(name).startswith("sqlite_")])


def _sqlite_objects(rows_of: RowsOf, unique_indexes: Collection[str]) -> Iterator[ActingObject]:
    for row in rows_of(_SQLITE_OBJECTS):
        kind, name, table, statement = map(_read, row)
        kind = _folded(kind)
        if kind == "table":
            if not statement.startswith(_TABLE):
                yield ActingObject("virtual table", name, name)
            elif _EXPRESSION.search(statement):
                yield ActingObject(_DEFINITION, name, name)
        elif kind != "index" or _is_acting_index(statement, unique_indexes):
            yield ActingObject(kind, name, table)


def _is_acting_index(statement: str, unique_indexes: Collection[str]) -> bool:
    """True if an index executes an expression, or refuses rows and is not in `unique_indexes`."""
    # An index of a constraint has no statement.
    if not statement:
        return False
    if _UNIQUE.match(statement) and _words(statement) not in unique_indexes:
        return True
    return not _PLAIN_INDEX.fullmatch(statement)


def _referring(rows_of: RowsOf, tables: Collection[str]) -> set[str]:
    """Return the tables whose foreign keys lead to one of `tables`, also through other tables."""
    references = [(_folded(name), _folded(target)) for name, target in rows_of(_SQLITE_REFERENCES)]
    referring: set[str] = set()
    targets = set(tables)
    while targets:
        targets = {name for name, target in references if target in targets} - referring - set(tables)
        referring |= targets
    return referring


def _read(value: object) -> str:
    """Return a value of the schema as SQLite reads it: also from a blob, and until the first zero character."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return str(value or "").partition("\0")[0]


def _words(statement: str) -> str:
    """Return a statement with single spaces."""
    return " ".join(statement.split())


def _folded(name: object) -> str:
    # SQLite compares names without the case of ASCII letters only.
    return _read(name).translate(_LOWER)


_DEFINITION = "definition"
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
