"""Brings a database to the newest revision. Alembic is imported only to upgrade an older one."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select

from agentkit_memory.database.tables import METADATA
from agentkit_memory.errors import StoreVersion

__all__ = ["MIGRATIONS", "REVISION", "current_revision", "migrate"]

REVISION = "0010"
"""The newest revision in `migrations/versions`."""

MIGRATIONS = Path(__file__).parent / "migrations"

# As Alembic makes it. A table of its own: `METADATA` is what a revision is compared with.
_VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))


def current_revision(connection: Connection) -> str | None:
    """Return the revision the database is at, or None when it is empty."""
    return connection.scalar(select(_VERSION.c.version_num)) if inspect(connection).has_table(_VERSION.name) else None


def migrate(connection: Connection, where: str) -> None:
    """Make the tables of a new database, or upgrade those of an older one, inside the transaction of `connection`.

    Raises:
        StoreVersion: The database is at a revision this version does not know.
    """
    now = current_revision(connection)
    if now is None:
        METADATA.create_all(connection)
        _VERSION.create(connection)
        connection.execute(_VERSION.insert().values(version_num=REVISION))
        return
    import alembic.op  # noqa: F401 - the revisions use it
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext, RevisionStep
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(MIGRATIONS))
    if now not in {script.revision for script in scripts.walk_revisions()}:
        raise StoreVersion(
            f"{where}: at revision {now!r:.60}, this version of agentkit knows up to {REVISION!r}; "
            "upgrade agentkit, or open another store",
            path=where,
            name="revision",
            value=now,
        )

    def steps(revision: tuple[str, ...], _: MigrationContext) -> list[RevisionStep]:
        return list(scripts._upgrade_revs(REVISION, revision))  # type: ignore[arg-type]

    context = MigrationContext.configure(connection, opts={"fn": steps, "script": scripts})
    with Operations.context(context):
        context.run_migrations()
