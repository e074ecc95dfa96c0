"""`VersionRows`: the versions of agents in stored runs, and the texts of their parts, each stored once."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from agentkit.run.parts.agent_version import AgentVersion
from agentkit.runs.run_database import RunDatabase, lines_table, runs_table, texts_table
from agentkit.runs.stored_values import finite_number, stored_text

_VERSION = '"version":"([0-9a-f]+)"'
"""Pattern of the version in the first line of a journal."""
_MAX_KNOWN = 1_000
"""Maximum number of versions whose texts are known to be stored."""
_runs, _lines = runs_table.c, lines_table.c


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionUse:
    """A version of an agent, and its runs. Times are seconds since 1970."""

    agent: str
    version: str
    """See `Journal.version`."""
    parts: Mapping[str, str]
    """Hashes by the name of the part; see `Journal.parts`."""
    first: float
    """Start of the first run."""
    last: float
    """Start of the last run."""
    runs: int
    failed: int
    """Number of runs that failed."""
    money: float
    """US dollars; 0 if the price is unknown."""


class VersionRows:
    """Versions of agents in a database of runs.

    Args:
        database: The database.
    """

    def __init__(self, database: RunDatabase) -> None:
        self._database = database
        self._known: set[str] = set()

    def store(self, version: AgentVersion) -> None:
        """Store the texts of the parts of a version. Blocks at the first call of a version only."""
        if version.id in self._known:
            return
        hashes = version.hashes
        rows = {hashes[name]: stored_text(text) for name, text in version.texts.items()}
        dialect = sqlite if self._database.is_sqlite else postgresql
        statement = dialect.insert(texts_table).on_conflict_do_nothing(index_elements=["hash"])
        if rows:
            values = [{"hash": hash, "text": text} for hash, text in rows.items()]
            self._database.work(lambda connection: connection.execute(statement, values))
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known.add(version.id)

    def texts(self, hashes: Collection[str]) -> dict[str, str]:
        """Return the stored texts by their hashes."""
        query = sa.select(texts_table).where(texts_table.c.hash.in_([*hashes]))
        rows = self._database.work(lambda connection: connection.execute(query).all())
        return {row.hash: row.text for row in rows}

    def uses(self, agent: str | None = None, tenant: str | None = None) -> list[VersionUse]:
        """Return the versions of the stored runs, the first version first.

        Args:
            agent: Only versions of this agent.
            tenant: Only runs of this tenant.
        """
        version = self._version()
        query: Any = (
            sa.select(
                _runs.agent,
                version.label("version"),
                sa.func.min(_runs.created_at).label("first"),
                sa.func.max(_runs.created_at).label("last"),
                sa.func.count().label("runs"),
                sa.func.sum(sa.case((_runs.state == "failed", 1), else_=0)).label("failed"),
                sa.func.sum(_runs.cost).label("money"),
                sa.func.max(_runs.run_id).label("example"),
            )
            .join(lines_table, sa.and_(_lines.run == _runs.run_id, _lines.number == 0))
            # An agent inside of a run has its lines in the journal of the run.
            .where(_runs.top.is_(None))
            .group_by(_runs.agent, version)
            .order_by(sa.func.min(_runs.created_at), _runs.agent)
        )
        for column, value in ((_runs.agent, agent), (_runs.tenant, tenant)):
            if value is not None:
                query = query.where(column == value)
        return self._database.work(lambda connection: self._uses_in(connection, query))

    @staticmethod
    def _uses_in(connection: sa.Connection, query: Any) -> list[VersionUse]:
        uses: list[VersionUse] = []
        for row in connection.execute(query).all():
            if not row.version:
                continue
            head = sa.select(_lines.line).where(_lines.run == row.example, _lines.number == 0)
            uses.append(
                VersionUse(
                    agent=row.agent,
                    version=row.version,
                    parts=_parts(connection.scalar(head)),
                    first=finite_number(row.first),
                    last=finite_number(row.last),
                    runs=row.runs,
                    failed=int(row.failed),
                    money=finite_number(row.money),
                )
            )
        return uses

    def _version(self) -> sa.ColumnElement[Any]:
        """Return the version in the first line of a journal."""
        if self._database.is_sqlite:
            is_valid = sa.func.json_valid(_lines.line) == 1
            return sa.case((is_valid, sa.func.json_extract(_lines.line, "$.version")), else_=None)
        # PostgreSQL cannot read JSON with NUL. Quotes inside of names have a backslash, so that no name matches.
        return sa.func.substring(_lines.line, _VERSION)


def tool_parameters(connection: sa.Connection, run_id: str, tool: str) -> Mapping[str, Any] | None:
    """Return the JSON Schema of a tool in the version of a run; None if it is unknown.

    It is also None for a strict tool, whose schema requires arguments that a call may omit.
    """
    line = connection.scalar(sa.select(_lines.line).where(_lines.run == run_id, _lines.number == 0))
    hash = _parts(line).get(f"tools.{tool}")
    text = connection.scalar(sa.select(texts_table.c.text).where(texts_table.c.hash == hash))
    if text is None:
        return None
    data: dict[str, Any] = json.loads(text)
    parameters: Mapping[str, Any] | None = data.get("parameters")
    if data.get("strict"):
        return None
    return parameters


def _parts(line: str | None) -> dict[str, str]:
    """Return the parts in the first line of a journal; empty if it cannot be read."""
    try:
        parts = json.loads(line or "")["parts"]
        return {str(name): str(hash) for name, hash in parts.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
