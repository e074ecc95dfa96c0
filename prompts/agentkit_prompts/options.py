"""`options`: decorator of classes of options. Pydantic checks the fields, and one error lists all problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from types import NoneType
from typing import Annotated, Any, TypeAlias, TypeVar, dataclass_transform, get_args, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

from agentkit_prompts.errors import Picklable, Problem, brief, kind_of, listed
from agentkit_prompts.hints import option_hint
from agentkit_prompts.limits import MAX_COUNT
from agentkit_prompts.names import similar

Count: TypeAlias = Annotated[int, Field(ge=1, le=MAX_COUNT)]
"""A whole number, 1 or more."""
CountOrZero: TypeAlias = Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""A whole number, 0 or more."""
PositiveNumber: TypeAlias = Annotated[float, Field(gt=0)]
"""A number above 0, such as a time in seconds; infinity means no limit."""
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
"""A number from 0 to 1."""

Text: TypeAlias = Annotated[str, Field(pattern=r"\S")]
"""Text that is not only white space."""

Error: TypeAlias = Callable[[str], Exception]
"""Function that returns the exception for a message."""
UnknownError: TypeAlias = Callable[[str, Mapping[str, str | None]], Exception]
"""Function that returns the exception for a message and a mapping from each unknown option to the most similar one."""

T = TypeVar("T")

_CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
_UNKNOWN = "unexpected_keyword_argument"
_WITHOUT_VALUE = ("missing", "string_pattern_mismatch", "string_too_short", "string_unicode")
"""Types of errors whose message does not contain the type of the value."""
_EXPECTED = {
    "bool_parsing": "True or False",
    "bool_type": "True or False",
    "callable_type": "a function",
    "dataclass_type": "{class_name}",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "is_instance_of": "{class}",
    "less_than_equal": "at most {le}",
    # A `Sequence` is read as a list, which a tuple is converted to and from.
    "list_type": "a list or a tuple",
    "literal_error": "{expected}",
    "missing": "a value",
    "sequence_str": "a list or a tuple",
    "string_pattern_mismatch": "text that is not empty",
    "string_too_short": "text that is not empty",
    "string_type": "text",
    "string_unicode": "text of Unicode characters",
    "too_short": "{min_length} or more items",
    "tuple_type": "a tuple",
}
"""Expected value for each type of error of pydantic; `{name}` is replaced by the value in the context of the error."""


@dataclass_transform(frozen_default=True, field_specifiers=(Field, field))
def options(
    error: Error,
    *,
    unknown: UnknownError | None = None,
    elsewhere: Mapping[str, str] = {},
    kw_only: bool = False,
) -> Callable[[type[T]], type[T]]:
    """Return a decorator that creates a frozen dataclass whose fields pydantic checks in strict mode.

    Text is never converted to a number. A field of type float converts a whole number, a `Decimal` or a `Fraction` to
    float, and validators of a field can convert its value. A dataclass that extends the class checks its own fields.

    Args:
        error: Function that creates the exception for invalid values.
        unknown: Function that creates the exception for unknown options; by default `error`.
        elsewhere: Mapping from the name of an option in another library to its name here.
        kw_only: True if all options are keyword arguments.
    """

    def decorate(cls: type[T]) -> type[T]:
        option_class: Any = dataclass(frozen=True, slots=True, kw_only=kw_only)(cls)
        option_class.__pydantic_config__ = _CONFIG
        init = option_class.__init__
        all_fields = fields(option_class)
        has_required = any(item.default is MISSING and item.default_factory is MISSING for item in all_fields)
        places = sum(not item.kw_only for item in all_fields)
        # Each validator is built at its first use, which takes milliseconds; most programs use few of the classes.
        validator: Any = None

        @wraps(init)
        def checked_init(self: Any, *args: Any, **values: Any) -> None:
            nonlocal validator
            # Defaults are valid. Modules create default options at import, which must not build a validator.
            if not args and not values and not has_required:
                init(self)
                return
            if len(args) > places:
                # This call raises the usual `TypeError` for too many positional arguments.
                init(self, *args, **values)
            if validator is None:
                validator = TypeAdapter(option_class).validator
            try:
                validator.validate_python(ArgsKwargs(args, values), strict=True, self_instance=self)
            except ValidationError as failure:
                raised = _error_of(failure, option_class, error, unknown, elsewhere)
            else:
                return
            # Outside of `except`, because the error of pydantic would be the context of this error, and it contains
            # the values, which can be secrets.
            raise raised

        def checked_post_init(self: Any) -> None:
            # A dataclass that extends this one has its own `__init__`, which sets the fields without checks.
            if type(self).__init__ is not checked_init:
                valid = option_class(**{item.name: getattr(self, item.name) for item in all_fields})
                for item in all_fields:
                    object.__setattr__(self, item.name, getattr(valid, item.name))

        option_class.__init__ = checked_init
        option_class.__post_init__ = checked_post_init
        result: type[T] = option_class
        return result

    return decorate


