"""Code of agents that raises any exception: its call fails, or its run, and the server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Message, OutputSpec, Runs, ScriptedModel, ToolCall, tool
from agentkit.memory import Memory
from agentkit.prompts import BasePrompt, Example, ExamplesPrompt, Layers
from agentkit.prompts.example_selectors import KeywordSelector
from tests.effort import thinned, unless_fresh
from tests.server.serving_agents import Client, ended, served


class Panic(BaseException):
    """A panic of Rust code, as pyo3 raises it."""


class Unreadable(Exception):
    """An exception whose attributes cannot be read."""

    def __getattribute__(self, name: str) -> Any:
        if name == "usage":
            raise Panic(name)
        return super().__getattribute__(name)


ERRORS: dict[str, Callable[[], BaseException]] = {
    "panic": lambda: Panic("called `Option::unwrap()` on a `None` value"),
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "closed": GeneratorExit,
    "cancelled": asyncio.CancelledError,
    "group": lambda: BaseExceptionGroup("two", [Panic("one"), SystemExit(3)]),
    "stop": lambda: StopIteration("no"),
}


def failing(error: Callable[[], BaseException]) -> Callable[..., Any]:
    def run(value: Any = None) -> Any:
        raise error()

    return run


def failing_later(error: Callable[[], BaseException]) -> Callable[..., Any]:
    async def run(value: Any = None) -> Any:
        await asyncio.sleep(0)
        raise error()

    return run


def failing_task(error: Callable[[], BaseException]) -> Callable[..., Any]:
    async def run() -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(failing_later(error)())

    return run


def script() -> ScriptedModel:
    call = Message("assistant", tool_calls=(ToolCall("c1", "act", "{}"),))
    return ScriptedModel([call, "went on"] * 10)


def tool_of(function: Callable[..., Any], **policy: Any) -> Any:
    return tool(name="act", description="Act.", **policy)(function)


def broken_prompt(run: Callable[..., Any]) -> BasePrompt:
    class Broken(BasePrompt):
        def render(self, ctx: Any) -> Any:
            return run()

    return Broken()


def broken_selectors(run: Callable[..., Any]) -> Layers:
    class Broken(KeywordSelector):
        async def select(self, query: Any, examples: Any) -> Any:  # type: ignore[override]
            await asyncio.sleep(0)
            return run()

    prompts = [ExamplesPrompt(examples=[Example(input=str(n), output="x")], selector=Broken(1)) for n in range(2)]
    return Layers(prompts)


class BrokenModel(ScriptedModel):
    run: Callable[..., Any]

    async def request(self, *_: Any, **__: Any) -> Any:
        await asyncio.sleep(0)
        return self.run()


def broken_model(run: Callable[..., Any]) -> BrokenModel:
    model = BrokenModel(["x"] * 10)
    model.run = run
    return model


TOOLS: dict[str, Callable[[Callable[[], BaseException]], dict[str, Any]]] = {
    "thread": lambda error: {"tools": [tool_of(failing(error))]},
    "coroutine": lambda error: {"tools": [tool_of(failing_later(error))]},
    "retried": lambda error: {"tools": [tool_of(failing_later(error), retries=1, backoff=0)]},
    "task": lambda error: {"tools": [tool_of(failing_task(error))]},
}
PARTS: dict[str, Callable[[Callable[[], BaseException]], dict[str, Any]]] = {
    "recall": lambda error: {"memory": failing(error)},
    "validator": lambda error: {"output": OutputSpec(str, output_validator=failing(error))},
    "async validator": lambda error: {"output": OutputSpec(str, output_validator=failing_later(error))},
    "prompt": lambda error: {"instructions": broken_prompt(failing(error))},
    "selectors": lambda error: {"layers": broken_selectors(failing(error))},
    "model": lambda error: {"model": broken_model(failing(error))},
}


def agents(executor: str) -> list[Agent[Any, Any]]:
    """Return an agent per part and exception; an agent per part for durable runs, because each polls four queues."""
    parts = [(name, part) for name, part in {**TOOLS, **PARTS}.items() if name != "task"]
    pairs = [(part, kind) for part in parts for kind in ERRORS][:: unless_fresh(5, 2)]
    if executor == "dbos":
        pairs = thinned(list(zip(parts, cycle(ERRORS))), 3)
    # A task that ends with `SystemExit` would stop the event loop.
    pairs += [(("task", TOOLS["task"]), "exit"), (("prompt", PARTS["prompt"]), "unreadable")]
    return [
        Agent(
            **{
                "model": script(),
                **part({**ERRORS, "unreadable": Unreadable}[kind]),
                "name": f"{place}-{kind}".replace(" ", "_"),
            }
        )
        for (place, part), kind in pairs
    ]


def problems_of(client: Client, agent: str) -> list[str]:
    """Use an agent through all endpoints; return the problems."""
    is_tool = agent.partition("-")[0] in TOOLS
    expected_status, expected_state = (200, "finished") if is_tool else (500, "failed")
    problems = []
    run = client.post("/runs", {"agent": agent, "input": "x", "session": agent}).json()["id"]
    record = ended(client, run)
    if record["status"] != expected_state or bool(record["error"]) == is_tool:
        problems.append(f"{agent}: run {record['status']} {record['error']}")
    kinds = [event["event"] for event in client.events(f"/runs/{run}/events")]
    if kinds[-2:] != [f"run_{expected_state}", "end"]:
        problems.append(f"{agent}: events {kinds}")
    if client.post(f"/runs/{run}/cancel").json()["status"] != expected_state:
        problems.append(f"{agent}: cancel")
    messages = [{"role": "user", "content": "x"}]
    for path, body in (("chat/completions", {"messages": messages}), ("responses", {"input": "x"})):
        for stream in (False, True):
            answer = client.post(f"/v1/{path}", {"model": agent, "stream": stream, **body})
            is_error = answer.status_code == 500 and answer.json()["error"]["code"] == "internal_error"
            if answer.status_code != expected_status or is_error == is_tool:
                problems.append(f"{agent}: {path} {stream} {answer.status_code} {answer.text[:200]}")
    front_end: dict[str, Any] = {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "1", "role": "user", "content": "x"}],
    }
    front_end |= {"tools": [], "context": [], "state": {}, "forwardedProps": {}}
    answer = client.post(f"/agents/{agent}/ag-ui", front_end)
    if "RUN_FINISHED" not in answer.text and "RUN_ERROR" not in answer.text and answer.status_code != 500:
        problems.append(f"{agent}: AG-UI {answer.status_code} {answer.text[-200:]}")
    return problems


@pytest.mark.parametrize("executor", ["process", "dbos"])
def test_any_exception_ends_its_call_or_its_run_and_the_server_responds(executor: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {}
    crashing = agents(executor)
    with ExitStack() as stack:
        if executor == "dbos":
            pytest.importorskip("dbos", reason="needs the extra `durable`")
            options["runs"] = runs = Runs(f"sqlite:///{tmp_path / 'durable.db'}")
            stack.callback(runs.close)
        memory = stack.enter_context(Memory(tmp_path / "home", scope="local"))
        keeper = Agent(ScriptedModel.repeat("ok"), memory=memory, name="keeper")
        client = stack.enter_context(served(keeper, *crashing, **options))
        problems = [problem for agent in crashing for problem in problems_of(client, agent.name)]
        assert problems == []
