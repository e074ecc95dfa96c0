"""Tenant and user for whom a run acts, and deps that are created for them."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from agentkit import Agent, Paused, RunCaller, ScriptedModel, Session, ToolCall, ToolContext, UserInput, tool
from agentkit.errors import AgentDefinitionError, AgentError, DepsError, DepsMismatch, ScopeMismatch
from agentkit.memory import Memory, Scope
from tests.raising import raises
from tests.runtime.scripts import calling
from tests.waiting import LONG


@tool
def whoami(context: ToolContext) -> str:
    """Return the caller."""
    kwargs = dict(context.additional_kwargs)
    return f"{context.tenant}|{context.user}|{context.session}|{kwargs}|{context.scope.names}"


def seen(**options: Any) -> str:
    """Return the text of `whoami` in a run with options."""
    memory = options.pop("memory", None)
    agent = Agent(ScriptedModel([calling("whoami"), "ok"]), "x", tools=[whoami], memory=memory)
    user_input = UserInput("Hi", additional_kwargs=options.pop("kwargs", {}))
    return next(message.text for message in agent.run_sync(user_input, **options).messages if message.role == "tool")


def test_tools_receive_the_caller_of_the_run(tmp_path: Path) -> None:
    with Memory(tmp_path, scope="acme") as memory:
        ada = memory.within(Scope("acme", user="ada"))
        cases: list[tuple[dict[str, Any], str]] = [
            ({}, "local|||{}|('local', '', '', '')"),
            ({"user": "ada"}, "local|ada||{}|('local', 'ada', '', '')"),
            ({"tenant": "acme", "user": "ada"}, "acme|ada||{}|('acme', 'ada', '', '')"),
            ({"scope": Scope("acme", agent="desk")}, "acme|||{}|('acme', '', '', 'desk')"),
            ({"session": Session("s1"), "user": "bob"}, "local|bob|s1|{}|('local', 'bob', '', '')"),
            ({"memory": memory, "user": "ada"}, "acme|ada||{}|('acme', 'ada', '', '')"),
            ({"memory": memory, "session": ada.session("s2")}, "acme|ada|s2|{}|('acme', 'ada', '', '')"),
            ({"session": ada.session("s3"), "user": "ada"}, "acme|ada|s3|{}|('acme', 'ada', '', '')"),
            ({"memory": ada}, "acme|ada||{}|('acme', 'ada', '', '')"),
            *[
                ({"memory": memory, **names}, "acme|local||{}|('acme', 'local', '', '')")
                for names in ({}, {"scope": "acme"}, {"tenant": "acme"}, {"user": "local"})
            ],
            (
                {"memory": memory, "session": memory.session("s4"), "scope": "acme"},
                "acme|local|s4|{}|('acme', 'local', '', '')",
            ),
            ({"kwargs": {"shop": "zurich"}}, "local|||{'shop': 'zurich'}|('local', '', '', '')"),
        ]
        for options, expected in cases:
            assert seen(**options) == expected, options


def test_different_names_of_the_caller_are_refused_before_any_request(tmp_path: Path) -> None:
    with Memory(tmp_path, scope="acme") as memory:
        ada = memory.within(Scope("acme", user="ada"))
        cases: list[dict[str, Any]] = [
            {"session": ada.session("s"), "user": "bob"},
            {"session": ada.session("s"), "tenant": "other"},
            {"session": ada.session("s"), "scope": Scope("acme")},
            {"scope": Scope("acme", user="ada"), "user": "bob"},
            {"memory": memory, "tenant": "other"},
            {"memory": ada, "user": "bob"},
        ]
        for options in cases:
            with pytest.raises(ScopeMismatch):
                print(options, seen(**options))


def test_the_context_of_a_tool_without_a_run_has_no_scope() -> None:
    context = ToolContext(None, tenant="acme", user="ada")
    assert (context.tenant, context.user, context.session, context.additional_kwargs) == ("acme", "ada", "", {})
    with pytest.raises(LookupError):
        print(context.scope)


def test_an_agent_as_a_tool_acts_for_the_user_of_the_outer_run(tmp_path: Path) -> None:
    with Memory(tmp_path / "shop") as shop, Memory(tmp_path / "manuals", scope="manuals") as manuals:
        for name, memory, scope in (
            ("no memory", None, ("acme", "ada", "", "")),
            ("same store", shop, ("acme", "ada", "", "")),
            ("another store and tenant", manuals, ("manuals", "", "", "")),
        ):
            scopes: list[Any] = []
            inner = Agent(ScriptedModel([calling("whoami"), "ok"]), "x", tools=[whoami], memory=memory, name="inner")
            recall = inner.with_changes(memory=_Recorded(memory, scopes)) if memory is not None else inner
            ask = recall.as_tool(name="ask", description="Ask.")
            outer = Agent(
                ScriptedModel([calling(("ask", {"input": "Who?"})), "ok"]),
                "x",
                tools=[ask],
                memory=shop.within(Scope("acme")),
            )
            journal = outer.run_sync("Hi", user="ada").journal
            inner_journal = next(iter(journal.inner.values()))
            text = next(message.text for message in inner_journal.messages if message.role == "tool")
            assert text == "acme|ada||{}|('acme', 'ada', '', '')", name
            assert scopes in ([], [scope]), name


class _Recorded:
    """A memory that records the scope of each recall."""

    def __init__(self, memory: Memory, scopes: list[Any]) -> None:
        self._memory, self._scopes = memory, scopes
        self.scope, self._store = memory.scope, memory._store

    def within(self, scope: Scope) -> _Recorded:
        return _Recorded(self._memory.within(scope), self._scopes)

    def recall(self, query: str) -> Any:
        self._scopes.append(self.scope.names)
        return self._memory.recall(query)


# Deps


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name


@tool
def shop(context: ToolContext[Shop]) -> str:
    """Return the shop."""
    return context.deps.name


@tool(approval="always")
def pay(context: ToolContext[Shop]) -> str:
    """Pay."""
    return context.deps.name


closed: list[str] = []


def _sync(caller: RunCaller) -> Shop:
    return Shop(f"{caller.tenant}/{caller.user}/{caller.session}/{caller.agent}")


async def _async(caller: RunCaller) -> Shop:
    return _sync(caller)


def _generator(caller: RunCaller) -> Iterator[Shop]:
    try:
        yield _sync(caller)
    finally:
        closed.append(caller.user)


async def _async_generator(caller: RunCaller) -> AsyncIterator[Shop]:
    try:
        yield _sync(caller)
    finally:
        await asyncio.sleep(0)
        closed.append(caller.user)


class _Method:
    def create(self, caller: RunCaller) -> Shop:
        return _sync(caller)


class _OfCaller(Shop):
    def __init__(self, caller: RunCaller) -> None:
        super().__init__(_sync(caller).name)


@functools.wraps(_sync)
def _wrapped(*args: Any) -> Shop:
    return Shop(_sync(*args).name + "!")


def test_deps_are_created_for_the_caller_of_each_run() -> None:
    for function, cleans_up in (
        (_sync, False),
        (_async, False),
        (_generator, True),
        (_async_generator, True),
        (contextmanager(_generator), True),
        (asynccontextmanager(_async_generator), True),
        (_Method().create, False),
        (functools.partial(lambda prefix, caller: _sync(caller), "x"), False),
        (_OfCaller, False),
    ):
        closed.clear()
        agent = Agent(ScriptedModel([calling("shop"), "ok"]), "x", tools=[shop], name="desk").with_deps(function)
        result = agent.run_sync("Hi", tenant="acme", user="ada", session=Session("s"))
        assert result.messages[2].text == "acme/ada/s/desk", function
        assert closed == ["ada"] * cleans_up, function


def test_a_wrapper_of_a_function_is_called() -> None:
    agent = Agent(ScriptedModel([calling("shop"), "ok"]), "x", tools=[shop], name="desk").with_deps(_wrapped)
    assert agent.run_sync("Hi").messages[2].text == "local///desk!"


def test_an_object_is_the_deps_of_all_runs_and_deps_of_a_run_take_precedence() -> None:
    agent = Agent(ScriptedModel.repeat(calling("shop"), "ok"), "x", tools=[shop]).with_deps(Shop("own"))
    assert agent.run_sync("Hi").messages[2].text == "own"
    assert agent.run_sync("Hi", deps=Shop("passed")).messages[2].text == "passed"
    assert agent.with_changes(instructions="y").run_sync("Hi").messages[2].text == "own"
    database = sqlite3.connect(":memory:")
    assert Agent(ScriptedModel(["ok"]), "x").with_deps(database).run_sync("Hi").output == "ok"
    database.execute("SELECT 1")  # a manager that is not from a generator is not entered


def test_an_agent_as_a_tool_gets_its_deps_or_the_deps_of_the_outer_run() -> None:
    callers: list[RunCaller] = []

    class Depot:
        def __init__(self, caller: RunCaller) -> None:
            callers.append(caller)

    @tool
    def stock(context: ToolContext[Depot]) -> str:
        """Count."""
        return type(context.deps).__name__

    model = ScriptedModel.repeat(calling("stock"), "ok")
    shared = Agent(model, "x", tools=[stock], name="inner")
    for inner, deps, agent in ((shared.with_deps(Depot), _sync, "inner"), (shared, Depot, "outer")):
        callers.clear()
        ask = inner.as_tool(name="ask", description="Asks.")
        script = ScriptedModel([ToolCall(name="ask", arguments={"input": "Hi"}), "done"])
        outer = Agent(script, "x", tools=[ask], name="outer").with_deps(deps)
        outer.run_sync("Hi", tenant="acme", user="ada", permissions=["run"])
        assert model.requests[-1].messages[-1].text == "Depot"
        assert [(each.tenant, each.user, each.permissions, each.agent) for each in callers] == [
            ("acme", "ada", frozenset({"run"}), agent)
        ]
    outer = Agent(ScriptedModel(["not sent"]), "x", tools=[shared.as_tool(name="ask", description="Asks.")])
    with raises(DepsMismatch):
        outer.run_sync("Hi")
    with raises(DepsMismatch):
        outer.run_sync("Hi", deps=Shop("x"))


def test_deps_that_cannot_be_created_end_the_run_before_any_request(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit.run.parts.deps_source._SECONDS", 0.05)
    released = Event()

    def raises_error(error: BaseException) -> Callable[[RunCaller], Shop]:
        def fails(caller: RunCaller) -> Shop:
            raise error

        return fails

    async def fails_async(caller: RunCaller) -> Shop:
        raise SystemExit("password=secret")

    def empty(caller: RunCaller) -> Iterator[Shop]:
        yield from ()

    def yields_number(caller: RunCaller) -> Iterator[int]:
        yield 5

    def hangs(caller: RunCaller) -> Shop:
        released.wait(LONG)
        return Shop("late")

    async def hangs_async(caller: RunCaller) -> Shop:
        await asyncio.sleep(LONG)
        return Shop("late")

    errors = (ConnectionError, SystemExit, asyncio.CancelledError, StopIteration, AgentError, BaseException)
    functions: list[Callable[..., Any]] = [raises_error(error("password=secret")) for error in errors]
    functions += [fails_async, empty, yields_number, hangs, hangs_async]
    functions += [lambda caller: 5, lambda caller: None, lambda caller: Shop]
    for function in functions:
        caplog.clear()
        model, session = ScriptedModel(["never"]), Session()
        agent = Agent(model, "x", tools=[shop], name="desk").with_deps(function)
        with pytest.raises(DepsError) as caught:
            agent.run_sync("Hi", session=session)
        assert not model.requests and not len(session.conversation)
        assert "the deps of the agent desk failed" in caplog.text, function
        (record,) = caplog.records
        if function in (hangs, hangs_async):
            assert "did not return within 0.05 seconds" in record.getMessage() and "\n" not in record.getMessage()
        elif function in functions[-3:]:
            assert "deps of type Shop, got" in record.getMessage() and "\n" not in record.getMessage()
        else:
            # The traceback has the frames of the program, and commands print the cause in a line.
            assert record.getMessage().count("deps_source.py") <= 1, record.getMessage()
            assert "\n" not in record.summary and record.summary.count("failed: ") == 1, record.summary  # type: ignore[attr-defined]
        # As a tool, whose result a model and the client of an MCP server read.
        tool_of_agent = agent.as_tool(name="desk", description="Answers.")
        result = asyncio.run(tool_of_agent.call(ToolCall("c", "desk", '{"input": "Hi"}'), ToolContext(None, "r", "c")))
        assert not result.ok
        for text in (str(caught.value), result.message.text):
            assert "secret" not in text and "Shop" not in text, function
    released.set()


def test_a_failing_cleanup_does_not_change_the_outcome(caplog: pytest.LogCaptureFixture) -> None:
    def broken(caller: RunCaller) -> Iterator[Shop]:
        yield Shop("open")
        raise ConnectionError("gone")

    def swallowing(caller: RunCaller) -> Iterator[Shop]:
        with suppress(Paused):
            yield Shop("open")

    agent = Agent(ScriptedModel([calling("shop"), "ok"]), "x", tools=[shop]).with_deps(broken)
    assert agent.run_sync("Hi").output == "ok"
    assert "gone" in caplog.text
    paying = Agent(ScriptedModel([calling("pay"), "ok"]), "x", tools=[pay]).with_deps(swallowing)
    with pytest.raises(Paused) as paused:
        paying.run_sync("Hi")
    # Deps are created again when the run is resumed.
    assert paying.resume_sync(paused.value.journal, approve=lambda call: True).output == "ok"


def test_deps_that_no_caller_can_be_passed_to_are_refused() -> None:
    for function in (lambda: Shop("x"), lambda a, b: a, lambda *, caller: caller):
        with raises(AgentDefinitionError, name="deps"):
            Agent(ScriptedModel(["never"]), "x").with_deps(function)
    with raises(DepsMismatch, name="deps"):
        Agent(ScriptedModel(["never"]), "x", tools=[shop]).with_deps("text")


def test_a_resumed_run_acts_for_the_same_user() -> None:
    agent = Agent(ScriptedModel([calling("pay"), "ok"]), "x", tools=[pay], name="desk").with_deps(_sync)
    with pytest.raises(Paused) as paused:
        agent.run_sync("Hi", tenant="acme", user="ada")
    result = agent.resume_sync(paused.value.journal, approve=lambda call: True)
    assert result.messages[2].text == "acme/ada//desk"
