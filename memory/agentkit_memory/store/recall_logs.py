"""Recall logs in SQL: questions with their candidates, the scores, and the reasons why each was used or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from sqlalchemy import Connection, bindparam, delete, insert, select

from agentkit_memory.checks import check_limit, is_whole
from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import corrupt_row, sound_rows
from agentkit_memory.database.tables import recall_logs, scopes
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.scope import Scope
from agentkit_memory.store.item_rows import storable
from agentkit_memory.store.records import Candidate, RecallLog
from agentkit_memory.store.scope_rows import number_of, required
from agentkit_prompts.errors import brief

_END = 2**62
"""Number above the number of every log."""
_TRIM_EVERY = 64
"""Number of logs that a process writes between two deletions of the oldest logs."""

_BETWEEN = (
    select(*recall_logs.c["query", "policy", "candidates", "took_us", "conversation", "degraded", "id", "at"])
    .where(
        recall_logs.c.scope_id.in_(bindparam("scopes", expanding=True)),
        recall_logs.c.id > bindparam("after"),
        recall_logs.c.id < bindparam("before"),
    )
    .limit(bindparam("most"))
)
_OLDEST_FIRST, _NEWEST_FIRST = _BETWEEN.order_by(recall_logs.c.id), _BETWEEN.order_by(recall_logs.c.id.desc())
_ADD = insert(recall_logs)
_COLUMNS = ("conversation", "at", "query", "policy", "candidates", "degraded", "took_us")
_ADD_IF_THERE = insert(recall_logs).from_select(
    ["scope_id", *_COLUMNS],
    select(scopes.c.id, *[bindparam(name, type_=recall_logs.c[name].type) for name in _COLUMNS]).where(
        scopes.c.id == bindparam("scope")
    ),
)
_others = recall_logs.alias("others")
_TOO_OLD = delete(recall_logs).where(
    recall_logs.c.id
    <= select(_others.c.id).order_by(_others.c.id.desc()).limit(1).offset(bindparam("keep")).scalar_subquery()
)


class RecallLogs:
    """The recall logs of a store. About `keep` newest logs of all scopes are kept; None for all, 0 for none."""

    def __init__(self, database: Database, keep: int | None = None) -> None:
        self.database = database
        self.check_keep(keep)
        self.keep = keep
        self._written = 0

    @staticmethod
    def check_keep(keep: object) -> None:
        """Check a maximum number of logs.

        Raises:
            InvalidArgument: The number is neither None nor a whole number from 0 up.
        """
        if keep is not None and not is_whole(keep, 0):
            raise InvalidArgument(
                f"recall logs: expected a maximum number of logs, 0 or more, or None for all, got {brief(keep)}",
                name="keep",
            )

    def write(self, scope: Scope, scope_number: int | None, make: Callable[[], RecallLog]) -> None:
        """Queue a log; `Database.deferred.settle` waits until it is written.

        Args:
            scope: Scope of the recall.
            scope_number: Number of the scope, if it was stored. If it is erased meanwhile, the log is dropped.
            make: Function that returns the log. It is called in another thread.
        """
        if self.keep == 0:
            return

        def prepare() -> Callable[[Connection], None]:
            log = make()
            row = {
                "conversation": storable(log.conversation),
                "at": log.at,
                "query": storable(log.query),
                "policy": _json(dict(log.policy)),
                "candidates": _json(log.candidates),
                "degraded": _json(log.degraded),
                "took_us": min(log.took_us, 2**31 - 1),
            }
            return lambda connection: self._write(connection, scope, scope_number, row)

        self.database.deferred.add(prepare)

    def _write(self, connection: Connection, scope: Scope, scope_number: int | None, row: dict[str, object]) -> None:
        if scope_number is None:
            connection.execute(_ADD, row | {"scope_id": number_of(connection, scope)})
        else:
            connection.execute(_ADD_IF_THERE, row | {"scope": scope_number})
        self._written += 1
        if self.keep is not None and self._written % _TRIM_EVERY == 1:
            connection.execute(_TOO_OLD, {"keep": self.keep})

    def page(
        self, scope_ids: Sequence[int] | None, *, after: int | None = None, before: int | None = None, limit: int = 50
    ) -> tuple[RecallLog, ...]:
        """Return logs, oldest first: the first after a number, the last before a number or, by default, the newest.

        Raises:
            StoreCorrupt: A log is corrupt.
            InvalidArgument: No scope was given, the limit is less than 1, or a number is invalid.
        """
        check_limit("recall logs", limit)
        for name, number in (("after", after), ("before", before)):
            if number is not None and not is_whole(number):
                raise InvalidArgument(
                    f"recall logs: expected the number of a log as {name!r}, got {brief(number)}", name=name
                )
        bound = {"scopes": required(scope_ids), "after": after or 0, "before": _END, "most": limit}
        if before is not None:
            bound["before"] = before
        # Without `after`, the page contains the newest logs before its end.
        query = _NEWEST_FIRST
        if after is not None:
            query = _OLDEST_FIRST
        with self.database.read() as connection:
            logs = [_log(row) for row in sound_rows(connection, query, bound, recall_logs.c.id)]
        if after is None:
            logs.reverse()
        return tuple(logs)


def used_items(candidates: object) -> list[str]:
    """Return the ids of used items from the candidates of a stored log; no ids if the candidates are corrupt."""
    try:
        read = _read_candidates(candidates)
    except ValueError:
        return []
    return [each.item for each in read if each.used]


def _log(row: Any) -> RecallLog:
    """Return a stored log.

    Raises:
        StoreCorrupt: The log is corrupt.
    """
    read: dict[str, Any] = {}
    for column, reader in LOG_READERS.items():
        try:
            read[column] = reader(row._mapping[column])
        except ValueError as error:
            raise corrupt_row("recall_logs", row.id, column, str(error)) from None
    return RecallLog(row.query, took_us=row.took_us, conversation=row.conversation, id=row.id, at=row.at, **read)


def _json_of(stored: Any, expected: type) -> Any:
    """Return the data of stored JSON.

    Raises:
        ValueError: The stored text is not JSON of this type.
    """
    try:
        value = json.loads(stored)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    if not isinstance(value, expected):
        raise ValueError(f"is a JSON {type(value).__name__}, expected a {expected.__name__}")
    return value


def _read_candidates(stored: Any) -> tuple[Candidate, ...]:
    """Return the candidates of a stored log.

    Raises:
        ValueError: The candidates are corrupt.
    """
    try:
        candidates = tuple([Candidate(**each) for each in _json_of(stored, list)])
        for each in candidates:
            texts = (each.item, each.kind, each.why, each.slot)
            numbers = (each.score, *dict(each.scores).values())
            if not _are(str, texts) or not _are((int, float), numbers) or not isinstance(each.used, bool):
                raise TypeError("a field has the wrong type")
    except TypeError as error:
        raise ValueError(f"has a corrupt candidate ({error})") from None
    return candidates


def _read_texts(stored: Any) -> tuple[str, ...]:
    texts = _json_of(stored, list)
    if not _are(str, texts):
        raise ValueError("has an element that is not text")
    return tuple(texts)


def _read_policy(stored: Any) -> dict[str, object]:
    policy: dict[str, object] = _json_of(stored, dict)
    return policy


LOG_READERS: Mapping[str, Callable[[Any], object]] = {
    "policy": _read_policy,
    "candidates": _read_candidates,
    "degraded": _read_texts,
}
"""Readers of the JSON columns of logs; each reader raises a ValueError if the JSON is corrupt."""


def _are(kind: type | tuple[type, ...], values: Iterable[object]) -> bool:
    return all(isinstance(each, kind) for each in values)


def _json(value: object) -> str:
    try:
        return to_json(value, inf_nan_mode="constants", fallback=str).decode()
    except PydanticSerializationError:
        # pydantic cannot write unpaired surrogates.
        return json.dumps(value, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Candidate):
        return asdict(value)
    return str(value)
