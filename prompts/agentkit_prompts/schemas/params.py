"""Params schemas: types or JSON Schemas of the values of a template. They are checked, and check values."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import (
    PydanticInvalidForJsonSchema,
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
)
from typing_extensions import is_typeddict

from agentkit_prompts.caller_warnings import caller
from agentkit_prompts.errors import PromptError, brief
from agentkit_prompts.invalid_values import JSON_WORDS, invalid_values, place_of
from agentkit_prompts.limits import MAX_CACHED
from agentkit_prompts.schemas.json_validator import MAX_SCHEMA_VALUES, JsonValidator
from agentkit_prompts.schemas.plain_data import NotPlainError, Step, fields_of, foreign_objects, plain_data
from agentkit_prompts.schemas.recursive_unions import has_recursive_union, recursion_problem
from agentkit_prompts.schemas.references import ReferenceTable, in_place
from agentkit_prompts.schemas.schema_problems import InvalidSchemaError, SchemaProblem
from agentkit_prompts.schemas.subschemas import ANY_VALUE, schema_at, type_of

JsonSchema: TypeAlias = dict[str, Any]
ParamsSchema: TypeAlias = TypeAdapter[Any] | type | Mapping[str, Any]
"""A TypeAdapter, a model, dataclass or TypedDict class, or a JSON Schema object."""
Problem: TypeAlias = tuple[str, str]
"""Dotted name of a value, and the text of its problem."""
PlacedProblem: TypeAlias = tuple[str, str]
"""Place in a schema, or name of a type, and the text of the problem."""


def with_resolved_names(schema: ParamsSchema) -> ParamsSchema:
    """Return a type such as `list["Page"]` with each name replaced by the type that it has in the code of the caller.

    Raises:
        PromptError: A name is not defined.
    """
    # A text is not resolved as the name of a type: it is probably a schema as JSON text, which `_adapter` refuses.
    if isinstance(schema, TypeAdapter | Mapping | type | str):
        return schema
    frame = caller()
    annotated = SimpleNamespace(__annotations__={"schema": schema})
    try:
        return get_type_hints(annotated, frame.f_globals, frame.f_locals, include_extras=True)["schema"]
    except NameError as error:
        raise _undefined(schema, error) from error


def _adapter(schema: TypeAdapter[Any] | type) -> TypeAdapter[Any]:
    """Return the TypeAdapter of a schema.

    The adapter is incomplete if a class uses a name before its definition; `_completed` completes it.

    Raises:
        PromptError: pydantic cannot create a validator for the type.
    """
    if isinstance(schema, TypeAdapter):
        return schema
    if isinstance(schema, str):
        raise _no_schema(schema)
    try:
        return TypeAdapter(schema)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise PromptError(
            f"params_schema {_named(schema)}: {str(error).splitlines()[0]}; "
            "allow it with model_config = ConfigDict(arbitrary_types_allowed=True)",
            name="params_schema",
            value=_value_of(schema),
        ) from error
    except (SyntaxError, LookupError, TypeError) as error:
        raise _no_schema(schema) from error


def _no_schema(schema: object) -> PromptError:
    return PromptError(
        f"params_schema: expected a type, a TypeAdapter or a JSON Schema as a mapping, got {brief(schema)}",
        name="params_schema",
        value=_value_of(schema),
    )


def _value_of(schema: object) -> str | int:
    if isinstance(schema, str | int):
        return schema
    return type(schema).__name__


def _completed(adapter: TypeAdapter[Any], schema: object) -> TypeAdapter[Any]:
    """Return the adapter after resolving the names of classes that were defined after its creation.

    Raises:
        PromptError: A name is not defined.
    """
    try:
        adapter.rebuild()
    except PydanticUndefinedAnnotation as error:
        raise _undefined(schema, error) from error
    return adapter


def _undefined(schema: object, error: NameError) -> PromptError:
    return PromptError(
        f"params_schema {_named(schema)}: the name {error.name!r} is not defined; define it before the schema is used",
        name="params_schema",
        value=error.name,
    )


def to_json_schema(schema: ParamsSchema) -> JsonSchema:
    """Return the JSON Schema of a params schema.

    Raises:
        PromptError: A type in the schema has no JSON Schema.
    """
    if isinstance(schema, Mapping):
        return dict(schema)
    try:
        return _completed(_adapter(schema), schema).json_schema()
    except PydanticInvalidForJsonSchema as error:
        raise PromptError(
            f"params_schema {_named(schema)}: no JSON Schema for it ({str(error).splitlines()[0]})"
        ) from error


def check_params_schema(schema: ParamsSchema) -> None:
    """Reject a schema that is invalid, or that would reject the values of the context, which a prompt always passes.

    Raises:
        PromptError: The schema has problems; `problems` contains all of them with their places.
    """
    if isinstance(schema, Mapping):
        kind = "the JSON Schema"
        problems = schema_problems(schema) or _closed_schemas(schema)
    else:
        kind = "the type"
        problems = _adapter_problems(_adapter(schema), _named(schema))
    if problems:
        listed = "; ".join([f"{place or kind}: {problem}" for place, problem in problems])
        raise PromptError(f"the schema cannot be used by a prompt: {listed}", problems=problems)


def _adapter_problems(adapter: TypeAdapter[Any], name: str) -> list[PlacedProblem]:
    problems = list(dict.fromkeys(_type_problems(adapter._type, set())))
    if (adapter._config or {}).get("extra") == "forbid":
        problems.append(("", f'the config of {name} forbids extra fields: use extra="ignore"'))
    return problems


def schema_problems(schema: Mapping[str, Any]) -> list[PlacedProblem]:
    """Return the problems that make a JSON Schema unusable, each with its place; empty if it is usable."""
    try:
        _validator_of(schema)
    except InvalidSchemaError as error:
        return error.problems
    return []


def _closed_schemas(document: Mapping[str, Any]) -> list[PlacedProblem]:
    """Return a problem for each schema that is applied to the whole value and forbids other properties."""
    references = ReferenceTable(document)
    schemas: dict[int, Mapping[str, Any]] = {}
    waiting: list[Any] = [document]
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, Mapping) and id(schema) not in schemas:
            schemas[id(schema)] = schema
            waiting += in_place(schema, references)
    return [
        ("", f"sets {keyword} to false, but a prompt passes the whole context: leave it out")
        for schema in schemas.values()
        for keyword in ("additionalProperties", "unevaluatedProperties")
        if schema.get(keyword) is False
    ]


def _type_problems(kind: Any, seen: set[int]) -> Iterator[PlacedProblem]:
    """Yield the problems of a type and of its alternatives; `seen` contains the ids of visited types. Types of fields
    are not checked.
    """
    if id(kind) in seen:
        return
    seen.add(id(kind))
    for inner in _alternative_types(kind):
        yield from _type_problems(inner, seen)
    if inspect.isclass(kind):
        yield from _class_problems(kind)


def _alternative_types(kind: Any) -> list[Any]:
    """Return the inner types of an alias, a union, an annotated type or a root model; empty for other classes."""
    # `type X = ...` has `__value__`, and a `NewType` has `__supertype__`.
    aliased = getattr(kind, "__value__", None) or getattr(kind, "__supertype__", None)
    if aliased is not None:
        return [aliased]
    if inspect.isclass(kind):
        if issubclass(kind, BaseModel) and kind.__pydantic_root_model__:
            return [kind.model_fields["root"].annotation]
        return []
    if get_origin(kind) is Union or type(kind).__name__ == "UnionType":
        return list(get_args(kind))
    return list(get_args(kind))[:1]


def _class_problems(kind: type) -> Iterator[PlacedProblem]:
    config = _config_of(kind)
    if config.get("extra") == "forbid" or getattr(kind, "__closed__", False) is True:
        yield kind.__name__, 'forbids extra fields, but a prompt passes the whole context: use extra="ignore"'
    if issubclass(kind, BaseModel) and not config.get("arbitrary_types_allowed"):
        yield kind.__name__, "must set arbitrary_types_allowed=True: context values are not JSON types"


def _config_of(kind: type) -> Mapping[str, Any]:
    if issubclass(kind, BaseModel):
        return kind.model_config
    if dataclasses.is_dataclass(kind) or is_typeddict(kind):
        return getattr(kind, "__pydantic_config__", None) or {}
    return {}


def _named(schema: object) -> str:
    """Return the name of a class; for other types, the type as it is written in code."""
    if isinstance(schema, TypeAdapter):
        schema = schema._type
    # Types such as `list[int]` have the name of their class.
    if isinstance(schema, type) and not get_args(schema):
        return schema.__name__
    return brief(schema)


def params_checker(schema: ParamsSchema) -> Callable[[Mapping[str, Any]], tuple[Mapping[str, Any], list[Problem]]]:
    """Return a function of values that returns the values with defaults for missing values, and all problems."""
    if isinstance(schema, Mapping):
        document, validator = dict(schema), _validator_of(schema)
        return lambda values: (_with_defaults(document, values), _json_problems(document, validator, values))
    return _TypeChecker(schema).check


class _TypeChecker:
    """Checker of values by a type."""

    def __init__(self, schema: TypeAdapter[Any] | type) -> None:
        self._schema = schema
        self._incomplete_adapter = _adapter(schema)

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return _completed(self._incomplete_adapter, self._schema)

    @cached_property
    def _recurses(self) -> bool:
        return has_recursive_union(self._adapter.core_schema)

    def check(self, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Problem]]:
        """Return the values with defaults for missing values, and all problems."""
        # pydantic tries all members of a union at each level, so a recursive union can double the time per level.
        if self._recurses and (problem := recursion_problem(values)):
            return values, [("(value)", problem)]
        try:
            checked = self._adapter.validate_python(dict(values))
        except ValidationError as error:
            problems = invalid_values(error, values, words=JSON_WORDS)
            return values, [(problem.place or "(value)", problem.message()) for problem in problems]
        return {**values, **fields_of(checked)}, []


def _json_problems(document: JsonSchema, validator: JsonValidator, values: Mapping[str, Any]) -> list[Problem]:
    problems = validator.problems_of_object(values)
    listed = [(place_of(problem.path) or "(value)", _text(problem, values)) for problem in problems]
    if any(problem.keyword == "limit" for problem in problems):
        return listed
    places = [place for place, _ in listed]
    return [*listed, *[problem for problem in _foreign_problems(document, values) if problem[0] not in places]]


def _text(problem: SchemaProblem, values: Mapping[str, Any]) -> str:
    if problem.keyword == "required":
        return "is missing"
    if problem.keyword == "type":
        return f"{problem.expected}, got {type(_value_at(values, problem.path)).__name__}"
    return problem.expected


def _foreign_problems(document: JsonSchema, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each object that JSON cannot contain inside a value whose type the document declares.

    Values without a declared type are values of the context, and may contain any object.
    """
    for name, value in values.items():
        schema = schema_at(document, [name])
        if schema is not None and type_of(document, schema) != ANY_VALUE:
            for path, item in foreign_objects(value, (name,)):
                yield place_of(path), f"expected a value that JSON can contain, got {type(item).__name__}"


