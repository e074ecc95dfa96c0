"""An index in PostgreSQL, which many processes write and read. Vectors need pgvector; words need no extension.

A space has a table of points and, with dense vectors, a table of vectors. Each term of a point is stored as a key, the
first half of the number of the scope followed by the number of the term, so that a search hardly reads points of other
scopes. The keys of a point are sorted: the weight of a term is found by binary search (`width_bucket`). An inverted
table, one row per term of a point, takes four times the bytes and twice the time of writing, and half the time of a
search.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from agentkit_memory.database.driver_errors import code_of, translate
from agentkit_memory.database.migrate import rows_of
from agentkit_memory.database.postgres import PostgresServer
from agentkit_memory.errors import IndexBroken, IndexUnavailable, StoreClosed, StoreUnavailable
from agentkit_memory.index.vector_index import Hit, Point, as_floats
from agentkit_memory.process.forks import keep, track
from agentkit_memory.terms.bm25_vectors import SparseVector
from agentkit_prompts.system.acting_objects import acting_objects

_PAGE = 4096
"""Points that are read at once."""
_BATCH = 256
"""Points that are written in one transaction."""
_TERM_BITS = 32
"""Bits of the number of a term, which follow the first bits of the number of the scope in a key."""
_MIN_PGVECTOR = (0, 5)
"""First version of pgvector whose cosine distances are never out of range."""
_CREATION_LOCK = 0x61676E7472
"""Key of the advisory lock of the creation of tables, an arbitrary number that is the same in every process."""
_NO_PRIVILEGE = "42501"
"""Code of an error of PostgreSQL: the user may not execute the statement."""

_HAS_CATALOGUE = text("SELECT to_regclass('agentkit_indexes') IS NOT NULL")
_CATALOGUE = text(
    "CREATE TABLE IF NOT EXISTS agentkit_indexes (space text PRIMARY KEY,"
    " number integer GENERATED ALWAYS AS IDENTITY UNIQUE, id text NOT NULL, dimensions integer NOT NULL)"
)
_FIND = text(
    "SELECT number, id, dimensions, to_regclass('agentkit_index_' || number) IS NOT NULL AS is_complete"
    " FROM agentkit_indexes WHERE space = :space"
)
_FORGET = text("DELETE FROM agentkit_indexes WHERE space = :space")
_ADD = text("INSERT INTO agentkit_indexes (space, id, dimensions) VALUES (:space, :id, :dimensions) RETURNING number")
_RENAME = text("UPDATE agentkit_indexes SET id = :id WHERE space = :space")
_LOCK = text("SELECT pg_advisory_xact_lock(:key)")
_PGVECTOR = text(
    "SELECT available.default_version, installed.extversion, namespace.nspname FROM pg_available_extensions available"
    " LEFT JOIN pg_extension installed ON installed.extname = available.name"
    " LEFT JOIN pg_namespace namespace ON namespace.oid = installed.extnamespace WHERE available.name = 'vector'"
)
_ADD_PGVECTOR = text("CREATE EXTENSION IF NOT EXISTS vector")

_POINTS = (
    "CREATE TABLE {table} (id uuid PRIMARY KEY, version integer NOT NULL, scope bigint NOT NULL,"
    " keys bigint[] NOT NULL, weights real[] NOT NULL)"
)
# Without `fastupdate`, no search reads a list of pending keys.
_POINT_INDEXES = (
    "CREATE INDEX ON {table} (scope)",
    "CREATE INDEX ON {table} USING gin (keys) WITH (fastupdate = off)",
)
# A vector is in the row if the row fits in a page: a search reads all vectors of a scope.
_VECTORS = (
    "CREATE TABLE {table}_dense (id uuid PRIMARY KEY REFERENCES {table} ON DELETE CASCADE, scope bigint NOT NULL,"
    " dense {vector}({dimensions}))",
    "ALTER TABLE {table}_dense ALTER dense SET STORAGE MAIN",
    "CREATE INDEX ON {table}_dense (scope)",
)
_WRITE = (
    "INSERT INTO {table} AS stored VALUES (CAST(:id AS uuid), :version, :scope, CAST(:keys AS bigint[]),"
    " CAST(:weights AS real[])) ON CONFLICT (id) DO UPDATE SET version = excluded.version, scope = excluded.scope,"
    " keys = excluded.keys, weights = excluded.weights WHERE stored.version <= excluded.version"
)
_WRITE_DENSE = (
    "WITH written AS (" + _WRITE + " RETURNING id, scope)"
    " INSERT INTO {table}_dense SELECT id, scope, CAST(:dense AS {vector}) FROM written"
    " ON CONFLICT (id) DO UPDATE SET scope = excluded.scope, dense = excluded.dense"
)
# `OFFSET 0` and `MATERIALIZED` prevent that the planner evaluates the expressions once per point and term; `scope + 0`
# prevents that it reads all points of a scope, whose number it underestimates for a large scope, once per term.
_SPARSE = """
WITH hits AS MATERIALIZED (
    SELECT point.id, asked.key & 4294967295 AS term, asked.times * point.weight AS part
    FROM unnest(CAST(:keys AS bigint[]), CAST(:owners AS bigint[]), CAST(:times AS real[])) AS asked (key, scope, times)
    CROSS JOIN LATERAL (
        SELECT id, weights[width_bucket(asked.key, keys)] AS weight
        FROM {table} WHERE keys @> ARRAY[asked.key] AND scope + 0 = asked.scope OFFSET 0) AS point),
