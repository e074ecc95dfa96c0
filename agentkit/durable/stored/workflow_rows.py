"""`WorkflowRows`: what DBOS stores of workflows and their steps, read so that a damaged row hides no other one.

DBOS raises where one row of a list cannot be read, and it would unpickle what a row calls pickled. All that is stored
here is JSON, and nothing else is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

__all__ = [
    "StepRow",
    "WorkflowRow",
    "WorkflowRows",
    "can_be_stored",
    "delete_rows",
    "read_json",
]

_SHORT = 10_000
_LEFT_OUT = '{"state": "finished", "output": null, "steps": 0, "finish_reason": ""}'
"""Stands for what a run returned that is longer: a run that pauses returns less."""

_COLUMNS = (
    "workflow_uuid", "name", "status", "parent_workflow_id", "executor_id", "created_at", "updated_at",
    "recovery_attempts",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """A workflow, as it is stored; what is damaged of it is None, empty or 0."""

    workflow_id: str
    name: str
    """That of its function."""
    status: str
    """What DBOS calls it."""
    parent_id: str | None
    """Id of the workflow that it is a child of."""
    executor_id: str | None
    created_at: int
    """Milliseconds since 1970."""
    updated_at: int
    recovery_attempts: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    input: Any = None
    """What it was started with, JSON data."""
    output: Any = None
    """What it returned, JSON data."""
    error: Mapping[str, Any] | None = None
    """What it raised: `name`, `message` and `data`."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of a workflow, or of a child of it; what is damaged of it is None, empty or 0."""

    top: str
    """Id of the workflow that was asked for."""
    workflow_id: str
    parent_id: str | None
    attributes: Mapping[str, str]
    """Those of its workflow."""
    number: int
    output: Any
    """What it returned, JSON data."""


