"""The inspector on a stored session of 1,000 turns, each a run of its own: what is sent, and when it can be used.

The server is a process of its own, and the page is opened in Chromium (`CHROMIUM` names another one), with an empty
cache, at the last turn and at one in the middle. It can be used once the turns are listed and the prompt of the turn is
shown; the time is from the first request on. An empty page of the same server, opened in the same run, says how much of
that is the browser's own start.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable

from harness import Figure, main
from playwright.sync_api import Browser, sync_playwright

TURNS = 1_000
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
text = lambda most: " ".join(random.choices(words, k=random.randint(8, most)))
memory = Memory(folder / "home").within(Scope("local"))
store = RunStore(folder / "runs.db")
agent = Agent(ScriptedModel.repeat(lambda sent: text(200)), "You are brief.", name="a", memory=memory)
session = memory.session("long")
for at in range(turns):
    asked, run_id = text(40), random.randbytes(16).hex()
    done = agent.run_sync(asked, session=session, run_id=run_id)
    record = RunRecord(
        run_id=run_id, tenant="local", agent="a", state="finished", created_at=at, updated_at=at, session="long",
        input=UserInput(asked), output=done.output, finish_reason="stop",
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
  .reduce((sum, one) => sum + one.encodedBodySize, 0)"""


def _opened(browser: Browser, address: str) -> tuple[float, float, float]:
    """Return milliseconds until the page can be used, milliseconds of CPU of its renderer, and kB that were sent."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.add_init_script(f"({_USABLE})()")
    measures = context.new_cdp_session(page)
    measures.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(address)
    page.locator("[role=option][aria-selected=true]:not(.pending)").wait_for()
    page.locator(".message .piece").first.wait_for()
    spent = {one["name"]: one["value"] for one in measures.send("Performance.getMetrics")["metrics"]}
    page.wait_for_load_state("networkidle")
    found = page.evaluate("window.usable"), spent["TaskDuration"] * 1000, page.evaluate(_SENT) / 1000
    context.close()
    return found


def _empty(browser: Browser, address: str) -> float:
    """Return milliseconds until an empty page is loaded."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(address)
    taken: float = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    context.close()
    return taken


def session(rounds: int) -> Iterable[Figure]:
    """Open it at the last turn, and at one in the middle."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([sys.executable, "-c", _SERVER, folder, str(TURNS)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
                empty = [_empty(browser, f"http://127.0.0.1:{port}/empty") for _ in range(rounds + 1)][1:]
                yield Figure("inspector, an empty page", "loaded, median", statistics.median(empty), "ms")
                for where, place in (("last turn", "long"), ("turn 500", "long/499")):
                    address = f"http://127.0.0.1:{port}/inspector/#/session/{place}"
                    _opened(browser, address)  # warm
                    times, spent, sent = zip(*[_opened(browser, address) for _ in range(rounds)], strict=True)
                    what = f"inspector, {where}"
                    median = statistics.median(times)
                    yield Figure(what, "usable, best", min(times), "ms")
                    yield Figure(what, "usable, median", median, "ms", None, "under 300 ms", median < 300)
                    yield Figure(what, "renderer CPU", statistics.median(spent), "ms")
                    yield Figure(what, "sent", max(sent), "kB", None, "under 150 kB", max(sent) < 150)
                browser.close()
        finally:
            process.terminate()
            process.wait(60)


if __name__ == "__main__":
    main(__doc__, {"session": session})
