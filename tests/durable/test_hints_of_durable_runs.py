"""Calls of durable runs in the vocabulary of other libraries: the message names the right call, which works."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, OfflineModel, Runs
from agentkit.durable import RunHandle, WorkerError
from tests.waiting import eventually
from tests.wrong_calls import check_message

WRONG: list[tuple[Callable[[Any, Any], object], type[Exception], str]] = [
    (lambda runs, agent: Runs(agent, "sqlite:///runs.db"), TypeError, "use Runs(url), then runs.add(agent)"),  # type: ignore[call-arg]
    (lambda runs, agent: runs.start("Hi", user="ann"), TypeError, "runs.start(agent, text)"),
    (lambda runs, agent: runs.list_runs(status="waiting"), TypeError, "use state='waiting'"),
    (lambda runs, agent: runs.list(status="waiting"), AttributeError, "await runs.list_runs()"),
    (lambda runs, agent: runs.approve("run"), AttributeError, "runs.handle(run_id), whose methods are async"),
    (lambda runs, agent: runs.result("run"), AttributeError, "runs.handle(run_id), whose methods are async"),
    (lambda runs, agent: runs.start_worker(), AttributeError, "`with runs.worker():`"),
    (lambda runs, agent: runs.start_sync("Hi"), AttributeError, "asyncio.run(agent.start(text))"),
    (lambda runs, agent: agent.start_sync("Hi"), AttributeError, "asyncio.run(agent.start(text))"),
    (lambda runs, agent: runs.result_sync("run"), AttributeError, "asyncio.run(handle.result())"),
    (lambda runs, agent: runs.handle("run").result_sync(), AttributeError, "asyncio.run(handle.result())"),
    (lambda runs, agent: runs.register(agent), AttributeError, "runs.add(agent)"),
    (lambda runs, agent: runs.handle("run").id, AttributeError, "handle.run_id"),
    (lambda runs, agent: runs.handle("run").status, AttributeError, "(await handle.info()).state"),
    (lambda runs, agent: runs.handle("run").pending_approvals, AttributeError, "(await handle.info()).waiting"),
]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    opened = Runs(f"sqlite:///{tmp_path / 'runs.db'}")
    yield opened
    opened.close()


@pytest.mark.parametrize(("wrong", "error", "message"), WRONG)
def test_the_message_names_the_right_call(
    runs: Runs, wrong: Callable[[Any, Any], object], error: type[Exception], message: str
) -> None:
    check_message(lambda: wrong(runs, Agent(OfflineModel())), error, message)


def test_the_right_calls_of_the_messages_work(runs: Runs) -> None:
    agent = Agent(OfflineModel())
    runs.add(agent)

    async def started() -> RunHandle[Any]:
        handle = await runs.start(agent, "Hi", user="ann", run_id="first")
        assert (await handle.info()).state == "queued" and (await handle.info()).waiting == ()
        records: list[Any] = await runs.list_runs(state="queued")
        for attribute, message in (("id", "record.run_id"), ("status", "record.state")):
            with pytest.raises(AttributeError) as caught:
                getattr(records[0], attribute)
            assert message in str(caught.value)
        assert (records[0].run_id, records[0].state) == ("first", "queued")
        return await agent.start("Hi")

    assert asyncio.run(started()).run_id


def test_the_right_calls_without_async_functions_work(runs: Runs) -> None:
    agent = Agent(OfflineModel())
    runs.add(agent)
    with runs.worker(poll=0.05):
        handle = asyncio.run(agent.start("Hi"))
        assert asyncio.run(handle.result(timeout=60)).state == "finished"
    assert asyncio.run(handle.info()).state == "finished"


def test_a_worker_that_is_not_started_warns(runs: Runs) -> None:
    with pytest.raises(WorkerError):
        runs.worker()
    runs.add(Agent(OfflineModel()))
    with pytest.warns(RuntimeWarning, match="with runs.worker") as caught:
        runs.worker()
        gc.collect()
    assert [warning.filename for warning in caught] == [__file__]


def test_a_result_without_a_worker_logs_how_to_start_one(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(OfflineModel())
    runs.add(agent)

    async def waited() -> None:
        handle = await agent.start("Hi", run_id="alone")
        result = asyncio.ensure_future(handle.result())
        await eventually(lambda: "run alone: no worker" in caplog.text)
        await asyncio.sleep(0.3)  # the run is read several times more
        result.cancel()

    asyncio.run(waited())
    warnings = [record.getMessage() for record in caplog.records if "run alone: no worker" in record.getMessage()]
    assert len(warnings) == 1
    assert "`with runs.worker():` or `agentkit worker MODULE`" in warnings[0]


def test_the_module_names_the_class() -> None:
    with pytest.raises(ImportError, match=r"use agentkit\.Runs\(url\)"):
        exec("from agentkit.durable import DurableRuns")
