"""The first screen of a long run needs only the first lines of its journal."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from typing import Any

import pytest

from agentkit import Agent, Journal, Limits, ScriptedModel, ToolCall, tool
from agentkit.inspector import LocalSource
from agentkit.inspector.answers import compose_answer, run_answer
from agentkit.inspector.page_requests import Base, CompositionRequest
from agentkit.runs.run_record import RunRecord
from agentkit.server import RunStore
from tests.inspector.conftest import Serve
from tests.server.serving_agents import Client, served

sync_api = pytest.importorskip("playwright.sync_api")
expect, Page = sync_api.expect, sync_api.Page
CALLS = 121


@tool
def look(at: int) -> str:
    """Look."""
    return f"found {at}"


def looker() -> Agent[None, str]:
    looks = [ToolCall("", "look", f'{{"at": {at}}}') for at in range(CALLS - 1)]
    return Agent(ScriptedModel([*looks, "Done."]), "You look.", tools=[look], name="looker", limits=Limits(steps=CALLS))


@cache
def journal_text() -> str:
    return looker().run_sync("Look around", run_id="r").journal.dumps()


def stored(text: str) -> RunStore:
    store = RunStore()
    record = RunRecord(
        run_id="r", tenant="local", agent="looker", state="finished", created_at=1.0, updated_at=3.0, steps=CALLS
    )
    store.add(record, text)
    return store


def test_the_beginning_of_a_long_run_is_the_start_of_the_complete_run_in_every_source() -> None:
    source = LocalSource([looker()], runs=[Journal.loads(journal_text())])

    def locally(path: str, body: dict[str, Any]) -> Any:
        if path == "run":
            return asyncio.run(run_answer(source, "r", is_beginning="beginning" in body))
        base = Base(**{"run": "r", **({"step": body["step"]} if "step" in body else {})})
        request = CompositionRequest(base=base, is_beginning=body.get("is_beginning", False))
        return asyncio.run(compose_answer(source, request))

    with served(looker(), store=stored(journal_text())) as client:
        for answer in (locally, lambda path, body: _served(client, path, body)):
            whole, beginning = answer("run", {}), answer("run", {"beginning": "yes"})
            assert whole["journal"]["is_whole"] and not beginning["journal"]["is_whole"]
            assert beginning["journal"]["events"] == whole["journal"]["events"]
            figures = [(run["journal"]["count"], run["journal"]["models"]) for run in (whole, beginning)]
            assert figures == [(2 * CALLS, CALLS), (50, None)]
            early = answer("compose", {"is_beginning": True})
            assert 10 < early["step"] < CALLS
            same = answer("compose", {"step": early["step"]})
            assert (early["view"], early["reply"]) == (same["view"], same["reply"])
            # A call in the first lines is the requested call; a later call is the last call of these lines.
            steps = [answer("compose", {"step": step, "is_beginning": True})["step"] for step in (1, 7, CALLS)]
            assert steps == [1, 7, early["step"]]


def _served(client: Client, path: str, body: dict[str, Any]) -> Any:
    if path == "run":
        answer = client.get("/inspector/api/run", params={"id": "r", **body})
    else:
        base = {"run": "r", "step": body.get("step")}
        is_beginning = body.get("is_beginning", False)
        answer = client.post("/inspector/api/compose", {"base": base, "is_beginning": is_beginning})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_beginning_of_a_long_run_reads_no_later_lines() -> None:
    lines = journal_text().splitlines(keepends=True)
    lines[200] = "damaged\n"
    with served(looker(), store=stored("".join(lines))) as client:
        statuses = [
            (
                client.get("/inspector/api/run", params={"id": "r", **query}).status_code,
                client.post("/inspector/api/compose", {"base": {"run": "r"}, "is_beginning": bool(query)}).status_code,
            )
            for query in ({}, {"beginning": "yes"})
        ]
    assert statuses == [(422, 422), (200, 200)]


class SlowSource(LocalSource):
    """A source whose whole journals are read slowly."""

    def __init__(self, *agents: Agent[Any, Any], **options: Any) -> None:
        super().__init__(agents, **options)
        self.ready = False

    async def run(self, run_id: str, *, lines: int | None = None) -> RunRecord | None:
        while lines is None and not self.ready:
            await asyncio.sleep(0.02)
        return await super().run(run_id, lines=lines)


def test_a_prompt_of_an_early_call_is_shown_until_the_last_prompt_is_composed(page: Page, serve: Serve) -> None:
    source = SlowSource(looker(), runs=[Journal.loads(journal_text())])
    url = serve(source)
    page.goto(f"{url}#/run/r?tab=layers")
    note = page.get_by_role("status").filter(has_text="This is the prompt of model call")
    expect(note).to_contain_text("Composing the prompt of the last model call")
    expect(page.locator(".message .piece").first).to_contain_text("You look.")
    expect(page.locator(".steps")).to_be_hidden()
    # Other tabs show the requested prompt only.
    page.get_by_role("tab", name="Play").click()
    expect(page.get_by_text("Composing the prompt…")).to_be_visible()
    page.get_by_role("tab", name=re.compile("^Timeline")).click()
    expect(page.locator(".facts")).to_contain_text(re.compile(f"Model calls.*{CALLS}"))
    page.get_by_role("tab", name="Layers").click()
    scroller = page.locator(".messages-scroll")
    scroller.evaluate("one => one.scrollTop = 700")
    source.ready = True
    expect(note).to_have_count(0)
    expect(page.get_by_role("radio", name=str(CALLS), checked=True)).to_be_visible()
    assert abs(scroller.evaluate("one => one.scrollTop") - 700) < 100
    # A call in the first lines is shown immediately.
    source.ready = False
    page.goto(f"{url}#/run/r?step=3&tab=layers")
    page.reload()
    expect(page.locator(".message .piece").last).to_contain_text("found 1")
    expect(note).to_have_count(0)
