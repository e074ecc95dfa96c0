"""An agent as a tool of another agent: its input, its cost, and its end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel

from agentkit import (
    Agent,
    Composition,
    Event,
    Layers,
    LimitExceeded,
    Limits,
    Message,
    Nested,
    Reply,
    RunFinished,
    ScriptedModel,
    TextDelta,
    ToolCall,
    ToolContext,
    ToolFinished,
    Usage,
    tool,
)
from agentkit.prompts import AdditionalInfoPrompt, Template, TextPrompt
from agentkit.tools import Tool, ToolDefinitionError, Toolset
from tests.raising import raises
from tests.runtime.scripts import Never, calling, roles, valid


def spent(text: str | Message, tokens: int) -> Reply:
    """A reply with a number of tokens, all of them in the prompt."""
    message = text if isinstance(text, Message) else Message("assistant", text)
    return Reply(message, Usage(tokens), "tool_calls" if message.tool_calls else "stop")


def expert(*replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel(replies), "You are an expert.", **options)


def offered(agent: Agent[Any, Any], name: str = "expert", **options: Any) -> Tool[..., Any]:
    return agent.as_tool(name=name, description="Ask an expert.", **options)


def boss(*replies: Any, tools: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel(replies), "You lead.", tools=tools, **options)


ASK = ("expert", {"input": "why?"})


def test_the_input_of_the_call_reaches_the_inner_agent_and_its_answer_the_outer_agent() -> None:
    inner = expert("Because.")
    result = boss(calling(ASK), "It said: because.", tools=[offered(inner)]).run_sync("ask")
    assert roles(result.messages) == "user assistant tool assistant"
    assert result.messages[2].text == "Because."
    [sent] = inner.chain.model.requests  # type: ignore[attr-defined]
    assert [(message.role, message.text) for message in sent.messages] == [
        ("system", "You are an expert."),
        ("user", "why?"),
    ]


def test_kwargs_that_the_inner_agent_requires_are_parameters_of_the_tool() -> None:
    class City(BaseModel, extra="allow", arbitrary_types_allowed=True):
        name: str

    class Wants(BaseModel, extra="allow", arbitrary_types_allowed=True):
        city: City
        tone: str = "dry"

    inner = Agent(
        ScriptedModel(["Sunny."]),
        layers=Layers(before_input=AdditionalInfoPrompt(Template("{{ city.name }}, {{ tone }}", params_schema=Wants))),
    )
    one = offered(inner)
    parameters = one.spec.parameters
    assert list(parameters["properties"]) == ["input", "city", "tone"]
    assert parameters["required"] == ["input", "city"]
    assert parameters["additionalProperties"] is False
    assert "x-required-by" not in json.dumps(parameters["properties"])
    outer = boss(
        calling(("expert", {"input": "weather?"}, "a")),
        calling(("expert", {"input": "weather?", "city": {"name": "Rome"}, "tone": "warm"}, "b")),
        "done",
        tools=[one],
    )
    result = outer.run_sync("go")
    missing, answer = (message.text for message in result.messages if message.role == "tool")
    assert "city: is required but missing" in missing
    assert answer == "Sunny."
    assert inner.chain.model.requests[0].messages[0].text.startswith("Rome, warm\n")  # type: ignore[attr-defined]


def test_a_kwarg_with_the_name_of_the_input_is_refused_until_it_is_renamed() -> None:
    layers = Layers(before_input=AdditionalInfoPrompt("{{ input }}"))
    inner = Agent(ScriptedModel([]), layers=layers)
    with raises(ToolDefinitionError, tool="expert", names=("input",)):
        offered(inner)
    assert list(offered(inner, argument="question").spec.parameters["properties"]) == ["question", "input"]


def test_a_typed_answer_is_json_for_the_outer_model_and_a_value_for_the_program() -> None:
    class Verdict(BaseModel):
        good: bool

    inner: Agent[Any, Verdict] = Agent(ScriptedModel(['{"good": true}']), "Judge.", output=Verdict)
    outer = boss(calling(ASK), "fine", tools=[offered(inner)])
    ended: list[Any] = []
    result = outer.run_sync(
        "go", on_event=lambda event: ended.append(event) if isinstance(event, ToolFinished) else None
    )
    assert result.messages[2].text == '{"good": true}'
    assert ended[0].result.value == Verdict(good=True)


# Cost


def test_tokens_of_inner_runs_count_in_all_outer_runs() -> None:
    innermost = expert(spent("deep", 1000))
    inner = expert(
        spent(calling(("deepest", {"input": "?"})), 100), spent("middle", 10), tools=[offered(innermost, "deepest")]
    )
    outer = boss(spent(calling(ASK), 1), spent("done", 2), tools=[offered(inner)])
    assert outer.run_sync("go").usage == Usage(1113)


def test_an_agent_that_the_code_of_a_tool_runs_counts_too_in_any_thread() -> None:
    inner = Agent(ScriptedModel.repeat(spent("x", 10)), "x")

    @tool
    def in_a_thread() -> str:
        return inner.run_sync("a").output

    @tool
    async def in_the_loop() -> str:
        return (await inner.run("a")).output

    calls = calling(("in_a_thread", {}), ("in_the_loop", {}), ("in_a_thread", {}))
    outer = boss(spent(calls, 1), spent("done", 1), tools=[in_a_thread, in_the_loop])
    assert outer.run_sync("go").usage == Usage(32)
    assert inner.run_sync("outside of any run").usage == Usage(10)


def test_a_failed_inner_run_counts_and_is_an_error_for_the_outer_model() -> None:
    inner = expert(spent(calling("nothing"), 50), RuntimeError("the line is dead"))
    result = boss(spent(calling(ASK), 1), spent("done", 1), tools=[offered(inner)]).run_sync("go")
    assert result.messages[2].text == "expert failed: RuntimeError: the line is dead"
    assert result.usage == Usage(52)


def test_the_outer_limit_of_tokens_ends_the_inner_run_and_then_the_outer_run() -> None:
    endless = ScriptedModel.repeat(spent(calling("nothing"), 40))
    inner = Agent(endless, "x", limits=Limits(steps=100))
    outer = boss(spent(calling(ASK), 10), "never", tools=[offered(inner)], limits=Limits(tokens=100))
    with pytest.raises(LimitExceeded) as caught:
        outer.run_sync("go")
    assert caught.value.limit == "tokens"
    assert len(endless.requests) == 3  # 10 + 3 * 40 is more than 100
    assert "at its limit of 100 tokens" in caught.value.messages[-1].text
    assert valid(caught.value.messages)


def test_an_inner_limit_below_the_remaining_tokens_applies() -> None:
    inner = Agent(ScriptedModel.repeat(spent(calling("nothing"), 40)), "x", limits=Limits(tokens=50))
    outer = boss(spent(calling(ASK), 10), spent("done", 1), tools=[offered(inner)], limits=Limits(tokens=1000))
    result = outer.run_sync("go")
    assert "at its limit of 50 tokens" in result.messages[2].text
    assert result.usage == Usage(91)


def test_without_remaining_tokens_an_inner_run_ends_after_its_first_call() -> None:
    inner = Agent(ScriptedModel.repeat(spent(calling("nothing"), 40)), "x")

    @tool(sequential=True)
    async def twice() -> str:
        for _ in range(2):
            with raises(LimitExceeded, value=30, limit="tokens"):
                await inner.run("a")
        return "both ended"

    outer = boss(spent(calling("twice"), 10), "never", tools=[twice], limits=Limits(tokens=30))
    with pytest.raises(LimitExceeded) as caught:
        outer.run_sync("go")
    assert caught.value.messages[-1].text == "both ended"


# Depth, time and approvers


def test_agents_that_call_each_other_in_a_circle_stop() -> None:
    depth = 0

    @tool
    async def again() -> str:
        nonlocal depth
        depth += 1
        return str((await circle.run("again")).output)

    model = ScriptedModel.repeat(
        lambda sent: calling("again") if sent.messages[-1].role == "user" else sent.messages[-1].text
    )
    circle: Agent[Any, Any] = Agent(model, "x", tools=[again])
    assert "at its limit of 8 nested runs: agents call each other in a circle" in circle.run_sync("go").output
    assert depth == 9
    strict: Agent[Any, Any] = Agent(model, "x", tools=[again], limits=Limits(nested_runs=0))
    assert "at its limit of 0 nested runs" in strict.run_sync("go").output


def test_an_inner_agent_cannot_exceed_the_depth_of_the_outer_agent() -> None:
    deepest = expert("deepest")
    middle = expert(
        calling(("deepest", {"input": "?"})),
        "middle",
        tools=[offered(deepest, "deepest")],
        limits=Limits(nested_runs=8),
    )
    outer = boss(calling(ASK), "done", tools=[offered(middle)], limits=Limits(nested_runs=1))
    assert outer.run_sync("go").output == "done"
    assert len(deepest.chain.model.requests) == 0  # type: ignore[attr-defined]
    assert "at its limit of 1 nested runs" in middle.chain.model.requests[-1].messages[-1].text  # type: ignore[attr-defined]


async def test_cancelling_the_outer_run_cancels_the_inner_run() -> None:
    never, ended = Never(), asyncio.Event()

    class Watched(Never):
        async def request(self, composition: Composition, **options: Any) -> Reply:
            try:
                return await never.request(composition)
            finally:
                ended.set()

    outer = boss(calling(ASK), tools=[offered(Agent(Watched(), "x"))])
    run = asyncio.create_task(outer.run("go"))
    await never.asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert ended.is_set()


def test_the_seconds_of_the_outer_run_end_the_inner_run() -> None:
    outer = boss(calling(ASK), tools=[offered(Agent(Never(), "x"))], limits=Limits(seconds=0.1))
    with raises(LimitExceeded, value=0.1, limit="seconds") as caught:
        outer.run_sync("go")
    assert "was cancelled with the run" in caught.value.messages[-1].text


def test_a_time_limit_of_the_tool_ends_the_inner_run_and_the_outer_run_continues() -> None:
    outer = boss(calling(ASK), "done", tools=[offered(Agent(Never(), "x"), timeout=0.05)])
    result = outer.run_sync("go")
    assert result.output == "done"
    assert "did not end within 0.05 seconds" in result.messages[2].text


def test_the_approver_of_the_outer_run_decides_about_inner_calls() -> None:
    @tool(approval="always")
    async def launch() -> str:
        return "launched"

    def inner() -> Tool[..., Any]:
        return offered(expert(calling("launch"), lambda sent: sent.messages[-1].text, tools=[launch]))

    asked: list[str] = []

    def approve(call: ToolCall) -> bool:
        asked.append(call.name)
        return True

    approved = boss(calling(ASK), "x", tools=[inner()]).run_sync("go", approve=approve)
    assert asked == ["launch"]
    assert approved.messages[2].text == "launched"


def test_tools_of_inner_agents_get_the_dependencies_and_stable_keys() -> None:
    seen: list[tuple[Any, str]] = []

    @tool
    async def note(context: ToolContext[Any]) -> str:
        seen.append((context.deps, context.idempotency_key))
        return "noted"

    def outer() -> Agent[Any, Any]:
        return boss(calling(ASK), "x", tools=[offered(expert(calling("note"), "y", tools=[note]))])

    for run_id in ("run", "run", "other"):
        outer().run_sync("go", deps="the deps", run_id=run_id)
    assert [deps for deps, _ in seen] == ["the deps"] * 3
    first, second, third = (key for _, key in seen)
    assert first == second != third


def test_events_of_the_inner_run_arrive_nested_in_order() -> None:
    deep = expert("deep answer")
    inner = expert(calling(("deepest", {"input": "?"})), "answer", tools=[offered(deep, "deepest")])
    outer = boss(calling(("expert", {"input": "why?"}, "call-7")), "done", tools=[offered(inner)])
    events: list[Event] = []
    outer.run_sync("go", on_event=events.append)
    nested = [event for event in events if isinstance(event, Nested)]
    assert {(event.call_id, event.name) for event in nested} == {("call-7", "expert")}
    assert isinstance(nested[-1].event, RunFinished)
    assert "".join(one.event.text for one in nested if isinstance(one.event, TextDelta)) == "answer"
    deeper = [one.event for one in nested if isinstance(one.event, Nested)]
    assert {event.name for event in deeper} == {"deepest"}
    assert "".join(one.event.text for one in deeper if isinstance(one.event, TextDelta)) == "deep answer"
    assert isinstance(events[-1], RunFinished)


async def test_the_tool_also_answers_outside_of_a_run() -> None:
    one = offered(expert("Because."))
    result = await one.call(ToolCall("c", "expert", '{"input": "why?"}'), ToolContext(None))
    assert (result.status, result.content) == ("success", "Because.")


def test_the_tool_has_the_options_of_any_tool() -> None:
    one = offered(expert("a"), max_calls=1, timeout=5)
    assert (one.policy.max_calls, one.policy.timeout) == (1, 5)
    assert [made.name for made in Toolset([one]).prefixed("team_")] == ["team_expert"]
    with raises(ToolDefinitionError, names=("timeout",)):
        offered(expert("a"), timeout=-1)


def test_ten_agents_called_at_once_answer_in_call_order_and_are_all_counted() -> None:
    inner = Agent(ScriptedModel.repeat(lambda sent: spent(sent.messages[-1].text, 7)), "x")
    calls = calling(*[("expert", {"input": f"q{number}"}, f"c{number}") for number in range(10)])
    result = boss(spent(calls, 1), spent("done", 1), tools=[offered(inner)]).run_sync("go")
    assert [message.text for message in result.messages[2:-1]] == [f"q{number}" for number in range(10)]
    assert result.usage == Usage(72)


def test_a_negative_limit_of_nested_runs_is_refused() -> None:
    with raises(ValueError, name="nested_runs"):
        Limits(nested_runs=-1)


def test_the_text_prompt_of_an_inner_agent_is_not_shown_to_the_outer_model() -> None:
    outer = boss("hi", tools=[offered(Agent(ScriptedModel(["x"]), TextPrompt("secret instructions")))])
    outer.run_sync("go")
    [sent] = outer.chain.model.requests  # type: ignore[attr-defined]
    assert "secret instructions" not in json.dumps(sent.to_openai())
