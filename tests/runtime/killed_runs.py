"""Kills runs with SIGKILL at any moment and resumes them from their journals: `python -m tests.runtime.killed_runs N`.

Every run is a separate process. In half of the trials no call is approved: the run pauses, also inside of the agents
that it calls, and continues with decisions. It writes its journal into a file, its messages into SQLite, and the
effects of its tools, by idempotency key, into a file that outlives it. Prints the differences from an undisturbed run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agentkit import (
    Agent,
    Approved,
    Composition,
    Document,
    Message,
    Paused,
    Reply,
    ScriptedModel,
    ToolContext,
    Usage,
    tool,
)
from agentkit.errors import JournalError
from agentkit.memory import Memory
from tests.runtime.scripts import calling

QUESTION = "Pay Ada and Bob."


def reply(sent: Composition) -> str | Message:
    """Answer by the calls that are done, so that a resumed run gets the same answers as an undisturbed run."""
    step = sum(message.role == "assistant" for message in sent.intermediate)
    if step == 0:
        return calling(("look", {"name": "Ada"}, "a"), ("look", {"name": "Bob"}, "b"))
    if step == 1:
        return calling(("pay", {"name": "Ada"}, "c"), ("look", {"name": "Eve"}, "d"), text="Now I pay.")
    if step == 2:
        return calling(
            ("clerk", {"input": "Bob"}, "e"), ("clerk", {"input": "Eve"}, "f"), ("pay", {"name": "Kim"}, "g")
        )
    return "All are paid."


def reply_of_clerk(sent: Composition) -> str | Message:
    """Answer for the agent that pays a person: it pays half of the amount and calls another agent for the rest."""
    step = sum(message.role == "assistant" for message in sent.intermediate)
    name = sent.user.text
    if step == 0:
        return calling(("look", {"name": name}, "a"), ("pay", {"name": name}, "b"), ("teller", {"input": name}, "c"))
    return f"{name} is paid."


def reply_of_teller(sent: Composition) -> str | Message:
    """Answer for the agent that pays the rest."""
    name = sent.user.text
    return f"{name} has the rest." if len(sent.intermediate) else calling(("pay", {"name": f"{name} the rest"}, "a"))


def counting(script: Callable[[Composition], str | Message]) -> ScriptedModel:
    """Return a model that answers by a script, and counts tokens."""

    def answer(sent: Composition) -> Reply:
        said = script(sent)
        message = said if isinstance(said, Message) else Message("assistant", said)
        return Reply(message, Usage(10, 1), "tool_calls" if message.tool_calls else "stop")

    return ScriptedModel.repeat(answer)


def agent_in(folder: Path) -> Agent:
    """Return an agent whose tools note each call in a file."""

    def note(what: str, context: ToolContext[None]) -> str:
        with (folder / "done").open("a") as file:
            file.write(f"{what} {context.idempotency_key}\n")
        return f"{what}: done"

    @tool
    async def look(name: str, context: ToolContext[None]) -> str:
        """Look up a person."""
        return note(f"look {name}", context)

    @tool(approval="always")
    def pay(name: str, context: ToolContext[None]) -> str:
        """Pay a person."""
        return note(f"pay {name}", context)

    def find(query: str) -> list[Document]:
        return [Document("Ada and Bob are owed 5 each.", id="debts")]

    teller = Agent(counting(reply_of_teller), "You pay.", tools=[pay], name="teller")
    tools = [look, pay, teller.as_tool(name="teller", description="Pays the rest.")]
    clerk = Agent(counting(reply_of_clerk), "You pay.", tools=tools, name="clerk")
    tools = [look, pay, clerk.as_tool(name="clerk", description="Pays somebody.")]
    return Agent(counting(reply), "You pay people.", tools=tools, memory=find, name="payer")


def perform(folder: Path, kill: Callable[[], None], *, pauses: bool) -> None:
    """Run or resume, as long as the process lives; at the end write the result."""
    journal = folder / "journal"
    agent = agent_in(folder)
    with Memory(folder / "memory") as memory:
        session = memory.session("s")
        kill()
        given: dict[str, Approved] = {}
        while True:
            approve = None if pauses else lambda call: Approved()
            try:
                result = agent.resume_sync(journal, session=session, approve=given or approve)
            except (JournalError, FileNotFoundError):  # not even the first line was written
                assert journal.exists() is False or journal.read_bytes().count(b"\n") == 0
                journal.unlink(missing_ok=True)
                with suppress(Paused):
                    agent.run_sync(QUESTION, journal=journal, run_id="the run", session=session, approve=approve)
            except Paused as paused:
                given = {call.id: Approved() for call in paused.calls}
            else:
                break
        found = {
            "output": result.output,
            "messages": [[message.role, message.text] for message in result.messages],
            "kept": [[message.role, message.text] for message in session.refresh()],
            "usage": result.usage.input_tokens,
        }
    (folder / "finding").write_text(json.dumps(found))
    (folder / "finding").rename(folder / "found")  # complete or not written


def killer(chance: random.Random) -> Callable[[], None]:
    """Return the function that kills the process: at a moment by the clock, or around a write to disk."""

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def by_the_clock() -> None:
        seconds = chance.uniform(0, 0.15)
        threading.Thread(target=lambda: (time.sleep(seconds), die()), daemon=True).start()

    def by_a_write() -> None:
        write, left, before = os.fsync, [chance.randrange(64)], chance.random() < 0.5

        def fsync(file: int) -> None:
            left[0] -= 1
            if left[0] < 0 and before:
                die()
            write(file)
            if left[0] < 0:
                die()

        os.fsync = fsync

    return chance.choice([by_the_clock, by_a_write])


def forked(work: Callable[[], None]) -> bool:
    """Run in a separate process; return True if the process was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), f"a run failed: {status}"
    return status == signal.SIGKILL


def trial(folder: Path, chance: random.Random) -> tuple[dict[str, object], list[str], int]:
    """Kill a run up to four times, let it end, and return its result, the effects of its tools, and the kills."""
    kills, pauses = 0, chance.random() < 0.5
    for _ in range(chance.randrange(1, 5)):
        kills += forked(lambda: perform(folder, killer(chance), pauses=pauses))
        if (folder / "found").exists():
            break
    if not (folder / "found").exists():
        assert not forked(lambda: perform(folder, lambda: None, pauses=pauses))
    return json.loads((folder / "found").read_text()), (folder / "done").read_text().splitlines(), kills


def main(trials: int, seed: int) -> int:
    """Return the number of trials that differed from an undisturbed run, or repeated a finished call."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "plain").mkdir()
        perform(root / "plain", lambda: None, pauses=False)  # before the forks, which then have all modules
        wanted = json.loads((root / "plain" / "found").read_text())
        done = set((root / "plain" / "done").read_text().splitlines())
        wrong = kills = again = 0
        for number in range(trials):
            folder = root / str(number)
            folder.mkdir()
            found, calls, killed = trial(folder, random.Random(f"{seed}:{number}"))
            kills += killed
            again += len(calls) - len(done)
            # A call in progress when its process died is repeated with the same key: once per kill at most.
            if found != wanted or set(calls) != done or len(calls) - len(done) > 5 * killed:
                wrong += 1
                print(f"trial {number} of seed {seed}: {found} {calls}", file=sys.stderr)
        print(json.dumps({"trials": trials, "kills": kills, "calls made again": again, "wrong": wrong}))
        return wrong


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