def _value_at(value: Any, path: Sequence[Step]) -> Any:
    """Return the value at a path; if the path leads into an object that is not JSON, return that object."""
    for step in path:
        if isinstance(value, Mapping):
            # The path contains names as text, because all names in JSON are text.
            value = next(item for name, item in value.items() if str(name) == str(step))
        elif isinstance(value, list | tuple):
            value = value[int(step)]
    return value


def _validator_of(document: Mapping[str, Any]) -> JsonValidator:
    """Return the validator of a JSON Schema; it is cached, because a prompt checks its kwargs at every turn.

    Raises:
        InvalidSchemaError: The schema cannot be used.
    """
    try:
        # The cache key is the JSON text, because the dict can be changed between two calls.
        text = json.dumps(plain_data(document, MAX_SCHEMA_VALUES))
    except NotPlainError as error:
        raise InvalidSchemaError([(place_of(error.path), str(error))]) from None
    return _cached_validator(text)


@lru_cache(MAX_CACHED)
def _cached_validator(text: str) -> JsonValidator:
    return JsonValidator(json.loads(text))


def _with_defaults(schema: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
    defaults: dict[str, Any] = {}
    for name, item in schema.get("properties", {}).items():
        if name not in values and isinstance(item, Mapping) and "default" in item:
            defaults[name] = item["default"]
    if not defaults:
        return values
    return {**values, **defaults}
