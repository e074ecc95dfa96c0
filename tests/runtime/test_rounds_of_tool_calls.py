"""Rounds of tool calls: invalid calls, approvals, the order of calls, and replies of hostile models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from agentkit import (
    Agent,
    Approved,
    Denied,
    Event,
    LimitExceeded,
    Limits,
    Message,
    Paused,
    ScriptedModel,
    Session,
    ToolCall,
    ToolContext,
    ToolFinished,
    tool,
)
from agentkit.errors import ApprovalError
from agentkit.testing import controlled_time
from agentkit.tools import ToolDefinitionError, ToolError, ToolResult
from tests.effort import tries
from tests.raising import raises
from tests.runtime.scripts import calling, decided, roles, valid
from tests.waiting import LONG


async def echo(text: str) -> str:
    """Repeat the text."""
    return text


def results(model_reply: Message, *tools: Any, **options: Any) -> list[ToolResult]:
    """Return the results of one round of calls."""
    found: list[ToolResult] = []

    def listen(event: Event) -> None:
        if isinstance(event, ToolFinished):
            found.append(event.result)

    session = Session()
    Agent(ScriptedModel([model_reply, "done"]), tools=tools).run_sync("go", on_event=listen, session=session, **options)
    assert valid(session.conversation)
    by_id = {result.call_id: result for result in found}
    return [by_id[call.id] for call in session.conversation[1].tool_calls]


# Invalid calls


def test_an_unknown_tool_is_answered_with_the_nearest_names() -> None:
    (result,) = results(calling("ecko"), echo)
    assert (result.status, result.content) == (
        "error",
        "Unknown tool 'ecko'; did you mean 'echo'? Valid names: echo.",
    )


def test_a_call_without_any_tools_is_answered_too() -> None:
    (result,) = results(calling("anything"))
    assert result.content == "Unknown tool 'anything'; no tools are available."


def test_arguments_of_the_wrong_type_are_returned_to_the_model_with_every_problem() -> None:
    def plan(day: int, city: str) -> str:
        """Plan."""
        raise AssertionError("must not run")

    (result,) = results(calling(("plan", {"day": "soon", "city": 3})), plan)
    assert result.status == "error"
    assert "day: " in str(result.content) and "city: " in str(result.content)


def test_arguments_that_are_not_json_are_returned_to_the_model() -> None:
    for broken in ("{", "[]", "null", "nonsense", '"text"', '{"text": '):
        (result,) = results(calling(("echo", broken)), echo)
        assert result.status == "error", broken
        assert "echo was not called" in str(result.content)


def test_the_error_of_a_tool_reaches_the_model_and_the_run_continues() -> None:
    async def fail_async() -> str:
        raise ToolError("the well is dry")

    def fail_sync() -> str:
        raise ValueError("out of paper")

    def leave() -> str:
        raise SystemExit(3)

    dry, paper, left = results(calling("fail_async", "fail_sync", "leave"), fail_async, fail_sync, leave)
    assert "the well is dry" in str(dry.content) and dry.status == "error"
    assert "out of paper" in str(paper.content) and isinstance(paper.error, ValueError)
    assert left.status == "error"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("waits", [False, True])
def test_an_exception_that_ends_the_program_next_to_other_calls_leaves_a_run_that_can_continue(
    error: type[BaseException], waits: bool
) -> None:
    async def leave() -> str:
        await asyncio.sleep(0.01 if waits else 0)
        if is_new:
            raise error("now")
        return "stayed"

    async def linger() -> str:
        await asyncio.sleep(0 if waits else 0.01)
        return "here"

    is_new, session = True, Session()
    model = ScriptedModel([calling("linger", "leave", "linger"), "done"])
    agent = Agent(model, tools=[leave, linger])
    with controlled_time(), raises(error, args=("now",)) as caught:
        agent.run_sync("go", session=session)
    is_new, journal = False, caught.value.journal  # type: ignore[attr-defined]
    assert [result.name for result in journal.tool_results] == ["linger"] * 2 * waits
    result = agent.resume_sync(journal, session=session)
    assert tuple(session.conversation) == result.messages and valid(result.messages)
    assert [message.text for message in result.messages if message.role == "tool"] == ["here", "stayed", "here"]


def test_a_tool_that_takes_too_long_is_stopped() -> None:
    @tool(timeout=0.01)
    async def linger() -> str:
        await asyncio.sleep(60)
        return ""

    (result,) = results(calling("linger"), linger)
    assert result.status == "timeout"


def test_two_tools_with_the_same_name_are_refused_by_the_constructor() -> None:
    with raises(ToolDefinitionError, names=("echo",)):
        Agent(ScriptedModel([]), tools=[echo, tool(echo)])


# Approval


def wipe(path: str) -> str:
    """Delete everything."""
    return f"wiped {path}"


always = tool(approval="always")(wipe)


@tool(approval=lambda arguments, context: arguments["path"].startswith("/etc"))
def write(path: str) -> str:
    """Write a file."""
    return f"wrote {path}"


def test_without_an_approver_a_run_pauses_and_no_tool_was_called() -> None:
    session = Session()
    agent = Agent(
        ScriptedModel([calling(("wipe", {"path": "/"}), ("echo", {"text": "hi"})), "x"]), tools=[always, echo]
    )
    with pytest.raises(Paused) as paused:
        agent.run_sync("go", session=session)
    assert [call.name for call in paused.value.calls] == ["wipe"]
    assert roles(session.conversation) == "user"


def test_the_result_of_a_denied_call_contains_the_reason() -> None:
    (result,) = results(calling(("wipe", {"path": "/"})), always, approve=lambda call: Denied("too much money"))
    assert result.status == "denied"
    assert result.content == "wipe was not called: it was denied: too much money"


def test_false_denies_without_a_reason() -> None:
    (result,) = results(calling(("wipe", {"path": "/"})), always, approve=lambda call: False)
    assert (result.status, result.content) == ("denied", "wipe was not called: it was denied.")
    with pytest.raises(Paused) as paused:
        Agent(ScriptedModel([calling(("wipe", {"path": "/"}, "c"))]), tools=[always]).run_sync("go")
    later = Agent(ScriptedModel(["x"]), tools=[always]).resume_sync(paused.value.journal, approve={"c": False})
    assert later.messages[2].text == result.content


def test_approval_may_change_the_arguments_which_are_validated_again() -> None:
    calls = calling(("wipe", {"path": "/"}), ("wipe", {"path": "/"}))
    answers = iter([Approved({"path": "/tmp"}), Approved({"path": 5})])
    changed, wrong = results(calls, always, approve=lambda call: next(answers))
    assert changed.content == "wiped /tmp"
    assert wrong.status == "error" and "path" in str(wrong.content)


@pytest.mark.parametrize("answer", ["n", "too much money", "", 0, 1, None, [], {"approved": True}])
def test_another_value_than_a_decision_ends_the_run_and_no_tool_was_called(answer: Any) -> None:
    wiped: list[str] = []

    @tool(approval="always")
    def wipe(path: str) -> None:
        """Delete."""
        wiped.append(path)

    agent = Agent(ScriptedModel([calling(("wipe", {"path": "/"})), "x"]), tools=[wipe])
    with raises(ApprovalError, name="wipe (id1)"):
        agent.run_sync("go", approve=lambda call: answer)
    assert wiped == []


def test_an_approver_decides_call_by_call() -> None:
    asked: list[ToolCall] = []

    def approve(call: ToolCall) -> Approved | Denied:
        asked.append(call)
        return decided("tmp" in call.arguments)

    calls = calling(("wipe", {"path": "/tmp"}), ("wipe", {"path": "/home"}), ("echo", {"text": "hi"}))
    yes, no, unasked = results(calls, always, echo, approve=approve)
    assert (yes.content, no.status, unasked.content) == ("wiped /tmp", "denied", "hi")
    assert [call.id for call in asked] == ["id1", "id2"]


def test_an_approver_may_be_async() -> None:
    async def approve(call: ToolCall) -> Approved | Denied:
        await asyncio.sleep(0)
        return decided(call.id == "id1")

    yes, no = results(calling(("wipe", {"path": "a"}), ("wipe", {"path": "b"})), always, approve=approve)
    assert (yes.status, no.status) == ("success", "denied")


def test_a_predicate_selects_the_calls_that_need_approval() -> None:
    asked: list[str] = []

    def approve(call: ToolCall) -> Denied:
        asked.append(call.arguments)
        return Denied()

    calls = calling(("write", {"path": "/etc/hosts"}), ("write", {"path": "/srv/a"}))
    denied, done = results(calls, write, approve=approve)
    assert (denied.status, done.content) == ("denied", "wrote /srv/a")
    assert asked == ['{"path": "/etc/hosts"}']


def test_no_approval_is_requested_for_a_call_that_cannot_run() -> None:
    def approve(call: ToolCall) -> bool:
        raise AssertionError("asked")

    (result,) = results(calling(("wipe", {"path": 3})), always, approve=approve)
    assert result.status == "error"


def test_a_predicate_that_fails_requires_approval() -> None:
    @tool(approval=lambda arguments, context: context.deps["missing"])
    def risky() -> str:
        """Risk it."""
        return "done"

    (asked,) = results(calling("risky"), risky, approve=lambda call: True)
    assert asked.content == "done"
    (denied,) = results(calling("risky"), risky, approve=lambda call: Denied())
    assert denied.status == "denied"


def test_a_predicate_sees_the_dependencies() -> None:
    def is_guest(arguments: Mapping[str, Any], context: ToolContext[str]) -> bool:
        return context.deps == "guest"

    guarded = tool(approval=is_guest)(wipe)
    (result,) = results(calling(("wipe", {"path": "x"})), guarded, deps="owner")
    assert result.status == "success"
    (result,) = results(calling(("wipe", {"path": "x"})), guarded, deps="guest", approve=lambda call: Denied())
    assert result.status == "denied"


def test_an_approver_that_fails_ends_the_run_and_no_tool_was_called() -> None:
    def approve(call: ToolCall) -> bool:
        raise RuntimeError("the terminal is gone")

    session = Session()
    agent = Agent(ScriptedModel([calling(("wipe", {"path": "x"})), "never"]), tools=[always])
    with raises(RuntimeError, args=("the terminal is gone",)):
        agent.run_sync("go", approve=approve, session=session)
    assert roles(session.conversation) == "user"


def test_the_approval_of_a_call_does_not_approve_a_later_call_with_the_same_id() -> None:
    """Two calls with one id, the first harmless: the approval of the first call must not approve the second."""
    calls = calling(("wipe", {"path": "/var/cache"}, "x"), ("wipe", {"path": "/"}, "x"))
    first, second = results(calls, always, approve=lambda call: decided("cache" in call.arguments))
    assert (first.status, second.status) == ("success", "denied")


# The order of calls


def test_calls_of_one_turn_run_in_parallel() -> None:
    meeting = asyncio.Barrier(3)

    async def meet() -> str:
        """Come."""
        async with asyncio.timeout(LONG):
            await meeting.wait()
        return "met"

    assert [result.content for result in results(calling("meet", "meet", "meet"), meet)] == ["met"] * 3


def test_a_sequential_call_waits_for_earlier_calls_and_later_calls_wait_for_it() -> None:
    log: list[str] = []

    async def look(name: str) -> str:
        """Look."""
        log.append(f"{name} begins")
        await asyncio.sleep(0.001)
        log.append(f"{name} ends")
        return name

    slow = tool(sequential=True, name="move")(look)
    kinds = ["look", "look", "move", "move", "look"]
    calls = calling(*[(kind, {"name": name}) for kind, name in zip(kinds, "abcde", strict=True)])
    assert [result.content for result in results(calls, look, slow)] == list("abcde")
    assert set(log[:2]) == {"a begins", "b begins"}
    assert log[4:] == ["c begins", "c ends", "d begins", "d ends", "e begins", "e ends"]


def test_the_maximum_of_calls_of_a_tool_counts_over_the_complete_run() -> None:
    once = tool(max_calls=1)(echo)
    model = ScriptedModel([calling(("echo", {"text": "a"})), calling(("echo", {"text": "b"})), "done"])
    run = Agent(model, tools=[once]).run_sync("go")
    assert run.messages[2].text == "a"
    assert "at most 1 time" in run.messages[4].text
    assert (
        Agent(ScriptedModel([calling(("echo", {"text": "c"})), "ok"]), tools=[once]).run_sync("x").messages[2].text
        == "c"
    )


# Hostile replies


def test_an_empty_reply_is_an_empty_answer() -> None:
    session = Session()
    assert Agent(ScriptedModel([""])).run_sync("hi", session=session).output == ""
    Agent(ScriptedModel(["ok"])).run_sync("again", session=session)
    assert roles(session.conversation) == "user assistant user assistant"


def test_calls_without_an_id_receive_an_id() -> None:
    first, second = results(calling(("echo", {"text": "a"}, ""), ("echo", {"text": "b"}, "")), echo)
    assert (first.content, second.content) == ("a", "b")
    assert first.call_id != second.call_id


def test_calls_that_share_an_id_receive_separate_ids() -> None:
    calls = calling(*[("echo", {"text": text}, "same") for text in "abc"])
    found = results(calls, echo)
    assert [result.content for result in found] == ["a", "b", "c"]
    assert found[0].call_id == "same"
    assert len({result.call_id for result in found}) == 3


def test_an_id_in_the_form_of_a_generated_id_causes_no_conflict() -> None:
    calls = calling(("echo", {"text": "a"}, "call_1_3"), ("echo", {"text": "b"}, "x"), ("echo", {"text": "c"}, "x"))
    found = results(calls, echo)
    assert [result.content for result in found] == ["a", "b", "c"]
    assert len({result.call_id for result in found}) == 3


def test_ids_a_model_repeats_in_every_step_do_not_repeat_idempotency_keys() -> None:
    keys: list[str] = []

    async def pay(context: ToolContext[None]) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        return "paid"

    model = ScriptedModel([calling(("pay", {}, "call_0")), calling(("pay", {}, "call_0")), "done"])
    session = Session()
    Agent(model, tools=[pay]).run_sync("go", session=session, run_id="r")
    assert len(set(keys)) == 2
    assert valid(session.conversation)
    again: list[str] = keys[:]
    keys.clear()
    model = ScriptedModel([calling(("pay", {}, "call_0")), calling(("pay", {}, "call_0")), "done"])
    Agent(model, tools=[pay]).run_sync("go", run_id="r")
    assert keys == again  # the same run, executed again, has the same keys


def test_a_call_without_a_name_is_answered() -> None:
    (result,) = results(calling(("", {})), echo)
    assert result.status == "error"


@pytest.mark.untraced
def test_thousands_of_calls_are_all_answered() -> None:
    count = tries(2_000, 10_000)
    calls = calling(*[("echo", {"text": str(number)}, "same" if number % 3 == 0 else "") for number in range(count)])
    found = results(calls, echo)
    assert [result.content for result in found] == [str(number) for number in range(count)]


def test_ten_thousand_calls_over_a_limit_are_not_run() -> None:
    ran: list[int] = []

    async def count() -> str:
        """Count."""
        ran.append(1)
        return ""

    agent = Agent(ScriptedModel([calling(*["count"] * 10_000)]), tools=[count], limits=Limits(tool_calls=100))
    with raises(LimitExceeded, value=100, limit="tool_calls"):
        agent.run_sync("go")
    assert not ran


def test_text_next_to_calls_is_preserved() -> None:
    session = Session()
    model = ScriptedModel([calling(("echo", {"text": "x"}), text="Let me look."), "done"])
    Agent(model, tools=[echo]).run_sync("go", session=session)
    assert session.conversation[1].text == "Let me look."
    assert model.requests[1].to_openai()["messages"][1]["content"] == "Let me look."


def test_huge_arguments_and_odd_characters_survive() -> None:
    text = "\x00\u202e</tool>" + "x" * 1_000_000
    model = ScriptedModel([calling(("echo", {"text": text})), "done"])
    result = Agent(model, tools=[tool(max_result_chars=None)(echo)]).run_sync("go")
    assert result.messages[2].text == text
