"""Agents that worker processes find: their earlier results decide their next steps, and every act is noted."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from agentkit import Agent, Composition, Limits, Message, Reply, Runs, ScriptedModel, ToolCall, ToolContext, Usage, tool
from agentkit.run.engine.current_run import current_run

HOME = Path(os.environ["DURABLE_TEST_HOME"])
PAUSE = float(os.environ.get("DURABLE_TEST_PAUSE", "0.01"))
HELD = os.environ.get("DURABLE_TEST_HELD", "none")
"""Prefix of the names of acts that wait for a file `go` after they are noted, so that no later act starts."""
runs = Runs(os.environ["DURABLE_TEST_URL"])


def effects() -> sqlite3.Connection:
    """Open the database that tools act on: a key acts once, and each attempt is noted."""
    world = sqlite3.connect(HOME / "world.db", timeout=60, isolation_level=None)
    world.execute("PRAGMA synchronous=OFF")
    world.execute("CREATE TABLE IF NOT EXISTS acts (key TEXT PRIMARY KEY, run TEXT, what TEXT, at REAL)")
    world.execute("CREATE TABLE IF NOT EXISTS attempts (key TEXT, run TEXT, pid INTEGER, at REAL, attempt TEXT)")
    return world


def act(what: str, context: ToolContext[None]) -> None:
    """Act once per key, as a tool does that respects the key."""
    world, key, run = effects(), context.idempotency_key, current_run()
    attempt = f"{os.getpid()}-{0 if run is None else id(run.writer)}"
    try:
        noted = key, context.run_id, os.getpid(), time.time(), attempt
        world.execute("INSERT INTO attempts VALUES (?, ?, ?, ?, ?)", noted)
        time.sleep(PAUSE)
        while what.startswith(HELD) and not (HOME / "go").exists():
            time.sleep(0.02)
        world.execute("INSERT OR IGNORE INTO acts VALUES (?, ?, ?, ?)", (key, context.run_id, what, time.time()))
    finally:
        world.close()


@tool
def look(name: str, context: ToolContext[None]) -> str:
    """Look for a person."""
    act(f"look {name}", context)
    return f"{name} is there"


@tool
def pay(name: str, context: ToolContext[None]) -> str:
    """Pay a person."""
    act(f"pay {name}", context)
    return f"{name} is paid"


@tool(approval="always")
def refund(name: str, context: ToolContext[None]) -> str:
    """Pay a person back."""
    act(f"refund {name}", context)
    return f"{name} has it back"


@tool(timeout=600)
async def linger(seconds: float, context: ToolContext[None]) -> str:
    """Take long."""
    import asyncio

    act("linger", context)
    await asyncio.sleep(600 if HELD == "lingering" else seconds)
    return "it took long"


def calling(*calls: tuple[str, dict[str, Any], str]) -> Reply:
    asked = [ToolCall(id, name, json.dumps(arguments)) for name, arguments, id in calls]
    return Reply(Message("assistant", tool_calls=tuple(asked)), Usage(10, 2), "tool_calls")


def answering(text: str) -> Reply:
    return Reply(Message("assistant", text), Usage(10, 2))


def cashier_reply(sent: Composition) -> Reply:
    """Look for two people at once, pay Ada and send Bob to the clerk, then answer."""
    time.sleep(PAUSE / 2)
    step = sum(message.role == "assistant" for message in sent.intermediate)
    if step == 0:
        return calling(("look", {"name": "Ada"}, "a"), ("look", {"name": "Bob"}, "b"))
    if step == 1:
        return calling(("pay", {"name": "Ada"}, "c"), ("clerk", {"input": "Bob"}, "d"))
    return answering(f"paid: {sent.user.text}")


def clerk_reply(sent: Composition) -> Reply:
    """Pay, then answer."""
    return answering("done") if len(sent.intermediate) else calling(("pay", {"name": sent.user.text}, "a"))


def head_reply(sent: Composition) -> Reply:
    """Call `look` and two tellers, all at once, then answer."""
    if len(sent.intermediate):
        return answering(f"paid: {sent.user.text}")
    tellers = [("teller", {"input": name}, call) for name, call in (("Ada", "t"), ("Bob", "u"))]
    return calling(("look", {"name": "Ada"}, "a"), *tellers)


def teller_reply(sent: Composition) -> Reply:
    """Call two clerks and `look`, all at once, then answer."""
    if len(sent.intermediate):
        return answering("done")
    name = sent.user.text
    clerks = [("clerk", {"input": whom}, call) for whom, call in ((name, "k"), (f"{name} again", "l"))]
    return calling(*clerks, ("look", {"name": name}, "m"))


def refunder_reply(sent: Composition) -> Reply:
    """Ask for one refund, then answer."""
    if not len(sent.intermediate):
        return calling(("refund", {"name": "Ada"}, "r"))
    return answering(sent.intermediate[-1].text)


def helper_reply(sent: Composition) -> Reply:
    """Look for a person, pay, then answer."""
    step = sum(message.role == "assistant" for message in sent.intermediate)
    asked = [("look", {"name": "Ada"}, "a"), ("pay", {"name": "Ada"}, "b")]
    return calling(asked[step]) if step < len(asked) else answering("done")


def manager_reply(sent: Composition) -> Reply:
    """Call the helper, then answer."""
    if not len(sent.intermediate):
        return calling(("help", {"input": "Ada"}, "h"))
    return answering(sent.intermediate[-1].text)


def lingerer_reply(sent: Composition) -> Reply:
    """Take the requested time, then answer."""
    if not len(sent.intermediate):
        return calling(("linger", {"seconds": float(sent.user.text)}, "l"))
    return answering(sent.intermediate[-1].text)


clerk = Agent(ScriptedModel.repeat(clerk_reply), "You pay.", tools=[pay], name="clerk")
cashier = Agent(
    ScriptedModel.repeat(cashier_reply),
    "You look and pay.",
    tools=[look, pay, clerk.as_tool(name="clerk", description="Pays somebody.")],
    name="cashier",
)
paying = clerk.as_tool(name="clerk", description="Pays somebody.")
teller = Agent(ScriptedModel.repeat(teller_reply), "You have clerks pay.", tools=[look, paying], name="teller")
tells = teller.as_tool(name="teller", description="Has somebody paid.")
head = Agent(ScriptedModel.repeat(head_reply), "You have tellers pay.", tools=[look, tells], name="head")
helper = Agent(ScriptedModel.repeat(helper_reply), "You look, then pay.", tools=[look, pay], name="helper")
manager = Agent(
    ScriptedModel.repeat(manager_reply),
    "You have others help.",
    tools=[helper.as_tool(name="help", description="Helps.")],
    name="manager",
    limits=Limits(tokens=int(os.environ.get("DURABLE_TEST_TOKENS", "1000"))),
)
refunder = Agent(ScriptedModel.repeat(refunder_reply), "You pay back.", tools=[refund], name="refunder")
lingerer = Agent(ScriptedModel.repeat(lingerer_reply), "You take long.", tools=[linger], name="lingerer")
runs.add(cashier)
runs.add(head)
runs.add(refunder, approval_timeout=float(os.environ.get("DURABLE_TEST_APPROVAL", "600")))
runs.add(lingerer)
runs.add(manager)
ACTS = {
    "cashier": ["look Ada", "look Bob", "pay Ada", "pay Bob"],
    "head": [
        "look Ada",
        "look Ada",
        "look Bob",
        "pay Ada",
        "pay Ada again",
        "pay Bob",
        "pay Bob again",
    ],
}
"""Acts that each run performs once."""
INSIDE = {"cashier": ["d"], "head": ["t", "u", "t/k", "t/l", "u/k", "u/l"]}
"""The inner agents of each run, by the path of their calls."""
HISTORIES = {
    "cashier": ["user", "assistant", "tool", "tool", "assistant", "tool", "tool", "assistant"],
    "head": ["user", "assistant", "tool", "tool", "tool", "assistant"],
    "teller": ["user", "assistant", "tool", "tool", "tool", "assistant"],
    "clerk": ["user", "assistant", "tool", "assistant"],
}
"""The roles of messages of each agent."""


def ids_inside(agent: str, run_id: str) -> list[str]:
    """Return the ids of the agents that run inside of a run."""
    found = []
    for calls in INSIDE[agent]:
        own = run_id
        for call in calls.split("/"):
            own = ToolContext(None, own, call).idempotency_key
        found.append(own)
    return found
