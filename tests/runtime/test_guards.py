"""Guards pass, replace, ask or stop at each stage; they fail closed, and a resumed run does not call them again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from agentkit import (
    Agent,
    Approved,
    Denied,
    Journal,
    LimitExceeded,
    Limits,
    Message,
    ModelReplied,
    OutputSpec,
    Paused,
    Reply,
    ScriptedModel,
    Session,
    TextDelta,
    ToolCall,
    ToolContext,
    ToolFinished,
    Usage,
    tool,
)
from agentkit.durable.run_handle import entry_events
from agentkit.errors import AgentDefinitionError
from agentkit.guards import Ask, Guard, GuardError, GuardStopped, Pass, Replace, Stop, Verdict, guard
from agentkit.run.engine.replay import replayed_contexts
from agentkit.run.journal.accepted_replies import last_reply
from agentkit.testing import Delayed, assert_effects
from tests.raising import raises

PAID: list[int] = []


@tool
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount} from DE89"


@tool(final=True)
def total() -> str:
    """Total."""
    return "total secret"


PAY = ToolCall("c1", "pay", '{"amount": 7}')


def gives(verdict: Any, stage: Any = "input", **options: Any) -> Guard:
    """Return a guard with one verdict."""

    def check(value: Any) -> Any:
        return verdict

    return guard(stage, **options)(check)


def answers(*replies: Any, guards: list[Guard], **options: Any) -> Agent[Any, Any]:
    PAID.clear()
    return Agent(ScriptedModel(replies), tools=[pay, total], guards=guards, **options)


def texts(messages: Any) -> list[str]:
    return [message.text for message in messages]


def test_a_guard_replaces_the_value_of_each_stage() -> None:
    cases: dict[str, tuple[Any, list[Any], list[str]]] = {
        "input": (Replace("X"), ["Yes."], ["X", "Yes."]),
        "output": (Replace("No."), ["Yes."], ["Hi", "No."]),
        "tool_call": (Replace({"amount": 1}), [PAY, "Done."], ["Hi", "", "paid 1 from DE89", "Done."]),
        "tool_result": (Replace("paid"), [PAY, "Done."], ["Hi", "", "paid", "Done."]),
    }
    for stage, (verdict, replies, expected) in cases.items():
        session = Session("s")
        result = answers(*replies, guards=[gives(verdict, stage)]).run_sync("Hi", session=session)
        assert texts(result.messages) == expected, stage
        assert texts(session.conversation) == expected, stage


def test_a_text_for_a_call_denies_it_and_the_run_continues() -> None:
    result = answers(PAY, "Sorry.", guards=[gives(Replace("too much"), "tool_call")]).run_sync("Hi")
    assert "too much" in result.messages[2].text
    assert PAID == []


def test_guards_of_a_stage_run_in_order_on_the_replaced_text() -> None:
    seen: list[str] = []

    def add(name: str) -> Guard:
        def check(text: str) -> Replace:
            seen.append(text)
            return Replace(text + name)

        check.__name__ = name
        return guard("input")(check)

    result = answers("Yes.", guards=[add("a"), add("b")]).run_sync("Hi")
    assert (seen, result.messages[0].text) == (["Hi", "Hia"], "Hiab")


def test_stop_ends_the_run_with_a_typed_error_and_stores_no_refused_text() -> None:
    cases: dict[str, tuple[list[Any], list[str], list[int]]] = {
        "input": ([], [], []),
        "output": (["secret"], ["Hi"], []),
        "tool_call": ([PAY], ["Hi"], []),
        "tool_result": ([PAY], ["Hi", "", "pay ran. Its result is withheld"], [7]),
    }
    for stage, (replies, stored, paid) in cases.items():
        session = Session("s")
        agent = answers(*replies, guards=[gives(Stop("no"), stage)])
        with raises(GuardStopped, guard="check", stage=stage, reason="no") as stopped:
            agent.run_sync("Hi", session=session)
        found = texts(session.conversation)
        assert [text[: len(expected)] for text, expected in zip(found, stored, strict=True)] == stored, stage
        assert paid == PAID, stage
        # A stopped run stays stopped, without a call of the guard.
        journal = Journal.loads(stopped.value.journal.dumps())
        again = answers(guards=[gives(None, stage)])
        with raises(GuardStopped, stage=stage):
            again.resume_sync(journal, session=session)


def test_a_guard_that_fails_or_hangs_or_returns_another_value_stops_the_run() -> None:
    def fails(value: Any) -> None:
        raise ValueError("broken")

    def hangs(value: Any) -> None:
        time.sleep(0.5)

    async def waits(value: Any) -> None:
        await asyncio.sleep(10)

    def returns_false(value: Any) -> bool:
        return False

    def lambdas(value: Any) -> Any:
        return Replace({"a": 1})

    def reasons(value: Any) -> Any:
        return Stop(None)  # type: ignore[arg-type]

    def questions(value: Any) -> Any:
        return Ask({"a": 1})  # type: ignore[arg-type]

    stages: dict[Any, list[Any]] = {"input": [], "output": ["a"], "tool_call": [PAY], "tool_result": [PAY]}
    for stage, replies in stages.items():
        for check in (fails, hangs, waits, returns_false, lambdas, reasons, questions):
            if (check, stage) == (lambdas, "tool_call") or (check is hangs and stage != "input"):
                continue
            agent = answers(*replies, guards=[guard(stage, timeout=0.05)(check)])
            with raises(GuardError, guard=check.__name__, stage=stage):
                agent.run_sync("Hi")
            assert ([7] if stage == "tool_result" else []) == PAID, (stage, check)


def test_a_person_decides_about_the_question_of_a_guard() -> None:
    def asks(stage: Any) -> list[Guard]:
        return [gives(Ask("sure?"), stage)]

    cases: dict[str, tuple[list[Any], str, list[str]]] = {
        "input": (["Yes."], "input_check", ["Hi", "Yes."]),
        "output": (["Yes."], "output_1_check", ["Hi", "Yes."]),
        "tool_call": ([PAY, "Done."], "c1", ["Hi", "", "paid 7 from DE89", "Done."]),
        "tool_result": ([PAY, "Done."], "tool_result_c1_check", ["Hi", "", "paid 7 from DE89", "Done."]),
    }
    for stage, (replies, call_id, expected) in cases.items():
        session = Session("s")
        agent = answers(*replies, guards=asks(stage))
        with pytest.raises(Paused) as paused:
            agent.run_sync("Hi", session=session)
        assert [call.id for call in paused.value.calls] == [call_id]
        journal = Journal.loads(paused.value.journal.dumps())
        assert [call.id for call in journal.unfinished] == [call_id]
        result = agent.resume_sync(journal, approve={call_id: True}, session=session)
        assert texts(result.messages) == expected, stage
        if stage != "tool_call":
            refused = answers(*replies, guards=asks(stage))
            with raises(GuardStopped, reason="never"):
                refused.run_sync("Hi", approve=lambda call: Denied("never"))


def test_a_person_can_change_the_text_of_the_question_of_a_guard() -> None:
    agent = answers("Yes.", guards=[gives(Ask(), "output")])
    result = agent.run_sync("Hi", approve=lambda call: Approved({"text": "Maybe."}))
    assert result.output == "Maybe."


def test_policies_and_guards_ask_once_for_a_call() -> None:
    @tool(approval="always")
    def send() -> str:
        """Send."""
        return "sent"

    calls = [ToolCall("a", "send", "{}"), PAY, ToolCall("b", "unknown", "{}")]
    agent = Agent(ScriptedModel([calls, "Done."]), tools=[send, pay], guards=[gives(Ask(), "tool_call")])
    with pytest.raises(Paused) as paused:
        agent.run_sync("Hi")
    assert [call.id for call in paused.value.calls] == ["a", "c1"]
    result = agent.resume_sync(paused.value.journal, approve={"a": True, "c1": Denied("no")})
    assert [message.text[:4] for message in result.messages if message.role == "tool"][:2] == ["sent", "pay "]


def test_a_resumed_run_uses_the_recorded_verdicts() -> None:
    calls: list[str] = []

    def note(stage: Any) -> Guard:
        def check(value: Any) -> Any:
            calls.append(stage)
            return Replace(f"{stage}!") if stage in ("input", "tool_result") else None

        return guard(stage)(check)

    guards = [note("input"), note("output"), note("tool_call"), note("tool_result")]
    journal = answers(PAY, "Done.", guards=guards).run_sync("Hi").journal
    assert calls == ["input", "tool_call", "tool_result", "output"]
    effects = ["Begin", "CheckGuard", "Append", "CallModel", "CheckGuard", "CallTools(pay)", "CheckGuard", "Append"]
    assert_effects(journal, [*effects, "CallModel", "CheckGuard", "Append"])
    calls.clear()
    cut = Journal.loads("".join(journal.dumps().splitlines(keepends=True)[:-3]))
    result = answers("Done.", guards=guards).resume_sync(cut)
    assert texts(result.messages) == ["input!", "", "tool_result!", "Done."]
    assert calls == ["output"]


@pytest.mark.parametrize("asks", [False, True])
def test_a_run_whose_guard_failed_after_the_tools_is_resumed_with_the_stored_results(asks: bool) -> None:
    failing = [True]

    def moderate(result: Any) -> None:
        if failing[0]:
            raise TimeoutError

    guards = [*([gives(Ask("sure?"), "tool_result")] if asks else []), guard("tool_result")(moderate)]
    denied = ToolCall("c2", "pay", '{"amount": 8}')
    deny = guard("tool_call")(lambda call: Replace("no") if call.id == "c2" else None)
    agent = answers([PAY, denied], "Done.", guards=[deny, *guards])
    session = Session("s")
    with raises(GuardError, guard="moderate") as failed:
        agent.run_sync("Hi", session=session, approve=lambda call: True)
    withheld = texts(session.conversation)
    assert [text[:11] for text in withheld] == ["Hi", "", "pay ran. It", "pay was not"]
    failing[0] = False
    journal = Journal.loads(failed.value.journal.dumps())
    result = agent.resume_sync(journal, session=session, approve=lambda call: True)
    assert (texts(result.messages), PAID) == ([*withheld, "Done."], [7])
    assert texts(session.conversation) == texts(result.messages)
    assert len(replayed_contexts(agent.definition, result.journal, session)) == 2


def test_a_parallel_guard_runs_next_to_the_model_call_and_its_stop_cancels_the_call() -> None:
    ended: list[BaseException] = []

    class Slow:
        name = "slow"

        async def request(self, composition: Any, *, on_delta: Any = None) -> Any:
            try:
                await asyncio.sleep(30)
            except BaseException as error:
                ended.append(error)
                raise

    async def refuse(text: str) -> Stop:
        await asyncio.sleep(0.01)
        return Stop("no")

    async def accept(text: str) -> None:
        await asyncio.sleep(0.05)
        assert PAID == []

    agent = Agent(Slow(), guards=[guard("input", parallel=True)(refuse)])
    with raises(GuardStopped, reason="no"):
        agent.run_sync("Hi")
    assert [type(error) for error in ended] == [asyncio.CancelledError]
    # The model replies first: no tool call starts before the verdict.
    result = answers(PAY, "Done.", guards=[guard("input", parallel=True)(accept)]).run_sync("Hi")
    assert (PAID, result.output) == ([7], "Done.")
    agent = answers(PAY, guards=[guard("input", parallel=True)(refuse)])
    with raises(GuardStopped):
        agent.run_sync("Hi")
    assert PAID == []
    for check in (gives(Replace("x"), parallel=True), gives(1, parallel=True)):
        with raises(GuardError):
            answers("Yes.", guards=[check]).run_sync("Hi")


def test_a_parallel_guard_can_ask_after_the_reply() -> None:
    agent = answers("Yes.", guards=[gives(Ask(), parallel=True)])
    with pytest.raises(Paused) as paused:
        agent.run_sync("Hi")
    assert agent.resume_sync(paused.value.journal, approve={"input_check": True}).output == "Yes."


def test_a_stream_delays_text_and_results_until_they_are_accepted() -> None:
    def seen(verdict: Any, stage: Any, *replies: Any, **options: Any) -> list[Any]:
        events: list[Any] = []
        agent = answers(*replies, guards=[gives(verdict, stage, **options)])
        with suppress(GuardStopped):
            agent.run_sync("Hi", on_event=events.append)
        shown: list[Any] = []
        for event in events:
            if isinstance(event, TextDelta):
                shown.append(event.text)
            elif isinstance(event, ModelReplied):
                shown.append(event.reply.message.text.upper())
            elif isinstance(event, ToolFinished):
                shown.append(event.result.message.text)
        return shown

    assert seen(None, "output", "a b") == ["a", " b", "A B"]
    assert seen(Replace("c"), "output", "a b") == ["c", "C"]
    assert seen(Stop(), "output", "a b") == []
    assert seen(Stop(), "input", "a b", parallel=True) == []
    assert seen(None, "input", "a b", parallel=True) == ["a", " b", "A B"]
    assert seen(Replace("r"), "tool_result", PAY, "a") == ["", "r", "a", "A"]
    assert seen(Stop(), "tool_result", PAY) == [""]


def test_output_guards_check_the_answers_of_final_tools_and_output_functions() -> None:
    def answer(text: str) -> str:
        """Answer."""
        return f"secret {text}"

    def hide(text: str) -> Any:
        if "secret" in text:
            return Replace("hidden")
        return None

    guards = [guard("output")(hide)]
    result = answers(ToolCall("t", "total", "{}"), guards=guards).run_sync("Hi")
    assert result.output == "hidden"
    call = ToolCall("f", "answer", '{"text": "x"}')
    with raises(GuardError):
        Agent(ScriptedModel([call]), output=answer, guards=guards).run_sync("Hi")


def test_validators_receive_the_text_that_guards_have_accepted() -> None:
    received: list[Any] = []
    agent = answers(
        "[1]", guards=[gives(Replace("[2]"), "output")], output=OutputSpec(list[int], output_validator=received.append)
    )
    assert agent.run_sync("Hi").output == [2]
    assert received == [[2]]


def test_an_agent_can_be_a_guard_and_its_usage_counts() -> None:
    def judge(verdict: Any) -> Agent[Any, Any]:
        reply = Reply(Message("assistant", json.dumps({"value": verdict})), Usage(5, 2))
        return Agent(ScriptedModel([reply]), "Is it allowed?", output=Verdict, name="judge")

    for verdict, output in (({"action": "pass"}, "Yes."), ({"action": "replace", "value": "No."}, "No.")):
        result = answers("Yes.", guards=[guard("output")(judge(verdict))]).run_sync("Hi")
        assert result.output == output
        assert result.usage == result.journal.usage == Usage(5, 2)
    agent = answers(PAY, guards=[guard("tool_call")(judge({"action": "stop", "reason": "no"}))])
    with raises(GuardStopped, guard="judge", reason="no"):
        agent.run_sync("Hi")
    with raises(GuardError, guard="judge"):
        answers(guards=[guard("input")(judge("?"))]).run_sync("Hi")


def test_a_guard_reads_the_run_and_the_sources_of_untrusted_text() -> None:
    @guard("tool_call")
    def no_payment_after_reading(call: ToolCall, context: ToolContext) -> Verdict | None:
        assert context.messages[-1].tool_calls
        origins = [source.origin for source in context.untrusted]
        if call.name == "pay" and "total_cost" in origins:
            return Stop(f"{context.tenant} read it in step {context.step}")
        return Pass()

    @tool
    def total_cost() -> str:
        """Total."""
        return "7"

    agent = Agent(
        ScriptedModel([ToolCall("t", "total_cost", "{}"), PAY]),
        tools=[pay, total_cost],
        guards=[no_payment_after_reading],
    )
    with raises(GuardStopped, reason="acme read it in step 2"):
        agent.run_sync("Hi", tenant="acme")


def test_changes_replace_the_guards_and_other_changes_keep_them() -> None:
    agent = answers("a", "b", "c", guards=[gives(Replace("x"), "output")])
    assert agent.with_changes(instructions="Be short.").run_sync("Hi").output == "x"
    assert agent.run_sync("Hi", guards=[]).output == "b"
    assert agent.with_changes(guards=[gives(Replace("y"), "output")]).run_sync("Hi").output == "y"


def test_invalid_guards_are_refused() -> None:
    twice = gives(None)

    def of_three(a: Any, b: Any, c: Any) -> None: ...

    cases: list[Callable[[], Any]] = [
        lambda: guard("before"),  # type: ignore[arg-type]
        lambda: guard("input", timeout=0),
        lambda: guard("input", timeout=float("inf")),
        lambda: guard("output", parallel=True),
        lambda: guard("input", parallel=1),  # type: ignore[arg-type]
        lambda: guard("input")(of_three),
        lambda: guard("input")("text"),
        lambda: answers(guards=[len]),  # type: ignore[list-item]
        lambda: answers(guards=twice),  # type: ignore[arg-type]
        lambda: answers(guards=[twice, twice]),
        lambda: answers(guards=None),  # type: ignore[arg-type]
    ]
    for number, case in enumerate(cases):
        try:
            case()
        except AgentDefinitionError:
            continue
        pytest.fail(f"case {number}")


def test_events_of_a_journal_contain_the_texts_that_the_guards_accepted() -> None:
    guards = [gives(Replace("r"), "tool_result"), gives(Replace("o"), "output")]
    session = Session("s")
    journal = answers(PAY, "secret", guards=guards).run_sync("Hi", session=session).journal
    events: list[Any] = [event for _, new in entry_events(Journal.loads(journal.dumps())) for event in new]
    assert [type(event) for event in events] == [ModelReplied, ToolFinished, ModelReplied]
    assert "secret" not in str(events) and "DE89" not in str(events)
    assert (events[1].result.message.text, events[2].reply.message.text) == ("r", "o")
    # The same while the verdict is missing.
    cut = Journal.loads("".join(journal.dumps().splitlines(keepends=True)[:-2]))
    events = [event for _, new in entry_events(cut) for event in new]
    assert [type(event) for event in events] == [ModelReplied, ToolFinished]
    plain = answers(PAY, "secret", guards=[gives(None)]).run_sync("Hi").journal
    assert "secret" in str([*entry_events(plain)])


def test_the_last_reply_of_a_paused_run_has_the_accepted_text() -> None:
    reply = Message("assistant", "secret", [PAY])
    decisions: list[Any] = [{}, {"output_1_check": Approved({"text": "o"})}]
    for verdict, approve in zip([Replace("o"), Ask()], decisions, strict=True):
        agent = answers(reply, guards=[gives(verdict, "output"), gives(Ask(), "tool_call")])
        with pytest.raises(Paused) as paused:
            agent.run_sync("Hi", approve=approve)
        message = last_reply(paused.value.journal)
        assert (message.text, message.tool_calls) == ("o", (PAY,)), verdict


def test_arguments_that_are_not_a_json_object_are_refused() -> None:
    for value in ({"amount": object()}, {"amount": float("nan")}, [1], 7, None):
        with raises(GuardError, stage="tool_call"):
            answers(PAY, guards=[gives(Replace(value), "tool_call")]).run_sync("Hi")  # type: ignore[arg-type]
        assert PAID == []


def test_parallel_guards_run_at_the_same_time() -> None:
    both = asyncio.Barrier(2)

    async def first(text: str) -> None:
        await both.wait()

    async def second(text: str) -> None:
        await both.wait()

    guards = [guard("input", parallel=True, timeout=5)(check) for check in (first, second)]
    assert answers("Yes.", guards=guards).run_sync("Hi").output == "Yes."


def test_a_cancelled_run_cancels_its_parallel_guard_and_model_call() -> None:
    ended: list[str] = []

    async def slow(text: str) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("guard")

    async def cancelled() -> None:
        agent = answers(Delayed(30, "Yes."), guards=[guard("input", parallel=True, timeout=60)(slow)])
        run = asyncio.ensure_future(agent.run("Hi"))
        await asyncio.sleep(0.05)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(cancelled())
    assert ended == ["guard"]


def test_limits_of_a_run_apply_to_its_guards() -> None:
    async def slow(text: str) -> None:
        await asyncio.sleep(30)

    for parallel in (False, True):
        agent = answers(
            "Yes.", guards=[guard("input", parallel=parallel, timeout=60)(slow)], limits=Limits(seconds=0.1)
        )
        with pytest.raises(LimitExceeded):
            agent.run_sync("Hi")


def test_a_guard_that_calls_its_own_agent_ends_the_run() -> None:
    agents: list[Any] = []

    async def recurse(text: str) -> None:
        await agents[0].run(text)

    agents.append(answers("Yes.", guards=[guard("input")(recurse)], limits=Limits(nested_runs=3)))
    with raises(GuardError, guard="recurse"):
        agents[0].run_sync("Hi")


def test_an_interrupt_in_a_guard_ends_the_program_and_not_only_the_run() -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    for parallel in (False, True):
        with pytest.raises(KeyboardInterrupt):
            answers("Yes.", guards=[guard("input", parallel=parallel)(interrupt)]).run_sync("Hi")


def test_an_overridden_agent_has_the_guards_of_the_block() -> None:
    agent = answers("a", "b", guards=[])
    with agent.override(guards=[gives(Stop())]), pytest.raises(GuardStopped):
        agent.run_sync("Hi")
    assert agent.run_sync("Hi").output == "a"


def test_guards_that_were_removed_do_not_stop_a_resumed_run() -> None:
    journal = answers(PAY, "Done.", guards=[gives(None, "tool_call"), gives(None)]).run_sync("Hi").journal
    cut = Journal.loads("".join(journal.dumps().splitlines(keepends=True)[:-2]))
    assert answers("Done.", guards=[]).resume_sync(cut).output == "Done."


def test_an_async_listener_and_a_stream_of_text_receive_accepted_text() -> None:
    agent = answers("a b", "c d", guards=[gives(Replace("x"), "output")])
    shown: list[str] = []

    async def listen(event: Any) -> None:
        await asyncio.sleep(0)
        if isinstance(event, TextDelta):
            shown.append(event.text)

    agent.run_sync("Hi", on_event=listen)
    assert shown == ["x"]
    assert [*agent.stream_text_sync("Hi")] == ["x"]
