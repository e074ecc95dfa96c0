"""Failed tool calls: where they are visible, and how they end a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkit import Agent, Journal, Limits, OutputSpec, RunResult, ScriptedModel, Session, Tool, tool
from agentkit.errors import AgentError, ToolCallError
from agentkit.inspector.answers import overview, run_answer
from agentkit.inspector.local_source import LocalSource
from agentkit.run.journal.failed_call import text_without_tracebacks
from agentkit.testing import assert_effects, assert_no_tool_errors, effects
from agentkit.tools import ToolFailure
from agentkit_tools.calling.tool_result import ToolResult
from tests.runtime.scripts import calling, valid


def _raising(error: BaseException | Callable[[], Any], **policy: Any) -> Tool:
    def work(item: str = "") -> Any:
        """Work."""
        if callable(error):
            return error()
        raise error

    return tool(work, **policy)


async def _hang() -> None:
    """Work."""
    await asyncio.Event().wait()


CASES: dict[str, tuple[Tool, str, str, bool]] = {
    # tool, class of the exception, status, True if `on_tool_error="raise"` ends the run
    "bug": (_raising(lambda: {}["x"]), "KeyError", "error", True),
    "failure for the model": (_raising(ToolFailure("sold out", {"left": 0})), "ToolFailure", "error", True),
    "returned failure": (_raising(lambda: ToolFailure("sold out")), "ToolFailure", "error", True),
    "returned result": (_raising(lambda: ToolResult("", "", "no", "error")), "", "error", True),
    "panic": (_raising(BaseException("rust")), "BaseException", "error", True),
    "group": (_raising(ExceptionGroup("two", [OSError("a"), ValueError("b")])), "ExceptionGroup", "error", True),
    "timeout": (Tool(_hang, name="work", description="Work.", timeout=0.01), "TimeoutError", "timeout", True),
    "value without a form": (_raising(lambda: object()), "PydanticSerializationError", "error", True),
    "success": (_raising(lambda: "fine"), "", "success", False),
    "unusable result": (_raising(lambda: ToolResult("", "", "x", "odd")), "ValueError", "error", True),  # type: ignore[arg-type]
    "failed too often": (_raising(OSError("disk"), max_consecutive_failures=1), "OSError", "unavailable", True),
    "lone surrogate": (_raising(ValueError("\ud800")), "ValueError", "error", True),
    "long message": (_raising(ValueError("x" * 100_000)), "ValueError", "error", True),
}


def _run(work: Tool, **options: Any) -> RunResult[Any]:
    return Agent(ScriptedModel([calling("work"), "done"]), tools=[work], **options).run_sync("x")


def test_each_failed_call_is_listed_and_can_end_the_run() -> None:
    for name, (work, exception, status, ends) in CASES.items():
        result = _run(work)
        failed = result.tool_errors
        assert [(call.tool, call.call.id, call.exception_class) for call in failed] == (
            [] if status == "success" else [("work", "id1", exception)]
        ), name
        assert Journal.loads(result.journal.dumps()).tool_errors == failed, name
        assert (f"CallTools(work, {status})" in effects(result)) == bool(failed), name
        for call in failed:
            assert call.message == result.messages[2].text, name
            assert len(call.traceback) < 21_000, name
            assert "function_runner" not in call.traceback, name
            with pytest.raises(AssertionError, match=exception or "failed"):
                assert_no_tool_errors(result)
            with pytest.raises(AssertionError):
                assert_effects(result, [..., "CallTools", ...])
            with pytest.raises(AssertionError):
                assert_effects(result, [..., "CallTools(work)", ...])
        if not ends:
            assert_no_tool_errors(result)
            continue
        with pytest.raises(ToolCallError) as caught:
            _run(work, limits=Limits(on_tool_error="raise"))
        error = caught.value
        assert [call.exception_class for call in error.tool_errors] == [exception], name
        assert error.journal.tool_errors == error.tool_errors, name
        assert valid(error.messages), name
        assert error.usage is not None, name
        assert type(error.__cause__).__name__ == (exception or "NoneType"), name


def test_the_model_may_correct_arguments_and_names_of_tools() -> None:
    @tool
    def look(item: str) -> str:
        """Look."""
        return item

    replies = [calling(("look", {"itm": 1}), "lok"), calling(("look", {"item": "lamp"}, "ok")), "done"]
    result = Agent(ScriptedModel(replies), tools=[look], limits=Limits(on_tool_error="raise")).run_sync("x")
    assert sorted(call.exception_class for call in result.tool_errors) == ["", "ToolArgumentError"]
    assert all(not call.traceback for call in result.tool_errors)


def test_denied_calls_are_not_errors() -> None:
    send = Tool(lambda: "sent", name="send", description="Send.", approval="always")
    agent = Agent(ScriptedModel([calling("send"), "ok"]), tools=[send], limits=Limits(on_tool_error="raise"))
    result = agent.run_sync("x", approve=lambda call: False)
    assert_no_tool_errors(result)
    assert_effects(result, [..., "CallTools(send, denied)", ...])


def test_the_other_calls_of_the_reply_finish_and_a_resumed_run_can_continue() -> None:
    done: list[str] = []
    tools = [_raising(ValueError("no")), Tool(lambda: done.append("x"), name="other", description="Other.")]
    session = Session()
    agent = Agent(ScriptedModel([calling("work", "other"), "done"]), tools=tools)
    with pytest.raises(ToolCallError) as caught:
        agent.run_sync("x", session=session, limits=Limits(on_tool_error="raise"))
    assert done == ["x"] and valid(session.conversation)
    journal = Journal.loads(caught.value.journal.dumps())
    with pytest.raises(ToolCallError):
        asyncio.run(agent.resume(journal, session=session, limits=Limits(on_tool_error="raise")))
    assert asyncio.run(agent.resume(journal, session=session)).output == "done"
    assert done == ["x"]


def test_an_answer_that_an_output_function_refuses_is_repaired() -> None:
    def total(number: int) -> int:
        """Set the total."""
        if number < 0:
            raise ValueError("negative")
        return number

    replies = [calling(("total", {"number": -1})), calling(("total", {"number": 2}))]
    spec = OutputSpec(total)
    result = Agent(ScriptedModel(replies), output=spec, limits=Limits(on_tool_error="raise")).run_sync("x")
    assert result.output == 2


def test_calls_of_an_agent_that_runs_as_a_tool_are_listed() -> None:
    inner = Agent(ScriptedModel([calling("work"), "inner"]), tools=[_raising(ValueError("no"))], name="inner")
    outer_tool = inner.as_tool(name="ask", description="Ask.")
    result = Agent(ScriptedModel([calling(("ask", {"input": "x"})), "done"]), tools=[outer_tool]).run_sync("x")
    assert [(call.call.id, call.tool) for call in result.tool_errors] == [("id1/id1", "work")]
    assert Journal.loads(result.journal.dumps()).tool_errors == result.tool_errors


def test_tracebacks_are_removed_for_callers_who_are_not_operators() -> None:
    result = _run(CASES["bug"][0])
    text = result.journal.dumps()
    assert Path(__file__).name in text
    assert Path(__file__).name not in text_without_tracebacks(text)
    (call,) = Journal.loads(text_without_tracebacks(text)).tool_errors
    assert (call.exception_class, call.traceback) == ("KeyError", "")
    journal = Journal.loads(text)
    journal.remove_tracebacks()
    assert journal.tool_errors == (call,)


def test_the_inspector_marks_runs_with_tool_errors() -> None:
    source = LocalSource([], runs=[_run(CASES["bug"][0]).journal])
    (row,) = asyncio.run(overview(source, is_whole=True))["runs"]
    assert row["tool_errors"] == 1
    view = asyncio.run(run_answer(source, row["id"]))
    (event,) = [event for event in view["journal"]["events"] if event["kind"] == "tool"]
    assert view["tool_errors"] == 1 and event["failed"] and Path(__file__).name in event["traceback"]


def test_commands_print_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentkit.cli.app import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "warn_desk.py").write_text(
        "from tests.runtime.test_tool_errors import CASES, Agent, ScriptedModel, calling\n"
        "replies = [calling('work'), calling(('work', {'x': 1})), calling('none'), calling(('ask', {'input': 'x'}))]\n"
        "inner = Agent(ScriptedModel.repeat(calling('work'), 'done'), tools=[CASES['bug'][0]], name='inner')\n"
        "tools = [CASES['bug'][0], inner.as_tool(name='ask', description='Ask.')]\n"
        "agent = Agent(ScriptedModel.repeat(*replies, 'done'), tools=tools)\n"
    )
    # The lines of calls contain the errors of the run, but not the errors of inner runs.
    commands = {
        ("run", "x", "--json"): (4, 0),
        ("run", "x"): (1, 3),
        ("chat", "--once", "x"): (1, 3),
        ("chat", "--once", "x", "--json"): (1, 3),
    }
    counts = {}
    for command in commands:
        outcome = CliRunner().invoke(app, [*command, "--agent", "warn_desk:agent"])
        assert outcome.exit_code == 0, outcome.output
        assert "warning: tool work failed (id1): KeyError" in outcome.stderr
        assert "Traceback" not in outcome.stderr
        counts[command] = (outcome.stderr.count("warning: "), outcome.stderr.count("  error: "))
    assert counts == commands


def test_the_option_is_checked() -> None:
    for value in ("stop", True, None):
        with pytest.raises(AgentError):
            Limits(on_tool_error=value)  # type: ignore[arg-type]