def unknown_option(
    where: str, name: str, valid: list[str], elsewhere: Mapping[str, str] = {}
) -> tuple[str, str | None]:
    """Return the problem of an unknown option of the class `where`, and the most similar option if there is one."""
    hint = option_hint(where, name)
    if hint is not None:
        option = hint.partition("=")[0]
        return f"unknown option {name!r}; use {hint}", option if option in valid else None
    suggestion = elsewhere.get(name)
    if suggestion not in valid:
        suggestion = similar(name, valid)
    if suggestion is None:
        return f"unknown option {name!r}; valid options: {', '.join(sorted(valid))}", None
    return f"unknown option {name!r}; did you mean {suggestion!r}?", suggestion


def _error_of(
    failure: ValidationError,
    cls: Any,
    error: Error,
    unknown: UnknownError | None,
    elsewhere: Mapping[str, str],
) -> Exception:
    """Return the error that lists all problems of a failed validation."""
    types = get_type_hints(cls)
    valid = [field.name for field in fields(cls)]
    details = failure.errors(include_url=False)
    suggestions: dict[str, str | None] = {}
    names: dict[str, None] = {}
    problems: list[Problem] = []
    for detail in details:
        if detail["type"] == _UNKNOWN:
            name = str(detail["loc"][-1])
            names[name] = None
            text, suggestions[name] = unknown_option(cls.__name__, name, valid, elsewhere)
            problems.append(Problem("", text))
    for name, problem in invalid_values([detail for detail in details if detail["type"] != _UNKNOWN], valid, types):
        names[name] = None
        problems.append(problem)
    message = f"{cls.__name__}: {listed(problems)}"
    raised = unknown(message, suggestions) if suggestions and unknown is not None else error(message)
    if isinstance(raised, Picklable):
        raised.name = ", ".join(filter(None, names)) or None
        raised.problems = tuple(problems)
        raised.suggestion = next(iter(suggestions.values()), None)
        if len(details) == 1:
            raised.value = _value_of(details[0])
    return raised


def invalid_values(details: list[Any], names: list[str], types: Mapping[str, Any]) -> Iterator[tuple[str, Problem]]:
    """Yield the option and the problem for each place with an invalid value, from the errors of pydantic.

    The errors of all members of a union at one place are one problem.
    """
    places: dict[tuple[str, str], list[Any]] = {}
    for detail in details:
        places.setdefault(_place(detail["loc"], names), []).append(detail)
    for (name, inner), errors in places.items():
        reason = errors[0].get("ctx", {}).get("error")
        if isinstance(reason, Picklable) and reason.problems:
            # A validator of a field can report several problems inside the value.
            for place, text in reason.problems:
                yield name + place, Problem(name + place, text)
            continue
        yield name, Problem(name + inner, _text(errors, not inner and NoneType in get_args(types.get(name))))


def _place(location: tuple[int | str, ...], names: list[str]) -> tuple[str, str]:
    """Return the name of an option, and the place inside its value, such as ``[0]``."""
    if not location:
        return "", ""
    first, *inner = location
    if isinstance(first, int):
        # The index of a positional argument.
        first = names[first]
    # A text in `inner` is the label of a member of a union, which is not a place.
    return first, "".join([f"[{step}]" for step in inner if isinstance(step, int)])


def _value_of(detail: Any) -> str | int | float | None:
    """Return the value in the error of a validator, else the invalid value if it is a number, else its type."""
    if detail["type"] in (_UNKNOWN, "missing"):
        return None
    reason = detail.get("ctx", {}).get("error")
    if isinstance(reason, Picklable):
        return reason.value
    if isinstance(detail["input"], int | float):
        number: int | float = detail["input"]
        return number
    return kind_of(detail["input"])


def _text(details: list[Any], is_optional: bool) -> str:
    first = details[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"] == "multiple_argument_values":
        return "is passed twice"
    expected = " or ".join(dict.fromkeys([_expected(detail) for detail in details]))
    if is_optional:
        expected += ", or None"
    if first["type"] in _WITHOUT_VALUE:
        return f"expected {expected}"
    # A value of another type can be a secret.
    received = brief(first["input"]) if first["type"] == "literal_error" else kind_of(first["input"])
    return f"expected {expected}, got {received}"


def _expected(detail: Any) -> str:
    context = detail.get("ctx", {})
    if context.get("class") == "Sequence":
        return _EXPECTED["list_type"]
    if detail["type"] == "float_type" and isinstance(detail["input"], int) and not isinstance(detail["input"], bool):
        return "a number that fits into a float"
    text = _EXPECTED.get(detail["type"])
    if text is None:
        return str(detail["msg"]).removeprefix("Input should be ")
    return text.format_map({name: _bound(value) for name, value in context.items()})


def _bound(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:,.15g}"
    if isinstance(value, int):
        return f"{value:,}"
    return value
