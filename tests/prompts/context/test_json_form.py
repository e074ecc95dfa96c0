"""Values of any type in a context, as JSON there and back; what has no such form is named with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from agentkit.prompts import ContextError, Document, PromptContext, UserInput
from agentkit_prompts.context.json_form import from_json, strict_json, to_json


@pytest.mark.parametrize("value", [set(), {1, "a", (1, 2), None}, frozenset({frozenset({1})}), {"tags": {"a", "b"}}])
def test_sets_come_back_from_json(value: Any) -> None:
    assert from_json(json.loads(json.dumps(to_json(value)))) == value


@pytest.mark.parametrize(
    "number", [10**4000 - 1, 10**4000, -(10**4300), 10**5000], ids=["4000", "4001", "4301", "5001"]
)
def test_numbers_longer_than_readers_of_json_take_come_back(number: int) -> None:
    adapter = TypeAdapter(PromptContext)
    ctx = PromptContext(user_input=UserInput("x", {"n": number}), extra={"n": [number]})
    assert adapter.validate_json(adapter.dump_json(ctx)) == ctx
    assert adapter.validate_python(json.loads(json.dumps(adapter.dump_python(ctx, mode="json")))) == ctx


def test_every_place_without_a_form_is_named() -> None:
    with pytest.raises(ContextError, match=r"a: a object has none.*b\[1\]\.c: a complex has none"):
        to_json({"a": object(), "b": [1, {"c": 1j}], "d": [2]})
    with pytest.raises(PydanticSerializationError, match=r"pages\[1\]: a object has none"):
        TypeAdapter(Document).dump_json(Document("x", metadata={"pages": [1, object()]}))


def test_places_are_looked_for_in_a_time_that_does_not_double_with_each_level() -> None:
    shared: list[Any] = [1]
    for _ in range(60):
        shared = [shared, shared]
    with pytest.raises(ContextError, match=r"\[0\]: a object has none"):
        to_json([object(), shared])
    cyclic: list[Any] = []
    cyclic += [cyclic, cyclic]
    with pytest.raises(ContextError, match="cyclic"):
        to_json(cyclic)


def test_deep_data_is_refused_beside_other_problems() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(ContextError, match=r"deeper than 100 levels.*\[1\]: a object has none"):
        to_json([deep, object()])


@pytest.mark.parametrize("text", ['{"a": NaN}', "[Infinity]", "-Infinity"])
def test_what_python_writes_and_json_has_not_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        strict_json(text)
    assert strict_json('{"a": [1.5, null]}') == {"a": [1.5, None]}


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


@pytest.mark.parametrize("value", [None, [{}], {"a": 1}, nested(5_000)], ids=["none", "list", "mapping", "deep list"])
@pytest.mark.parametrize(
    "name", ["bytes", "path", "url", "datetime", "timedelta", "decimal", "uuid", "int", "float", "part"]
)
def test_a_form_with_another_value_than_was_written_is_damaged(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is an unknown or damaged JSON form"):
        from_json({"$type": name, "value": value})


@pytest.mark.parametrize(
    "name", [None, 5, [], nested(5_000), "x" * 1_000, {"a": 1}], ids=lambda name: type(name).__name__
)
def test_a_form_of_no_known_name_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="is an unknown or damaged JSON form") as caught:
        TypeAdapter(PromptContext).validate_python({"user_input": {"input": "x"}, "extra": {"a": {"$type": name}}})
    assert len(str(caught.value)) < 2_000