rarities AS MATERIALIZED (
    SELECT term, ln(1 + (total - holding + 0.5) / (holding + 0.5)) AS rarity
    FROM (SELECT term, CAST(count(*) AS float8) AS holding FROM hits GROUP BY term) AS terms,
         (SELECT CAST(count(*) AS float8) AS total FROM {table}
          WHERE scope = ANY(CAST(:scopes AS bigint[]))) AS points)
SELECT CAST(id AS text) AS name, CAST(sum(part * rarity) AS real) AS score FROM hits JOIN rarities USING (term)
WHERE {among} GROUP BY id ORDER BY score DESC, id LIMIT :limit
"""
# All vectors of the scopes are compared: a graph (HNSW) ignores scopes, and pays only for scopes of 100,000 vectors.
# The cosine of a zero vector is not a number.
_DENSE = """
SELECT CAST(id AS text), CAST(1 - distance AS real) FROM (
    SELECT id, COALESCE(NULLIF(dense OPERATOR({schema}.<=>) CAST(:vector AS {vector}), 'NaN'), 1) AS distance
    FROM {table}_dense WHERE scope = ANY(CAST(:scopes AS bigint[])) AND dense IS NOT NULL AND {among}) AS compared
ORDER BY distance, id LIMIT :limit
"""
_AMONG = {False: "true", True: "id = ANY(CAST(:among AS uuid[]))"}
_VERSIONS = (
    "SELECT CAST(id AS text), version FROM {table} WHERE id >= CAST(:start AS uuid)"
    " ORDER BY id LIMIT :page OFFSET :skip"
)
_NIL = str(uuid.UUID(int=0))


class _Tables(NamedTuple):
    """The tables of a space, and the schema of pgvector."""

    number: int
    id: str
    """Id of the content of the index."""
    schema: str = ""
    """Quoted schema of pgvector; empty without dense vectors."""

    @property
    def name(self) -> str:
        """Name of the table of points."""
        return f"agentkit_index_{self.number}"

    def statement(self, template: str, **values: object) -> TextClause:
        """Return a statement for these tables."""
        names = {"table": self.name, "schema": self.schema, "vector": f"{self.schema}.vector"}
        return text(template.format(**names, **values))


class PostgresIndex:
    """The points of one space in tables of a PostgreSQL database, which are created if missing.

    Raises:
        IndexUnavailable: The server is not available, or the user may not create tables.
        IndexBroken: pgvector is missing or too old; or the tables have other dimensions, or a trigger or rule.
    """

    shared = True

    def __init__(self, server: PostgresServer, space: str, dimensions: int = 0) -> None:
        self.space = space
        self.dimensions = dimensions
        self._where = server.where
        self._server: PostgresServer | None = server
        self._inherited = ""
        track(self)
        with self._using():
            self._tables = self._open(server)
        self.id = self._tables.id
        self._write = self._tables.statement(_WRITE_DENSE if dimensions else _WRITE)
        self._sparse = {among: self._tables.statement(_SPARSE, among=_AMONG[among]) for among in _AMONG}
        self._dense = {among: self._tables.statement(_DENSE, among=_AMONG[among]) for among in _AMONG}
        # From now on, a call waits for a restart of the server.
        server.was_reached = True

    def upsert(self, points: Sequence[Point]) -> None:
        # Two processes that write the same points in the same order do not block each other.
        rows = [self._row(point) for point in sorted(points, key=lambda point: point.id)]
        for start in range(0, len(rows), _BATCH):
            self._change(self._write, rows[start : start + _BATCH])

    def delete(self, ids: Sequence[str]) -> None:
        if ids:
            delete = self._tables.statement("DELETE FROM {table} WHERE id = ANY(CAST(:ids AS uuid[]))")
            self._change(delete, [{"ids": list(ids)}])

    def query_sparse(
        self, vector: SparseVector, scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
    ) -> list[Hit]:
        if not vector.indices or not scope_ids:
            return []
        scopes = sorted(set(scope_ids))
        keys = [key for scope in scopes for key in _keys(scope, vector)]
        owners = [scope for scope in scopes for _ in vector.indices]
        asked = {"keys": keys, "owners": owners, "times": vector.values * len(scopes)}
        return self._query(self._sparse[among is not None], asked, scopes, limit, among)

    def query_dense(
        self, vector: Sequence[float], scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
    ) -> list[Hit]:
        if not self.dimensions or not scope_ids:
            return []
        asked = {"vector": f"[{_numbers(as_floats(vector))}]"}
        return self._query(self._dense[among is not None], asked, scope_ids, limit, among)

    def versions(self) -> Iterator[tuple[str, int]]:
        statement, start, skip = self._tables.statement(_VERSIONS), _NIL, 0
        while True:
            with self._using() as server, server.reader() as connection:
                rows = connection.execute(statement, {"start": start, "page": _PAGE, "skip": skip}).all()
            yield from [(point_id, version) for point_id, version in rows]
            if len(rows) < _PAGE:
                return
            start, skip = rows[-1][0], 1

    def count(self, scope_ids: Sequence[int] | None = None) -> int:
        template, values = "SELECT count(*) FROM {table}", {}
        if scope_ids is not None:
            template, values = f"{template} WHERE scope = ANY(CAST(:scopes AS bigint[]))", {"scopes": list(scope_ids)}
        with self._using() as server, server.reader() as connection:
            return int(connection.scalar(self._tables.statement(template), values) or 0)

    def flush(self) -> None:
        """Do nothing: a committed transaction is durable."""

    def compact(self) -> bool:
        """Release the rows of removed points; return False, since their bytes stay in the log of the server."""
        names = ["{table}"]
        if self.dimensions:
            names.append("{table}_dense")
        with self._using() as server, server.reader() as connection:
            connection.execute(self._tables.statement(f"VACUUM {', '.join(names)}"))
        return False

    def clear(self) -> None:
        new_id = str(uuid.uuid4())

        def empty(connection: Connection) -> None:
            connection.execute(self._tables.statement("TRUNCATE {table} CASCADE"))
            connection.execute(_RENAME, {"space": self.space, "id": new_id})

        with self._using() as server:
            server.change(empty, twice=True)
        self.id = new_id

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.engine.dispose()

    def disown(self, why: str) -> None:
        """Leave the connections to the parent process after a fork: they carry responses for the parent."""
        keep(self._server)
        self._server = None
        self._inherited = why

    def _row(self, point: Point) -> dict[str, object]:
        # As text, arrays are converted in a third of the time that the driver takes for lists.
        row: dict[str, object] = {"id": point.id, "version": point.version, "scope": point.scope_id}
        row["keys"] = f"{{{','.join(map(str, _keys(point.scope_id, point.sparse)))}}}"
        row["weights"] = f"{{{_numbers(point.sparse.values)}}}"
        if self.dimensions:
            row["dense"] = None
            if point.dense is not None:
                row["dense"] = f"[{_numbers(as_floats(point.dense))}]"
        return row

    def _change(self, statement: TextClause, rows: Sequence[dict[str, object]]) -> None:
        with self._using() as server:
            server.change(lambda connection: connection.execute(statement, rows), twice=True)

    def _query(
        self,
        statement: TextClause,
        asked: Mapping[str, object],
        scope_ids: Sequence[int],
        limit: int,
        among: Sequence[str] | None,
    ) -> list[Hit]:
        values = {**asked, "scopes": list(scope_ids), "limit": limit}
        if among is not None:
            if not among:
                return []
            values["among"] = list(among)
        with self._using() as server, server.reader() as connection:
            return [Hit(point_id, score) for point_id, score in connection.execute(statement, values)]

    def _open(self, server: PostgresServer) -> _Tables:
        """Return the tables of the space, which are created if they are missing."""
        with server.reader() as connection:
            if connection.scalar(_HAS_CATALOGUE):
                tables = self._find(connection)
                if tables is not None:
                    return tables
        return server.change(self._create, twice=True)

    def _find(self, connection: Connection) -> _Tables | None:
        """Return the tables of the space; None if they are missing.

        Raises:
            IndexBroken: The tables have other dimensions.
        """
        row = connection.execute(_FIND, {"space": self.space}).first()
        if row is None or not row.is_complete:
            return None
        if row.dimensions != self.dimensions:
            raise IndexBroken(
                f"{self._where}: the index of space {self.space!r} has {row.dimensions} dimensions, expected "
                f"{self.dimensions}: use another database for this index, or drop the table agentkit_indexes there",
                name=self.space,
                value=row.dimensions,
            )
        tables = _Tables(row.number, row.id, self._pgvector(connection))
        self._check_objects(connection, tables)
        return tables

    def _check_objects(self, connection: Connection, tables: _Tables) -> None:
        """Refuse tables with triggers or rules of another author, which would run with the rights of this user."""
        names = {"agentkit_indexes", tables.name, f"{tables.name}_dense"}
        objects = acting_objects(partial(rows_of, connection), names, is_sqlite=False)
        if objects:
            raise IndexBroken(
                f"{self._where}: {', '.join(map(str, objects)):.600} would act on reads or writes of the index, and "
                "agentkit creates no such object; if you trust the database, remove it: "
                f"{'; '.join([each.removal for each in objects]):.600}",
                name=objects[0].name,
            )

    def _create(self, connection: Connection) -> _Tables:
        """Create the tables of the space, unless another process has created them, and return them."""
        connection.execute(_LOCK, {"key": _CREATION_LOCK})
        connection.execute(_CATALOGUE)
        tables = self._find(connection)
        if tables is not None:
            return tables
        schema, new_id = self._pgvector(connection), str(uuid.uuid4())
        connection.execute(_FORGET, {"space": self.space})
        row = {"space": self.space, "id": new_id, "dimensions": self.dimensions}
        tables = _Tables(connection.execute(_ADD, row).scalar_one(), new_id, schema)
        templates = [_POINTS, *_POINT_INDEXES]
        if self.dimensions:
            templates += _VECTORS
        for template in templates:
            connection.execute(tables.statement(template, dimensions=self.dimensions))
        return tables

    def _pgvector(self, connection: Connection) -> str:
        """Return the quoted schema of pgvector, which is installed if missing; empty text without dense vectors."""
        if not self.dimensions:
            return ""
        row = connection.execute(_PGVECTOR).first()
        if row is None:
            raise self._without_pgvector(
                "missing", "install pgvector on the server (the package postgresql-N-pgvector, for version N)"
            )
        if row.extversion is None:
            try:
                connection.execute(_ADD_PGVECTOR)
            except DBAPIError as error:
                if code_of(error.orig) != _NO_PRIVILEGE:
                    raise
                raise self._without_pgvector(
                    "privilege",
                    f"this user may not create it: execute {_ADD_PGVECTOR.text!r} in this database as a user who may",
                ) from error
            row = connection.execute(_PGVECTOR).one()
        numbers = tuple(int(part) for part in row.extversion.split(".")[:2] if part.isdigit())
        if numbers < _MIN_PGVECTOR:
            minimum = ".".join(map(str, _MIN_PGVECTOR))
            raise self._without_pgvector(
                row.extversion,
                f"version {row.extversion} is too old: install {minimum} or newer on the server, then execute 'ALTER "
                "EXTENSION vector UPDATE' in this database",
            )
        return connection.dialect.identifier_preparer.quote_identifier(row.nspname)

    def _without_pgvector(self, value: str, advice: str) -> IndexBroken:
        return IndexBroken(
            f"{self._where}: dense vectors in PostgreSQL need pgvector, the extension `vector`: {advice}; or pass the "
            "folder or the Qdrant server of another index as index=...; a memory without an embedder needs no pgvector",
            name="pgvector",
            value=value,
        )

    @contextmanager
    def _using(self) -> Iterator[PostgresServer]:
        """Yield the server, and convert its errors into `StoreError`s."""
        server = self._server
        if server is None:
            why = self._inherited or "was closed; open the memory again"
            raise StoreClosed(f"{self._where}: this index {why}", name=self.space)
        try:
            yield server
        except (DBAPIError, PoolTimeout) as error:
            problem = translate(error, f"{self._where}: the index of space {self.space!r}")
            if isinstance(problem, StoreUnavailable):
                raise IndexUnavailable(
                    f"{problem}; stored data is intact, and new items are queued in the database of the memory",
                    name=self.space,
                    value="away",
                ) from error
            raise IndexBroken(
                f"{problem}; stored data is intact: if the tables of the index are missing or corrupt, drop the table "
                "agentkit_indexes and open the memory again, then the index is built from the database",
                name=self.space,
                value="refused",
            ) from error


def _keys(scope: int, vector: SparseVector) -> list[int]:
    """Return the key of each term in a scope, in ascending order."""
    first = scope >> _TERM_BITS << _TERM_BITS
    return [first + term for term in vector.indices]


def _numbers(values: Sequence[float]) -> str:
    """Return numbers separated by commas, with the digits that a number of 32 bits needs."""
    return ",".join(["%.9g"] * len(values)) % tuple(values)
