"""A store or a disk that hangs: the run ends at its limit, the process can end, and nothing blocks the event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, LimitExceeded, Limits, Message, RunResult, ScriptedModel, Session
from agentkit.errors import RunBusy, SessionBusy
from agentkit.ground import threads
from agentkit.prompts import Conversation
from tests.raising import raises
from tests.runtime.scripts import Slow, calling
from tests.waiting import LONG, eventually, longer

PROGRAM = """
import asyncio, sys, threading
from agentkit import *
from agentkit.ground import threads
from agentkit.memory import Memory
from agentkit.tools import tool
from agentkit_prompts.system.threads import Threads

threads._GRACE = 0.05
hang = threading.Event().wait

class Hung(Session):
    def append_now(self, *messages, key=None): return False
    def append(self, *messages, key=None): hang()
    def position(self, key): hang()

class Noting(Session):
    def note(self, name): return hang() if name == "summary" else super().note(name)

def hung_line(line): hang()

async def main():
    limits = Limits(seconds=0.1)
    def agent(**options): return Agent(ScriptedModel.repeat("x"), limits=limits, **options)
    talked = Noting(id="c")
    talked.append(Message("user", "a" * 99), Message("assistant", "b" * 99))
    runs = {
        "append": agent().run("go", session=Hung(id="a")),
        "position": agent().run("go", session=Hung(id="b"), run_id="r"),
        "note": agent(compaction=Trim(tokens=1)).run("go", session=talked),
        "line": agent().run("go", journal=hung_line),
        "recall": agent(memory=lambda query: hang()).run("go"),
    }
    for name, run in runs.items():
        try:
            await run
            print(name, "ended")
        except Exception as error:
            print(name, getattr(error, "limit", type(error).__name__))
    store = asyncio.ensure_future(Threads(1, "store").finish(hang))
    await asyncio.sleep(0.05)
    sys.stdout.flush()
    threading.Thread(target=lambda: None).start()
    return store

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
if sys.argv[1] == "closes":
    loop.run_until_complete(loop.shutdown_default_executor())
print("the end", flush=True)
"""


async def once_free(run: Callable[[], Coroutine[Any, Any, RunResult[Any]]]) -> RunResult[Any]:
    """Return the result of a run, once no other run uses its session."""
    for seconds in longer(0.01):
        try:
            return await run()
        except (SessionBusy, RunBusy):
            await asyncio.sleep(seconds)
    raise AssertionError


@pytest.mark.parametrize("how", ["closes", "leaves"])
def test_a_store_that_hangs_forever_does_not_keep_the_process_alive(how: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        capture_output=True,
        text=True,
        timeout=2 * LONG,
        cwd=tmp_path,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = ended.stdout.splitlines()
    assert found[-1] == "the end"
    assert dict(line.split() for line in found[:-1]) == {
        "append": "seconds",
        "position": "seconds",
        "note": "seconds",
        "line": "seconds",
        "recall": "seconds",
    }


async def test_a_conversation_is_busy_until_an_abandoned_write_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "_GRACE", 0.02)
    session = Slow()
    run = asyncio.create_task(Agent(ScriptedModel(["x"])).run("one", session=session))
    await asyncio.to_thread(session.writing.wait)
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await run
    assert [message.text for message in cancelled.value.messages] == ["one"]  # type: ignore[attr-defined]
    with pytest.raises(SessionBusy):
        await Agent(ScriptedModel(["x"])).run("two", session=session)
    session.go.set()
    await eventually(lambda: len(session.conversation) == 1)
    assert (await once_free(lambda: Agent(ScriptedModel(["x"])).run(None, session=session))).output == "x"
    assert len(session.conversation) == 2


async def test_stores_that_hang_use_no_threads_of_other_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_GRACE", 0.0)
    free = threading.Event()

    class Hung(Session):
        def append_now(self, *messages: Any, key: str | None = None) -> bool:
            return False

        def append(self, *messages: Any, key: str | None = None) -> Conversation:
            free.wait()
            return super().append(*messages, key=key)

    limits = Limits(seconds=0.02)
    hung = [Agent(ScriptedModel(["x"]), limits=limits).run("go", session=Hung(id=str(at))) for at in range(100)]
    ended = await asyncio.gather(*hung, return_exceptions=True)
    assert {type(error) for error in ended} == {LimitExceeded}
    session = Slow()
    session.go.set()
    try:
        assert (await Agent(ScriptedModel(["fine"])).run("go", session=session)).output == "fine"
    finally:
        free.set()


async def test_the_file_of_a_journal_is_opened_in_a_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened, where = os.open, list[threading.Thread]()

    def slow(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith("run.jsonl"):
            where.append(threading.current_thread())
            time.sleep(0.05)
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", slow)
    path = tmp_path / "run.jsonl"
    agent = Agent(ScriptedModel([calling("nothing"), "x"]))
    assert (await agent.run("go", journal=path)).output == "x"
    assert (await agent.resume(path)).output == "x"
    assert where and threading.current_thread() not in where


async def test_a_file_that_is_opened_too_late_is_closed_and_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(threads, "_GRACE", 0.01)
    opened, opening, go = os.open, threading.Event(), threading.Event()

    def hangs(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith("run.jsonl"):
            opening.set()
            go.wait()
        return opened(path, *args, **kwargs)

    path = tmp_path / "run.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", hangs)
        for seconds in longer(0.02):
            with pytest.raises(LimitExceeded):
                await Agent(ScriptedModel(["x"]), limits=Limits(seconds=seconds)).run("go", journal=path)
            if opening.is_set():
                break
        go.set()
        await eventually(path.exists)
    assert (await once_free(lambda: Agent(ScriptedModel(["x"])).run("go", journal=path))).output == "x"


def test_messages_that_could_not_be_stored_are_in_the_error_of_a_run_that_was_cancelled() -> None:
    class Full(Session):
        def append(self, *messages: Any, key: str | None = None) -> Conversation:
            if len(messages) == 1 and messages[0].role == "assistant":
                raise OSError("full")
            return super().append(*messages, key=key)

    with raises(OSError, args=("full",)) as failed:
        Agent(ScriptedModel(["x"])).run_sync("go", session=Full())
    assert failed.value.messages[-1] == Message("assistant", "x")  # type: ignore[attr-defined]
