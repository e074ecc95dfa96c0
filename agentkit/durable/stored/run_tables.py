"""What the database of durable runs holds beside the tables of DBOS: who works, and which calls wait for a person.

Both are rows that any process writes with a condition, so that of two writers exactly one succeeds.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.schema import CreateIndex, CreateTable

from agentkit.durable.stored.sqlite_connection import prepare
from agentkit.run.parts.decisions import Decision, Denied, decision_data, read_decision

__all__ = ["AskedCall", "RunTables", "WorkerRow", "call_of", "engine_url", "stored_call", "stored_text"]

T = TypeVar("T")

_SECONDS_LOST = 5.0
"""How long an operation waits for a database that cannot be reached, as while it is started anew."""
_SECONDS_CONNECT = 10
_PAUSE = 0.2
_MAKING = 7_239_116_025_340_177
"""The lock that whoever makes the tables has on PostgreSQL."""

_metadata = sa.MetaData()
_workers = sa.Table(
    "agentkit_workers",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),  # alive, stopped or dead
    sa.Column("beat", sa.BigInteger, nullable=False),
    sa.Column("serves", sa.Text, nullable=False),  # JSON: [[agent, version], ...]
    sa.Column("lease", sa.Float, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("started_at", sa.Float, nullable=False),
    sa.Column("beat_at", sa.Float, nullable=False),
)
_approvals = sa.Table(
    "agentkit_approvals",
    _metadata,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("call_id", sa.Text, primary_key=True),  # as `stored_call` writes it
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("asked_at", sa.Float, nullable=False),
    sa.Column("expires_at", sa.Float, nullable=True, index=True),
    sa.Column("decision", sa.Text, nullable=True),
    sa.Column("decided_by", sa.Text, nullable=False),
    sa.Column("decided_at", sa.Float, nullable=True),
    sa.Column("taken", sa.Boolean, nullable=False, index=True),  # the run has gone on with the decision, or has ended
)


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker, as the others see it."""

    id: str
    state: str
    """`alive`, `stopped` (it ended in order) or `dead` (its lease ended)."""
    beat: int
    """How often it has renewed its lease; below 0 where what is stored is damaged."""
    serves: tuple[tuple[str, str], ...]
    """Names and versions of its agents."""
    lease: float
    """Seconds after which the others take it for dead, if it does not renew."""
    host: str
    pid: int
    started_at: float
    """Seconds since 1970, by the clock of the database."""
    silent: float
    """Seconds since it renewed its lease, by that clock."""

    @property
    def is_alive(self) -> bool:
        """Whether it does runs: it has not ended, and its lease neither."""
        return self.state == "alive" and self.silent <= self.lease


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A tool call that waits for a person, or did."""

    run_id: str
    call_id: str
    """What `approve` and `deny` take."""
    tool: str
    arguments: str
    """As the model wrote them: JSON text."""
    agent: str
    """The tool whose agent makes the call, where it is not the run itself; see `Paused.agents`."""
    asked_at: float
    """Seconds since 1970, by the clock of the database."""
    expires_at: float | None
    """When it is denied if nobody has decided; None for never."""
    decision: Decision | None
    """None while it waits."""
    decided_by: str = ""
    decided_at: float | None = None
    """Seconds since 1970, by the clock of the database; None while it waits."""


class RunTables:
    """The two tables, in the database of the runs.

    Args:
        url: Where it is: `sqlite:///...` or `postgresql://...`.
    """

    def __init__(self, url: sa.URL) -> None:
        self.is_sqlite = url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            self._engine = self._leases = sa.create_engine(url, poolclass=sa.NullPool)
            event.listen(self._engine, "connect", _prepare_sqlite)
            self._now: Any = sa.literal_column("(julianday('now') - 2440587.5) * 86400.0", sa.Float)
        else:
            url = engine_url(url)
            self._engine = sa.create_engine(url, pool_size=2, max_overflow=4, pool_pre_ping=True)
            # What waits for a lock may have all of those: a lease is renewed beside them.
            self._leases = sa.create_engine(url, pool_size=1, max_overflow=0, pool_pre_ping=True)
            self._now = sa.literal_column("extract(epoch from clock_timestamp())", sa.Float)

    def create(self) -> None:
        """Make the tables that are missing, whoever makes them at the same time."""

        def make(connection: sa.Connection) -> None:
            if self.are_in(sa.inspect(connection)):
                return  # a database that is only read has them
            if not self.is_sqlite:  # which would not wait for a table that another one is making
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING)))
            for table in _metadata.sorted_tables:
                connection.execute(CreateTable(table, if_not_exists=True))
                for index in table.indexes:
                    connection.execute(CreateIndex(index, if_not_exists=True))

        self._write(make)

    @staticmethod
    def are_in(database: sa.Inspector) -> bool:
        """Return whether a database has these tables."""
        return set(database.get_table_names()) >= _metadata.tables.keys()

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()
        self._leases.dispose()

    # Workers

    def add_worker(self, id: str, serves: Iterable[tuple[str, str]], lease: float, host: str, pid: int) -> None:
        """Add a worker that is alive."""
        row = {"id": id, "state": "alive", "beat": 0, "serves": json.dumps([*serves])}
        times = {"lease": lease, "started_at": self._now, "beat_at": self._now}
        self._write(lambda c: c.execute(sa.insert(_workers).values(**row, **times, host=host, pid=pid)))

    def beat(self, id: str) -> bool:
        """Renew the lease of a worker; False where it is not alive for the others any more. Does not wait."""
        changed = (
            sa.update(_workers)
            .where(_workers.c.id == id, _workers.c.state == "alive")
            .values(beat=_workers.c.beat + 1, beat_at=self._now)
        )
        with self._leases.begin() as connection:
            return connection.execute(changed).rowcount > 0

    def end_worker(self, id: str, state: str, beat: int | None = None) -> bool:
        """Note that a worker has stopped or died; with `beat`, only if it has not renewed its lease since."""
        ended = sa.update(_workers).where(_workers.c.id == id, _workers.c.state == "alive")
        if beat is not None:
            ended = ended.where(_workers.c.beat == beat)
        return bool(self._write(lambda c: c.execute(ended.values(state=state)).rowcount))

    def forget_workers(self, seconds: float) -> None:
        """Delete the workers that ended so long ago."""
        old = sa.delete(_workers).where(_workers.c.state != "alive", _workers.c.beat_at < self._now - seconds)
        self._write(lambda c: c.execute(old))

    def workers(self) -> list[WorkerRow]:
        """Return all workers, the oldest first."""
        silent = (self._now - _workers.c.beat_at).label("silent")
        rows = self._write(lambda c: c.execute(sa.select(_workers, silent).order_by(_workers.c.started_at)).all())
        return [_worker_row(row) for row in rows]

    # Approvals

    def ask(self, run_id: str, calls: Sequence[tuple[str, str, str, str]], timeout: float | None) -> None:
        """Add calls that wait, each as id, tool, arguments and agent; those there are stay as they are."""

        def add(connection: sa.Connection) -> None:
            known = set(connection.scalars(sa.select(_approvals.c.call_id).where(_approvals.c.run_id == run_id)))
            for call_id, tool, arguments, agent in calls:
                if stored_call(call_id) not in known:
                    connection.execute(
                        sa.insert(_approvals).values(
                            run_id=run_id,
                            call_id=stored_call(call_id),
                            tool=stored_text(tool),
                            arguments=stored_text(arguments),
                            agent=stored_text(agent),
                            asked_at=self._now,
                            expires_at=None if timeout is None else self._now + timeout,
                            decided_by="",
                            taken=False,
                        )
                    )

        with suppress(IntegrityError):  # an execution that was taken over asked at the same time
            self._write(add)
            return
        self._write(add)

    def decide(self, run_id: str, made: Mapping[str, Decision], by: str) -> list[str]:
        """Store decisions about calls that wait, all or none; return the ids of calls that do not wait any more."""

        def store(connection: sa.Connection) -> list[str]:
            taken = [
                call
                for call, decision in made.items()
                if not connection.execute(
                    sa.update(_approvals)
                    .where(_approvals.c.run_id == run_id, _approvals.c.call_id == stored_call(call))
                    .where(_approvals.c.decision.is_(None))
                    .values(
                        decision=json.dumps(decision_data(decision)), decided_by=stored_text(by), decided_at=self._now
                    )
                ).rowcount
            ]
            if taken:
                connection.rollback()
            return taken

        return self._write(store)

    def expire(self) -> list[str]:
        """Deny what nobody decided in time, and return the ids of the runs."""

        def deny(connection: sa.Connection) -> list[str]:
            late = sa.and_(_approvals.c.decision.is_(None), _approvals.c.expires_at < self._now)
            found = connection.execute(sa.select(_approvals.c.run_id).where(late).limit(1)).first()
            if found is None:
                return []
            text = json.dumps(decision_data(Denied("nobody decided about it in time")))
            denied = sa.update(_approvals).where(late).values(decision=text, decided_by="", decided_at=self._now)
            return sorted(set(connection.scalars(denied.returning(_approvals.c.run_id))))

        return self._write(deny)

    def decided(self) -> list[str]:
        """Return the ids of runs that have decisions they have not gone on with, and wait for no other."""
        waits = sa.select(_approvals.c.run_id).where(_approvals.c.decision.is_(None))
        ready = sa.select(_approvals.c.run_id).where(_approvals.c.taken.is_(False), _approvals.c.decision.is_not(None))
        return self._write(lambda c: [*c.scalars(ready.where(_approvals.c.run_id.not_in(waits)).distinct())])

    def take(self, run_id: str, calls: Iterable[str] | None = None) -> None:
        """Note that a run has gone on with the decisions about calls; with all there are, where it has ended."""
        taken = sa.update(_approvals).where(_approvals.c.run_id == run_id, _approvals.c.taken.is_(False))
        taken = taken.where(_approvals.c.decision.is_not(None))
        if calls is not None:
            taken = taken.where(_approvals.c.call_id.in_([stored_call(call) for call in calls]))
        self._write(lambda c: c.execute(taken.values(taken=True)))

    def calls(self, run_ids: Sequence[str]) -> list[AskedCall]:
        """Return the calls of runs that wait or did, in the order in which they were asked."""
        asked = sa.select(_approvals).where(_approvals.c.run_id.in_(run_ids))
        rows = self._write(lambda c: c.execute(asked.order_by(_approvals.c.asked_at, _approvals.c.call_id)).all())
        return [_asked_call(row) for row in rows]

    def waiting(self, limit: int) -> list[AskedCall]:
        """Return calls that wait, those asked first first."""
        asked = sa.select(_approvals).where(_approvals.c.decision.is_(None)).order_by(_approvals.c.asked_at)
        return [_asked_call(row) for row in self._write(lambda c: c.execute(asked.limit(limit)).all())]

    def forget_calls(self, run_ids: Sequence[str]) -> None:
        """Delete the calls of runs."""
        self._write(lambda c: c.execute(sa.delete(_approvals).where(_approvals.c.run_id.in_(run_ids))))

    def _write(self, work: Callable[[sa.Connection], T]) -> T:
        """Work in a transaction; once more where the connection was lost, as when a server restarts."""
        until = time.monotonic() + _SECONDS_LOST
        while True:
            try:
                with self._engine.begin() as connection:
                    return work(connection)
            except DBAPIError as error:
                if not _is_lost(error) or time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)


def engine_url(url: sa.URL) -> sa.URL:
    """Return what SQLAlchemy connects to: a server that cannot be reached is given up after seconds."""
    if url.get_backend_name() == "sqlite":
        return url
    url = url.set(drivername="postgresql+psycopg")
    return url.update_query_dict({"connect_timeout": url.query.get("connect_timeout", str(_SECONDS_CONNECT))})


def _prepare_sqlite(connection: Any, _: object) -> None:
    prepare(connection)
    connection.isolation_level = "IMMEDIATE"
    connection.execute("PRAGMA busy_timeout=30000")
    connection.execute("PRAGMA journal_mode=WAL")  # of the file: DBOS has it too


def _is_lost(error: DBAPIError) -> bool:
    if error.connection_invalidated:
        return True
    text = str(error.orig).lower()
    return isinstance(error, OperationalError) and any(
        part in text
        for part in ("connection", "starting up", "shutting down", "server closed", "terminating", "locked")
    )


def _worker_row(row: Any) -> WorkerRow:
    """Return a worker; a lease that is damaged has ended."""
    return WorkerRow(
        str(row.id),
        str(row.state),
        row.beat if isinstance(row.beat, int) else -1,
        _serves(row.serves),
        _number(row.lease),
        str(row.host),
        row.pid if isinstance(row.pid, int) else 0,
        _number(row.started_at),
        row.silent if isinstance(row.silent, int | float) else math.inf,
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _serves(stored: str) -> tuple[tuple[str, str], ...]:
    """Return the agents of a worker, and their versions; none where the row is damaged, so that others can be read."""
    try:
        return tuple([(str(agent), str(version)) for agent, version in json.loads(stored)])
    except (ValueError, TypeError, RecursionError):
        return ()


def _decision(stored: str) -> Decision:
    """Return a decision as it is stored; a damaged one approves nothing."""
    try:
        return read_decision(json.loads(stored))
    except (ValueError, TypeError, KeyError, RecursionError):
        return Denied("what was decided about it cannot be read")


def call_of(stored: str) -> str:
    """Return the id of a call from what `stored_call` made of it; a damaged one as it is."""
    try:
        return stored.encode("ascii").decode("unicode_escape")
    except UnicodeError:
        return stored


def _asked_call(row: Any) -> AskedCall:
    return AskedCall(
        str(row.run_id),
        call_of(str(row.call_id)),
        str(row.tool),
        str(row.arguments),
        str(row.agent),
        _number(row.asked_at),
        None if row.expires_at is None else _number(row.expires_at),
        None if row.decision is None else _decision(row.decision),
        str(row.decided_by),
        None if row.decided_at is None else _number(row.decided_at),
    )


def stored_call(call_id: str) -> str:
    """Return the id of a call, which a model may have made up, as both databases hold it; nothing of it is lost."""
    return call_id.encode("unicode_escape").decode("ascii")


def stored_text(text: str) -> str:
    """Return text that both databases hold: no NUL, and no half of a pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
