"""The inspector with 100,000 runs, the newest of 5,000 steps, against an inspector with ten runs of ten steps.

Two servers run in separate processes, and Chromium (or the browser in `CHROMIUM`) opens the same pages of both in turn,
with an empty cache. A step is a model call that calls a tool. A page is usable when its first row, event or piece of a
prompt is displayed; a list also when a click on its first row has displayed the timeline of the run. The last figures
are the CPU times of the longest tasks of the main thread while a list is scrolled.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import sqlalchemy as sa
from harness import Figure, main
from playwright.sync_api import Browser, Page, sync_playwright

from agentkit import Agent, Limits, Message, ScriptedModel, ToolCall, tool
from agentkit.models.model import Usage
from agentkit.prompts import Composition, UserInput
from agentkit.runs.run_database import runs_table
from agentkit.runs.run_record import RunRecord
from agentkit.runs.run_rows import run_row
from agentkit.runs.run_store import RunStore
from agentkit.server.http_app import Server
from agentkit.server.serving import uvicorn_server

SIZES = {"few": (10, 10), "many": (100_000, 5_000)}
"""Number of runs, and number of steps of the newest run."""
_TIMELINE = ".timeline .event:not(.pending)"
PAGES = {
    "list of runs": ("#/", "#side-list .item"),
    "timeline of a run": ("#/run/long?tab=timeline", _TIMELINE),
    "prompt of a run": ("#/run/long?tab=layers", ".message .piece"),
}
SCROLLERS = {"list of runs": "#side-list", "timeline of a run": "#panel .page", "prompt of a run": ".messages-scroll"}
_WATCH = """
window.when = (selector) => new Promise((resolve) => {
  const look = () => document.querySelector(selector) && resolve(performance.now());
  new MutationObserver(look).observe(document, { childList: true, subtree: true, attributes: true });
  look();
});
"""
_CLICK = """async (shown) => {
  // A user clicks when the list is painted.
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const item = document.querySelector("#side-list .item");
  const begun = performance.now();
  item.click();
  return (await when(shown)) - begun;
}"""
_SCROLL = """async (selector) => {
  const scroller = document.querySelector(selector);
  for (let step = 0; step < 120; step++) {
    scroller.scrollTop += step % 40 === 39 ? scroller.scrollHeight / 4 : 300;
    await new Promise(requestAnimationFrame);
  }
  await new Promise((resolve) => setTimeout(resolve, 500));
}"""


def long_agent(steps: int) -> Agent[None, str]:
    @tool
    def look(name: str) -> str:
        """Look for a person."""
        return f"{name} is there. " * 10

    def reply(sent: Composition) -> Message:
        at = len(sent.intermediate) // 2
        if at < steps - 1:
            call = ToolCall(f"c{at}", "look", f'{{"name": "Person {at}"}}')
            return Message("assistant", "Let me look for the next person.", tool_calls=(call,))
        return Message("assistant", "Everybody is there.")

    limits = Limits(steps=steps)
    return Agent(ScriptedModel.repeat(reply, keep=0), "You look.", tools=[look], name="a", limits=limits)


def serve(folder: Path, count: int, steps: int) -> None:
    """Serve a store of runs until the process ends, and print the port."""
    store = RunStore(folder / "runs.db")
    for start in range(0, count - 1, 2_000):
        rows = [run_row(_run(at)) for at in range(start, min(count - 1, start + 2_000))]
        store.database.work(lambda connection, rows=rows: connection.execute(sa.insert(runs_table), rows))
    agent = long_agent(steps)
    done = agent.run_sync("Who is there?", run_id="long")
    store.add(_run(count, run_id="long", steps=steps, output=done.output), done.journal.dumps())
    running = uvicorn_server(Server([agent], store=store), port=0)
    running.on_ready = lambda: print(running.port, flush=True)
    running.run()


def _run(at: int, *, run_id: str | None = None, steps: int = 1, output: str = "Done.") -> RunRecord:
    return RunRecord(
        run_id=run_id or f"r{at}",
        tenant="local",
        agent="a",
        user=f"u{at % 50}",
        state="failed" if at % 1_000 == 3 else "finished",
        created_at=at,
        updated_at=at + at % 97,
        input=UserInput(f"Where is parcel {at}?"),
        output=output,
        steps=steps,
        usage=Usage(at % 991, at % 13, 0, at * 7 % 1009 / 100),
    )


def _opened(browser: Browser, address: str) -> Page:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.add_init_script(_WATCH)
    page.goto(address)
    return page


def _usable(browser: Browser, port: int, name: str) -> dict[str, float]:
    """Return the milliseconds until a page is usable, and of its reactions."""
    place, shown = PAGES[name]
    page = _opened(browser, f"http://127.0.0.1:{port}/inspector/{place}")
    times = {name: float(page.evaluate("(shown) => when(shown)", shown))}
    if name == "list of runs":
        times["click in the list"] = float(page.evaluate(_CLICK, ".top h1"))
    # The server would otherwise compose the prompt of this page while the next page is measured.
    page.wait_for_load_state("networkidle")
    page.context.close()
    return times


def _longest_task(browser: Browser, port: int, name: str) -> float:
    """Return the CPU milliseconds of the longest task of the main thread while a list is scrolled."""
    place, shown = PAGES[name]
    page = _opened(browser, f"http://127.0.0.1:{port}/inspector/{place}")
    page.evaluate("(shown) => when(shown)", shown)
    page.wait_for_load_state("networkidle")
    # Not `PerformanceObserver`, which measures the time that other processes use too.
    browser.start_tracing(page=page, categories=["toplevel", "disabled-by-default-devtools.timeline"])
    page.evaluate(_SCROLL, SCROLLERS[name])
    events = json.loads(browser.stop_tracing())["traceEvents"]
    page.context.close()
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = [event.get("tdur", 0) for event in events if (event["pid"], event["tid"]) in threads and event["ph"] == "X"]
    return max(tasks) / 1000


def size(rounds: int) -> Iterable[Figure]:
    """Measure both servers in turn; the figures are the best of the rounds."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with ExitStack() as stack:
        ports: dict[str, int] = {}
        for name, numbers in SIZES.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            command = [sys.executable, __file__, "--serve", folder, *map(str, numbers)]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.terminate)
            assert process.stdout is not None
            ports[name] = int(process.stdout.readline())
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        best: dict[tuple[str, str], float] = {}
        for _ in range(rounds + 1):
            for name in PAGES:
                for server, port in ports.items():
                    for page, value in _usable(browser, port, name).items():
                        best[page, server] = min(value, best.get((page, server), value))
        for page in dict.fromkeys(page for page, _ in best):
            few, many = best[page, "few"], best[page, "many"]
            yield Figure(page, "few runs", few, "ms")
            yield Figure(page, "many runs", many, "ms", many / few)
        for name in SCROLLERS:
            longest = min(_longest_task(browser, ports["many"], name) for _ in range(max(1, rounds // 2)))
            yield Figure(f"scrolled {name}", "longest task", longest, "CPU ms")
        browser.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(__doc__, {"size": size})
