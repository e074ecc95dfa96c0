"""`options`: decorator of classes of options. Pydantic checks the fields, and one error lists all problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from types import NoneType
from typing import Annotated, Any, TypeAlias, TypeVar, dataclass_transform, get_args, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

from agentkit_prompts.errors import Picklable, Problem, kind_of, listed
from agentkit_prompts.hints import option_hint
from agentkit_prompts.invalid_values import InvalidValue, Words, invalid_values
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
WORDS: Words = {
    **dict.fromkeys(("bool_parsing", "bool_type"), "True or False"),
    # A `Sequence` is read as a list, which a tuple is converted to and from.
    **dict.fromkeys(("list_type", "sequence_str"), "a list or a tuple"),
    "dataclass_type": "{class_name}",
    "none_required": "None",
    "string_pattern_mismatch": "text that is not empty",
    "string_too_short": "text that is not empty",
    "tuple_type": "a tuple",
}
"""Expected values with another name in code than in data."""


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
                raised = _error_of(failure, values, option_class, error, unknown, elsewhere)
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
    values: Mapping[str, Any],
    cls: Any,
    error: Error,
    unknown: UnknownError | None,
    elsewhere: Mapping[str, str],
) -> Exception:
    """Return the error that lists all problems of a failed validation."""
    types = get_type_hints(cls)
    valid = [field.name for field in fields(cls)]
    suggestions: dict[str, str | None] = {}
    names: dict[str, None] = {}
    problems: list[Problem] = []
    invalid = [_named(value, valid) for value in invalid_values(failure, values, words=WORDS)]
    for value in sorted(invalid, key=lambda value: not value.is_unknown):
        name = value.place if value.inner else ".".join(map(str, value.path[:1]))
        names[name] = None
        if value.is_unknown:
            text, suggestions[name] = unknown_option(cls.__name__, name, valid, elsewhere)
            problems.append(Problem("", text))
        else:
            problems.append(field_problem(value, types))
    message = f"{cls.__name__}: {listed(problems)}"
    raised = unknown(message, suggestions) if suggestions and unknown is not None else error(message)
    if isinstance(raised, Picklable):
        raised.name = ", ".join(filter(None, names)) or None
        raised.problems = tuple(problems)
        raised.suggestion = next(iter(suggestions.values()), None)
        if len(invalid) == 1:
            raised.value = _value_of(invalid[0])
    return raised


def _named(value: InvalidValue, names: list[str]) -> InvalidValue:
    """Return the problem of a positional argument with the name of its option."""
    if not value.path or not isinstance(value.path[0], int):
        return value
    return value._replace(path=(names[value.path[0]], *value.path[1:]))


def field_problem(value: InvalidValue, types: Mapping[str, Any]) -> Problem:
    """Return the problem of an option, or of the field of a prompt; `types` are the types of the fields."""
    if len(value.path) == 1 and value.has_value and NoneType in get_args(types.get(str(value.path[0]))):
        value = value._replace(text=f"{value.text}, or None")
    return Problem(value.place, value.message())


def _value_of(value: InvalidValue) -> str | int | float | None:
    """Return the value in the error of a validator, else the invalid value if it is a number, else its type."""
    if value.is_missing or value.is_unknown:
        return None
    if value.reason is not None:
        return value.reason.value
    if isinstance(value.value, int | float):
        number: int | float = value.value
        return number
    return kind_of(value.value)
