"""Exceptions of tools whose classes refuse or break attributes: each is a failed call, and the run continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from agentkit import Agent, Message, ScriptedModel, ToolCall
from agentkit.tools import tool


@dataclass(frozen=True)
class Frozen(Exception):
    """An exception that refuses all attributes."""

    text: str = "broken"

    def __str__(self) -> str:
        return self.text


class RefusingPanic(BaseException):
    def __setattr__(self, name: str, value: Any) -> None:
        raise ValueError(name)


class Slotted(Exception):
    __slots__ = ("value",)


def broken(*names: str) -> type[Exception]:
    """Return a class whose attributes of these names raise."""

    def read(self: object) -> Any:
        raise ValueError

    return type("Broken", (Exception,), dict.fromkeys(names, property(read)))


class Unreadable(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise ValueError(name)


class _Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        if name == "__name__":
            raise ValueError(name)
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=_Nameless):
    pass


class Untraceable(Exception):
    def with_traceback(self, traceback: Any) -> Any:
        raise ValueError


ERRORS: dict[str, type[BaseException]] = {
    **{"Frozen: broken": Frozen, "RefusingPanic": RefusingPanic, "Slotted": Slotted, "Untraceable": Untraceable},
    **{f"Broken, {name}": broken(name) for name in ("__class__", "__traceback__", "__cause__", "__context__")},
    **{"Unreadable, ": Unreadable, "Nameless, ": Nameless, "Broken": broken("args")},
}


def tools_of(error: type[BaseException]) -> list[Any]:
    def thread() -> str:
        raise error

    async def coroutine() -> str:
        await asyncio.sleep(0)
        raise error

    async def generator() -> AsyncIterator[str]:
        yield "part"
        raise error

    async def retried() -> str:
        raise error

    return [tool(thread), tool(coroutine), tool(generator), tool(retries=1, backoff=0)(retried)]


async def test_an_exception_that_refuses_its_attributes_is_a_failed_call() -> None:
    problems = []
    for name, error in ERRORS.items():
        tools = tools_of(error)
        calls = tuple([ToolCall(tool.name, tool.name, "{}") for tool in tools])
        script: list[Any] = [Message("assistant", tool_calls=calls), "continued"]
        result = await Agent(ScriptedModel(script), tools=tools).run("x")
        texts = [message.text for message in result.messages if message.role == "tool"]
        expected = name.partition(",")[0]
        if result.output != "continued" or not all(expected in text and "failed" in text for text in texts):
            problems.append((name, result.output, texts))
    assert problems == []
