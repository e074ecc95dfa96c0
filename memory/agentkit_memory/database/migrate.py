"""Upgrade of a database to the newest revision. Alembic is imported only to upgrade an older database."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select
from sqlalchemy.schema import CreateIndex

from agentkit_memory.database.conversions import CONVERSIONS
from agentkit_memory.database.tables import METADATA
from agentkit_memory.errors import StoreCorrupt, StoreVersion
from agentkit_prompts.system.acting_objects import acting_objects

REVISION = "2026_01"
"""The newest revision in `migrations/versions`. The names of revisions are in alphabetical order."""

MIGRATIONS = Path(__file__).parent / "migrations"

# The table of Alembic has separate metadata: tests compare `METADATA` with the tables of a revision.
_VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
TABLES = frozenset({*METADATA.tables, _VERSION.name})
"""Names of all tables of a memory."""


def check_objects(connection: Connection, where: str, *, is_sqlite: bool) -> None:
    """Refuse a database with objects of another author that act when the tables of a memory are read or written.

    Raises:
        StoreCorrupt: The database has such a trigger, view, rule or virtual table. No statement of it ran.
    """
    indexes = [index for table in METADATA.tables.values() for index in table.indexes if index.unique]
    statements = [str(CreateIndex(index).compile(dialect=connection.dialect)) for index in indexes]
    objects = acting_objects(partial(rows_of, connection), TABLES, is_sqlite=is_sqlite, unique_indexes=statements)
    if objects:
        raise StoreCorrupt(
            f"{where}: {', '.join(map(str, objects)):.600} would act on reads or writes, and agentkit creates no such "
            "object: do not open a file of a person whom you do not trust; in a file that you trust, remove it first: "
            f"{'; '.join([each.removal for each in objects]):.600}",
            path=where,
            name=objects[0].name,
            table=objects[0].table,
        )


def rows_of(connection: Connection, statement: str) -> list[Any]:
    """Return the rows of a statement."""
    return [*connection.exec_driver_sql(statement)]


def current_revision(connection: Connection) -> str | None:
    """Return the revision of the database; None if the database has no tables."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.scalar(select(_VERSION.c.version_num))


def migrate(connection: Connection, where: str) -> None:
    """Create the tables of a new database, or upgrade an older database, in the transaction of `connection`.

    Raises:
        StoreVersion: The revision of the database is unknown to this version.
    """
    stored_revision = current_revision(connection)
    if stored_revision is None:
        METADATA.create_all(connection)
        _VERSION.create(connection)
        connection.execute(_VERSION.insert().values(version_num=REVISION))
        return
    import alembic.op  # noqa: F401 - the revisions use it
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext, RevisionStep
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(MIGRATIONS))
    if stored_revision not in {script.revision for script in scripts.walk_revisions()}:
        advice = "upgrade agentkit, or open another store"
        if stored_revision < REVISION:
            advice = "a version before the first release wrote it: open a new store, and ingest its documents again"
        raise StoreVersion(
            f"{where}: at revision {stored_revision!r:.60}, this version of agentkit reads {REVISION!r}; {advice}",
            path=where,
            name="revision",
            value=stored_revision,
        )

    def steps(revision: tuple[str, ...], _: MigrationContext) -> list[RevisionStep]:
        return list(scripts._upgrade_revs(REVISION, revision))  # type: ignore[arg-type]

    def convert(*, step: Any, **_: object) -> None:
        conversion = CONVERSIONS.get(step.up_revision_id)
        if conversion is not None:
            conversion(connection)

    options = {"fn": steps, "script": scripts, "on_version_apply": [convert]}
    context = MigrationContext.configure(connection, opts=options)
    with Operations.context(context):
        context.run_migrations()
