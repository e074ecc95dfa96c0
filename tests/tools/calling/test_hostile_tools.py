"""Tools and models that misbehave: each call ends in a typed result, and the agent continues."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, get_args

import pytest
from pydantic import AfterValidator, BaseModel, model_serializer

from agentkit import Agent, Event, Message, Paused, ScriptedModel, Session, ToolCall, ToolFinished
from agentkit.tools import Tool, ToolArgumentError, ToolContext, ToolResult, Toolset, tool
from agentkit.tools.types import ToolStatus


def call_in_agent(*tools: Tool[..., Any] | Callable[..., Any], arguments: str = "{}", **options: Any) -> ToolResult:
    """Call the first tool in a run of an agent that continues after it; return the result of the call."""
    name = tools[0].name if isinstance(tools[0], Tool) else tools[0].__name__
    asks = Message("assistant", tool_calls=(ToolCall("c1", name, arguments),))
    model = ScriptedModel([asks, "It goes on."])
    agent = Agent(model, "x", tools=tools)
    ended: list[ToolResult] = []

    def listen(event: Event) -> None:
        if isinstance(event, ToolFinished):
            ended.append(event.result)

    result = agent.run_sync("go", on_event=listen, **options)
    assert result.output == "It goes on."
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    json.dumps(model.requests[-1].to_openai(), ensure_ascii=False, allow_nan=False).encode()
    [one] = ended
    assert (one.call_id, one.name) == ("c1", name)
    assert one.status in get_args(ToolStatus)
    assert result.messages[2].content == one.content
    return one


# Validators and predicates


def raises(error: BaseException, *, after: int = 0) -> Callable[[int], int]:
    """A validator that passes the first values on."""
    times = iter(range(100))

    def check(value: int) -> int:
        if next(times) >= after:
            raise error
        return value

    return check


@pytest.mark.parametrize("error", [SystemExit(3), RuntimeError("no"), StopIteration("no"), ValueError("no")])
@pytest.mark.parametrize("repair", [False, True])
def test_custom_validators_may_raise_any_exception(error: BaseException, repair: bool) -> None:
    def take(n: int) -> int:
        return n

    for after, retries in ((0, 0), (1, 1)):
        take.__annotations__ = {"n": Annotated[int, AfterValidator(raises(error, after=after))]}
        result = call_in_agent(Tool(take, repair=repair, retries=retries), arguments='{"n": 1}')
        assert (result.status, type(result.error)) == ("error", ToolArgumentError)


@pytest.mark.parametrize("error", [StopIteration("no"), ZeroDivisionError("no")])
def test_a_predicate_that_raises_is_not_an_approval(error: BaseException) -> None:
    ran: list[int] = []

    def pay() -> None:
        ran.append(1)

    def decide(arguments: Mapping[str, Any], context: ToolContext) -> bool:
        raise error

    with pytest.raises(Paused):
        call_in_agent(Tool(pay, approval=decide))
    asked: list[ToolCall] = []

    def agree(call: ToolCall) -> bool:
        asked.append(call)
        return True

    assert call_in_agent(Tool(pay, approval=decide), approve=agree).status == "success"
    assert len(asked) == len(ran) == 1


# Bodies of tools


async def hangs() -> None:
    await asyncio.Event().wait()


async def hangs_and_refuses_to_be_cancelled() -> None:
    while True:
        try:
            await asyncio.sleep(60)
        except BaseException:
            continue


def hangs_in_its_thread() -> None:
    threading.Event().wait(60)


def hangs_and_then_raises() -> None:
    time.sleep(2)
    raise SystemExit(3)


async def hangs_in_items() -> Any:
    yield "first"
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "function",
    [hangs, hangs_and_refuses_to_be_cancelled, hangs_in_its_thread, hangs_and_then_raises, hangs_in_items],
)
def test_a_tool_that_hangs_is_a_timeout(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkit_tools.calling.deadline._GRACE", 0.05)
    assert call_in_agent(tool(timeout=0.1)(function)).status == "timeout"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def itself() -> Exception:
    error = ValueError("a circle")
    error.__cause__ = error.__context__ = error
    return error


@pytest.mark.parametrize("where", ["thread", "loop"])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("x" * 10_000), "error"),
        (Unspeakable(), "error"),
        (ExceptionGroup("deep", [ExceptionGroup("er", [Unspeakable()])]), "error"),
        (StopIteration("s"), "error"),
        (StopAsyncIteration("s"), "error"),
        (asyncio.CancelledError("c"), "cancelled"),
        (MemoryError(), "error"),
        (RecursionError(), "error"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\ud800"), "error"),
        (itself(), "error"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_any_exception_is_a_result(where: str, error: BaseException, status: str) -> None:
    def in_a_thread() -> None:
        raise error

    async def in_the_loop() -> None:
        raise error

    result = call_in_agent(in_a_thread if where == "thread" else in_the_loop)
    assert result.status == status
    assert len(str(result.content)) < 3_000


@pytest.mark.parametrize("error", [SystemExit(1), SystemExit("x" * 10_000), KeyboardInterrupt()])
def test_an_exception_that_ends_a_thread_ends_only_the_call_in_it(error: BaseException) -> None:
    def leaves() -> None:
        raise error

    result = call_in_agent(leaves)
    assert (result.status, result.error) == ("error", error)
    assert len(str(result.content)) < 3_000


def kill(error: type[BaseException] = SystemExit) -> None:
    """Set an exception in the thread of this code, from another thread."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(error))


