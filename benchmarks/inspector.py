"""The inspector with a stored session of 1,000 turns, each a separate run: kB sent and time until it is usable.

The server is a separate process. Chromium (or the browser in `CHROMIUM`) opens the page with an empty cache, at the
last turn and at a turn in the middle. The page is usable when it displays the list of turns and the prompt of the turn;
the time starts at the first request. An empty page of the same server measures the start of the browser.

A list of 100,000 stored runs is compared with a list of ten runs, without a server and a browser.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import sqlalchemy as sa
from harness import Figure, main
from playwright.sync_api import Browser, sync_playwright

from agentkit.models.model import Usage
from agentkit.prompts import UserInput
from agentkit.runs.run_database import runs_table
from agentkit.runs.run_record import RunError, RunRecord, RunsWanted
from agentkit.runs.run_rows import run_row
from agentkit.runs.run_store import RunStore

TURNS = 1_000
RUNS = 100_000
_SERVER = """
import sys
from pathlib import Path
from random import Random

from agentkit import Agent, ScriptedModel
from agentkit.memory import Memory, Scope
from agentkit.prompts import UserInput
from agentkit.server.http_app import Server
from agentkit.runs.run_record import RunRecord
from agentkit.runs.run_store import RunStore
from agentkit.server.serving import uvicorn_server

folder, turns = Path(sys.argv[1]), int(sys.argv[2])
random = Random(1)
words = ["".join(random.choices("etaoinshrdlu", k=random.randint(2, 9))) for _ in range(4_000)]
text = lambda maximum: " ".join(random.choices(words, k=random.randint(8, maximum)))
memory = Memory(folder / "home").within(Scope("local"))
store = RunStore(folder / "runs.db")
agent = Agent(ScriptedModel.repeat(lambda sent: text(200)), "You are brief.", name="a", memory=memory)
session = memory.within(Scope("local", session="long")).session("long")  # a session of a request without a user
for at in range(turns):
    question, run_id = text(40), random.randbytes(16).hex()
    done = agent.run_sync(question, session=session, run_id=run_id)
    record = RunRecord(
        run_id=run_id, tenant="local", agent="a", state="finished", created_at=at, updated_at=at, session="long",
        input=UserInput(question), output=done.output, finish_reason="stop",
    )
    store.add(record, done.journal.dumps())
from starlette.responses import HTMLResponse
from starlette.routing import Route

server = Server([agent], store=store)
empty = HTMLResponse("<!doctype html><title>empty</title><link rel=icon href=/inspector/mark.svg><p id=empty>Empty</p>")
server.app.router.routes.insert(0, Route("/empty", lambda request: empty))
running = uvicorn_server(server, port=0)
running.on_ready = lambda: print(running.port, flush=True)
running.run()
"""
_USABLE = """() => {
  const look = () => {
    const turn = document.querySelector('[role=option][aria-selected=true]:not(.pending)');
    if (turn && document.querySelector('.message .piece')) window.usable ??= performance.now();
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true, attributes: true });
}"""
_SENT = """() => performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))
  .reduce((sum, entry) => sum + entry.encodedBodySize, 0)"""


def _load_session(browser: Browser, address: str) -> tuple[float, float, float]:
    """Return milliseconds until the page is usable, CPU milliseconds of its renderer, and kB sent."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.add_init_script(f"({_USABLE})()")
    measures = context.new_cdp_session(page)
    measures.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(address)
    page.locator("[role=option][aria-selected=true]:not(.pending)").wait_for()
    page.locator(".message .piece").first.wait_for()
    metrics = {metric["name"]: metric["value"] for metric in measures.send("Performance.getMetrics")["metrics"]}
    page.wait_for_load_state("networkidle")
    result = page.evaluate("window.usable"), metrics["TaskDuration"] * 1000, page.evaluate(_SENT) / 1000
    context.close()
    return result


