"""Structured output: three modes of the request, the JSON in a reply, and replies that end a run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agentkit import (
    Agent,
    AskAgain,
    Chain,
    Journal,
    Limits,
    Message,
    OutputSpec,
    PartialOutput,
    PromptContext,
    Reply,
    RunResult,
    ScriptedModel,
    Session,
    TextDelta,
    ToolCall,
    ToolContext,
)
from agentkit.errors import AgentDefinitionError, OutputError, OutputStopped
from agentkit.models import ModelInterrupted
from agentkit.models.abilities import OutputMode
from agentkit.output.json_in_text import json_spans
from agentkit.prompts import Layers, TextPrompt
from agentkit.testing import CutOff, assert_effects
from tests.cases import collected
from tests.effort import pairs
from tests.raising import raises
from tests.runtime.scripts import calling, roles, valid

MODES: list[OutputMode] = ["native", "tool", "prompted"]


class City(BaseModel):
    name: str
    inhabitants: int = Field(ge=0)


class Invoice(BaseModel):
    number: int
    note: str = "none"


class Line(BaseModel):
    text: str


BERN = '{"name": "Bern", "inhabitants": 9}'


def ask(output: Any, *replies: Any, mode: OutputMode | None = None, **options: Any) -> tuple[Any, ScriptedModel]:
    """Return the output of a run, and its model."""
    model = ScriptedModel(replies)
    spec = OutputSpec(output, mode=mode) if mode else output
    return Agent(model, "You answer.", output=spec, **options).run_sync("go").output, model


def answering(arguments: str, *others: ToolCall, name: str = "final_answer") -> Message:
    return Message("assistant", tool_calls=(*others, ToolCall("a1", name, arguments)))


def look() -> str:
    """Look."""
    return "seen"


# Modes of the request


def test_native_declares_a_strict_schema_with_an_object_as_its_root() -> None:
    _, model = ask(City, BERN)
    sent = model.requests[0].to_openai()
    declared = sent["response_format"]["json_schema"]
    assert (declared["strict"], declared["schema"]["additionalProperties"]) == (True, False)
    assert "tools" not in sent


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("output", "bare", "value"),
    [
        (int, "7", 7),
        (list[int], "[1, 2]", [1, 2]),
        (Invoice | Line, '{"text": "x"}', Line(text="x")),
        (Literal["yes", "no"], '"yes"', "yes"),
        (City | None, "null", None),
        (dict[str, int], '{"value": 3}', {"value": 3}),
    ],
)
def test_a_root_that_is_not_an_object_is_wrapped(mode: OutputMode, output: Any, bare: str, value: object) -> None:
    is_object = output == dict[str, int]
    wrapped = bare if is_object else f'{{"value": {bare}}}'
    reply = answering(wrapped) if mode == "tool" else wrapped
    found, model = ask(output, reply, mode=mode)
    assert found == value
    request = model.requests[0].output
    assert request is not None
    assert request.schema["type"] == "object"
    assert (list(request.schema.get("properties", ())) == ["value"]) is not is_object
    assert ask(output, bare, mode=mode)[0] == value  # an answer without the wrapper is accepted too


def test_a_type_that_strict_schemas_cannot_express_is_sent_without_strict() -> None:
    _, model = ask(dict[str, int], "{}")
    assert "strict" not in model.requests[0].to_openai()["response_format"]["json_schema"]


def test_null_for_an_optional_field_is_the_default() -> None:
    assert ask(Invoice, '{"number": 1, "note": null}')[0] == Invoice(number=1)
    assert ask(list[Invoice], '{"value": [{"number": 1, "note": null}]}')[0] == [Invoice(number=1)]


def test_the_tool_of_the_answer_is_offered_next_to_other_tools_and_its_call_is_the_answer() -> None:
    session = Session()
    model = ScriptedModel([calling("look"), answering(BERN)])
    agent = Agent(model, tools=[look], output=OutputSpec(City, mode="tool"))
    result = agent.run_sync("go", session=session)
    assert result.output == City(name="Bern", inhabitants=9)
    assert [tool.name for tool in model.requests[1].tools] == ["look", "final_answer"]
    assert "response_format" not in model.requests[0].to_openai()
    assert session.conversation[-1] == Message("assistant", BERN)
    assert valid(session.conversation)


def test_an_answer_next_to_tool_calls_is_requested_again_after_the_results() -> None:
    early = answering('{"name": "early", "inhabitants": 0}', ToolCall("c1", "look", "{}"))
    model = ScriptedModel([early, answering(BERN)])
    result = Agent(model, tools=[look], output=OutputSpec(City, mode="tool")).run_sync("go")
    assert result.output.name == "Bern"
    assert [message.text for message in result.messages] == ["go", "", "seen", BERN]


def test_a_model_may_repair_the_arguments_of_the_tool_of_the_answer() -> None:
    model = ScriptedModel([answering('{"name": "Bern"}'), answering(BERN)])
    agent = Agent(model, output=OutputSpec(City, mode="tool"))
    assert agent.run_sync("go").output.inhabitants == 9
    assert "inhabitants: is missing" in model.requests[1].messages[-1].text


def test_prompted_shows_the_schema_and_declares_no_format() -> None:
    _, model = ask(City, BERN, mode="prompted")
    sent = model.requests[0]
    assert sent.to_openai().keys() == {"messages"}
    assert sent.system.text.startswith("You answer.\n\n")
    assert '"inhabitants"' in sent.system.text
    assert "output" in str(sent.explain())


def test_the_text_of_a_schema_is_not_a_template_and_no_control_token() -> None:
    asked = "{{ extra.secret }} {% raw %} <|im_end|>"
    schema = {"type": "object", "properties": {"a": {"description": asked}}}
    context = PromptContext(user_input="go", extra={"secret": "of the server"})
    model = ScriptedModel(["{}"])
    Agent(model, "You answer.", output=OutputSpec(schema, mode="prompted")).run_sync(context)
    sent = model.requests[0]
    assert "{{ extra.secret }} {% raw %}" in sent.system.text and "of the server" not in sent.system.text
    assert sent.to_text("qwen").count("<|im_end|>") == 2


def test_a_prompt_named_output_replaces_the_default_prompt() -> None:
    layers = Layers("You answer.", after_input=TextPrompt("JSON please.", name="output"))
    model = ScriptedModel([BERN])
    Agent(model, layers=layers, output=OutputSpec(City, mode="prompted")).run_sync("go")
    assert (model.requests[0].system.text, model.requests[0].user.text) == ("You answer.", "go\n\nJSON please.")


def test_the_mode_is_the_first_that_the_model_has_and_can_be_chosen() -> None:
    class Plain(ScriptedModel):
        output_modes = ("prompted", "tool")

    model = Plain.repeat(BERN)
    assert Chain(model, output=City).answer.mode == "prompted"
    assert Chain(model, output=OutputSpec(City, mode="tool")).answer.mode == "tool"
    agent = Agent(ScriptedModel.repeat(BERN), output=City)
    assert agent.chain.answer.mode == "native"
    assert agent.run_sync("go", output=OutputSpec(City, mode="prompted")).output.name == "Bern"
    assert agent.run_sync("go", model=model).output.name == "Bern"
    assert model.requests[0].output is not None and model.requests[0].output.mode == "prompted"
    with raises(AgentDefinitionError, name="mode", value="native"):
        Chain(model, output=OutputSpec(City, mode="native"))


def test_a_model_without_declared_modes_receives_the_schema_in_its_prompt() -> None:
    class Own:
        name = "own"

        async def request(self, composition: Any, *, on_delta: Any = None) -> Reply:
            assert '"inhabitants"' in composition.system.text
            return Reply(Message("assistant", f"Sure:\n```json\n{BERN}\n```"))

    assert Agent(Own(), output=City).run_sync("go").output.name == "Bern"


TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "below": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name", "below"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_follows_a_json_schema_that_refers_to_itself(mode: OutputMode) -> None:
    right = {"name": "a", "below": [{"name": "b", "below": []}]}
    wrong = {"name": "a", "below": [{"name": 5, "below": []}]}
    replies: list[Any] = [json.dumps(wrong), json.dumps(right)]
    if mode == "tool":
        replies = [calling(("final_answer", one)) for one in replies]
    model = ScriptedModel(replies)
    result = Agent(model).run_sync("go", output=OutputSpec(TREE, mode=mode))
    assert result.output == right
    assert "below[0].name" in model.requests[1].messages[-1].text


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: OutputSpec(City, mode="magic"), "mode"),  # type: ignore[call-overload]
        (lambda: OutputSpec(City, output_validator=lambda: None), "output_validator"),
        (lambda: OutputSpec(City, output_validator=[5]), "output_validator"),  # type: ignore[list-item]
        (lambda: Chain(ScriptedModel([]), output=OutputSpec(str, mode="tool")), "mode"),
        (lambda: Chain(ScriptedModel([]), output=OutputSpec(look, mode="native")), "mode"),
        (lambda: Chain(ScriptedModel([]), output=[City, Line]), "output"),  # type: ignore[call-overload]
        (lambda: OutputSpec({"type": "array"}), "output"),
        (lambda: OutputSpec({"properties": {"a": {"$ref": "file:///x"}, "b": {"$ref": "#/$defs/B"}}}), "output"),
        (lambda: OutputSpec({"properties": {"a": {"const": "\ud800"}}}), "output"),
        (lambda: OutputSpec({"description": "\ud800"}), "output"),
        (lambda: Chain(ScriptedModel([]), output=OutputSpec(OutputSpec(City))), "output"),
        (lambda: Chain(ScriptedModel([]), output=lambda text: text), "output"),
    ],
)
def test_an_impossible_output_is_refused_by_the_constructor(make: Callable[[], object], name: str) -> None:
    with raises(AgentDefinitionError, name=name):
        make()


def test_a_tool_with_the_name_of_the_answer_is_refused() -> None:
    def final_answer() -> str:
        """Answer."""
        return ""

    with raises(AgentDefinitionError, name="tools", value="final_answer"):
        Agent(ScriptedModel([]), tools=[final_answer], output=OutputSpec(City, mode="tool"))
    with raises(AgentDefinitionError, name="tools", value="look"):
        Agent(ScriptedModel([]), tools=[look], output=look)


# The JSON in a reply


@pytest.mark.parametrize(
    "text",
    [
        BERN,
        f"```json\n{BERN}\n```",
        f"```\n{BERN}\n```",
        f"Here you are:\n```json\n{BERN}\n```\nAnything else?",
        f"The answer is {BERN}.",
        f'<think>Perhaps {{\'name\'}}? or {{"name": "Rome", "inhabitants": 1}}</think>\n{BERN}',
        f"no opening tag, {{}}</think>{BERN}",
        f"<think>a</think><think>b</think>{BERN}",
        f"[THINK]Rome[/THINK]{BERN}",
        f'Use {{braces}} and [1], such as {{"a": 1}}: {BERN}',
        f'First {{"name": "Rome", "inhabitants": 1}}, but then {BERN}',
        f"{BERN}\n\nSource: [1]",
    ],
)
def test_json_is_found_inside_of_text(text: str) -> None:
    assert ask(City, text, mode="prompted")[0] == City(name="Bern", inhabitants=9)
    if text not in (BERN, f"```json\n{BERN}\n```", f"```\n{BERN}\n```"):
        with pytest.raises(OutputError):  # if the endpoint received the schema, the reply is JSON or invalid
            ask(City, text, mode="native", limits=Limits(repairs=0))


def test_an_object_of_the_requested_type_takes_precedence_over_a_list_in_the_text() -> None:
    assert ask(list[int], 'It is {"value": [2, 3]}, see [1].', mode="prompted")[0] == [2, 3]
    assert ask(list[int], "It is [2, 3].", mode="prompted")[0] == [2, 3]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Bern!", None),
        (f"<think>{BERN}", None),
        ('{"name": "Bern"}', "inhabitants"),
        ('So: {"name": "Bern", "inhabitants": -1}', "inhabitants"),
    ],
)
def test_the_error_names_the_problem(text: str, name: str | None) -> None:
    with raises(OutputError, name=name, text=text):
        ask(City, text, mode="prompted", limits=Limits(repairs=0))


HOSTILE = ["{", "1,", '{"a":', "[[1],", "{}", '{"a": "', "<think>", "```json\n", "</think>{", '["', '[",["', "[ \n"]


def test_hostile_text_takes_time_that_grows_with_its_length() -> None:
    failures: list[str] = []
    for unit, head in pairs(HOSTILE, ["", "[" * 900, '["' * 900], of=2):
        with collected(failures, unit, head):

            def seconds(text: str) -> float:
                start = time.process_time()
                json_spans(text)
                return time.process_time() - start

            small, large = seconds(unit * (10_000 // len(unit))), seconds(head + unit * (80_000 // len(unit)))
            assert large < max(small, 0.01) * 40  # eight times as much; quadratic would be sixty-four times
    assert failures == []


JSON_PIECES = [*'{}[],:"\\10- \n', '"a":', '"b"', ".5", "e3", "true", "NaN"]


@given(st.lists(st.sampled_from(JSON_PIECES), max_size=20).map("".join))
def test_the_spans_of_json_are_the_spans_of_the_decoder_of_python(text: str) -> None:
    found, at = [], 0
    while at < len(text):
        try:
            _, end = json.JSONDecoder().raw_decode(text, at) if text[at] in "{[" else (None, 0)
        except ValueError:
            end = 0
        found += [(at, end)] if end else []
        at = end or at + 1
    assert json_spans(text) == found


def test_the_request_to_repair_an_answer_with_many_problems_has_only_some_of_them() -> None:
    answer = json.dumps({"value": ["x"] * 5_000 + [{"y" * 10_000: 1}]})
    with pytest.raises(OutputError) as caught:
        ask(list[int], answer, limits=Limits(repairs=0))
    assert len(str(caught.value)) < 20_000


# Replies that end a run


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reason", ["refusal", "length", "content_filter"])
def test_a_reply_that_was_stopped_is_not_requested_again(mode: OutputMode, reason: str) -> None:
    session = Session()
    model = ScriptedModel.repeat(Reply(Message("assistant", '{"name": "Be'), finish_reason=reason))
    with pytest.raises(OutputStopped) as caught:
        Agent(model, output=OutputSpec(City, mode=mode)).run_sync("go", session=session)
    assert (caught.value.reason, caught.value.text, len(model.requests)) == (reason, '{"name": "Be', 1)
    assert roles(session.conversation) == "user assistant"
    assert isinstance(caught.value, OutputError)


def test_a_truncated_call_of_the_answer_ends_the_run_too() -> None:
    model = ScriptedModel.repeat(Reply(answering('{"name": "Be'), finish_reason="length"))
    with raises(OutputStopped, reason="length"):
        Agent(model, output=OutputSpec(City, mode="tool")).run_sync("go")
    assert len(model.requests) == 1


def test_truncated_text_is_still_text() -> None:
    model = ScriptedModel([Reply(Message("assistant", "Half a"), finish_reason="length")])
    result = Agent(model).run_sync("go")
    assert (result.output, result.finish_reason) == ("Half a", "length")


def test_a_limit_returns_no_text_instead_of_a_typed_answer() -> None:
    for mode in MODES:
        model = ScriptedModel.repeat("Bern!")
        agent = Agent(model, output=OutputSpec(City, mode=mode), limits=Limits(steps=1, on_limit="return", repairs=9))
        assert agent.run_sync("go").output is None


# Validators


@dataclass
class Atlas:
    known: set[str]


def test_a_validator_may_request_another_answer_and_change_the_answer() -> None:
    async def exists(city: City, context: ToolContext[Atlas]) -> City:
        if city.name not in context.deps.known:
            raise AskAgain(f"there is no {city.name}; name one that exists")
        return city

    def louder(city: City) -> City:
        return city.model_copy(update={"name": city.name.upper()})

    model = ScriptedModel(['{"name": "Berm", "inhabitants": 9}', BERN])
    spec = OutputSpec(City, output_validator=[exists, louder])
    result = Agent(model, output=spec, deps=Atlas).run_sync("go", deps=Atlas({"Bern"}))
    assert result.output == City(name="BERN", inhabitants=9)
    assert "there is no Berm; name one that exists" in model.requests[1].messages[-1].text
    assert_effects(result, ["Begin", ..., "CheckOutput", "Append", "CallModel", "Append", "CheckOutput"])


def test_a_request_of_a_validator_counts_as_a_repair_and_other_exceptions_end_the_run() -> None:
    def never(city: City) -> None:
        raise AskAgain("no")

    model = ScriptedModel.repeat(BERN)
    with raises(OutputError, problems="no"):
        Agent(model, output=OutputSpec(City, output_validator=never), limits=Limits(repairs=1)).run_sync("go")
    assert len(model.requests) == 2

    def broken(city: City) -> None:
        raise LookupError("gone")

    with raises(LookupError, args=("gone",)):
        Agent(ScriptedModel([BERN]), output=OutputSpec(City, output_validator=broken)).run_sync("go")


def test_text_can_be_validated_and_none_keeps_the_text() -> None:
    def polite(text: str) -> None:
        if "please" not in text:
            raise AskAgain("say please")

    model = ScriptedModel(["Go.", "Go, please."])
    assert Agent(model, output=OutputSpec(str, output_validator=polite)).run_sync("go").output == "Go, please."


def test_a_run_resumes_after_the_request_of_a_validator() -> None:
    seen: list[str] = []

    def check(city: City) -> None:
        seen.append(city.name)
        if city.name != "Bern":
            raise AskAgain("not that one")

    spec = OutputSpec(City, output_validator=check)
    model = ScriptedModel(['{"name": "Rome", "inhabitants": 1}', OSError("gone")])
    with raises(OSError, args=("gone",)) as caught:
        Agent(model, output=spec, name="a").run_sync("go")
    journal = Journal.loads(caught.value.journal.dumps())  # type: ignore[attr-defined]
    result = Agent(ScriptedModel([BERN]), output=spec, name="a").resume_sync(journal)
    assert (result.output.name, seen) == ("Bern", ["Rome", "Bern"])


# Functions that end a run


def test_a_function_is_called_with_the_answer_and_ends_the_run() -> None:
    called: list[tuple[str, int, str]] = []

    def book(flight: str, seats: int, context: ToolContext[Atlas]) -> City:
        """Book a flight."""
        called.append((flight, seats, context.call_id))
        return City(name=flight, inhabitants=seats)

    session = Session()
    model = ScriptedModel([calling("look"), "I would book.", answering('{"flight": "LX1", "seats": "x"}', name="book"),
                           answering('{"flight": "LX1", "seats": 2}', name="book")])  # fmt: skip
    result = Agent(model, tools=[look], output=book, deps=Atlas).run_sync("go", session=session, deps=Atlas(set()))
    assert result.output == City(name="LX1", inhabitants=2)
    assert [call[:2] for call in called] == [("LX1", 2)]
    assert [tool.name for tool in model.requests[0].tools] == ["look", "book"]
    assert "call the tool book" in model.requests[2].messages[-1].text
    assert "seats" in model.requests[3].messages[-1].text
    assert roles(session.conversation).endswith("tool assistant tool assistant")
    assert valid(session.conversation)
    assert session.conversation[-1].text == '{"name": "LX1", "inhabitants": 2}'


def test_a_function_that_fails_may_be_called_again_within_the_limit_of_repairs() -> None:
    def book(flight: str) -> str:
        """Book a flight."""
        raise ValueError("full")

    model = ScriptedModel.repeat(answering('{"flight": "LX1"}', name="book"))
    with raises(OutputError, problems="book failed: ValueError: full"):
        Agent(model, output=book, limits=Limits(repairs=1)).run_sync("go")
    assert len(model.requests) == 2


def test_an_async_function_is_awaited_and_its_result_checked() -> None:
    async def book(flight: str) -> str:
        """Book a flight."""
        return f"booked {flight}"

    def check(text: str) -> None:
        if text.endswith("LX0"):
            raise AskAgain("another flight")

    model = ScriptedModel([answering(f'{{"flight": "LX{number}"}}', name="book") for number in (0, 1)])
    result: RunResult[str] = Agent(model, output=OutputSpec(book, output_validator=check)).run_sync("go")
    assert result.output == "booked LX1"
    assert "another flight" in model.requests[1].messages[-1].text


def test_a_function_is_not_called_again_when_its_run_is_repeated() -> None:
    called: list[str] = []

    def book(flight: str) -> City:
        """Book a flight."""
        called.append(flight)
        return City(name=flight, inhabitants=1)

    session = Session()
    replies = [answering('{"flight": "LX1"}', name="book")]
    first = Agent(ScriptedModel(replies), output=book, name="a").run_sync("go", session=session, run_id="r1")
    again = Agent(ScriptedModel([]), output=book, name="a").run_sync("go", session=session, run_id="r1")
    resumed = Agent(ScriptedModel([]), output=book, name="a").resume_sync(first.journal, session=session)
    stored = Journal.loads(first.journal.dumps())
    loaded = Agent(ScriptedModel([]), output=book, name="a").resume_sync(stored, session=session)
    assert first.output == again.output == resumed.output == loaded.output == City(name="LX1", inhabitants=1)
    assert called == ["LX1"]


@pytest.mark.parametrize(
    ("returned", "kind"),
    [
        (None, None),
        ("plain", str),
        ('"quoted"', str),
        ("7", str),
        (7, int),
        ([1], list[int]),
        ({"a": 1}, dict[str, int]),
    ],
)
def test_the_result_of_a_function_is_the_same_after_a_journal(returned: Any, kind: Any) -> None:
    def finish() -> Any:
        """Finish."""
        return returned

    finish.__annotations__["return"] = kind
    first = Agent(ScriptedModel([answering("{}", name="finish")]), output=finish, name="a").run_sync("go")
    stored = Journal.loads(first.journal.dumps())
    resumed = Agent(ScriptedModel([]), output=finish, name="a").resume_sync(stored)
    assert first.output == resumed.output == returned


def test_a_chain_without_an_agent_refuses_an_output_function() -> None:
    with raises(AgentDefinitionError, name="output"):
        Chain(ScriptedModel([]), output=look).run_sync("go")  # type: ignore[arg-type]


def test_a_chain_without_an_agent_supports_every_mode() -> None:
    for mode in MODES:
        reply = answering(BERN) if mode == "tool" else BERN
        assert Chain(ScriptedModel([reply]), output=OutputSpec(City, mode=mode)).run_sync("go").name == "Bern"  # type: ignore[arg-type]


# Partial answers


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("mode", ["native", "prompted"])
def test_partial_answers_are_events(mode: OutputMode, is_async: bool) -> None:
    text = '{"name": "Bern and around", "inhabitants": 134000}'
    events: list[Any] = []

    async def listen(event: Any) -> None:
        events.append(event)

    agent = Agent(ScriptedModel([text if mode == "native" else f"Well:\n{text}"]), output=OutputSpec(City, mode=mode))
    agent.run_sync("go", on_event=listen if is_async else events.append)
    grown = [event.output for event in events if isinstance(event, PartialOutput)]
    assert grown[-1] == json.loads(text)
    assert {"name": "Bern and"} in grown
    assert all(before != after for before, after in pairwise(grown))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)).endswith(text)


def test_partial_answers_do_not_have_the_wrapper() -> None:
    agent = Agent(ScriptedModel(['{"value": [1, 2, 3]}']), output=list[int])
    grown = [event.output for event in agent.stream_sync("go") if isinstance(event, PartialOutput)]
    assert grown[-1] == [1, 2, 3]
    assert [1] in grown or [1, 2] in grown


def test_text_has_no_partial_outputs() -> None:
    agent = Agent(ScriptedModel(['{"name": 1}']))
    assert not [event for event in agent.stream_sync("go") if isinstance(event, PartialOutput)]


def test_a_long_answer_is_read_in_linear_time() -> None:
    def seconds(count: int) -> float:
        text = json.dumps({"value": [f"text {number}" for number in range(count)]})
        model = ScriptedModel([text])
        start = time.process_time()
        grown = [
            event for event in Agent(model, output=list[str]).stream_sync("go") if isinstance(event, PartialOutput)
        ]
        assert len(grown[-1].output) == count
        return time.process_time() - start

    small, large = seconds(1_000), seconds(8_000)
    assert large < max(small, 0.05) * 40


def test_a_stream_that_is_interrupted_has_sent_the_partial_answers() -> None:
    events: list[Any] = []
    with raises(ModelInterrupted, text='{"name": "Be'):
        Agent(ScriptedModel([CutOff('{"name": "Be')]), output=City).run_sync("go", on_event=events.append)
    assert {"name": "Be"} in [event.output for event in events if isinstance(event, PartialOutput)]
