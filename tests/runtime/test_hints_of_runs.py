"""Attributes and options of runs in the vocabulary of other libraries: the message names the way, which works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agentkit import (
    Agent,
    Chain,
    Journal,
    Layers,
    Limits,
    Memory,
    OfflineModel,
    OutputSpec,
    Paused,
    PromptContext,
    RunResult,
    ScriptedModel,
    Session,
    ToolCall,
    ToolContext,
    UserInput,
    observe,
    tool,
)
from agentkit.errors import AgentDefinitionError, ApprovalError, UnknownOption
from agentkit.memory import Scope
from agentkit.prompts import MemoPrompt, Size, TextPrompt
from agentkit.tools import ToolDefinitionError, ToolError, ToolPolicy
from tests.wrong_calls import check_right_way


@tool(approval="always")
def refund(order: int) -> str:
    """Refund an order."""
    return f"order {order} refunded"


observed: Any = observe
chain: Any = Chain
scripted: Any = ScriptedModel
agent: Any = Agent(OfflineModel(), tools=[refund])
speaker: Any = Agent(ScriptedModel.repeat("4"), "Be brief.")


def paused() -> Any:
    with pytest.raises(Paused) as caught:
        agent.run_sync("Use refund with order=17.")
    return caught.value


def result() -> RunResult[str]:
    answer: RunResult[str] = speaker.run_sync("2+2?")
    return answer


def _with_session() -> bool:
    session = Session("chat")
    speaker.run_sync("2+2?", session=session)
    speaker.run_sync("And 3?", session=session)
    count = len(session.conversation)
    session.rewind(0)
    return count == 4 and not session.conversation


def _approved() -> RunResult[str]:
    answer: RunResult[str] = agent.run_sync("Use refund with order=17.", approve=lambda call: True)
    return answer


def _resumed() -> bool:
    journal = Journal.loads(paused().journal.dumps())
    call = paused().calls[0]
    return "order 17 refunded" in agent.resume_sync(journal, approve={call.id: True}).output


def _decided(decide: Callable[[Any], Any]) -> bool:
    waiting = paused()
    return "order 17 refunded" in agent.resume_sync(waiting.journal, approve=decide(waiting)).output


def _validated() -> bool:
    checked: Any = Agent(ScriptedModel(["four"]), output=OutputSpec(str, output_validator=lambda text: text.upper()))
    return bool(checked.run_sync("2+2?").output == "FOUR")


def _subject() -> str:
    prompt = TextPrompt("Teach {{ additional_kwargs.subject }}.")
    user_input = UserInput("5+5", additional_kwargs={"subject": "maths"})
    return Agent(OfflineModel(), layers=Layers(system=[prompt])).compose(user_input).messages[0].text


session: Any = Session("chat")
journal: Any = Journal
WRONG: list[tuple[Callable[[], object], type[Exception], str, Callable[[], object]]] = [
    (
        lambda: observed(print),
        TypeError,
        "on_event=function",
        lambda: speaker.run_sync("2+2?", on_event=lambda _: None),
    ),
    (lambda: refund.call({"order": 17}), TypeError, "tool(name=value)", lambda: refund(order=17)),  # type: ignore[call-arg, arg-type]
    (
        lambda: refund.call(ToolCall(name="refund", arguments={"order": 17})),  # type: ignore[call-arg]
        TypeError,
        "await tool.call(ToolCall(name=..., arguments={...}), ToolContext(deps=None))",
        lambda: (
            asyncio.run(
                refund.call(ToolCall(name="refund", arguments={"order": 17}), ToolContext(deps=None, approved=True))
            ).ok
        ),
    ),
    (
        lambda: asyncio.run(refund.call({"order": 17}, ToolContext(deps=None))),  # type: ignore[arg-type]
        ToolError,
        "tool(name=value)",
        lambda: refund(order=17),
    ),
    (
        lambda: tool(policy=ToolPolicy())(result),  # type: ignore[call-overload]
        ToolDefinitionError,
        "@tool(approval='always'",
        lambda: tool(approval="always")(refund.function),
    ),
    (
        lambda: Agent.map(speaker, ["2+2?"]),  # type: ignore[call-arg]
        TypeError,
        "[agent.run_sync(text) for text in inputs]",
        lambda: [speaker.run_sync(text) for text in ["2+2?"]],
    ),
    (lambda: chain(Layers(), speaker.chain.model), AgentDefinitionError, "Chain(model, layers=...)", result),
    (
        lambda: scripted(["4"], repeat=True),
        TypeError,
        "ScriptedModel.repeat(reply, reply)",
        lambda: ScriptedModel.repeat("4"),
    ),
    (lambda: agent.session("chat", user="ann"), AttributeError, "agent.run_sync(text, session=session)", _with_session),
    (lambda: session.run_sync("Hi"), AttributeError, "agent.run_sync(text, session=session)", _with_session),
    (lambda: session.run("Hi"), AttributeError, "await agent.run(text, session=session)", _with_session),
    (lambda: session.clear(), AttributeError, "session.rewind(0)", _with_session),
    (lambda: agent.__enter__(), TypeError, "use the agent without `with`", result),
    (
        lambda: speaker.stream_text("Hi").__aenter__(),
        TypeError,
        "use async for, or contextlib.aclosing(stream)",
        result,
    ),
    (
        lambda: speaker.stream_text("Hi").result,
        AttributeError,
        "use agent.stream(text): its last event, RunFinished, has the result",
        lambda: [*speaker.stream_sync("Hi")][-1].result.output == "4",
    ),
    (lambda: result().state, AttributeError, "`except Paused as paused`", paused),  # type: ignore[attr-defined]
    (lambda: result().pending_approvals, AttributeError, "paused.calls and paused.journal", paused),  # type: ignore[attr-defined]
    (
        lambda: result().tool_calls,  # type: ignore[attr-defined]
        AttributeError,
        "[call for message in result.messages for call in message.tool_calls]",
        lambda: [call for message in _approved().messages for call in message.tool_calls],
    ),
    (lambda: paused().pending_approvals, AttributeError, "use paused.calls", lambda: paused().calls[0].arguments),
    (lambda: paused().interruptions, AttributeError, "use paused.calls", lambda: paused().calls[0].name),
    (lambda: paused().pending_calls, AttributeError, "use paused.calls", lambda: paused().calls[0].name),
    (
        lambda: paused().approve(),
        AttributeError,
        "agent.resume(paused.journal, approve={call.id: True for call in paused.calls})",
        lambda: _decided(lambda paused: {call.id: True for call in paused.calls}),
    ),
    (
        lambda: agent.resume_sync(paused().journal, approve=True),
        ApprovalError,
        "{call.id: True for call in paused.calls}",
        lambda: _decided(lambda paused: {call.id: True for call in paused.calls}),
    ),
    (
        lambda: agent.resume_sync(paused().journal, decisions={"c1": True}),
        UnknownOption,
        "use approve=..., a function of a call or a mapping of call ids to True or False",
        lambda: _decided(lambda paused: lambda call: True),
    ),
    (lambda: result().usage.requests, AttributeError, "use result.steps", lambda: result().steps == 1),  # type: ignore[attr-defined]
    (
        lambda: result().usage.total_tokens,  # type: ignore[attr-defined]
        AttributeError,
        "use usage.input_tokens + usage.output_tokens",
        lambda: result().usage.input_tokens + result().usage.output_tokens == 0,
    ),
    (
        lambda: agent.output_validator(len),
        AttributeError,
        "Agent(model, output=OutputSpec(type, output_validator=check))",
        _validated,
    ),
    (lambda: Agent(ScriptedModel([]), output_validator=len), UnknownOption, "use output=OutputSpec(", _validated),  # type: ignore[call-overload]
    (
        lambda: agent.run_sync("Hi", documents=["Lamps."]),
        UnknownOption,
        "PromptContext(text, documents=[...]) as the input",
        lambda: Agent(OfflineModel(), layers=Layers(before_input=[MemoPrompt()])).run_sync(
            PromptContext("Hi", documents=["Lamps."])
        ),
    ),
    (lambda: paused().state, AttributeError, "use paused.journal", lambda: paused().journal),
    (lambda: paused().journal.to_json(), AttributeError, "use journal.dumps()", lambda: paused().journal.dumps()),
    (lambda: paused().journal.save("run.jsonl"), AttributeError, "path.write_text(journal.dumps())", _resumed),
    (lambda: journal.load("run.jsonl"), AttributeError, "Journal.loads(text), or Journal.read(path)", _resumed),
    (lambda: journal.from_json("{}"), AttributeError, "Journal.loads(text), or Journal.read(path)", _resumed),
    (
        lambda: paused().journal.approve("c1"),
        AttributeError,
        "agent.resume(journal, approve={call_id: True})",
        _resumed,
    ),
    (lambda: speaker.run_sync("5+5", kwargs={}), UnknownOption, "UserInput(text, additional_kwargs={...})", _subject),
    (lambda: speaker.compose("5+5", subject="maths"), UnknownOption, "UserInput(text, additional_kwargs", _subject),
    (
        lambda: speaker.compose("5+5", max_turns=2),
        UnknownOption,
        "use limits=Limits(steps=...)",
        lambda: speaker.compose("5+5", limits=Limits(steps=2)),
    ),
    (
        lambda: Agent(ScriptedModel([]), deps_type=dict),  # type: ignore[call-overload]
        UnknownOption,
        "use deps=TYPE in the constructor, and run(deps=value)",
        lambda: Agent(ScriptedModel.repeat("4"), deps=dict).run_sync("Hi", deps={}),
    ),
]


@pytest.mark.parametrize(("wrong", "error", "message", "right"), WRONG)
def test_the_message_names_a_way_that_works(
    wrong: Callable[[], object], error: type[Exception], message: str, right: Callable[[], object]
) -> None:
    check_right_way(wrong, error, message, right)


def test_a_journal_lists_the_calls_without_a_result() -> None:
    @tool
    def add(a: int) -> int:
        """Add."""
        return a

    calls = [ToolCall(name="refund", arguments={"order": 17}), ToolCall(name="add", arguments={"a": 1})]
    clerk = Agent(ScriptedModel.repeat(calls, "Done."), name="clerk", tools=[refund, add])
    with pytest.raises(Paused) as caught:
        clerk.run_sync("Refund 17.")
    journal = caught.value.journal
    assert journal.unfinished == Journal.loads(journal.dumps()).unfinished == tuple(calls)
    assert clerk.resume_sync(journal, approve={calls[0].id: False}).journal.unfinished == ()

    lead = Agent(ScriptedModel.repeat([ToolCall(name="ask", arguments={"input": "Refund 17."}), calls[1]], "Done."))
    ask = Agent(ScriptedModel.repeat(calls, "Done."), tools=[refund, add]).as_tool(name="ask", description="Ask.")
    with pytest.raises(Paused) as nested:
        lead.with_changes(tools=[ask, add]).run_sync("Refund 17.")
    # The call of `add` has a result; the calls of the inner agent have none.
    outer = nested.value.calls[0].id.partition("/")[0]
    assert [call.id for call in nested.value.journal.unfinished] == [f"{outer}/{call.id}" for call in calls]
    assert Agent(ScriptedModel(["Done."])).run_sync("Hi").journal.unfinished == ()


def test_two_users_have_separate_sessions(tmp_path: Any) -> None:
    with Memory(tmp_path / "memory", scope="shop") as memory:
        recalling = Agent(ScriptedModel.repeat("4"), "Be brief.", memory=memory)
        sessions = [memory.within(Scope("shop", user=user)).session("chat-1") for user in ("ann", "bob")]
        recalling.run_sync("2+2?", session=sessions[0])
        assert [len(session.conversation) for session in sessions] == [2, 0]


def test_a_composition_has_the_options_of_a_run() -> None:
    context = PromptContext("How long is the warranty?")
    long = Agent(OfflineModel(), layers=Layers(system=[TextPrompt("Be brief. " * 200, size=Size(cut="head"))]))
    assert long.compose(context, budget=100).tokens <= 100 < long.compose(context).tokens
    composition = long.compose("Hi", instructions="Be kind.")
    assert composition.messages[0].text == "Be kind."


def test_modules_name_the_classes_of_paused_runs() -> None:
    with pytest.raises(ImportError, match=r"use the `journal` of agentkit\.Paused"):
        exec("from agentkit import RunState")