def test_a_tool_that_kills_its_thread_is_answered_and_the_next_tool_runs() -> None:
    def kills_itself() -> None:
        kill()
        while True:
            time.sleep(0.001)

    def kills_its_thread() -> str:
        kill()
        return "gone"

    for _ in range(3):
        assert call_in_agent(kills_itself).status == "error"
        assert call_in_agent(kills_its_thread).status in ("error", "success")
    assert call_in_agent(tool(lambda_like)).content == "alive"


def lambda_like() -> str:
    return "alive"


def test_endless_recursion_is_an_error() -> None:
    def deeper() -> Any:
        return deeper()

    assert "RecursionError" in str(call_in_agent(deeper).content)


def test_a_hundred_megabytes_of_output_go_to_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(io.StringIO):
        written = 0

        def write(self, text: str) -> int:
            self.written += len(text)
            return len(text)

    def prints() -> str:
        for _ in range(100):
            print("x" * (1 << 20))
        return "printed"

    counting = Counting()
    monkeypatch.setattr(sys, "stdout", counting)
    assert call_in_agent(prints).content == "printed"
    assert counting.written > 100 << 20


def test_a_tool_that_changes_its_arguments_changes_no_other_object() -> None:
    given = '{"items": [1, {"a": 2}]}'

    def spoils(items: list[Any]) -> str:
        items[1]["a"] = "changed"
        items.clear()
        return "spoilt"

    def foreign(**arguments: Any) -> str:
        arguments["items"].clear()
        arguments.clear()
        return "spoilt"

    described = Tool.from_json_schema("described", "", {"properties": {"items": {"type": "array"}}}, foreign)
    for one in (tool(spoils), tool(retries=1)(spoils), described):
        asks = Message("assistant", tool_calls=(ToolCall("c1", one.name, given),))
        result = Agent(ScriptedModel([asks, "done"]), "x", tools=[one]).run_sync("go")
        assert result.messages[2].text == "spoilt"
        assert result.messages[1].tool_calls[0].arguments == given


def test_a_retry_gets_the_original_arguments() -> None:
    seen: list[list[int]] = []

    @tool(retries=2, backoff=0)
    def spoils(items: list[int]) -> str:
        seen.append(list(items))
        items.clear()
        raise ValueError("again")

    assert call_in_agent(spoils, arguments='{"items": [1, 2]}').status == "error"
    assert seen == [[1, 2]] * 3


# Results of tools


class Silent:
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Liar:
    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("no class")