def _load_empty_page(browser: Browser, address: str) -> float:
    """Return the milliseconds of loading an empty page."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(address)
    milliseconds: float = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    context.close()
    return milliseconds


def _stored_runs(folder: Path, count: int) -> RunStore:
    """Return a store with runs of two agents and fifty users; every thousandth run failed."""
    store = RunStore(folder / f"{count}.db")
    for start in range(0, count, 2_000):
        rows = [run_row(_run(at)) for at in range(start, min(count, start + 2_000))]
        store.database.work(lambda connection, rows=rows: connection.execute(sa.insert(runs_table), rows))
    return store


def _run(at: int) -> RunRecord:
    has_failed = at % 1_000 == 3
    return RunRecord(
        run_id=f"r{at}",
        tenant="local",
        agent="ab"[at % 2],
        user=f"u{at % 50}",
        state="failed" if has_failed else "finished",
        error=RunError("ModelError", "refused") if has_failed else None,
        created_at=at,
        updated_at=at + at % 97,
        input=UserInput(f"Where is parcel {at}?"),
        output="x" * 500,
        usage=Usage(at % 991, at % 13, 0, at * 7 % 1009 / 100),
    )


def _list_milliseconds(stores: list[RunStore], rounds: int, wanted: RunsWanted) -> list[float]:
    """Return the CPU milliseconds of one part of the list of each store, the best of the rounds."""
    times: list[list[float]] = [[] for _ in stores]
    # In turn, so that other processes of the machine slow down all stores.
    for _ in range(max(rounds, 30)):
        for store, measured in zip(stores, times, strict=True):
            begun = time.process_time()
            store.listed(wanted)
            measured.append(time.process_time() - begun)
    return [min(measured) * 1000 for measured in times]


def runs(rounds: int) -> Iterable[Figure]:
    """Read ten rows of a list of 100,000 runs, and of a list of ten runs."""
    with tempfile.TemporaryDirectory() as folder:
        few, many = [_stored_runs(Path(folder), count) for count in (10, RUNS)]
        for order in ("newest", "longest", "tokens", "cost"):
            wanted = RunsWanted(tenant="local", order=order, limit=10, is_short=True)
            small, large = _list_milliseconds([few, many], rounds, wanted)
            title = f"list of {RUNS:,} runs, {order}"
            yield Figure(title, "ten runs", small, "ms")
            yield Figure(title, f"{RUNS:,} runs", large, "ms", large / small)
        # A filter without a match examines the maximum of runs.
        (longest,) = _list_milliseconds([many], rounds, RunsWanted(tenant="local", text="nowhere", order="cost"))
        yield Figure(f"list of {RUNS:,} runs, no match", "CPU time of a part", longest, "ms")
        few.close()
        many.close()


def session(rounds: int) -> Iterable[Figure]:
    """Open the session at the last turn and at a turn in the middle."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([sys.executable, "-c", _SERVER, folder, str(TURNS)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
                empty = [_load_empty_page(browser, f"http://127.0.0.1:{port}/empty") for _ in range(rounds + 1)][1:]
                yield Figure("inspector, an empty page", "loaded, median", statistics.median(empty), "ms")
                for position, path in (("last turn", "long"), ("turn 500", "long/499")):
                    address = f"http://127.0.0.1:{port}/inspector/#/session/{path}"
                    _load_session(browser, address)  # warm
                    times, cpu_times, sizes = zip(
                        *[_load_session(browser, address) for _ in range(rounds)], strict=True
                    )
                    title = f"inspector, {position}"
                    median = statistics.median(times)
                    yield Figure(title, "usable, best", min(times), "ms")
                    yield Figure(title, "usable, median", median, "ms")
                    yield Figure(title, "renderer CPU", statistics.median(cpu_times), "ms")
                    yield Figure(title, "sent", max(sizes), "kB")
                browser.close()
        finally:
            process.terminate()
            process.wait(60)


if __name__ == "__main__":
    main(__doc__, {"session": session, "runs": runs})
