"""A worker that is stopped: a run that ends during the stop is finished."""

from __future__ import annotations

import threading
import time
from typing import Any

from sqlalchemy import event

from agentkit import Agent, Runs, ScriptedModel
from tests.waiting import LONG, eventually


async def test_a_run_whose_end_is_being_stored_when_its_worker_stops_is_finished(runs: Runs) -> None:
    storing, stopping = threading.Event(), threading.Event()

    def take_long(_: Any, __: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if "UPDATE agentkit_runs" in statement and "finished" in str(parameters):
            storing.set()
            stopping.wait(LONG)
            time.sleep(2)

    agent = Agent(ScriptedModel(["Done."]), name="quick")
    runs.add(agent)
    with runs.worker(poll=0.1, grace=LONG):
        event.listen(runs.store.engine, "before_cursor_execute", take_long)
        handle = await agent.start("Go.")
        await eventually(storing.is_set)
        stopping.set()
    info = await handle.info()
    assert (info.state, info.attempts) == ("finished", 1)
