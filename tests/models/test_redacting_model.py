"""A redacting model sends placeholders instead of personal data, and restores the data in replies."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from agentkit import (
    Agent,
    Message,
    ModelSettings,
    OpenAIModel,
    PromptContext,
    Reply,
    ScriptedModel,
    Session,
    TextDelta,
    ToolCall,
    tool,
)
from agentkit.errors import AgentDefinitionError
from agentkit.guards import GuardError, PersonalText, RedactingModel, personal_data
from agentkit.models import Delta, FallbackModel, ModelInterrupted, ModelUnavailable
from agentkit.prompts import (
    Conversation,
    Document,
    Image,
    Layers,
    MemoPrompt,
    Template,
    Text,
    TextPrompt,
    ToolSpec,
    Url,
    compose,
)
from agentkit.testing import CutOff
from agentkit_prompts.composition.tools_and_output import OutputRequest
from tests.raising import raises

MAIL = "ada@example.com"
IBAN = "DE89 3704 0044 0532 0130 00"
CARD = "4111 1111 1111 1111"
PLACEHOLDER = re.compile(r"\[[A-Z]+_[a-z2-7]{10}\]")
SENT: list[Any] = []


@tool
def mail(to: str, text: str) -> str:
    """Send a mail."""
    SENT.append((to, text))
    return f"sent to {to}"


def sent_text(composition: Any) -> str:
    return "\n".join([str(composition.to_openai()), *[tool.json for tool in composition.tools]])


class Echo:
    """Replies with the last text that it receives, in pieces, and keeps the composition."""

    name = "echo"

    def __init__(self, size: int = 1, reply: Any = None) -> None:
        self.received: list[Any] = []
        self.size = size
        self.reply = reply

    async def request(self, composition: Any, *, on_delta: Any = None) -> Reply:
        self.received.append(composition)
        message = Message("assistant", composition.messages[-1].text)
        if self.reply is not None:
            message = self.reply(composition)
        if on_delta is not None:
            deltas: list[tuple[str, Any]] = [(message.text, "text")]
            for text, kind in [*deltas, *[(call.arguments, "arguments") for call in message.tool_calls]]:
                for at in range(0, len(text), self.size):
                    result = on_delta(Delta(text[at : at + self.size], kind))
                    if result is not None:
                        await result
        return Reply(message)


def run_and_stream(model: Any, text: str, **options: Any) -> tuple[Any, str]:
    """Return the result of a run, and the streamed text."""
    events: list[Any] = []
    result = Agent(model, **options).run_sync(text, on_event=events.append)
    return result, "".join(event.text for event in events if isinstance(event, TextDelta))


def test_the_detector_finds_data_and_only_data() -> None:
    cases = {
        MAIL: "EMAIL",
        "a.b+c@sub.example.co.uk": "EMAIL",
        "ü@bücher.example": "EMAIL",
        "a@shop.xn--p1ai": "EMAIL",
        IBAN: "IBAN",
        "de89370400440532013000": "IBAN",
        "GB82-WEST-1234-5698-7654-32": "IBAN",
        CARD: "CARD",
        "378282246310005": "CARD",
        "4111-1111-1111-1111": "CARD",
        "4111\u00a01111\u00a01111\u00a01111": "CARD",
        "+49 170 1234567": "PHONE",
        "+1 (212) 555-0199": "PHONE",
        "0049 30 123456": "PHONE",
        "030/1234567": "PHONE",
        "(212) 555-0199": "PHONE",
        "1-800-555-0199": "PHONE",
        "192.168.0.17": "IP",
        "2001:db8::8a2e:370:7334": "IP",
    }
    for text, kind in cases.items():
        for around in ("{}", "Write to {}.", "({}), please", "“{}”\n", "x: {};"):
            whole = around.format(text)
            found = [(whole[each.start : each.end], each.kind) for each in personal_data(whole)]
            assert (text, kind) in found, (whole, found)
    for text in (
        "4111 1111 1111 1112",
        "at 12:34:56 on 2024-01-31",
        "999.1.2.3",
        "price 1,234.50 or 12.5",
        "user@localhost",
        "version 1.2.3",
        "order 17",
        "::",
    ):
        assert list(personal_data(text)) == [], text
    assert "IBAN" not in {each.kind for each in personal_data("DE89 3704 0044 0532 0130 01")}


def test_a_request_contains_placeholders_and_the_program_the_data() -> None:
    model = Echo()
    session = Session("s")
    text = f"I am {MAIL}, pay {IBAN} by {CARD}."
    result = Agent(RedactingModel(model), "You help.").run_sync(text, session=session)
    sent = sent_text(model.received[0])
    assert not any(value in sent for value in (MAIL, IBAN, CARD))
    assert [kind[1:-12] for kind in PLACEHOLDER.findall(sent)] == ["EMAIL", "IBAN", "CARD"]
    assert result.output == text
    assert [message.text for message in session.conversation] == [text, text]
    assert MAIL in result.journal.dumps()


def test_the_same_text_has_the_same_placeholder_in_a_session() -> None:
    model = Echo()
    agent, session = Agent(RedactingModel(model)), Session("s")
    for text in (f"a {MAIL}", f"b {MAIL} eve@example.com", f"eve@example.com {MAIL}"):
        agent.run_sync(text, session=session)
    prompts = [[message.text for message in composition.messages] for composition in model.received]
    # Each prompt starts with the earlier prompt, so that a cache finds it.
    assert prompts[2][: len(prompts[1])] == prompts[1] and prompts[1][: len(prompts[0])] == prompts[0]
    first, second = PLACEHOLDER.findall(prompts[2][2])
    assert PLACEHOLDER.findall(prompts[2][-1]) == [second, first]
    other, same = RedactingModel(Echo()), [RedactingModel(Echo(), key="k" * 16).redact(MAIL) for _ in range(2)]
    assert other.redact(MAIL) != first and same[0] == same[1] != first


def test_each_untrusted_place_is_redacted_and_trusted_places_on_request() -> None:
    layers = Layers(
        [f"Owner {MAIL}.", TextPrompt(Template("Root {{ additional_kwargs.root }}"), volatility="session")],
        before_input=MemoPrompt(),
    )
    call = ToolCall("c", "mail", json.dumps({"to": MAIL, "n": 4111111111111111}))
    context = PromptContext(
        user_input={
            "input": [f"Hi {MAIL}", Image(Url(f"https://x.example/{MAIL}"))],
            "additional_kwargs": {"root": MAIL},
        },
        conversation=Conversation(
            [Message("user", MAIL), Message("assistant", MAIL, [call]), Message("tool", CARD, (), "c")]
        ),
        documents=[Document(f"d {MAIL}", title=MAIL)],
        tools=[ToolSpec("a", MAIL), ToolSpec("b", MAIL, {"type": "object", "description": MAIL}, trust="untrusted")],
    )
    composition = compose(layers, context)
    untrusted, _ = RedactingModel(Echo()).redacted(composition)
    text = sent_text(untrusted)
    assert text.count(MAIL) == 4, text  # the instructions, the trusted tool twice, and the address of the image
    assert "4111" not in text
    everywhere, found = RedactingModel(Echo(), layers="all").redacted(composition)
    assert sent_text(everywhere).count(MAIL) == 1
    assert {item.kind for item in found} == {"EMAIL", "CARD"}
    assert compose(layers, context).messages == composition.messages


def test_streams_and_arguments_are_restored_with_any_split() -> None:
    def calls(composition: Any) -> Message:
        if composition.messages[-1].role == "tool":
            return Message("assistant", f"[EMAIL_ done {composition.messages[-1].text} [")
        placeholder = PLACEHOLDER.findall(composition.messages[-1].text)[0]
        escaped = placeholder.replace("[", "\\u005b").replace("_", "\\u005F")
        return Message(
            "assistant",
            "",
            [ToolCall("c", "mail", f'{{"to": "{escaped}", "text": "[X\\u005b{escaped}[{placeholder}] [X_"}}')],
        )

    for size in (1, 2, 3, 5, 7, 100):
        SENT.clear()
        result, streamed = run_and_stream(RedactingModel(Echo(size, calls)), f"Mail {MAIL}", tools=[mail])
        assert [(MAIL, f"[X[{MAIL}[{MAIL}] [X_")] == SENT, size
        assert result.output == streamed == f"[EMAIL_ done sent to {MAIL} [", size


def test_an_escaped_backslash_in_json_starts_no_placeholder() -> None:
    def calls(composition: Any) -> Message:
        if composition.messages[-1].role == "tool":
            return Message("assistant", "done")
        (placeholder,) = PLACEHOLDER.findall(composition.messages[-1].text)
        text = rf"\\u005b{placeholder[1:]}"
        return Message("assistant", "", [ToolCall("c", "mail", f'{{"to": "{placeholder}", "text": "{text}"}}')])

    SENT.clear()
    run_and_stream(RedactingModel(Echo(100, calls)), f"Mail {MAIL}", tools=[mail])
    ((to, text),) = SENT
    assert to == MAIL
    assert text.startswith("\\u005bEMAIL_")


def test_values_are_escaped_in_json_and_in_typed_output() -> None:
    def quoted(text: str) -> Iterator[PersonalText]:
        for match in re.finditer(r'O"Neil\n', text):
            yield PersonalText(match.start(), match.end(), "NAME")

    def typed(composition: Any) -> Message:
        return Message("assistant", json.dumps({"value": PLACEHOLDER.findall(composition.messages[-1].text)}))

    result, _ = run_and_stream(RedactingModel(Echo(3, typed), [quoted]), 'I am O"Neil\n.', output=list[str])
    assert result.output == ['O"Neil\n']
    # The answer is the arguments of a tool, so the text is not JSON.
    answer = ToolSpec("answer", "", {"type": "object"})
    request = OutputRequest({"type": "object"}, mode="tool", tool=answer)
    composition = compose(Layers("S"), PromptContext(user_input='I am O"Neil\n.'), output_schema=request)
    reply = asyncio.run(RedactingModel(Echo(), [quoted]).request(composition))
    assert reply.message.text == 'I am O"Neil\n.'


def test_untrusted_text_cannot_forge_a_placeholder() -> None:
    model = RedactingModel(Echo(4), key="k" * 16)
    forged = model.redact(MAIL)
    assert PLACEHOLDER.fullmatch(forged)
    # The text of the attacker stays a text: it does not become the address of the victim.
    result, streamed = run_and_stream(model, f"Victim {MAIL}. Attacker {forged}.")
    assert result.output == streamed == f"Victim {MAIL}. Attacker {forged}."
    layers = Layers([f"Ask {MAIL} [EMAIL_", TextPrompt(Template("{{ additional_kwargs.x }}"), volatility="session")])
    composition = compose(layers, PromptContext(user_input={"input": "", "additional_kwargs": {"x": forged}}))
    assert forged not in sent_text(model.redacted(composition)[0])


def test_data_across_texts_of_different_origin_is_redacted_once() -> None:
    layers = Layers(
        TextPrompt(Template("Mail {{ additional_kwargs.a }}@{{ additional_kwargs.b }}!"), volatility="session")
    )
    context = PromptContext(user_input={"input": "Hi", "additional_kwargs": {"a": "ada", "b": "example.com"}})
    composition, found = RedactingModel(Echo()).redacted(compose(layers, context))
    assert [item.text for item in found] == [MAIL]
    assert re.fullmatch(r"Mail \[EMAIL_\w+\]!", composition.messages[0].text)


def test_parts_names_and_repeated_keys_of_stored_messages_are_redacted() -> None:
    user, domain = MAIL.split("@")
    history = [
        Message("user", (Text(f"{user}@"), Text(domain), Text(CARD), Text("5 ok")), name=MAIL),
        Message("assistant", "", [ToolCall("c4111111111111111", "f", f'{{"to": "{MAIL}", "to": 1}}')]),
        Message("tool", "r", tool_call_id="c4111111111111111", name="f"),
    ]
    composition, found = RedactingModel(Echo()).redacted(
        compose(Layers("S"), PromptContext(user_input="Hi", conversation=history))
    )
    message, reply, result = composition.conversation
    assert {item.text for item in found} == {MAIL, CARD}
    assert [PLACEHOLDER.sub("_", part.text) for part in message.parts if isinstance(part, Text)] == ["_", "_", "5 ok"]
    assert PLACEHOLDER.fullmatch(message.name or "")
    assert reply.tool_calls[0].arguments == '{"to": 1}'
    assert reply.tool_calls[0].id == result.tool_call_id == "c4111111111111111"
    assert MAIL not in sent_text(composition)


def test_overlapping_findings_of_detectors_become_one_placeholder() -> None:
    def words(text: str) -> list[PersonalText]:
        return [PersonalText(match.start(), match.end(), "WORD") for match in re.finditer(r"\w+", text)]

    text = RedactingModel(Echo(), [words, personal_data]).redact(f"x {MAIL}")
    assert [each[1:-12] for each in PLACEHOLDER.findall(text)] == ["WORD", "EMAIL"]


def test_a_detector_that_fails_or_returns_an_invalid_value_sends_nothing() -> None:
    def fails(text: str) -> list[PersonalText]:
        raise ValueError("broken")

    for detect in (
        fails,
        lambda text: [PersonalText(0, 10_000, "X")],
        lambda text: [PersonalText(-1, 1, "X")],
        lambda text: [PersonalText(0, 1, "an x")],
        lambda text: [1],
        lambda text: 1,
    ):
        model = Echo()
        with raises(GuardError, stage="redaction"):
            Agent(RedactingModel(model, [detect])).run_sync("Hi there")  # type: ignore[list-item]
        assert model.received == []


def test_the_text_of_an_error_and_fallbacks_are_restored() -> None:
    def cut(composition: Any) -> CutOff:
        return CutOff(composition.messages[-1].text)

    with pytest.raises(ModelInterrupted) as caught:
        Agent(RedactingModel(ScriptedModel([cut]))).run_sync(f"Hi {MAIL}")
    assert MAIL in caught.value.text
    broken, echo = ScriptedModel.repeat(ModelUnavailable("down", model="m")), Echo()
    for model in (RedactingModel(FallbackModel(broken, echo)), FallbackModel(broken, RedactingModel(echo))):
        result, streamed = run_and_stream(model, f"Hi {MAIL}")
        assert result.output == streamed == f"Hi {MAIL}"
        assert MAIL not in sent_text(echo.received[-1])


def test_the_model_keeps_its_capabilities() -> None:
    inner = OpenAIModel("gpt-5-mini", api_key="x", settings=ModelSettings(max_tokens=9))
    model = RedactingModel(inner)
    assert (model.name, model.output_modes, model.price) == (inner.name, inner.output_modes, inner.price)
    assert model.with_settings(ModelSettings(seed=7)).settings.seed == 7
    assert RedactingModel("offline").name == "offline"


def test_invalid_arguments_are_refused_together() -> None:
    with raises(AgentDefinitionError, name="model") as caught:
        RedactingModel(object(), detectors=[1], layers="some", key="short")  # type: ignore[arg-type, list-item]
    assert all(name in str(caught.value) for name in ("model", "detectors", "layers", "key"))
    for detectors in ((), "x", None, personal_data):
        with raises(AgentDefinitionError, name="detectors"):
            RedactingModel(Echo(), detectors)  # type: ignore[arg-type]


def test_concurrent_requests_do_not_share_data() -> None:
    model = RedactingModel(Echo(2))

    async def both() -> list[str]:
        agents = [Agent(model).run(f"I am {name}@example.com") for name in ("ada", "bob", "eve")]
        return [result.output for result in await asyncio.gather(*agents)]

    assert asyncio.run(both()) == [f"I am {name}@example.com" for name in ("ada", "bob", "eve")]
