"""JSON of the values of a context: round trips, and the places of values without a JSON form."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from agentkit.prompts import ContextError, Document, PromptContext, UserInput
from agentkit_prompts.context.json_form import from_json, strict_json, to_json
from tests.cases import for_cases


@pytest.mark.parametrize("value", [set(), {1, "a", (1, 2), None}, frozenset({frozenset({1})}), {"tags": {"a", "b"}}])
def test_sets_are_equal_after_json(value: Any) -> None:
    assert from_json(json.loads(json.dumps(to_json(value)))) == value


@pytest.mark.parametrize(
    "number", [10**4000 - 1, 10**4000, -(10**4300), 10**5000], ids=["4000", "4001", "4301", "5001"]
)
def test_numbers_above_the_limit_of_json_readers_are_equal_after_json(number: int) -> None:
    adapter = TypeAdapter(PromptContext)
    ctx = PromptContext(user_input=UserInput("x", {"n": number}), extra={"n": [number]})
    assert adapter.validate_json(adapter.dump_json(ctx)) == ctx
    assert adapter.validate_python(json.loads(json.dumps(adapter.dump_python(ctx, mode="json")))) == ctx


def places_without_form(value: object) -> list[str]:
    with pytest.raises(ContextError) as caught:
        to_json(value)
    return [problem.place for problem in caught.value.problems]


def test_the_error_names_each_place_without_a_json_form() -> None:
    assert places_without_form({"a": object(), "b": [1, {"c": 1j}], "d": [2]}) == ["a", "b[1].c"]
    with pytest.raises(PydanticSerializationError) as caught:
        TypeAdapter(Document).dump_json(Document("x", metadata={"pages": [1, object()]}))
    assert ": pages[1]: " in str(caught.value)  # pydantic keeps the text of the error only


def test_the_list_of_places_has_a_limit() -> None:
    assert places_without_form([object()] * 5_000) == [f"[{number}]" for number in range(1_000)]
    assert places_without_form({"k" * 1_000: object(), 10**5_000: object()})[0] == "k" * 64


def test_the_search_for_places_is_not_exponential_in_the_depth() -> None:
    shared: list[Any] = [1]
    for _ in range(60):
        shared = [shared, shared]
    assert places_without_form([object(), shared]) == ["[0]"]
    cyclic: list[Any] = []
    cyclic += [cyclic, cyclic]
    assert places_without_form(cyclic) == [""]


def test_deep_data_is_refused_together_with_other_problems() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    assert places_without_form([deep, object()]) == [f"[0]{'[0]' * 100}", "[1]"]


@pytest.mark.parametrize("text", ['{"a": NaN}', "[Infinity]", "-Infinity", "1e999", "[-1e999]"])
def test_numbers_that_are_not_json_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        strict_json(text)
    assert strict_json('{"a": [1.5, null]}') == {"a": [1.5, None]}


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


@for_cases(
    ("name", "value"),
    itertools.product(
        ("bytes", "path", "url", "datetime", "timedelta", "decimal", "uuid", "int", "float", "part"),
        (None, [{}], {"a": 1}, nested(5_000)),
    ),
)
def test_a_json_form_with_an_unexpected_value_is_damaged(name: str, value: Any) -> None:
    with pytest.raises(ValueError):
        from_json({"$type": name, "value": value})


@pytest.mark.parametrize(
    "name", [None, 5, [], nested(5_000), "x" * 1_000, {"a": 1}], ids=lambda name: type(name).__name__
)
def test_a_json_form_with_an_unknown_name_is_refused(name: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(PromptContext).validate_python({"user_input": {"input": "x"}, "extra": {"a": {"$type": name}}})
    assert len(str(caught.value)) < 2_000
