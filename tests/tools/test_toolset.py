"""Toolsets: the same tools, with other names, policies or wrappers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentkit.prompts import PromptContext, ToolCall
from agentkit.tools import DynamicToolset, Tool, ToolContext, ToolDefinitionError, ToolResult, Toolset, tool
from agentkit.tools.types import Proceed


@tool
async def read(path: str) -> str:
    """Read."""
    return f"read {path}"


@tool
async def write(path: str) -> str:
    """Write."""
    return f"wrote {path}"


def search(q: str) -> str:
    """Search."""
    return q


FILES = Toolset([read, write])


async def ask(made: Tool, path: str = "p", **more: Any) -> ToolResult:
    return await made.call(ToolCall("c", made.name, f'{{"path": "{path}"}}'), ToolContext(None, **more))


def names(tools: Toolset) -> list[str]:
    return [one.name for one in tools]


def test_a_toolset_is_a_sequence_of_tools_and_functions_become_tools() -> None:
    tools = FILES + Toolset([search])
    assert names(tools) == ["read", "write", "search"]
    assert len(tools) == 3
    assert tools[2].description == "Search."
    assert names(tools[:2]) == ["read", "write"]
    assert "search" in tools
    assert read in tools
    assert "nothing" not in tools
    assert repr(tools) == "Toolset(read, write, search)"


def test_all_name_conflicts_are_found_at_construction() -> None:
    with pytest.raises(ToolDefinitionError) as both:
        FILES + Toolset([read.with_changes(description="x"), write.with_changes(description="y")])
    assert both.value.names == ("read", "write")
    with pytest.raises(ToolDefinitionError) as renamed:
        FILES.renamed({"write": "read"})
    assert renamed.value.names == ("read",)
    with pytest.raises(ToolDefinitionError) as twice:
        Toolset([search, search])
    assert twice.value.names == ("search",)
    assert names(FILES + FILES) == ["read", "write"]  # the same tool twice is no conflict


def test_prefix_rename_and_filter() -> None:
    assert names(FILES.prefixed("fs_")) == ["fs_read", "fs_write"]
    assert names(FILES.prefixed("a_") + FILES.prefixed("b_")) == ["a_read", "a_write", "b_read", "b_write"]
    assert names(FILES.renamed({"read": "cat"})) == ["cat", "write"]
    assert names(FILES.renamed(str.upper)) == ["READ", "WRITE"]
    assert names(FILES.filtered(lambda one: one.name != "write")) == ["read"]
    assert names(FILES) == ["read", "write"]


def test_a_prefix_is_added_to_the_original_name_and_not_to_the_mapped_name() -> None:
    dotted = Toolset([read.with_changes(name="fs.read")]).prefixed("x.")
    assert dotted[0].original_name == "x.fs.read"


async def test_approval_and_policy_apply_to_every_tool() -> None:
    assert (await ask(FILES.approved()[1])).status == "denied"
    assert (await ask(FILES.approved(lambda arguments, _: arguments["path"] == "secret")[0])).ok
    assert [one.policy.timeout for one in FILES.with_policy(timeout=3)] == [3, 3]


async def test_a_limit_is_shared_by_the_complete_set_within_a_run() -> None:
    limited = FILES.limited(2)
    one: dict[str, int] = {}
    statuses = [(await ask(made, calls=one)).status for made in (limited[0], limited[1], limited[0])]
    assert statuses == ["success", "success", "denied"]
    assert (await ask(limited[0], calls={})).ok
    assert (await ask(limited[0])).ok


def test_negative_limits_and_sizes_of_caches_are_refused() -> None:
    for wrong in (-1, 1.5, "3", True):
        with pytest.raises(ToolDefinitionError) as limited:
            FILES.limited(wrong)  # type: ignore[arg-type]
        assert limited.value.names == ("calls",)
    for wrong in (0, -1, None):
        with pytest.raises(ToolDefinitionError) as cached:
            FILES.cached(wrong)  # type: ignore[arg-type]
        assert cached.value.names == ("maximum",)


async def test_a_cache_answers_equal_calls_of_the_same_run_only() -> None:
    ran: list[str] = []

    @tool
    async def look(path: str, n: int = 0) -> str:
        ran.append(path)
        if path == "bad":
            raise ValueError("no")
        return path

    made = Toolset([look]).cached(maximum=2)[0]

    async def call(id: str, text: str, run: str = "r") -> ToolResult:
        return await made.call(ToolCall(id, "look", text), ToolContext(None, run, id))

    await call("1", '{"path": "a", "n": 1}')
    again = await call("2", '{"n":1,"path":"a"}')
    assert (again.call_id, again.content, ran) == ("2", "a", ["a"])
    await call("3", '{"path": "a", "n": 1}', run="other")
    assert ran == ["a", "a"]
    await call("4", '{"path": "bad"}')
    await call("5", '{"path": "bad"}')
    assert ran == ["a", "a", "bad", "bad"]
    for path in "bc":
        await call("6", f'{{"path": "{path}"}}')
    await call("7", '{"path": "a", "n": 1}')
    assert ran[-1] == "a"
    assert (await call("8", "{")).status == "error"


async def test_wrappers_nest_and_survive_renaming() -> None:
    seen: list[str] = []

    def note(label: str) -> Any:
        async def around(proceed: Proceed, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
            seen.append(f"{label}>")
            result = await proceed(call, context)
            seen.append(f"<{label}")
            return result

        return around

    made = FILES.wrapped(note("inner")).wrapped(note("outer")).prefixed("x_").with_policy(timeout=5)[0]
    result = await ask(made)
    assert (result.name, result.content) == ("x_read", "read p")
    assert seen == ["outer>", "inner>", "<inner", "<outer"]
    assert await made("p") == "read p"


async def test_a_wrapper_that_fails_ends_in_a_result_too() -> None:
    async def broken(proceed: Proceed, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        raise OSError("broken")

    async def slow(proceed: Proceed, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        await asyncio.sleep(30)
        return await proceed(call, context)

    result = await ask(FILES.wrapped(broken)[0])
    assert (result.status, result.content) == ("error", "read failed: OSError: broken")
    task = asyncio.ensure_future(ask(FILES.wrapped(slow)[0]))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_tools_may_depend_on_the_turn() -> None:
    def compute(context: PromptContext) -> Any:
        return FILES.prefixed("de_") if context.locale == "de" else [read]

    async def later(context: PromptContext) -> Any:
        return compute(context)

    for turn in (DynamicToolset(compute), DynamicToolset(later)):
        assert names(await turn.at(PromptContext(user_input="hi", locale="de"))) == ["de_read", "de_write"]
        assert names(await turn.at(PromptContext(user_input="hi"))) == ["read"]
    assert await FILES.at(PromptContext(user_input="hi")) is FILES
