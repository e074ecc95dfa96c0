"""`Limits(seconds=)` applies to everything that hangs, in every way to run an agent, and the process ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.effort import tries
from tests.forks import AGENTS, forks

HANGS = '''
import asyncio, json, sys, threading, time, warnings
from agentkit import Agent, Session, Layers, LimitExceeded, Limits, Message, RunFinished
from agentkit import ScriptedModel, ToolCall
from agentkit.prompts import Example, ExamplesPrompt

async def swallow():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def stubborn() -> str:
    """Swallows cancellation."""
    await swallow()

def blocked() -> str:
    """Blocks its thread."""
    threading.Event().wait()

async def quick() -> str:
    """Answers."""
    return "quick"

class Model:
    name = "hanging"
    async def request(self, composition, *, on_delta=None):
        await swallow()

class Selector:
    def __init__(self, blocking):
        self.blocking = blocking
        if not blocking:
            self.select = self.aselect
    def select(self, query, examples):
        threading.Event().wait()
    async def aselect(self, query, examples):
        await swallow()

class Tools:
    async def at(self, ctx):
        await swallow()

class Recaller:
    def recall(self, query):
        threading.Event().wait()

async def hanging_approver(call):
    await swallow()

def calls(*names):
    given = {"ask": '{"input": "x"}'}
    return Message("assistant", "", tuple(ToolCall(f"c{n}", name, given.get(name, "")) for n, name in enumerate(names)))

warnings.simplefilter("ignore")
what, how = sys.argv[1:]
options, fields, model = {}, {}, ScriptedModel(["never"])
if what == "tool":
    model, fields["tools"] = ScriptedModel([calls("quick", "stubborn", "stubborn")]), [stubborn, quick]
elif what == "thread":
    model, fields["tools"] = ScriptedModel([calls("quick", "blocked")]), [blocked, quick]
elif what == "inner":
    inner = Agent(ScriptedModel([calls("stubborn")]), tools=[stubborn], name="inner")
    model, fields["tools"] = ScriptedModel([calls("ask")]), [inner.as_tool(name="ask", description="Asks.")]
elif what == "recall":
    fields["memory"] = Recaller()
elif what == "model":
    model = Model()
elif what in ("selector", "async selector"):
    shots = ExamplesPrompt(examples=[Example("a", "b")], selector=Selector(what == "selector"))
    fields["layers"] = Layers(before_input=shots)
elif what == "toolset":
    fields["tools"] = Tools()
elif what == "approver":
    from agentkit import tool
    model, options["approve"] = ScriptedModel([calls("pay")]), hanging_approver
    fields["tools"] = [tool(lambda: "", name="pay", description="Pays.", approval="always")]
elif what == "listener":
    async def listen(event):
        await swallow()
    options["on_event"] = listen
elif what == "last":
    async def listen(event):
        if isinstance(event, RunFinished):
            await swallow()
    options["on_event"] = listen
session = Session()
agent = Agent(model, limits=Limits(seconds=5 if what == "tool" else 0.2), **fields)
began = time.monotonic()
try:
    if how == "run":
        asyncio.run(agent.run("x", session=session, **options))
    elif how == "run_sync":
        agent.run_sync("x", session=session, **options)
    elif how == "stream":
        async def main():
            async for _ in agent.stream("x", session=session, **options):
                pass
        asyncio.run(main())
    else:
        for _ in agent.stream_sync("x", session=session, **options):
            pass
except LimitExceeded as error:
    took = time.monotonic() - began
    print(json.dumps({
        "limit": error.limit, "took": took, "effects": [entry.effect for entry in error.journal.entries],
        "roles": [m.role for m in session.conversation], "texts": [m.text for m in session.conversation],
        "kept": tuple(session.conversation) == error.messages,
    }))
'''
WHAT = [
    "tool",
    "thread",
    "inner",
    "recall",
    "model",
    "selector",
    "async selector",
    "toolset",
    "approver",
    "listener",
    "last",
]


CASES = [
    *[(what, "run") for what in WHAT],
    *[(what, "stream_sync") for what in ("tool", "thread", "recall", "last")],
    *[("last", how) for how in ("run_sync", "stream")],
]
"""The part that hangs, and the method of the run. Each case waits for some seconds, so the cases run together."""


@pytest.mark.long
def test_a_part_that_hangs_is_cancelled_at_the_limit_and_the_process_ends(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HANGS)
    with forks(tmp_path, *AGENTS) as programs:
        started = {case: programs.start(script, *case) for case in CASES[:: tries(4, 1)]}
    for (what, _), process in started.items():
        assert process.wait() == 0, process.errors()
        found = json.loads(process.output())
        assert found["limit"] == "seconds"
        assert found["kept"]
        if what == "tool":  # results of finished calls stay, cancelled calls are marked, and the history is valid
            assert found["roles"] == ["user", "assistant", "tool", "tool", "tool"]
            assert found["texts"][2] == "quick"
            assert "was cancelled with the run" in found["texts"][3]
