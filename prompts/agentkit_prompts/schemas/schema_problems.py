"""Problems of a value that does not match a JSON Schema: place and expected value, for models and developers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from agentkit_prompts.errors import brief
from agentkit_prompts.invalid_values import place_of, shown_name
from agentkit_prompts.limits import MAX_LISTED, MAX_REASON_CHARS
from agentkit_prompts.schemas.plain_data import Step
from agentkit_prompts.schemas.subschemas import schema_at, type_of

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

_EXPECTED = {
    "minimum": "expected a number that is at least {limit}",
    "maximum": "expected a number that is at most {limit}",
    "exclusiveMinimum": "expected a number above {limit}",
    "exclusiveMaximum": "expected a number below {limit}",
    "multipleOf": "expected a multiple of {multiple_of}",
    "minLength": "expected at least {limit} characters",
    "maxLength": "expected at most {limit} characters",
    "minItems": "expected at least {limit} items",
    "maxItems": "expected at most {limit} items",
    "minProperties": "expected at least {limit} properties",
    "maxProperties": "expected at most {limit} properties",
    "pattern": "expected text that matches {pattern}",
    "format": "expected text in the format {format}",
    "uniqueItems": "expected items that all differ",
    "contains": "contains too few or too many items of a required kind",
    "not": "matches a schema that is not allowed",
    "falseSchema": "is not allowed here",
}
"""Texts by keyword. The fields in braces are attributes of the error."""
_OF_KIND = frozenset({"type", "enum", "const"})
"""Keywords that distinguish the alternatives for different types or values."""
_FIELDS = ("limit", "multiple_of", "pattern", "format")


class SchemaProblem(NamedTuple):
    """One problem of a value."""

    path: tuple[Step, ...]
    keyword: str
    """Violated keyword of JSON Schema; "limit" if the value cannot be checked or has too many problems."""
    expected: str
    """Text of the problem, which usually names the expected value."""
    value: Any = None
    """The value at `path`; None for a missing property."""


class InvalidSchemaError(ValueError):
    """A schema is invalid.

    Attributes:
        problems: All problems: the place in the schema, and the text.
    """

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join([f"{place}: {problem}" if place else problem for place, problem in problems]))
        self.problems = problems


class InvalidValueError(ValueError):
    """A value does not match its schema.

    Attributes:
        problems: All problems.
    """

    def __init__(self, problems: list[SchemaProblem]) -> None:
        super().__init__(
            "; ".join([f"{place_of(problem.path) or '(value)'}: {problem.expected}" for problem in problems])
        )
        self.problems = problems


def problems_of(errors: Iterable[ValidationError], document: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    """Yield the problems that errors of the library describe; `document` is the schema."""
    for error in errors:
        read = _READERS.get(error.kind.name, _plain)
        yield from read(error, tuple(error.instance_path), document)


_Path: TypeAlias = tuple[Step, ...]


def _plain(error: ValidationError, path: _Path, document: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    keyword = error.kind.name
    if _is_unchecked(error.kind):
        keyword = "limit"
    yield SchemaProblem(path, keyword, _expected(error), error.instance)


def _missing(error: ValidationError, path: _Path, document: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    name: str = error.kind.property  # type: ignore[attr-defined]  # the kind is `required`
    schema = schema_at(document, [*path, name])
    expected = "is required but missing"
    if schema is not None:
        expected += f" (expected {type_of(document, schema)})"
    yield SchemaProblem((*path, name), "required", expected)


def _unexpected(error: ValidationError, path: _Path, document: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    expected = "is not allowed here"
    if not path:
        names = [shown_name(name) for name in list(document.get("properties", {}))[:MAX_LISTED]]
        expected = f"unknown parameter; valid parameters: {', '.join(names) or 'none'}"
    values: Any = error.instance
    for name in error.kind.unexpected:  # type: ignore[attr-defined]
        yield SchemaProblem((*path, name), error.kind.name, expected, values.get(name))


def _alternatives(error: ValidationError, path: _Path, document: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    """Yield the problems of the intended alternative; if it is unclear, one problem that names all alternatives."""
    context: list[list[ValidationError]] = error.kind.context  # type: ignore[attr-defined]
    if any(not errors for errors in context):
        yield SchemaProblem(path, "oneOf", "matches several alternatives, but must match exactly one", error.instance)
        return
    intended = [errors for errors in context if not _is_of_another_kind(errors, len(path))]
    # If only one alternative is for such a value, its problems, such as an invalid field, are the most useful.
    if len(intended) == 1:
        yield from problems_of(intended[0], document)
        return
    expected = " or ".join(dict.fromkeys(_expected_at(errors, len(path)) for errors in context))
    yield SchemaProblem(path, error.kind.name, f"expected {expected}", error.instance)


def _is_of_another_kind(errors: Sequence[ValidationError], depth: int) -> bool:
    """True if the errors show that an alternative is for values of another type, or lists other values.

    `depth` is the length of the path of the value.
    """
    return any(len(error.instance_path) == depth and error.kind.name in _OF_KIND for error in errors)


def _expected_at(errors: Sequence[ValidationError], depth: int) -> str:
    """Return the expected value of an alternative; `depth` is the length of the path of the value."""
    here = [error for error in errors if len(error.instance_path) == depth]
    # The type first, because it helps a reader more than other keywords.
    here.sort(key=lambda error: error.kind.name not in _OF_KIND)
    if not here or here[0].kind.name == "required":
        return "an object of another form"
    return _expected(here[0]).removeprefix("expected ")


def _invalid_name(error: ValidationError, path: _Path, document: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    inner: ValidationError = error.kind.error  # type: ignore[attr-defined]
    (problem, *_) = problems_of([inner], document)
    yield SchemaProblem((*path, str(inner.instance)), "propertyNames", f"has an invalid name: {problem.expected}")


_READERS: Mapping[str, Callable[[ValidationError, _Path, Mapping[str, Any]], Iterator[SchemaProblem]]] = {
    "required": _missing,
    "propertyNames": _invalid_name,
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties"), _unexpected),
    **dict.fromkeys(("anyOf", "oneOf"), _alternatives),
}
"""Functions that read the errors of a keyword; `_plain` reads the errors of other keywords."""


def _expected(error: ValidationError) -> str:
    kind: Any = error.kind
    if kind.name in _WRITERS:
        return f"expected {_WRITERS[kind.name](kind)}"
    if _is_unchecked(kind):
        return "cannot be checked against the pattern of its schema: the check takes too long"
    if kind.name not in _EXPECTED:
        return brief(error.message, MAX_REASON_CHARS)
    fields = {name: shown_name(str(getattr(kind, name))) for name in _FIELDS if hasattr(kind, name)}
    return _EXPECTED[kind.name].format(**fields)


def _is_unchecked(kind: Any) -> bool:
    """True if the engine for patterns reached its limit, so that it is unknown if the text matches."""
    return kind.name == "pattern" and not hasattr(kind, "pattern")


def _types(names: Iterable[object]) -> str:
    return " or ".join([_ARTICLES.get(str(name), str(name)) for name in names])


_ARTICLES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "array": "an array",
    "object": "an object",
}


def _one_of(values: Sequence[Any]) -> str:
    if len(values) == 1:
        return _json(values[0])
    more = f" or one of {len(values) - MAX_LISTED:,} more" if len(values) > MAX_LISTED else ""
    return f"one of {', '.join(map(_json, values[:MAX_LISTED]))}{more}"


_WRITERS: Mapping[str, Callable[[Any], str]] = {
    "type": lambda kind: _types(kind.types),
    "const": lambda kind: _json(kind.expected_value),
    "enum": lambda kind: _one_of(kind.options),
}
"""Functions that return the text of the expected value, by keyword; the argument is the kind of the error."""


def _json(value: Any) -> str:
    return shown_name(json.dumps(value, ensure_ascii=False, default=str))