class Endless(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise RuntimeError("no item")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no keys")

    def __len__(self) -> int:
        return 1


class Loud(str):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    def isascii(self) -> bool:
        raise RuntimeError("no letters")

    def encode(self, *_: Any) -> bytes:
        raise RuntimeError("no bytes")


class Refusing(BaseModel):
    @model_serializer
    def refuse(self) -> Any:
        raise SystemExit("no fields")


@dataclasses.dataclass
class Node:
    next: Any = None


def circle_of_lists() -> Any:
    made: list[Any] = []
    made.append(made)
    return made


def circle_of_dicts() -> Any:
    made: dict[str, Any] = {}
    made["self"] = [made]
    return made


def circle_of_nodes() -> Any:
    made = Node()
    made.next = Node(made)
    return made


def deep() -> Any:
    made: Any = 0
    for _ in range(100_000):
        made = [made]
    return made


class Interrupting:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise KeyboardInterrupt


ODD: list[Callable[[], Any]] = [
    object,
    lambda: lambda: None,
    lambda: sys,
    lambda: open(os.devnull),  # noqa: SIM115, PTH123
    lambda: threading.Lock(),
    lambda: (item for item in [1]),
    lambda: type,
    Silent,
    lambda: [Silent()],
    lambda: {Silent(): 1},
    lambda: {1: {2: {3: object()}}},
    lambda: {(1, 2): 3},
    lambda: {float("nan"): float("inf")},
    lambda: float("nan"),
    lambda: 10**5_000,
    lambda: [10**5_000],
    lambda: complex(1, 2),
    Liar,
    Endless,
    lambda: [Endless()],
    lambda: Loud("loud"),
    lambda: [Loud("loud")],
    Refusing,
    Interrupting,
    circle_of_lists,
    circle_of_dicts,
    circle_of_nodes,
    deep,
    lambda: "\ud800",
    lambda: ["\udfff"],
    lambda: {"\ud800": 1},
    lambda: b"\xff\xfe",
    lambda: "x" * 1_000_000,
    lambda: ["x" * 1_000_000],
    lambda: "\0\x1b[31m",
    lambda: Unspeakable(),
    lambda: {1, "a", None},
    lambda: {frozenset([1]), 2},
    lambda: NotImplemented,
    lambda: ...,
    lambda: ToolResult("other", "other", "x", "error"),
    lambda: ToolResult("", "", None),  # type: ignore[arg-type]
    lambda: ToolResult("", "", 5, "nonsense"),  # type: ignore[arg-type]
    lambda: ToolResult("", "", (Silent(),)),  # type: ignore[arg-type]
    lambda: ToolResult("", "", "y" * 1_000_000),
    lambda: ToolResult("", "", "\ud800"),
]


@pytest.mark.parametrize("where", ["thread", "loop"])
def test_any_returned_value_is_a_result(where: str) -> None:
    failures: list[int] = []
    for number, make in enumerate(ODD):

        def in_a_thread() -> Any:
            return make()  # noqa: B023

        async def in_the_loop() -> Any:
            return make()  # noqa: B023

        result = call_in_agent(in_a_thread if where == "thread" else in_the_loop)
        if len(str(result.content)) >= 110_000:
            failures.append(number)
    assert failures == []


def test_an_invalid_tool_result_is_an_error_that_names_the_problem() -> None:
    def answers() -> ToolResult:
        return ToolResult("", "", "fine", "nonsense")  # type: ignore[arg-type]

    assert "status 'nonsense' is not one of success, error," in str(call_in_agent(answers).content)


@pytest.mark.parametrize("item", [lambda: "x" * 1_000, lambda: object(), lambda: {"a": 1}, lambda: Silent()])
def test_endless_items_end_at_the_size_limit(item: Callable[[], Any]) -> None:
    async def endless() -> Any:
        while True:
            yield item()

    def endless_in_a_thread() -> Any:
        while True:
            yield item()

    assert call_in_agent(tool(max_result_chars=10_000)(endless)).status in ("too_large", "error")
    assert call_in_agent(tool(max_result_chars=10_000)(endless_in_a_thread)).status in ("too_large", "error")


# Calls back


def test_a_tool_may_run_another_agent_in_the_loop_and_in_a_thread() -> None:
    inner = Agent(ScriptedModel.repeat("inner"), "x")

    async def in_the_loop() -> str:
        return (await inner.run("a")).output + inner.run_sync("b").output

    def in_a_thread() -> str:
        return inner.run_sync("a").output + asyncio.run(inner.run("b")).output

    assert call_in_agent(in_the_loop).content == call_in_agent(in_a_thread).content == "innerinner"


def test_a_call_back_into_the_session_of_the_run_is_an_error_and_not_a_deadlock() -> None:
    session = Session()
    model = ScriptedModel([Message("assistant", tool_calls=(ToolCall("c", "back", "{}"),)), "It goes on."])

    @tool
    async def back() -> str:
        return (await agent.run("inside", session=session)).output

    agent: Agent[Any, Any] = Agent(model, "x", tools=[back])
    result = agent.run_sync("go", session=session)
    assert result.output == "It goes on."
    assert "SessionBusy" in result.messages[2].text
    assert [message.role for message in session.conversation] == ["user", "assistant", "tool", "assistant"]


def test_an_endless_recursion_through_the_agent_ends() -> None:
    runs = 0

    @tool
    def again() -> str:
        nonlocal runs
        runs += 1
        return agent.run_sync("again").output

    asks = Message("assistant", tool_calls=(ToolCall("c", "again", "{}"),))
    model = ScriptedModel.repeat(lambda sent: asks if sent.messages[-1].role == "user" else sent.messages[-1].text)
    agent: Agent[Any, Any] = Agent(model, "x", tools=[again])
    assert "nested runs" in agent.run_sync("go").output
    assert runs == 9


# Calls of the model

DEEP = 10_000
ARGUMENTS = [
    '{"value": ' + "[" * DEEP + "]" * DEEP + "}",
    '{"a":' * DEEP + "1" + "}" * DEEP,
    '{"value": ' + "[" * DEEP,
    '{"value": "' + "[" * DEEP + '"}',
    '{"value": 1, "value": [2]}',
    '{"value": NaN}',
    '{"value": [Infinity, -Infinity]}',
    '{"value": 1e999}',
    '{"value": ' + "9" * 5_000 + "}",
    '{"value": ' + "9" * 100_000 + "}",
    '{"value": -' + "9" * 100_000 + ".5}",
    '{"value": 1e' + "9" * 1_000 + "}",
    '{"value": 0.' + "0" * 100_000 + "1}",
    '{"value": "\\ud800"}',
    '{"value": "\\udc00\\ud800"}',
    '{"value": "\ud800"}',
    '{"\ud800": 1}',
    '{"\\ud800": 1}',
    '{"value": "\0"}',
    "\ufeff{}",
    "{" + ",".join(f'"k{n}": {n}' for n in range(5_000)) + "}",
    '{"value": ' + json.dumps("x" * 2_000_000) + "}",
    '{"self": 1, "cls": 2, "context": 3, "__class__": 4, "value": 5}',
    '{"value": {"__class__": "os.system", "__proto__": {}}}',
    "null",
    "[]",
    '"{}"',
    "'" * 100_000,
    '"' + "\\" * 100_001,
    "\ud800" * 1_000,
]


def echo(value: Any = None) -> str:
    return type(value).__name__


def count(value: int | list[int] = 0) -> str:
    return type(value).__name__


def anything(**value: Any) -> str:
    return str(len(value))


async def described(**arguments: Any) -> str:
    return str(len(arguments))


RECURSIVE = {
    "properties": {"value": {"$ref": "#/$defs/v"}},
    "$defs": {"v": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/v"}}]}},
}
TAKERS = {
    "any": tool(echo),
    "typed": tool(count),
    "open": tool(anything),
    "repaired": tool(repair=True)(echo),
    "asked": tool(approval=lambda arguments, context: len(str(arguments)) < 0, retries=1)(echo),
    "strict": tool(count).strict(),
    "described": Tool.from_json_schema("described", "", {"properties": {"value": {}}}, described),
    "recursive": Tool.from_json_schema("described", "", RECURSIVE, described, repair=True),
    "cached": Toolset([echo]).cached()[0],
}


@pytest.mark.parametrize("taker", TAKERS)
def test_any_call_of_a_model_has_a_short_answer(taker: str) -> None:
    failures: list[str] = []
    for arguments in ARGUMENTS:
        result = call_in_agent(TAKERS[taker], arguments=arguments)
        if result.status not in ("success", "error", "denied") or len(str(result.content)) >= 20_000:
            failures.append(f"{arguments[:80]!r}: {result!r:.200}")
    assert failures == []


@pytest.mark.parametrize("approval", ["always", lambda arguments, context: False])
async def test_a_repeated_key_is_refused_by_a_tool_that_can_need_approval(approval: Any) -> None:
    @tool(approval=approval, repair=True)
    async def pay(value: int, more: Any = None) -> str:
        return str(value)

    twice = (
        '{"value": 1, "value": 1000}',
        '{"value": 1, "v\\u0061lue": 1000}',
        '{"value": 1, "more": [{"a": 1, "b": {}, "a": 2}]}',
        '{"value": 1, "more": ' + "9" * 5_000 + ', "value": 1000}',
        '{"value": 1, "more": 1e400, "value": 1000}',
        "{'value': 1, 'value': 1000}",
        '```json\n{"value": 1, "value": 1000}\n```',
        json.dumps('{"value": 1, "value": 1000}'),
    )
    for arguments in twice:
        call = ToolCall("c", "pay", arguments)
        assert not await pay.needs_approval(call, ToolContext(None)), arguments
        assert (await pay.call(call, ToolContext(None, approved=True))).status == "error", arguments
