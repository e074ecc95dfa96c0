"""Kills evaluations of agents at random times, and counts lost rows and calls that were asked again without need.

A process evaluates rows whose runs ask the model, call a tool and ask again. It is killed, and another process
continues with the same file, until all rows have an outcome. A ledger has each request to the model and each act of
the tool. A call whose result was stored before a kill must not be asked again; a call in flight is asked again, with
the same idempotency key of the tool. With `--database`, a worker executes the runs, and one of both is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from agentkit import Agent, Composition, Journal, Reply, ScriptedModel, ToolCall, ToolContext, tool
from agentkit.evals import evaluate_sync, exact, read_report

ROWS = 12
FAULTS = ("lost", "wrong", "asked again", "acted again", "other key")
MAX_KILLS = 12
"""Maximum number of kills of one evaluation."""
HOME = Path()
"""Folder of the current evaluation."""


def note(*entry: Any) -> None:
    """Add a line to the ledger, in one write, which survives a kill."""
    number = os.open(HOME / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(number, f"{json.dumps(entry)}\n".encode())
    os.close(number)


def ledger() -> list[list[Any]]:
    if not (HOME / "ledger").exists():
        return []
    return [json.loads(line) for line in (HOME / "ledger").read_text().splitlines()]


class SlowModel(ScriptedModel):
    """Model that notes each request, and replies after some milliseconds."""

    async def request(self, composition: Composition, *, on_delta: Any = None) -> Reply:
        texts = [message.text for message in composition.messages]
        row, step = texts[1], sum(message.role == "assistant" for message in composition.messages)
        note("ask", row, step)
        await asyncio.sleep(random.random() * 0.01)
        return await super().request(composition, on_delta=on_delta)


def reply(composition: Any) -> Any:
    if composition.messages[-1].role == "tool":
        return composition.messages[1].text
    return ToolCall(name="act", arguments={"row": composition.messages[1].text})


@tool
async def act(row: str, context: ToolContext) -> str:
    """Act."""
    note("act", row, context.idempotency_key)
    await asyncio.sleep(random.random() * 0.01)
    return "done"


def agent() -> Agent[Any, Any]:
    return Agent(SlowModel.repeat(reply), "x", tools=[act], name=f"killed-{HOME.name}")


def rows() -> list[dict[str, str]]:
    return [{"input": f"row {number}", "expected": f"row {number}"} for number in range(ROWS)]


def evaluation(url: str | None) -> None:
    evaluate_sync(agent(), rows(), [exact], out=HOME / "out.jsonl", concurrency=5, database=url)


def work(url: str) -> None:
    from agentkit import Runs

    runs = Runs(url)
    runs.add(agent())
    with runs.worker(poll=0.02, lease=1.0, grace=0):
        time.sleep(600)


def forked(function: Callable[[], None]) -> int:
    """Return the id of a process that calls a function."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        random.seed(os.getpid())
        number = os.open(HOME / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(number, 2)
        function()
        code = 0
    finally:
        os._exit(code)


def ended(process: int, seconds: float) -> int | None:
    """Return the exit code of a process; None if it is running after some seconds."""
    end = time.monotonic() + seconds
    while True:
        ended_process, status = os.waitpid(process, os.WNOHANG)
        if ended_process:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.001)


def wait_for_calls(process: int, lines: int) -> None:
    """Wait until a process has ended, or its ledger has more lines, for at most some seconds."""
    end = time.monotonic() + 5
    while time.monotonic() < end and len(ledger()) <= lines and not has_ended(process):
        time.sleep(0.002)


