"""Problems of data that pydantic rejects: the place of each problem, and the number of problems that are described."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentkit_prompts.invalid_values import JSON_WORDS, InvalidValue, invalid_values, json_value


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: str


class ImagePart(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["image"]
    image: dict[str, int]


class Body(BaseModel):
    parts: list[Annotated[TextPart | ImagePart, Field(discriminator="type")]] = []
    value: str | list[str] | dict[str, int] = ""
    named: dict[Annotated[str, Field(max_length=3)], int] = {}
    either: TextPart | ImagePart | None = None


@pytest.mark.parametrize(
    ("data", "problems"),
    [
        # The tag of an alternative is also the name of a field.
        ({"parts": [{"type": "text", "text": "a", "foo": 1}]}, {"parts[0].foo": "unknown field"}),
        ({"parts": [{"type": "text", "text": "a", "foo": "a"}]}, {"parts[0].foo": "unknown field"}),
        ({"parts": [{"type": "text"}]}, {"parts[0].text": "is missing"}),
        ({"parts": [{"type": "text", "text": 5}]}, {"parts[0].text": "expected a string, got 5"}),
        ({"parts": [{"type": "image", "image": {"image": "a"}}]}, {"parts[0].image.image": 'an integer, got "a"'}),
        ({"parts": [{"type": "image", "image": {"text": None}}]}, {"parts[0].image.text": "an integer, got null"}),
        ({"parts": [5]}, {"parts[0]": "expected an object with type, got 5"}),
        # The label of an alternative is also a key.
        ({"value": {"str": "x"}}, {"value.str": 'expected an integer, got "x"'}),
        ({"value": {"list[str]": None, "str": "x"}}, {"value.list[str]": "an integer", "value.str": "an integer"}),
        ({"value": {5: 1, "dict[str,int]": 2}}, {"value.5 (key)": "a string, got 5"}),
        ({"value": 5}, {"value": "expected a string or an array or an object, got 5"}),
        # A key and its value are two places.
        (
            {"named": {"long": "x"}},
            {"named.long (key)": 'at most 3 characters, got "long"', "named.long": 'an integer, got "x"'},
        ),
        (
            {"either": {"type": "text"}},
            {"either.text": "is missing", "either.type": "'image'", "either.image": "missing"},
        ),
    ],
)
def test_a_problem_has_the_place_of_its_value(data: Any, problems: dict[str, str]) -> None:
    texts = {problem.place: problem.message(json_value) for problem in problems_of(data)}
    assert texts.keys() == problems.keys()
    assert not [(text, texts[place]) for place, text in problems.items() if text not in texts[place]]


def test_valid_names_of_alternatives_are_listed_once() -> None:
    (problem,) = problems_of({"parts": [{"type": "text", "text": "a", "foo": 1}]})
    assert problem.text.endswith("valid names: image, text, type")


def test_a_huge_number_of_problems_is_one_problem() -> None:
    (problem,) = problems_of({"named": {f"long{number}": "x" for number in range(6_000)}})
    assert problem.place == "" and "12,000 problems" in problem.message(json_value)


def problems_of(data: Any) -> list[InvalidValue]:
    with pytest.raises(ValidationError) as raised:
        Body.model_validate(data)
    return invalid_values(raised.value, data, Body, JSON_WORDS)
