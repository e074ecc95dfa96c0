"""Types that type checkers must infer. Checked by `./scripts/check`, never run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, assert_type

from pydantic import BaseModel

from agentkit import (
    Agent,
    AskAgain,
    Chain,
    Event,
    Limits,
    OutputSpec,
    RunFinished,
    RunResult,
    ScriptedModel,
    Session,
    SessionProtocol,
    Tool,
    ToolContext,
    tool,
)
from agentkit.durable import RunHandle, Runs
from agentkit.memory import Memory
from agentkit.models import Model
from agentkit.prompts import BasePrompt, Layers, MemoPrompt, Size, Template, TextPrompt, WrapPrompt
from agentkit.run.engine.run_stream import RunStream, SyncRunStream


class City(BaseModel):
    name: str


@dataclass
class Db:
    url: str


@tool
def count(table: str, context: ToolContext[Db]) -> int:
    """Count rows."""
    assert_type(context.deps, Db)
    return len(table)


@tool(timeout=3)
async def fetch(url: str) -> str:
    """Fetch a page."""
    return url


@tool
def look(context: ToolContext[Db], table: str) -> str:
    """Show a table."""
    return table


@tool
def visit(context: ToolContext[int]) -> int:
    """Count visits."""
    return context.deps


def plain(text: str) -> str:
    """Return it."""
    return text


async def agents(model: Model) -> None:
    text = Agent(model, "x")
    assert_type(text, Agent[None, str])
    assert_type(text.run_sync("hi"), RunResult[str])
    assert_type((await text.run("hi")).output, str)

    typed = Agent(model, "x", tools=[count, fetch, plain], output=City, deps=Db)
    assert_type(typed, Agent[Db, City])
    assert_type(typed.run_sync("hi", deps=Db("sqlite://")).output, City)
    assert_type(typed.run_sync("hi", deps=Db("sqlite://")).output.name, str)
    typed.run_sync("hi", deps="wrong")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    typed.run_sync("hi", deps=Db("sqlite://"), tools=[look, fetch])
    typed.run_sync("hi", tools=[visit])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]

    without_deps: Agent = Agent(model, tools=[fetch, plain])
    assert_type(without_deps.run_sync("hi"), RunResult[str])
    without_deps = Agent(model, tools=[look])  # type: ignore[list-item]  # pyright: ignore[reportAssignmentType, reportArgumentType]

    # The deps of tools whose first parameter is the context are checked.
    assert_type(Agent(model, tools=[look]), Agent[Db, str])
    assert_type(Agent(model, tools=[fetch, look, plain], deps=Db), Agent[Db, str])
    assert_type(Agent(model, tools=[fetch, plain, partial(plain, "x"), City], deps=int), Agent[int, str])
    Agent(model, tools=[look], deps=int)  # type: ignore[misc]  # pyright: ignore[reportArgumentType, reportCallIssue]
    Agent(model, "x", tools=[visit], deps=Db)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    Agent(Chain(model), tools=[look], deps=int)  # type: ignore[misc]  # pyright: ignore[reportArgumentType, reportCallIssue]
    Agent(model, output=City, tools=[look], deps=int)  # type: ignore[misc]  # pyright: ignore[reportArgumentType, reportCallIssue]
    Agent(model, tools=[look, visit], deps=Db)  # type: ignore[list-item]  # pyright: ignore[reportArgumentType, reportCallIssue]

    only_deps = Agent(model, deps=Db)
    assert_type(only_deps, Agent[Db, str])
    assert_type(Agent(model, output=list[int]).run_sync("hi").output, list[int])


async def chains(model: Model) -> None:
    assert_type(Chain(model, "x"), Chain[str])
    chain = Chain(model, "x", output=City)
    assert_type(chain, Chain[City])
    assert_type(await chain.run("hi"), City)
    assert_type(Agent(chain), Agent[None, City])
    assert_type(Agent(chain, deps=Db), Agent[Db, City])


class Line(BaseModel):
    text: str


def book(flight: str) -> City:
    """Book a flight."""
    return City(name=flight)


async def book_later(flight: str) -> City:
    """Book a flight."""
    return City(name=flight)


def check(city: City, context: ToolContext[Db]) -> City:
    """Check a city."""
    raise AskAgain(f"another one than {city.name}")


async def outputs(model: Model) -> None:
    assert_type(Agent(model, output=City | Line), Agent[None, City | Line])
    assert_type(Agent(model, output=City | Line).run_sync("hi").output, City | Line)
    assert_type(Agent(model, output=City | None, deps=Db), Agent[Db, City | None])
    assert_type(Agent(model, output=int | list[str]), Agent[None, int | list[str]])
    assert_type(Agent(model, output=Literal["yes", "no"]), Agent[None, Literal["yes", "no"]])
    assert_type(Agent(model, output=book), Agent[None, City])
    assert_type(Agent(model, output=book_later), Agent[None, City])
    assert_type(OutputSpec(City | Line, mode="tool"), OutputSpec[City | Line])
    spec = OutputSpec(City, mode="prompted", output_validator=check)
    assert_type(Agent(model, output=spec, limits=Limits(repairs=1)), Agent[None, City])
    assert_type(Agent(model, output=OutputSpec(book_later)), Agent[None, City])
    assert_type(Chain(model, output=City | Line), Chain[City | Line])
    assert_type(await Chain(model, output=spec).run("hi"), City)
    OutputSpec(City, mode="magic")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def events(model: Model) -> None:
    stream = Agent(model, output=City).stream("hi")
    assert_type(stream, RunStream[Event[City]])
    async for event in stream:
        if isinstance(event, RunFinished):
            assert_type(event.result.output, City)
    assert_type(Agent(model, output=City).stream_sync("hi"), SyncRunStream[Event[City]])

    def listen(event: Event) -> None:
        """Listen to the events of any agent."""

    Agent(model, output=City).run_sync("hi", on_event=listen)
    Agent(model).run_sync("hi", on_event=listen)


def tools() -> None:
    assert_type(count("users", ToolContext(Db(""))), int)
    assert_type(fetch.policy.timeout, float | None)
    some: Tool = count
    functions: list[Callable[..., object]] = [plain, some]
    Agent(ScriptedModel([]), tools=functions)


def sessions(memory: Memory) -> None:
    both: list[SessionProtocol] = [Session(), memory.session("s")]
    Agent(ScriptedModel([])).run_sync("hi", session=both[0])


async def durable(model: Model, runs: Runs, memory: Memory) -> None:
    agent = Agent(model, output=City)
    handle = await agent.start("hi", run_id="r1", session=memory.session("s"), tenant="t", priority=1, delay=3)
    assert_type(handle, RunHandle[City])
    await agent.start("hi", model=model)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await agent.start("hi", on_event=print)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await agent.map(["hi"], name="m", out="m.jsonl", tenant=str, concurrency=3)
    await agent.map(["hi"], name="m", out="m.jsonl", delay=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await runs.start(agent, "hi", tenant="t")
    await runs.start(agent, "hi", model=model)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await runs.schedule(agent, "hi", name="n", cron="0 6 * * 1", tenant="t")
    await runs.schedule(agent, "hi", name="n", cron="0 6 * * 1", delay=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await agent.run("hi", delay=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


class House(MemoPrompt):
    """A custom prompt with a custom field."""

    style: str
    depth: int = 3


def prompts() -> None:
    assert_type(TextPrompt("text").template, Template)
    TextPrompt(Template("x"), name="greeting", fence=True, size=Size(max=3))
    TextPrompt(template={"en": "x"})
    MemoPrompt()
    MemoPrompt(fense=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    MemoPrompt(fence="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    TextPrompt()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    House("{{ documents | length }}", style="plain", depth=4, name="house")
    House(style="plain", dept=4)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    House()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(House(style="x").model_copy(update={"style": "y"}), House)
    wrap = WrapPrompt(["text", MemoPrompt(), Template("{{ now }}")], "<{{ wrapped_str }}>")
    assert_type(wrap.wrapped_prompts, tuple[BasePrompt, ...])
    Layers("Be brief.", before_input=[wrap, "text"], after_input=MemoPrompt(), history=Size(max=9, cut="items"))
    Layers(sytem="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
