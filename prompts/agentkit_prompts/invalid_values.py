"""`invalid_values`: the problems of data that pydantic rejects, with place, expected value and received value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agentkit_prompts.errors import Picklable, brief, ends_of, kind_of, start_of
from agentkit_prompts.limits import MAX_LISTED, MAX_MESSAGE_CHARS, MAX_NAME_CHARS, MAX_REASON_CHARS, MAX_SHOWN_CHARS
from agentkit_prompts.names import nearest

Path: TypeAlias = tuple[int | str, ...]
"""Names and indexes from the root of the data to a value."""
Words: TypeAlias = Mapping[str, str]
"""Description of the expected value, by the pattern of a text, by the valid literal, or by the type of the error of
pydantic; `{name}` is replaced by the value in the context of the error. For a name that is not allowed, the start of
the text."""

_MAX_PROBLEMS = 10_000
"""Maximum problems that are described; each takes up to 30 microseconds."""
_MISSING = "missing"
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_OWN_TEXT = ("assertion_error", "value_error")
"""Errors of validators, which raise complete messages."""
_WITHOUT_VALUE = (*_OWN_TEXT, _MISSING, *_UNKNOWN, "string_too_short", "string_unicode")
"""Errors whose text does not need the value."""
_ABSENT = object()
"""Value at an index that the data does not have; None can be a received value."""
_KEY = "[key]"
"""Step of pydantic after the key of a dict that is invalid itself."""
_MODELS = ("dataclass_type", "model_attributes_type", "model_type")
_EXPECTED: Words = {
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    **dict.fromkeys(("dict_type", "mapping_type", *_MODELS), "a mapping"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    **dict.fromkeys(("int_from_float", "int_parsing", "int_type"), "a whole number"),
    **dict.fromkeys(("list_type", "sequence_str", "tuple_type"), "a list"),
    "callable_type": "a function",
    "enum": "{expected}",
    "finite_number": "a finite number",
    "invalid_key": "a key that is text",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "is_instance_of": "{class}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "none_required": "null",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_long": "text of at most {max_length} characters",
    "string_too_short": "text of at least {min_length} characters",
    "string_type": "text",
    "string_unicode": "text of Unicode characters",
    "too_long": "at most {max_length} items",
    "too_short": "{min_length} or more items",
    "union_tag_invalid": "a value whose {discriminator} is one of {expected_tags}",
    "union_tag_not_found": "a value with {discriminator}",
}
JSON_WORDS: Words = {
    **dict.fromkeys(("bool_parsing", "bool_type"), "a boolean"),
    **dict.fromkeys(("dict_type", "mapping_type", *_MODELS), "an object"),
    **dict.fromkeys(("int_from_float", "int_parsing", "int_type"), "an integer"),
    **dict.fromkeys(("list_type", "sequence_str", "tuple_type"), "an array"),
    "string_type": "a string",
    "True": "true",
    "False": "false",
}
"""Terms of JSON Schema, for the arguments of a model and for clients of an HTTP API."""


class InvalidValue(NamedTuple):
    """A problem of a value, or of a name that is missing or not allowed."""

    path: Path
    inner: str
    """Text of the place inside the value, such as ``[0]``, if a validator reports it."""
    text: str
    """Text of the problem, such as "is missing" or "expected a number"."""
    kinds: tuple[str, ...]
    """Types of the errors of pydantic; several for the alternatives of a union."""
    value: Any
    """The invalid value; for a missing name, the value around it."""
    has_value: bool = False
    """True if the message should contain the value."""
    reason: Picklable | None = None
    """Error of a validator."""

    @property
    def place(self) -> str:
        """The place as text, such as ``tools[0].name``; empty for the data as a whole."""
        return place_of(self.path) + self.inner

    @property
    def kind(self) -> str:
        """Type of the first error of pydantic."""
        return self.kinds[0]

    @property
    def is_missing(self) -> bool:
        """True if a required name is missing."""
        return self.kind == _MISSING

    @property
    def is_unknown(self) -> bool:
        """True if a name is not allowed."""
        return self.kind in _UNKNOWN

    def message(self, received: Callable[[Any], str] = kind_of) -> str:
        """Return the text with the received value, which `received` writes; by default its type, as it can be secret.

        A value that is not one of several valid values is always written.
        """
        is_text = isinstance(self.value, str) and self.kind.startswith("string_")
        if not self.has_value or (is_text and received is kind_of):
            return self.text
        if self.kind == "literal_error" and received is kind_of:
            received = brief
        return f"{self.text}, got {received(self.value)}"


def invalid_values(
    error: ValidationError, data: Any = None, model: type[BaseModel] | None = None, words: Mapping[str, str] = {}
) -> list[InvalidValue]:
    """Return one problem for each place with an invalid value, in the order of pydantic.

    A union has an error per alternative. The texts of these errors are one text, unless a problem is inside the value:
    its alternative fits better than the others.

    Args:
        error: The error of pydantic.
        data: The data that pydantic rejected. Without data, places contain the names of alternatives of unions.
        model: Model of the data, whose fields are the valid names.
        words: Expected values that have other names here than in other errors.
    """
    if (count := error.error_count()) > _MAX_PROBLEMS:
        return [InvalidValue((), "", f"{count:,} problems, too many to name them", ("too_many",), data)]
    groups: dict[tuple[Path, str, bool], list[InvalidValue]] = {}
    for details in error.errors(include_url=False):
        for value in _values_of(details, data, model, words):
            groups.setdefault((value.path, value.inner, value.has_value), []).append(value)
    outer = {path[:end] for path, _, _ in groups for end in range(len(path))}
    return [_joined(values) for (path, _, has_value), values in groups.items() if not (has_value and path in outer)]


def _joined(values: list[InvalidValue]) -> InvalidValue:
    """Return the problems of the alternatives of a union as one problem."""
    texts = dict.fromkeys([value.text for value in values])
    text = "; or ".join(texts)
    if values[0].has_value:
        text = f"expected {' or '.join([text.removeprefix('expected ') for text in texts])}"
    return values[0]._replace(text=text, kinds=tuple([value.kind for value in values]))


def _values_of(details: ErrorDetails, data: Any, model: type[BaseModel] | None, words: Words) -> Iterable[InvalidValue]:
    kind, loc, value = details["type"], details["loc"], details["input"]
    path, inner = _path(details, data), ""
    if loc[-1:] == (_KEY,):
        inner = " (key)"
    reason = details.get("ctx", {}).get("error")
    if kind == _MISSING:
        text = "is missing"
    elif kind in _UNKNOWN:
        text = f"{words.get(kind, 'unknown field')}{nearest(str(loc[-1]), _fields(_models_at(model, loc[:-1])))}"
    elif kind in _OWN_TEXT:
        if isinstance(reason, Picklable) and reason.problems:
            # A validator of a field can report several problems inside the value.
            return [InvalidValue(path, place, text, (kind,), value, reason=reason) for place, text in reason.problems]
        text = str(reason)
        # A validator of several fields begins its message with the field.
        name, _, problem = text.partition(": ")
        if problem and name in _fields(_models_at(model, loc)):
            path, text = (*path, name), problem
    elif kind == "multiple_argument_values":
        text = "is passed twice"
    else:
        text = _expected_text(details, model, words)
    text = start_of(text, MAX_MESSAGE_CHARS)
    has_value = text.startswith("expected ") and kind not in _WITHOUT_VALUE
    if not isinstance(reason, Picklable):
        reason = None
    return [InvalidValue(path, inner, text, (kind,), value, has_value, reason)]


def _expected_text(details: ErrorDetails, model: type[BaseModel] | None, words: Words) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if context.get("class") == "Sequence":
        kind = "list_type"
    if kind == "float_type" and isinstance(value, int) and not isinstance(value, bool):
        return "expected a number that fits into a float"
    described = context.get("pattern") or str(context.get("expected", ""))
    expected = words.get(described) or words.get(kind) or _EXPECTED.get(kind)
    if expected is None:
        # Messages of custom errors are complete.
        opening, separator, rest = details["msg"].partition(" should be ")
        if separator and opening in ("Input", "Value"):
            return f"expected {rest}"
        return details["msg"]
    if kind in _MODELS:
        models = _models_at(model, details["loc"])
        required = [name for name in _fields(models[:1]) if all(_requires(each, name) for each in models)]
        expected = " with ".join(filter(None, (expected, ", ".join(required))))
    return f"expected {expected.format_map({name: _bound(each) for name, each in context.items()})}"


def _bound(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:,.15g}"
    if isinstance(value, int):
        return f"{value:,}"
    return value


def _path(details: ErrorDetails, data: Any) -> Path:
    """Return the place of an error without the names of alternatives of a union, which pydantic adds."""
    loc, kind = details["loc"], details["type"]
    if data is None:
        return loc
    path, value = _walked(loc, data, kind)
    if _is_invalid(path, value, details):
        return path
    # The name of an alternative is also a key of the data: the steps without it lead to the invalid value.
    for number, step in enumerate(loc):
        if isinstance(step, str):
            other, value = _walked((*loc[:number], *loc[number + 1 :]), data, kind)
            if _is_invalid(other, value, details):
                return other
    return path


def _is_invalid(path: Path, value: Any, details: ErrorDetails) -> bool:
    """True if a place with this value can be the place of an error."""
    last = details["loc"][-1:]
    if last == (_KEY,):
        return path[-1:] == (str(details["input"]),)
    if details["type"] in _UNKNOWN and path[-1:] != last:
        return False
    return _is_same(value, details["input"])


def _is_same(value: Any, received: Any) -> bool:
    """True if a value is the value that pydantic received; of lists and mappings from JSON, their lengths are equal."""
    if value is received:
        return True
    if type(value) is not type(received):
        return False
    if isinstance(value, dict | list):
        return len(value) == len(received)
    return isinstance(value, str | int | float) and value == received


def _walked(loc: Path, data: Any, kind: str) -> tuple[Path, Any]:
    """Return the steps of a location that are in the data, and the value that they lead to."""
    path: Path = ()
    value = data
    for number, step in enumerate(loc, 1):
        if isinstance(value, Mapping) and step in value:
            value, step = value[step], str(step)
        elif isinstance(step, int):
            items = value if isinstance(value, list | tuple) else ()
            value = items[step] if step < len(items) else _ABSENT
        elif kind != _MISSING or number < len(loc):
            continue
        path = (*path, step)
    return path, value


def _models_at(model: type[BaseModel] | None, loc: Path) -> list[type[BaseModel]]:
    """Return the models of the value at a place; several for a union whose alternative the place does not name."""
    models = _models_in(model)
    for step in loc:
        named = [each for each in models if each.__name__ == step]
        fields = [field for each in models for name, field in each.model_fields.items() if step in (name, field.alias)]
        # Other steps are keys, indexes and tags of alternatives.
        models = named or [inner for field in fields for inner in _models_in(field.annotation)] or models
    return models


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models in the type of a field, such as the model of the values of a dict."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _fields(models: Iterable[type[BaseModel]]) -> list[str]:
    names = [field.alias or name for model in models for name, field in model.model_fields.items()]
    return list(dict.fromkeys(names))


def _requires(model: type[BaseModel], name: str) -> bool:
    fields = [field for own, field in model.model_fields.items() if name == (field.alias or own)]
    return any(field.is_required() for field in fields)


def reason_of(error: Exception) -> str:
    """Return the type and the text of an error; of an error of pydantic its first problems, on one line."""
    text = str(error)
    if isinstance(error, ValidationError):
        text = "; ".join([f"{each.place or 'value'}: {each.message()}" for each in invalid_values(error)[:MAX_LISTED]])
    return f"{type(error).__name__}: {text}"


def place_of(path: Iterable[int | str]) -> str:
    """Return the text of a path for messages, such as `person.others[2].zip`; empty for the whole value."""
    place = ""
    for step in path:
        name = f"[{step}]"
        if isinstance(step, str):
            name = f".{start_of(step, MAX_NAME_CHARS)}"
        place += name
    return ends_of(place.removeprefix("."), MAX_REASON_CHARS)


def shown_name(name: str) -> str:
    """Return a name or text for a message, shortened if it is very long."""
    return start_of(name, MAX_REASON_CHARS)


def json_value(value: Any) -> str:
    """Return a value as JSON text for a message, shortened; of a value without a JSON form its type."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        return type(value).__name__
    return start_of(text.encode("utf-8", "replace").decode(), MAX_SHOWN_CHARS)
