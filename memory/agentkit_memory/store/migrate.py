"""Brings a database to the newest revision. Alembic is imported only when there is something to do."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from agentkit_memory.errors import StoreVersion

__all__ = ["MIGRATIONS", "REVISION", "current_revision", "migrate"]

REVISION = "0002"
"""The newest revision in `migrations/versions`."""

MIGRATIONS = Path(__file__).parent / "migrations"


def current_revision(connection: Connection) -> str | None:
    """Return the revision the database is at, or None when it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


def migrate(connection: Connection, where: str, target: str = REVISION) -> None:
    """Upgrade the database to the revision `target`, inside the transaction of `connection`.

    Raises:
        StoreVersion: The database is at a revision this version does not know.
    """
    import alembic.op  # noqa: F401 - the revisions use it
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext, RevisionStep
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(MIGRATIONS))
    known = {script.revision for script in scripts.walk_revisions()}
    now = current_revision(connection)
    if now is not None and now not in known:
        raise StoreVersion(
            f"{where}: at revision {now!r}, this version of agentkit knows up to {REVISION!r}; "
            "upgrade agentkit, or open another store"
        )

    def steps(revision: tuple[str, ...], _: MigrationContext) -> list[RevisionStep]:
        return list(scripts._upgrade_revs(target, revision))  # type: ignore[arg-type]

    context = MigrationContext.configure(connection, opts={"fn": steps, "script": scripts})
    with Operations.context(context):
        context.run_migrations()
