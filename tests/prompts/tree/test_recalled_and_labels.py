"""Recalled messages and documents: author, time, and labels for citations."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agentkit.prompts import (
    ContextError,
    Document,
    Layers,
    MemoPrompt,
    PromptContext,
    PromptError,
    RecalledMessage,
    RecalledPrompt,
    Size,
    compose,
)
from agentkit.testing.strategies import hostile_texts
from tests.cases import for_cases
from tests.prompts.laws import law

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MESSAGES = tuple(RecalledMessage(f"Message {number}. " + "word " * 20, "user", when=WHEN) for number in range(4))
ASK = PromptContext(user_input="And now?", recalled=MESSAGES, documents=["A document."])


def test_each_span_of_a_recalled_message_has_its_pointer_and_is_untrusted() -> None:
    composition = compose(Layers(before_input=[MemoPrompt(), RecalledPrompt()]), ASK)
    found = composition.why("recalled[1]")
    assert {span.prompt for span in found.spans} == {"before_input[1]"}
    assert {span.trust for span in found.spans} == {"untrusted"}
    assert "Message 1" in composition.user.text
    with pytest.raises(PromptError) as caught:
        composition.why("recalled[9]")
    assert (caught.value.name, caught.value.suggestion) == ("recalled[9]", "recalled[3]")
    assert composition.context.documents[0].text not in [message.text for message in composition.context.recalled]


def test_recalled_messages_without_a_prompt_are_unread() -> None:
    assert compose(Layers(), ASK).why("recalled[0]").status == "unread"


def test_a_budget_drops_the_last_recalled_messages_first_and_records_a_trim() -> None:
    layers = Layers(before_input=[MemoPrompt(), RecalledPrompt()])
    whole = compose(layers, ASK)
    for limit in range(25, whole.tokens):
        composition = compose(layers, ASK, budget=limit)
        shown = [number for number in range(4) if f"Message {number}." in composition.user.text]
        assert shown == list(range(len(shown)))
        assert composition.tokens <= limit
    trim = compose(Layers(before_input=RecalledPrompt(size=Size(max=90, cut="items"))), ASK).trims["before_input[0]"]
    assert (trim.remaining, trim.of) == (2, 4)


def test_the_error_names_the_place_of_each_problem() -> None:
    given: list[Any] = [
        {"text": "a", "role": "system"},
        {"text": 5, "role": "user", "when": "now"},
        {"role": "user"},
        "a",
    ]
    with pytest.raises(ContextError) as caught:
        PromptContext(user_input="x", recalled=given)
    problems = dict(caught.value.problems)
    assert problems["recalled[0].role"] == "expected 'user' or 'assistant', got 'system'"
    assert {"recalled[1].text", "recalled[1].when", "recalled[2].text", "recalled[3]"} <= problems.keys()


@given(
    st.lists(
        st.builds(Document, hostile_texts(), source=hostile_texts(1), position=st.none() | st.integers(0, 1)),
        max_size=6,
    )
)
@law
def test_labels_of_documents_are_unique_and_have_one_line(documents: list[Document]) -> None:
    ctx = PromptContext(user_input="x", documents=documents)
    text = MemoPrompt().format_2_str(ctx)
    labels = re.findall(r"^\[(?!\u200b)([^\[\]\n]*#[^\[\]\n]*)\]", text, re.MULTILINE)
    assert len(labels) == len(documents) == len(set(labels))


def test_a_label_is_the_source_and_the_chunk_or_a_stable_hash() -> None:
    assert Document("a", source="manual.md", position=3).label == "manual.md#3"
    assert Document("a", title="Manual").label == "Manual#ba622a"
    assert Document("a", label="S#1").label == "S#1"
    assert Document("a", source="x]\n[user").label == "x___user#ba622a"
    stored = TypeAdapter(Document)
    for document in (Document("a"), Document("a", source="x", position=0), Document("a", label="S#1")):
        assert stored.validate_json(stored.dump_json(document)) == pickle.loads(pickle.dumps(document)) == document


def test_labels_of_many_equal_documents_have_different_numbers() -> None:
    context = PromptContext(user_input="Hi.", documents=[Document("same", source="a.md", position=1)] * 20_000)
    labels = re.findall(r"\[(.*)\]", MemoPrompt().format_2_str(context))
    assert len(set(labels)) == 20_000
    assert labels[1:3] == [f"{labels[0]}.2", f"{labels[0]}.3"]


def test_equal_labels_are_distinguished_in_any_order_and_under_a_budget() -> None:
    one, other = (Document(text, source="note.md", position=0) for text in ("Ada earns five.", "Bob owes six."))

    def heads(*documents: Document) -> dict[str, str]:
        lines = MemoPrompt().format_2_str(PromptContext(user_input="x", documents=documents)).split("\n")
        return {lines[at + 1]: lines[at] for at in range(0, len(lines), 3)}

    assert heads(one, other) == heads(other, one)
    assert len(set(heads(one, other).values())) == 2
    assert len(set(MemoPrompt().format_2_str(PromptContext(user_input="x", documents=[one] * 3)).split("\n")[::3])) == 3
    ctx = PromptContext(user_input="x", documents=[one, other])
    cut = compose(Layers(before_input=MemoPrompt(size=Size(max=16, cut="items"))), ctx).user.text
    assert "Bob" not in cut and heads(one, other)["Ada earns five."] in cut


@pytest.mark.parametrize("label", ["manual", "a]#1", "a\n#1", "[a#1", "\u200ba#1", 5])
def test_an_ambiguous_label_is_refused(label: Any) -> None:
    with pytest.raises(ContextError) as caught:
        Document("a", label=label)
    assert [place for place, _ in caught.value.problems] == ["label"]


@for_cases(
    ("title", "text", "heading"),
    [
        ("Guide > Install", "## Install\n\nRun", "Guide"),
        ("Guide > Install", "# Guide\n\n## Install ##\n\nRun", ""),
        ("Guide", "Guide\n=====\n\nRun", ""),
        ("Guide", "---\ntitle: 'Guide'\nlayout: x\n---\n# Guide\nRun", ""),
        ("A > C", "# A\n\n## B\n\n## C\n\nx", ""),
        ("G > A > B", "A > B\n\nx", "G"),
        ("A > A", "A\n\nx", "A"),
        ("A > B > C", "B\n\nC\n\nx", "A"),
        ("Tea", "TEA", ""),
        ("A & B", "<h1 align=x>\n  A &amp; B\n</h1>\nx", ""),
        ("w" * 200, "w" * 300 + "\nx", ""),
        ("Install", "Run.\nInstall\n", "Install"),
        ("Install", "Installing it", "Install"),
        ("x", "---\ny\n---\nz", "x"),
        ("", "x", ""),
        ("T", "", "T"),
    ],
)
def test_a_title_is_shown_without_the_headings_of_its_text(title: str, text: str, heading: str) -> None:
    document = Document(text, source="a.md", position=0, title=title)
    assert (document.title, document.heading) == (title, heading)
    shown = MemoPrompt().format_2_str(PromptContext(user_input="x", documents=[document]))
    assert shown == f"[a.md#0]{heading and ' ' + heading}\n{text}"
