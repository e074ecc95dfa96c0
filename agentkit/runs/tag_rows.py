"""Rows of the tags of runs, by which lists of a tag are read."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from agentkit.runs.run_database import runs_table, tags_table
from agentkit.runs.run_record import RunRecord

_run = runs_table.c
_rows = sa.select(_run.tenant, sa.bindparam("new_tag", type_=sa.Text), _run.number, _run.run_id)
_INSERT = sa.insert(tags_table).from_select(
    ["tenant", "tag", "number", "run"], _rows.where(_run.run_id == sa.bindparam("of_run"))
)


def store_tags(connection: sa.Connection, records: Iterable[RunRecord]) -> None:
    """Store the tags of new runs, whose rows are stored."""
    rows = [{"of_run": record.run_id, "new_tag": tag} for record in records for tag in dict.fromkeys(record.tags)]
    if rows:
        connection.execute(_INSERT, rows)