def has_ended(process: int) -> bool:
    """True if a process has ended; its exit code can still be read."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def stored(url: str | None) -> set[tuple[Any, ...]]:
    """Return the calls whose results are stored."""
    calls: set[tuple[Any, ...]] = set()
    for journal in journals(url):
        row = journal.context.user_input.text
        counts = Counter(entry.effect for entry in journal.entries)
        calls |= {("ask", row, step) for step in range(counts["CallModel"])}
        if counts["CallTools"]:
            calls.add(("act", row))
    return calls


def journals(url: str | None) -> Iterator[Journal]:
    if url is None:
        for path in (HOME / "out.jsonl.runs").glob("*.jsonl"):
            if b"\n" in path.read_bytes():
                yield Journal.read(path)
        return
    from agentkit import Runs

    async def read() -> list[Journal]:
        runs = Runs(url)
        records = await runs.list_runs(agent=agent().name, limit=1000)
        stored_journals = [await runs.handle(run.run_id).journal() for run in records]
        runs.close()
        return stored_journals

    yield from asyncio.run(read())


def campaign(url_of: Callable[[Path], str | None], kills: int, seed: int) -> dict[str, int]:
    """Kill evaluations until there were enough kills, and return the counts."""
    global HOME
    counts: Counter[str] = Counter(dict.fromkeys(("kills", "evaluations", "in flight", *FAULTS), 0))
    chance = random.Random(seed)
    while counts["kills"] < kills:
        with tempfile.TemporaryDirectory() as folder:
            HOME = Path(folder)
            one_evaluation(url_of(HOME), kills, counts, chance)
        counts["evaluations"] += 1
    return dict(counts)


def one_evaluation(url: str | None, kills: int, counts: Counter[str], chance: random.Random) -> None:
    killed, seen, done = 0, 0, set[tuple[Any, ...]]()
    begun: set[tuple[Any, ...]] = set()
    worker = None
    if url is not None:
        worker = forked(lambda: work(url))
    process = forked(lambda: evaluation(url))
    while True:
        wait = 600.0
        if killed < MAX_KILLS and counts["kills"] < kills:
            wait = chance.uniform(0, 0.15) if worker is None else chance.uniform(0, 1)
            # Most kills are while calls are in flight, and some while the process starts or ends.
            if chance.random() < 0.8:
                wait_for_calls(process, len(ledger()))
        code = ended(process, wait)
        if code is not None:
            if code:
                raise RuntimeError((HOME / "stderr").read_text()[-3000:])
            break
        if worker is not None and chance.random() < 0.5:
            kill(worker)
        else:
            kill(process)
            process = 0
        killed += 1
        counts["kills"] += 1
        # The results first: a worker that is alive stores further results after this line.
        results = stored(url)
        seen = count_again(seen, done, begun, counts)
        done = results
        if process:
            assert url is not None
            worker = forked(lambda: work(url))
        else:
            process = forked(lambda: evaluation(url))
    if worker is not None:
        kill(worker)
    count_again(seen, done, begun, counts)
    report = read_report(HOME / "out.jsonl")
    counts["lost"] += ROWS - len(report.outcomes)
    counts["wrong"] += sum(outcome.output != outcome.row.expected for outcome in report.outcomes)
    keys: dict[str, set[str]] = {}
    for kind, row, detail in ledger():
        if kind == "act":
            keys.setdefault(row, set()).add(detail)
    counts["other key"] += sum(len(each) > 1 for each in keys.values())


def count_again(seen: int, done: set[tuple[Any, ...]], begun: set[tuple[Any, ...]], counts: Counter[str]) -> int:
    """Count calls after a kill that were stored before the kill; return the number of read lines of the ledger."""
    lines = ledger()
    for kind, row, detail in lines[seen:]:
        call = (kind, row, detail) if kind == "ask" else (kind, row)
        if call in done:
            counts["asked again" if kind == "ask" else "acted again"] += 1
        elif call in begun:
            counts["in flight"] += 1
        begun.add(call)
    return len(lines)


@contextmanager
def postgresql() -> Iterator[str]:
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.postgres import postgres_server

    with tempfile.TemporaryDirectory() as folder, postgres_server(Path(folder)) as address:
        yield address


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument(
        "--database", choices=("sqlite", "postgresql"), help="database of workers that execute the runs"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    start = time.monotonic()
    server = postgresql() if options.database == "postgresql" else nullcontext("")
    with server as address:

        def url_of(home: Path) -> str | None:
            if options.database is None:
                return None
            return address or f"sqlite:///{home / 'runs.db'}"

        counts = campaign(url_of, options.kills, options.seed)
    if options.json:
        print(json.dumps(counts))
        return
    print("  ".join(f"{name} {count}" for name, count in counts.items()), f" {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
