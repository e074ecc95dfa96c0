"""`StoredRuns`: where runs, their events and their journals are kept, in a SQLite file or in memory.

The server, the inspector and whoever else shows runs read them here. Everything belongs to a tenant: what another one
asks for is unknown to it, as if it were not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import RLock
from types import NoneType
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlalchemy.pool import StaticPool

from agentkit.errors import AgentDefinitionError, AgentError
from agentkit.models.model import Usage
from agentkit.server.served_runs.event_form import json_bytes
from agentkit.server.served_runs.run_records import (
    ENDED,
    RunEvent,
    RunRecord,
    RunStatus,
    RunsWanted,
    WaitingCall,
)
from agentkit.server.server_errors import UnknownResource
from agentkit_prompts.errors import check_types
from agentkit_prompts.system.file_locks import locked
from agentkit_prompts.system.private_files import private_file, private_folder

__all__ = ["MAX_KEPT", "StoredRuns", "StoredRunsError"]

_FORMAT = 1
MAX_KEPT = 5_000
"""Ended runs that are kept of all tenants together where nothing else is asked for."""
_MAX_IN_MEMORY = 256_000_000
_MAX_ON_DISK = 8_000_000_000
"""Characters that journals may take together; then the oldest half of the ended runs is deleted."""
_PRUNE_EVERY = 200
"""Runs after which the oldest are deleted."""

_METADATA = MetaData()
_runs = Table(
    "runs",
    _METADATA,
    Column("number", Integer, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("id", String, nullable=False),
    Column("key", String),
    Column("agent", String, nullable=False),
    Column("user", String, nullable=False),
    Column("session", String),
    Column("status", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("tenant", "id"),
    UniqueConstraint("tenant", "key"),
    Index("ix_runs_status", "status"),
    Index("ix_runs_tenant", "tenant"),  # in the order of numbers: the newest of a tenant are read without its others
    sqlite_autoincrement=True,
)
_events = Table(
    "run_events",
    _METADATA,
    Column("run", Integer, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("kind", String, nullable=False),
    Column("data", Text, nullable=False),
    sqlite_with_rowid=False,
)
_journals = Table(
    "run_journals",
    _METADATA,
    Column("number", Integer, primary_key=True),
    Column("run", Integer, nullable=False),
    Column("line", Text, nullable=False),
    Index("ix_run_journals_run", "run"),
)
_usage = Table(
    "usage",
    _METADATA,
    Column("tenant", String, primary_key=True),
    Column("day", String, primary_key=True),
    Column("runs", Integer, nullable=False),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("money", Float, nullable=False),
)
_format = Table("run_store", _METADATA, Column("format", Integer, nullable=False))
_BODY = (
    *("input", "output", "citations", "unknown_labels", "error", "finish_reason", "usage", "waiting", "decisions"),
)
_DAMAGED: Mapping[str, Any] = {"type": "StoredRunsError", "message": "what is stored of this run is damaged"}
_COLUMNS = tuple([name for name in RunRecord.__dataclass_fields__ if name not in _BODY])


class StoredRunsError(AgentError):
    """The file of the runs cannot be opened or was written by a newer version."""


class StoredRuns:
    """Keeps runs. Methods may wait for a disk: async code calls them in threads; any number of threads may.

    Args:
        path: The file, made if missing; None keeps the runs in memory, as long as the object lives.
        keep: How many ended runs to keep of all tenants together; the oldest go first. None for all.

    Raises:
        StoredRunsError: The file is no database of runs, one of a newer version, or in use by another server.
    """

    def __init__(self, path: Path | None = None, *, keep: int | None = MAX_KEPT) -> None:
        check_types(
            AgentDefinitionError,
            "StoredRuns",
            path=(path, (Path, NoneType), "a Path, or None"),
            keep=(keep, (int, NoneType), "a number of runs, or None"),
        )
        self.path = path
        self._keep = keep
        self._held: int | None = None
        self._lock = RLock()  # SQLite has one writer anyway; a connection in memory is shared by all threads
        self._added = 0
        self._characters = 0
        """Of journals that came since they were last counted, and those that were there then."""
        if path is None:
            self._engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
        else:
            private_folder(path.parent)
            private_file(path)
            self._held = _hold(path)
            self._engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 10.0})
        event.listen(self._engine, "connect", _prepare)
        try:
            _open(self._engine, path)
        except StoredRunsError:
            self.close()
            raise
        except DatabaseError as error:
            self.close()
            raise StoredRunsError(
                f"{path}: cannot be opened as the database of runs: {error.orig}", path=str(path)
            ) from error

    def add(self, record: RunRecord, journal: str = "") -> RunRecord:
        """Keep a new run, and its journal where it has ended already.

        Where the tenant has a run of that `key`, that one is returned and nothing is kept.
        """
        with self._lock:
            try:
                with self._engine.begin() as connection:
                    run = connection.scalar(insert(_runs).values(**_row(record)).returning(_runs.c.number))
                    if journal:
                        connection.execute(insert(_journals).values(run=run, line=journal))
            except IntegrityError:
                if record.key is not None and (known := self.find(record.tenant, record.key)) is not None:
                    return known
                raise
            self._added += 1
            self._characters += len(journal)
            if self._added % _PRUNE_EVERY == 0:
                self._prune(self._keep)
            if self._characters > (_MAX_IN_MEMORY if self.path is None else _MAX_ON_DISK):
                self._shrink()
        return record

    def get(self, tenant: str, run_id: str) -> RunRecord:
        """Return a run.

        Raises:
            UnknownResource: The tenant has no such run.
        """
        with self._lock, self._engine.connect() as connection:
            row = connection.execute(select(_runs).where(_is(tenant, run_id))).mappings().first()
        if row is None:
            raise _unknown(run_id)
        return _record(row)

    def find(self, tenant: str, key: str) -> RunRecord | None:
        """Return the run that a tenant began under an idempotency key, or None."""
        query = select(_runs).where(_runs.c.tenant == tenant, _runs.c.key == key)
        with self._lock, self._engine.connect() as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else _record(row)

    def put(self, record: RunRecord, *, was: RunStatus | None = None) -> bool:
        """Replace a run that is kept, by its tenant and id.

        Args:
            record: How it is now.
            was: Replace it only where it is in this status; None replaces it whatever its status is.

        Returns:
            Whether it was replaced.
        """
        place = _is(record.tenant, record.id)
        place = place if was is None else and_(place, _runs.c.status == was)
        with self._lock, self._engine.begin() as connection:
            return connection.execute(update(_runs).where(place).values(**_row(record))).rowcount > 0

    def page(self, tenant: str, wanted: RunsWanted) -> Sequence[RunRecord]:
        """Return runs of a tenant, the newest first."""
        with self._lock, self._engine.connect() as connection:
            query = _newest(connection, select(_runs), tenant, wanted)
            return [_record(row) for row in connection.execute(query).mappings()]

    def unfinished(self) -> Sequence[RunRecord]:
        """Return the runs of all tenants that are queued or running, the oldest first; damaged ones are left out."""
        query = select(_runs).where(_runs.c.status.in_(("queued", "running"))).order_by(_runs.c.number)
        with self._lock, self._engine.connect() as connection:
            found = [_record(row) for row in connection.execute(query).mappings()]
        return [one for one in found if one.error is not _DAMAGED]

    def delete(self, tenant: str, run_id: str) -> None:
        """Forget a run with its events and its journal; one that is not there already is."""
        with self._lock, self._engine.begin() as connection:
            number = connection.execute(select(_runs.c.number).where(_is(tenant, run_id))).scalar()
            if number is not None:
                _delete(connection, [number])

    def add_events(self, tenant: str, run_id: str, events: Sequence[RunEvent]) -> None:
        """Keep events of a run, behind those it has."""
        if not events:
            return
        with self._lock, self._engine.begin() as connection:
            run = _number(connection, tenant, run_id)
            rows = [
                {"run": run, "seq": seq, "kind": kind, "data": json_bytes(data).decode()} for seq, kind, data in events
            ]
            connection.execute(insert(_events), rows)

    def events(self, tenant: str, run_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[RunEvent]:
        """Return the first events of a run behind the number `after`."""
        with self._lock, self._engine.connect() as connection:
            run = _number(connection, tenant, run_id)
            query = select(_events.c.seq, _events.c.kind, _events.c.data).order_by(_events.c.seq).limit(limit)
            rows = connection.execute(query.where(_events.c.run == run, _events.c.seq > after)).all()
        return [RunEvent(seq, kind, json.loads(data)) for seq, kind, data in rows]

    def last_event(self, tenant: str, run_id: str) -> int:
        """Return the number of the last event of a run; 0 where it has none."""
        with self._lock, self._engine.connect() as connection:
            query = select(func.max(_events.c.seq)).where(_events.c.run == _number(connection, tenant, run_id))
            return connection.execute(query).scalar() or 0

    def add_journal(self, tenant: str, run_id: str, line: str) -> None:
        """Keep a line of the journal of a run; it is stored when this returns."""
        with self._lock, self._engine.begin() as connection:
            connection.execute(insert(_journals).values(run=_number(connection, tenant, run_id), line=line))

    def journal(self, tenant: str, run_id: str) -> str:
        """Return the journal of a run, which `Journal.loads` reads; empty where nothing is kept of it yet."""
        with self._lock, self._engine.connect() as connection:
            run = _number(connection, tenant, run_id)
            query = select(_journals.c.line).where(_journals.c.run == run).order_by(_journals.c.number)
            return "".join(connection.execute(query).scalars())

    def add_usage(self, tenant: str, day: str, usage: Usage, runs: int = 1) -> None:
        """Count what runs used; `day` is a date such as 2026-11-22, in UTC."""
        counts = {
            "runs": runs,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "money": usage.money or 0.0,
        }
        statement = upsert(_usage).values(tenant=tenant, day=day, **counts)
        sums = {name: _usage.c[name] + statement.excluded[name] for name in counts}
        with self._lock, self._engine.begin() as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=["tenant", "day"], set_=sums))

    def usage(self, tenant: str, *, since: str = "") -> Mapping[str, tuple[int, Usage]]:
        """Return per day how many runs there were and what they used, from the day `since` on."""
        query = select(_usage).where(_usage.c.tenant == tenant, _usage.c.day >= since).order_by(_usage.c.day)
        with self._lock, self._engine.connect() as connection:
            rows = connection.execute(query).mappings().all()
        return {
            row["day"]: (
                row["runs"],
                Usage(row["input_tokens"], row["output_tokens"], row["cached_tokens"], row["money"] or None),
            )
            for row in rows
        }

    def close(self) -> None:
        """Close what it is kept in. Closing twice is fine."""
        with self._lock:
            self._engine.dispose()
            if self._held is not None:
                os.close(self._held)
                self._held = None

    def _shrink(self) -> None:
        """Delete the oldest half of the ended runs: their journals take more room than they may."""
        ended = select(func.count()).where(_runs.c.status.in_(sorted(ENDED)))
        with self._engine.connect() as connection:
            count = connection.execute(ended).scalar() or 0
        self._prune(count // 2)
        with self._engine.connect() as connection:
            self._characters = connection.execute(select(func.sum(func.length(_journals.c.line)))).scalar() or 0

    def _prune(self, keep: int | None) -> None:
        """Delete the oldest ended runs, those that are too many."""
        if keep is None:
            return
        ended = _runs.c.status.in_(sorted(ENDED))
        with self._engine.begin() as connection:
            query = select(_runs.c.number).where(ended).order_by(_runs.c.number.desc()).offset(keep)
            _delete(connection, list(connection.execute(query).scalars()))


def _hold(path: Path) -> int:
    """Have the file to oneself: two servers would both go on with its runs.

    Raises:
        StoredRunsError: Another process has it.
    """
    lock = path.with_name(f"{path.name}.lock")
    private_file(lock)
    file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    if not locked(file):
        os.close(file)
        raise StoredRunsError(
            f"{path}: another server keeps its runs there: stop it, or serve with another --home",
            path=str(path),
            value="busy",
        )
    return file


def _prepare(connection: Any, _: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _open(engine: Engine, path: Path | None) -> None:
    """Make the tables, or refuse those of a newer version."""
    with engine.begin() as connection:
        if not inspect(connection).has_table(_format.name):
            _METADATA.create_all(connection)
            connection.execute(insert(_format).values(format=_FORMAT))
            return
        found = connection.execute(select(func.max(_format.c.format))).scalar()
        if not isinstance(found, int) or found > _FORMAT:
            raise StoredRunsError(
                f"{path}: format {found} of the runs was written by a newer agentkit; this one reads up to {_FORMAT}: "
                "upgrade it",
                path=str(path),
                value=found,
            )
        for index in _runs.indexes:
            index.create(connection, checkfirst=True)


def _is(tenant: str, run_id: str) -> Any:
    return and_(_runs.c.tenant == tenant, _runs.c.id == run_id)


def _newest(connection: Connection, query: Select[Any], tenant: str, wanted: RunsWanted) -> Select[Any]:
    number = _runs.c.number if wanted.ids is None else _runs.c.number + 0  # these few are found by id, then sorted
    query = query.where(_runs.c.tenant == tenant).order_by(number.desc()).limit(wanted.limit)
    for name in ("agent", "session", "user", "status"):
        if (value := getattr(wanted, name)) is not None:
            query = query.where(_runs.c[name] == value)
    if wanted.ids is not None:
        query = query.where(_runs.c.id.in_(wanted.ids))
    if wanted.before is not None:
        query = query.where(_runs.c.number < _number(connection, tenant, wanted.before))
    return query


def _number(connection: Connection, tenant: str, run_id: str) -> int:
    number: int | None = connection.execute(select(_runs.c.number).where(_is(tenant, run_id))).scalar()
    if number is None:
        raise _unknown(run_id)
    return number


def _delete(connection: Connection, numbers: Sequence[int]) -> None:
    for number in numbers:
        connection.execute(delete(_events).where(_events.c.run == number))
        connection.execute(delete(_journals).where(_journals.c.run == number))
        connection.execute(delete(_runs).where(_runs.c.number == number))


def _unknown(run_id: str) -> UnknownResource:
    return UnknownResource(f"there is no run {run_id!r:.80}", code="run_not_found")


def _row(record: RunRecord) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in RunRecord.__dataclass_fields__}
    body = {name: values.pop(name) for name in _BODY}
    body["usage"] = asdict(record.usage)
    body["decisions"] = dict(record.decisions)
    return {**values, "body": json_bytes(body).decode()}


def _record(row: Mapping[Any, Any]) -> RunRecord:
    """Return a run as it is stored; one whose body is damaged has none, so that others are listed all the same."""
    known = {name: row[name] for name in _COLUMNS}
    try:
        body = json.loads(row["body"])
        usage, waiting = Usage(**body["usage"]), tuple([WaitingCall(*call) for call in body["waiting"]])
        return RunRecord(
            **known | {name: body[name] for name in _BODY if name in body} | {"usage": usage, "waiting": waiting}
        )
    except (ValueError, TypeError, LookupError, RecursionError):
        return RunRecord(**known, error=_DAMAGED)
