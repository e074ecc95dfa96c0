"""Citations: the documents that an answer names by their labels, and the labels without a document."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from agentkit import Agent, Citation, Message, RunResult, ScriptedModel, Session, ToolCall, tool
from agentkit.prompts import Document, Layers, MemoPrompt, Size, TextPrompt

BLUE = Document("The sky is blue.", source="sky.md", position=0)
GREEN = Document("Grass is green.", source="grass, or lawn; a study.md", position=3)
FOUND = [BLUE, GREEN]


def answered(text: str, layers: Layers | None = None, found: list[Document] = FOUND) -> RunResult[str]:
    return Agent(ScriptedModel([text]), layers=layers, memory=lambda query: found).run_sync("Which colours?")


def test_labels_that_the_answer_uses_are_citations_with_their_places() -> None:
    text = "Blue [sky.md#0]; and green [grass, or lawn; a study.md#3]. Blue again [ sky.md#0 ]."
    result = answered(text)
    assert [text[one.start : one.end] for one in result.citations] == ["sky.md#0", GREEN.label, "sky.md#0"]
    assert result.citations[0] == Citation("sky.md#0", BLUE, 6, 14)
    assert [one.document for one in result.citations] == [BLUE, GREEN, BLUE]
    assert result.unknown_labels == ()


def test_several_labels_may_share_brackets() -> None:
    other = Document("x", source="b.md", position=1)
    result = answered("So [sky.md#0, b.md#1; c.md#7].", found=[BLUE, other])
    assert [one.document for one in result.citations] == [BLUE, other]
    assert result.unknown_labels == ("c.md#7",)


def test_a_label_without_a_document_is_no_citation_and_is_reported_once() -> None:
    result = answered("See [sky.md#9], [sky.md#9], [1], [sic], [x](y#z), [] and sky.md#0.")
    assert result.citations == () and result.unknown_labels == ("sky.md#9",)
    alone = Agent(ScriptedModel(["See [sky.md#0]."])).run_sync("x")
    assert alone.citations == () and alone.unknown_labels == ("sky.md#0",)


def test_a_document_that_the_prompt_does_not_show_cannot_be_cited() -> None:
    layers = Layers(before_input=MemoPrompt(size=Size(max=12, cut="items")))
    result = answered(f"[sky.md#0] [{GREEN.label}]", layers)
    assert "Grass" not in result.composition.user.text
    assert [one.document for one in result.citations] == [BLUE]
    through_a_filter = Layers(before_input=TextPrompt("{{ documents | map(attribute='text') | join(' ') }}"))
    assert len(answered("[sky.md#0]", through_a_filter).citations) == 1


def test_documents_with_equal_labels_are_cited_separately() -> None:
    twins = [
        Document("Ada earns five.", source="n.md", position=0),
        Document("Bob owes six.", source="n.md", position=0),
    ]
    text = answered("ok", found=twins).composition.user.text
    head = text[: text.index("\nBob")].splitlines()[-1]
    result = answered(f"Six {head}, not [n.md#0].", found=twins)
    assert [one.document.text for one in result.citations] == ["Bob owes six."]
    assert result.unknown_labels == ("n.md#0",)


class Answer(BaseModel):
    colour: str


@pytest.mark.parametrize("steps", [1, 2])
def test_an_answer_of_another_type_cites_from_the_text_of_the_reply(steps: int) -> None:
    reply = '{"colour": "blue [sky.md#0]"}'
    agent = Agent(ScriptedModel([*["no JSON"] * (steps - 1), reply]), output=Answer, memory=lambda query: FOUND)
    result = agent.run_sync("Which?", session=Session())
    (one,) = result.citations
    assert result.output.colour == "blue [sky.md#0]" and reply[one.start : one.end] == "sky.md#0"


def searched(returned: object, text: str, memory: list[Document] | None = None) -> RunResult[str]:
    """Return a run in which a tool returned a value, before the answer."""

    @tool
    def search(query: str) -> object:
        """Search."""
        return returned

    asks = Message("assistant", tool_calls=(ToolCall("c1", "search", '{"query": "colours"}'),))
    found = None if memory is None else lambda query: memory
    return Agent(ScriptedModel([asks, text]), tools=[search], memory=found).run_sync("Which colours?")


def test_documents_that_a_tool_returned_can_be_cited() -> None:
    result = searched(FOUND, f"Blue [sky.md#0], green [{GREEN.label}], red [roses.md#1].")
    assert [(one.label, one.document.text, one.document.source) for one in result.citations] == [
        ("sky.md#0", BLUE.text, "sky.md"),
        (GREEN.label, GREEN.text, GREEN.source),
    ]
    assert result.unknown_labels == ("roses.md#1",)
    assert [one.label for one in searched(BLUE, "Blue [sky.md#0].").citations] == ["sky.md#0"]


def test_a_model_receives_the_useful_fields_of_a_document_of_a_tool() -> None:
    result = searched([Document("Blue.", source="sky.md", position=0, score=0.5, id="x1", metadata={"page": 2})], "ok")
    read = result.messages[2].text
    assert read == '[{"label": "sky.md#0", "text": "Blue.", "source": "sky.md", "metadata": {"page": 2}}]'


def test_a_document_of_the_memory_is_not_replaced_by_a_document_of_a_tool() -> None:
    lie = Document("The sky is green.", source="sky.md", position=0)
    result = searched([lie], "Blue [sky.md#0].", memory=FOUND)
    assert [one.document.text for one in result.citations] == [BLUE.text]


@pytest.mark.parametrize(
    "returned",
    [
        '{"label": "sky.md#0"',
        '"label"',
        {"label": 5, "text": "x"},
        {"label": "sky.md#0"},
        [{"label": "[sky.md#0]", "text": "x"}, 7, None, ["label"]],
        {"label": "sky.md#0", "text": None},
    ],
)
def test_a_value_that_resembles_a_document_is_not_cited(returned: object) -> None:
    result = searched(returned, "Blue [sky.md#0].")
    assert result.citations == () and result.unknown_labels == ("sky.md#0",)
