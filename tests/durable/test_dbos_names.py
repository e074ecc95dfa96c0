"""Durable runs use documented names of DBOS and no private names."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from dbos import DBOS, DBOSClient

from tests.paths import ROOT

CLIENT = {
    "apply_schedules": {"schedules"},
    "cancel_workflows": {"workflow_ids"},
    "delete_schedule": {"name"},
    "delete_workflows": {"workflow_ids"},
    "enqueue_in_transaction": {"conn_or_session", "options"},
    "list_schedules": {"application_name"},
    "list_workflows": {"executor_id", "status", "name", "application_name", "completed_before", "limit"},
    "pause_schedule": {"name"},
    "register_queue": {"name", "polling_interval_sec", "partition_concurrency", "limiter", "worker_concurrency"},
    "resume_workflow": {"workflow_id"},
    "retrieve_queue": {"name"},
}
"""Used names of `DBOSClient`, with their used parameters."""


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield private modules of DBOS that are imported, and private attributes of its client and of `DBOS`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dbos._"):
            yield str(node.module)
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            owner = ast.unparse(node.value)
            if owner.endswith(("client", "_dbos", "DBOS", "_sys_db")):
                yield f"{owner}.{node.attr}"


def test_no_private_name_of_dbos_is_used() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): names
        for path in sorted((ROOT / "agentkit").rglob("*.py"))
        if (names := [*private_names(ast.parse(path.read_text("utf-8")))])
    }
    assert found == {}


def test_the_names_that_are_used_have_their_parameters() -> None:
    for name, used in CLIENT.items():
        assert used <= inspect.signature(getattr(DBOSClient, name)).parameters.keys(), name
    assert "workflow_completion_timeout_sec" in inspect.signature(DBOS.destroy).parameters
    assert {"name", "serialization_type", "max_recovery_attempts"} <= inspect.signature(DBOS.workflow).parameters.keys()
