"""Checks of the fields of messages and of their parts at construction."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from agentkit.prompts import ContextError, Document, Image, MediaError, Message, MessageError, Text, Thinking, ToolCall
from tests.cases import for_cases


class Failing(dict[str, Any]):
    """Mapping with methods that fail."""

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no keys today")

    def __repr__(self) -> str:
        raise RuntimeError("no text today")


def nested(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


WRONG: list[Any] = [5, b"x", ["x"], {"a": 1}, object(), nested(10_000), [Failing()], lambda: None]


FIELDS: list[tuple[Any, str, type[Exception]]] = [
    (lambda **given: Message(**{"role": "user", **given}), "role", MessageError),
    (lambda **given: Message("user", "x", **given), "name", MessageError),
    (lambda **given: Message("assistant", "x", **given), "tool_calls", MessageError),
    (lambda **given: Message("assistant", "x", **given), "thinking", MessageError),
    (lambda **given: Message("tool", "x", **given), "tool_call_id", MessageError),
    (lambda **given: ToolCall(**{"id": "1", "name": "f", **given}), "id", MessageError),
    (lambda **given: Thinking(**given), "text", MessageError),
    (lambda **given: Thinking("x", **given), "provider", MessageError),
    (lambda **given: Thinking("x", **given), "signature", MessageError),
    (lambda **given: Thinking("x", **given), "redacted", MessageError),
    (lambda **given: Text("x", **given), "kind", MediaError),
    (lambda **given: Image(b"x", **given), "name", MediaError),
    (lambda **given: Image(b"x", **given), "media_type", MediaError),
    (lambda **given: Image(b"x", **given), "kind", MediaError),
    (lambda **given: Document("x", **given), "label", ContextError),
]


@for_cases(("field", "wrong"), itertools.product(FIELDS, WRONG))
def test_a_field_of_the_wrong_type_is_refused_by_its_name(field: tuple[Any, str, type[Exception]], wrong: Any) -> None:
    make, name, error = field
    with pytest.raises(error) as caught:
        make(**{name: wrong})
    raised: Any = caught.value
    assert str(raised.name).partition("[")[0] == name


def test_the_error_names_all_invalid_fields_of_a_message() -> None:
    with pytest.raises(MessageError) as caught:
        Message("tool", "x", name=5, tool_call_id=6)  # type: ignore[arg-type]
    assert [problem.place for problem in caught.value.problems] == ["name", "tool_call_id"]
    with pytest.raises(MessageError) as caught:
        Thinking(5, signature=6, at="first")  # type: ignore[arg-type]
    assert [problem.place for problem in caught.value.problems] == ["text", "signature", "at"]


def test_a_message_accepts_lists_of_calls_and_of_thoughts() -> None:
    call, thought = ToolCall("1", "f"), Thinking("why")
    message = Message("assistant", "x", [call], thinking=[thought])  # type: ignore[arg-type]
    assert (message.tool_calls, message.thinking) == ((call,), (thought,))
    assert Message("user", "x", [], thinking=[]) == Message("user", "x")  # type: ignore[arg-type]