class WorkflowRows:
    """The workflows in a database. Its methods block, and raise what SQLAlchemy does.

    Args:
        client: The `DBOSClient` of the database.
    """

    def __init__(self, client: Any) -> None:
        self._system = client._sys_db

    def listed(
        self,
        names: Sequence[str] = (),
        *,
        application: str | None = None,
        ids: Sequence[str] | None = None,
        statuses: Sequence[str] = (),
        executors: Sequence[str] | None = None,
        schedule: str | None = None,
        inside: Sequence[str] | None = None,
        attributes: Mapping[str, str] | None = None,
        completed_before: float | None = None,
        latest_first: bool = False,
        with_input: bool = False,
        with_output: bool = False,
        is_short: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[WorkflowRow]:
        """Return workflows in the order in which they were made.

        Args:
            names: Only those of these names.
            application: Only those of this application, and of none.
            ids: Only these.
            statuses: Only those that DBOS calls so.
            executors: Only those of these workers.
            schedule: Only those that this schedule began.
            inside: Only children of these, at any depth.
            attributes: Only those with these; on PostgreSQL.
            completed_before: Only those that ended before, in seconds since 1970.
            latest_first: The other way round.
            with_input: Whether to read what they were started with.
            with_output: Whether to read what they returned or raised.
            is_short: Whether what is long of that is left out: a list of runs with long answers would fill the memory.
            limit: Most to return.
            offset: How many to leave out.
        """
        tables = self._system.tables
        row, given, made = tables.workflow_status, tables.workflow_input, tables.workflow_output
        columns = [*map(_plain, [row.c[name] for name in _COLUMNS]), sa.cast(row.c.attributes, sa.Text)]
        source: Any = row
        if with_input:
            source = source.outerjoin(given, given.c.workflow_uuid == row.c.workflow_uuid)
            columns.append(sa.func.coalesce(given.c.inputs, row.c.inputs).label("its_input"))
        if with_output:
            source = source.outerjoin(made, made.c.workflow_uuid == row.c.workflow_uuid)
            output: sa.ColumnElement[Any] = sa.func.coalesce(made.c.output, row.c.output)
            if is_short:
                size = sa.func.length if self._system.engine.dialect.name == "sqlite" else sa.func.octet_length
                output = sa.case((size(output) > _SHORT, _LEFT_OUT), else_=output)
            columns.append(output.label("its_output"))
            columns.append(sa.func.coalesce(made.c.error, row.c.error).label("its_error"))
        where: list[Any] = [row.c.name.in_(names)] if names else []
        if application is not None:
            where.append(sa.or_(row.c.application_name == application, row.c.application_name.is_(None)))
        wanted = (("workflow_uuid", ids), ("status", statuses or None), ("executor_id", executors))
        where += [row.c[name].in_(values) for name, values in wanted if values is not None]
        if schedule is not None:
            where.append(row.c.schedule_name == schedule)
        if inside is not None:
            family = self._family(inside)
            where += [row.c.workflow_uuid.in_(sa.select(family.c.id)), row.c.workflow_uuid.not_in(inside)]
        if attributes:
            where.append(self._system._attributes_contains_clause(attributes))
        if completed_before is not None:
            where.append(row.c.completed_at <= int(completed_before * 1000))
        query = sa.select(*columns).select_from(source).where(*where)
        query = query.order_by(row.c.created_at.desc() if latest_first else row.c.created_at.asc())
        with self._system.engine.begin() as connection:
            found = connection.execute(query.limit(limit).offset(offset or None)).all()
        return [_workflow(each, with_input=with_input, with_output=with_output) for each in found]

    def steps(self, workflow_ids: Sequence[str], name: str) -> list[StepRow]:
        """Return the steps of a name of workflows and of their children at any depth, those of each in order.

        They are read at one moment.
        """
        row, steps = self._system.tables.workflow_status, self._system.tables.operation_outputs
        family = self._family(workflow_ids)
        columns = [row.c.workflow_uuid, row.c.parent_workflow_id, sa.cast(row.c.attributes, sa.Text).label("about")]
        columns += [steps.c.function_id, steps.c.output, row.c.created_at, steps.c.function_name]
        all_steps = row.join(steps, steps.c.workflow_uuid == row.c.workflow_uuid)
        each = sa.select(*[_plain(one).label(one.name) for one in columns]).select_from(all_steps)
        its: sa.FromClause = each.subquery("its")
        if self._system.engine.dialect.name != "sqlite":
            # Of one workflow after the other, whatever the statistics: before it has any, a server reads all steps.
            each = each.where(row.c.workflow_uuid == family.c.id).offset(sa.literal_column("0"))
            its = each.lateral("its")
        source = family.join(its, its.c.workflow_uuid == family.c.id)
        query = sa.select(family.c.top, *list(its.c)[:5]).select_from(source).where(its.c.function_name == name)
        query = query.order_by(its.c.created_at, its.c.workflow_uuid, its.c.function_id)
        with self._system.engine.begin() as connection:
            found = connection.execute(query).all()
        return [
            StepRow(str(top), str(own), _text(parent), _attributes(about), _whole(number), read_json(output))
            for top, own, parent, about, number, output in found
        ]

    def delete(self, workflow_ids: Sequence[str]) -> None:
        """Delete workflows and their children at any depth, with all that is stored of them: all of it or nothing."""
        tables = self._system.tables
        row = tables.workflow_status
        ids = sa.select(self._family(workflow_ids).c.id)
        with self._system.engine.begin() as connection:
            # A lock, as whoever adds a child has it: none is added behind those that are deleted.
            locked = sa.update(row).where(row.c.workflow_uuid.in_(workflow_ids)).values(owner_xid=row.c.owner_xid)
            connection.execute(locked)
            delete_rows(connection, tables, ids)

    def _family(self, workflow_ids: Sequence[str]) -> sa.CTE:
        """Return workflows and their children at any depth, each by its `id` and the one at the `top` of it."""
        row = self._system.tables.workflow_status
        top = sa.select(row.c.workflow_uuid.label("top"), row.c.workflow_uuid.label("id"))
        family = top.where(row.c.workflow_uuid.in_(workflow_ids)).cte("family", recursive=True)
        below = row.join(family, row.c.parent_workflow_id == family.c.id)
        return family.union(sa.select(family.c.top, row.c.workflow_uuid).select_from(below))  # no circle goes on


def delete_rows(connection: sa.Connection, tables: Any, workflow_ids: Sequence[str] | sa.Select[str]) -> None:
    """Delete workflows, without their children, and all that is stored of them; `tables` are those of DBOS."""
    for table in (tables.workflow_input, tables.workflow_output, tables.operation_outputs, tables.workflow_status):
        connection.execute(sa.delete(table).where(table.c.workflow_uuid.in_(workflow_ids)))


def can_be_stored(text: str) -> bool:
    """Whether both databases hold a text, so that it may be looked for: one with a NUL or half of a pair is nowhere."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def read_json(stored: object) -> Any:
    """Return JSON data; None where a column is empty or damaged."""
    try:
        return json.loads(stored) if isinstance(stored, str) else None
    except (ValueError, RecursionError):
        return None


def _workflow(row: Sequence[Any], *, with_input: bool, with_output: bool) -> WorkflowRow:
    workflow_id, name, status, parent, executor, created, updated, attempts, attributes, *payloads = row
    data = [read_json(each) for each in payloads]
    begun = data[0] if with_input else None
    arguments = begun.get("positionalArgs") if isinstance(begun, dict) else None
    output, error = data[-2:] if with_output else (None, None)
    return WorkflowRow(
        str(workflow_id),
        str(name),
        str(status),
        _text(parent),
        _text(executor),
        _whole(created),
        _whole(updated),
        _whole(attempts),
        _attributes(attributes),
        arguments[0] if isinstance(arguments, list) and arguments else None,
        output,
        error if isinstance(error, dict) else None,
    )


def _plain(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return a column that is read as it is stored."""
    return sa.type_coerce(column, sa.types.NullType())


def _attributes(stored: object) -> dict[str, str]:
    about = read_json(stored)
    return {name: text for name, text in about.items() if isinstance(text, str)} if isinstance(about, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
