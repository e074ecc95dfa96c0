"""The offline model: quotes the prompt, calls the tool that the user names, and invents no text."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentkit import Agent, Composition, Document, Layers, Message, OfflineModel, PromptContext, Reply, ToolCall
from agentkit.errors import AgentDefinitionError
from agentkit.models import ModelRequestError
from agentkit.prompts import Conversation, MemoPrompt, RecalledMessage, RecalledPrompt, TextPrompt, ToolSpec, compose
from tests.raising import raises

README = Document(
    "# Fernlight\n\nFernlight renders maps on paper, with\nink from walnuts. It is slow.\n\n"
    "## Licence\n\nApache-2.0, as the file says.\n\n- Python 3.11 to 3.14\n- Linux and macOS",
    id="c1",
    source="README.md",
)
PETS = Document("Cats purr. Dogs bark at night; 猫在睡觉。狗在叫。", id="c2", source="pets.md")
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "number"}}, "required": ["a", "b"]}
ADD = ToolSpec("add", "Add two numbers.", NUMBERS)
NOW = ToolSpec("current_time", "Tell the time.")
TYPES = {name: {"type": name} for name in ("string", "integer", "boolean", "array", "object", "number")}
ANY = ToolSpec("any.thing", "", {"type": "object", "properties": {**TYPES, "free": {}}})


def composed(text: str, *, layers: Layers | None = None, **context: Any) -> Composition:
    context.setdefault("documents", [README, PETS])
    context.setdefault("tools", [ADD, NOW, ANY])
    return compose(layers or Layers(before_input=MemoPrompt()), PromptContext(user_input=text, **context))


def ask(text: str, **context: Any) -> Reply:
    return asyncio.run(OfflineModel().request(composed(text, **context)))


def called(text: str) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in ask(text).message.tool_calls]


@pytest.mark.parametrize(
    ("question", "quote"),
    [
        ("What is its ink made from?", "“Fernlight renders maps on paper, with\nink from walnuts.” [README.md#c1]"),
        ("What do dogs do at night?", "“Dogs bark at night;"),
        ("Under which licence is it?", "“Apache-2.0, as the file says.” [README.md#c1]"),
        ("Which Python versions does it run on?", "“- Python 3.11 to 3.14” [README.md#c1]"),
        ("狗在做什么？", "“狗在叫。” [pets.md#c2]"),
    ],
)
def test_a_question_is_answered_with_the_matching_sentence_and_its_source(question: str, quote: str) -> None:
    reply = ask(question)
    assert reply.message.text.startswith(quote)
    assert reply.finish_reason == "stop"


def test_every_answer_contains_the_note_about_the_offline_model() -> None:
    for text in ("What do dogs do?", "Who won in 1966?", "use add"):
        assert "not a language model" in ask(text).message.text


@pytest.mark.parametrize("question", ["What is the capital of France?", "Who?", "", "???", "the of and"])
def test_without_a_matching_chunk_the_answer_reports_it_and_quotes_nothing(question: str) -> None:
    reply = ask(question)
    assert reply.message.text.startswith("None of the recalled chunks answers this question.")
    assert "“" not in reply.message.text


def test_without_chunks_the_answer_reports_that_nothing_was_recalled() -> None:
    assert ask("What do dogs do?", documents=[]).message.text.startswith("Nothing was recalled")


def test_a_chunk_that_is_recalled_but_not_in_the_prompt_is_not_quoted() -> None:
    only_first = Layers(before_input=TextPrompt("{{ documents[0].text }}"))
    assert "bark" not in ask("What do dogs do at night?", layers=only_first).message.text
    assert "walnuts" in ask("What is the ink from?", layers=only_first).message.text
    assert ask("What do dogs do at night?", layers=Layers("No documents.")).message.text.startswith("Nothing")


def test_recalled_messages_are_quoted_without_a_label_like_in_the_prompt() -> None:
    message = RecalledMessage("The heron nests behind the weir.", "user", session="walk", position=3)
    ctx = PromptContext(user_input="Where does the heron nest?", recalled=[message])
    composition = compose(Layers(before_input=RecalledPrompt()), ctx)
    reply = asyncio.run(OfflineModel().request(composition))
    assert reply.message.text.startswith("“The heron nests behind the weir.”\n")


def test_a_typed_answer_needs_another_offline_model() -> None:
    agent = Agent(OfflineModel(), "Count.", output=int)
    with raises(ModelRequestError, name="output"):
        agent.run_sync("How many?")


def test_chunks_shown_through_a_filter_are_found_by_their_text() -> None:
    joined = Layers(before_input=TextPrompt("{{ documents | map(attribute='text') | join('\n') }}"))
    assert "bark at night" in ask("What do dogs do at night?", layers=joined).message.text


@given(st.text(max_size=200), st.text(max_size=40))
@example("ASSISTANT:", "")
def test_a_quote_is_always_verbatim(text: str, question: str) -> None:
    chunk = Document(f"{text} Zebras like marmalade. {text}", id="z")
    documents = [chunk]
    answer = ask(f"{question} zebras marmalade", documents=documents, tools=[]).message.text
    shown = "\n".join(message.text for message in composed("", documents=documents).messages)
    for piece in answer.split("“")[1:]:
        quote = piece.rsplit("” [z#", 1)[0].removesuffix("” ...")
        assert quote in shown or "”" in text or "“" in text


def test_a_very_long_sentence_is_cut_and_marked() -> None:
    answer = ask("walrus", documents=[Document("walrus " * 200, id="w", source="w.md")]).message.text
    assert "walrus” ... [w.md#w]" in answer
    assert len(answer) < 600


@pytest.mark.parametrize(
    ("document", "label"),
    [
        (Document("Walrus.", source="a.md", position=2), "[a.md#2]"),
        (Document("Walrus.", source="a.md"), "[a.md#4806d3]"),
        (Document("Walrus.", title="Sea"), "[Sea#4806d3]"),
        (Document("Walrus."), "[document#4806d3]"),
        (Document("Walrus.", id="7"), "[7#c98a8e]"),
    ],
)
def test_a_source_has_the_best_available_name(document: Document, label: str) -> None:
    assert f"“Walrus.” {label}" in ask("walrus", documents=[document]).message.text


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("use add with a=2, b=3", [("add", {"a": 2, "b": 3})]),
        ("Please call the tool `add` with a = 2 and b: 3.5.", [("add", {"a": 2, "b": 3.5})]),
        ('add {"a": 2, "b": 3}', [("add", {"a": 2, "b": 3})]),
        ('any.thing{"k": 1}', [("any.thing", {"k": 1})]),
        ("add(a=2, b=3)!", [("add", {"a": 2, "b": 3})]),
        ("add a is 2, b is -3", [("add", {"a": 2, "b": -3})]),
        ("use add with a=2, b=3 and add with a=4, b=5", [("add", {"a": 2, "b": 3}), ("add", {"a": 4, "b": 5})]),
        ("use add with a=two, b=3", [("add", {"a": "two", "b": 3})]),
        ("use the current_time tool", [("current_time", {})]),
        ("current_time() and add(a=1,b=2)", [("current_time", {}), ("add", {"a": 1, "b": 2})]),
        (
            "use any.thing with string=\"two words\", boolean=yes, array=[1, 2], object={\"k\": 1}",
            [("any.thing", {"k": 1})],
        ),
        (
            "use any.thing with string=007 boolean=no integer=5 free=abc",
            [("any.thing", {"string": "007", "boolean": False, "integer": 5, "free": "abc"})],
        ),
        (
            "use any.thing with string='a b', free=\"x\", array=[1, [2]]",
            [("any.thing", {"string": "a b", "free": "x", "array": [1, [2]]})],
        ),
        ("use any.thing with number=2024-01-01", [("any.thing", {"number": "2024-01-01"})]),
        ("use any.thing with string=", [("any.thing", {})]),
        ("use any.thing {broken with integer=1", [("any.thing", {"integer": 1})]),
    ],
)  # fmt: skip
def test_a_tool_is_called_if_the_user_names_it(text: str, calls: list[tuple[str, Any]]) -> None:
    assert called(text) == calls
    assert ask(text).finish_reason == "tool_calls"


def test_calls_of_one_reply_have_separate_ids() -> None:
    ids = [call.id for call in ask("add(a=1,b=2) add(a=1,b=2)").message.tool_calls]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "Please add 2 and 3",
        "What does add do?",
        "how should I use add?",
        "read-add a=1 b=2",
        "the current_time flies",
        "address a=1, b=2",
    ],
)
def test_a_name_that_is_only_mentioned_is_not_a_call(text: str) -> None:
    assert called(text) == []


def test_a_call_is_searched_next_to_each_of_many_names() -> None:
    # A search of all text before each name would take very long.
    assert called("add, " * 10_000 + "use add with a=1, b=2") == [("add", {"a": 1, "b": 2})]


def test_an_order_with_missing_arguments_names_them() -> None:
    assert ask("use add with a=2").message.text.startswith("The tool add also needs b: use add with b=...")


def test_a_tool_that_is_not_offered_is_not_called() -> None:
    assert not ask("use add with a=2, b=3", tools=[NOW]).message.tool_calls


def test_after_the_results_of_tools_the_answer_quotes_them() -> None:
    calls = (ToolCall("1", "add", "{}"), ToolCall("2", "add", "{}"))
    traffic = Conversation(
        [
            Message("assistant", tool_calls=calls),
            Message("tool", "5", tool_call_id="1"),
            Message("tool", "b: field required", tool_call_id="2"),
        ]
    )
    reply = ask("use add with a=2, b=3", intermediate=traffic)
    assert reply.message.text.startswith("5\nb: field required\n")
    assert not reply.message.tool_calls


def test_the_same_prompt_gets_the_same_answer() -> None:
    assert len({ask("What do dogs do at night?") for _ in range(3)}) == 1


def test_the_streamed_words_are_the_answer() -> None:
    heard: list[str] = []
    reply = asyncio.run(
        OfflineModel().request(composed("What do dogs do?"), on_delta=lambda one: heard.append(one.text))
    )
    assert "".join(heard) == reply.message.text
    assert len(heard) > 3


schemas = st.recursive(
    st.none() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["properties", "required", "type"]), inner),
)


@given(st.text(max_size=60), schemas)
def test_any_text_and_any_schema_is_accepted(text: str, schema: Any) -> None:
    tool = ToolSpec("t", "", schema if isinstance(schema, dict) else {"properties": schema, "required": schema})
    asyncio.run(OfflineModel().request(composed(f"use t with {text} a={text}", tools=[tool])))


def test_an_unknown_tool_that_is_ordered_is_named() -> None:
    from agentkit import Agent, tool

    @tool
    def stock(item: str) -> str:
        """The number of items."""
        return f"3 {item}"

    agent = Agent(OfflineModel(), "Rules.", tools=[stock])
    assert "Unknown tool 'stok'; did you mean 'stock'?" in agent.run_sync("Use stok with item=tea.").output
    assert "Unknown tool 'delivery_date'" in agent.run_sync("Use delivery_date with order=17.").output
    assert "Unknown tool" not in agent.run_sync("Use it with care, or with a=b.").output


@pytest.mark.parametrize("given", [{"session_len": 600}, {"control_tokens": "reject"}])
def test_options_of_a_chat_template_need_a_chat_template(given: Any) -> None:
    with raises(AgentDefinitionError, name="chat_template", value=next(iter(given))):
        OfflineModel(**given)


def test_text_directly_after_a_heading_is_quoted() -> None:
    note = Document(
        "# Returns\nOrders may be returned within 30 days.\n## Refunds\nMoney is back in a week.", source="n.md"
    )
    agent = Agent(OfflineModel(), layers=Layers("Answer.", before_input=MemoPrompt()))
    for question, answer in (("How long may orders be returned?", "30 days"), ("What of refunds?", "a week")):
        found = agent.run_sync(PromptContext(user_input=question, documents=[note])).output
        assert answer in found and "#" not in found.partition("[")[0], found
