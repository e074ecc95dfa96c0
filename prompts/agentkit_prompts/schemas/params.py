"""Schemas of template parameters: what is refused, and how values are checked."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import SchemaValidator
from typing_extensions import is_typeddict

from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.errors import PromptError, brief
from agentkit_prompts.schemas.check import (
    JsonChecker,
    Problem,
    bound_faults,
    pattern_faults,
    resolve,
    shown_name,
)
from agentkit_prompts.schemas.validation_steps import StepsExceeded, bounded, multiplies, within

__all__ = [
    "JsonSchema",
    "ParamsSchema",
    "check_params_schema",
    "faults_by_place",
    "params_checker",
    "schema_faults",
    "to_json_schema",
]

JsonSchema: TypeAlias = dict[str, Any]
_MAX_STEPS = 200_000
ParamsSchema: TypeAlias = TypeAdapter[Any] | type | Mapping[str, Any]
"""A TypeAdapter, a model, dataclass or TypedDict class, or a JSON Schema object."""


def _adapter(schema: TypeAdapter[Any] | type) -> TypeAdapter[Any]:
    """Return the TypeAdapter of a schema.

    Raises:
        PromptError: pydantic cannot make a validator of it.
    """
    if isinstance(schema, TypeAdapter):
        return schema
    try:
        return TypeAdapter(schema)
    except (PydanticSchemaGenerationError, PydanticUserError, SyntaxError, LookupError, TypeError) as error:
        if isinstance(schema, str) or not isinstance(error, PydanticSchemaGenerationError | PydanticUserError):
            raise PromptError(
                f"params_schema: expected a type, a TypeAdapter or a JSON Schema as a mapping, got {brief(schema)}",
                name="params_schema",
                value=schema if isinstance(schema, str | int) else type(schema).__name__,
            ) from error
        raise PromptError(
            f"params_schema {_named(schema)}: {str(error).splitlines()[0]}; "
            "allow it with model_config = ConfigDict(arbitrary_types_allowed=True)",
            name="params_schema",
            value=schema if isinstance(schema, str | int) else type(schema).__name__,
        ) from error


def to_json_schema(schema: ParamsSchema) -> JsonSchema:
    """Return the JSON Schema of a params schema.

    Raises:
        PromptError: A type in it has no JSON Schema.
    """
    if isinstance(schema, Mapping):
        return dict(schema)
    try:
        return _adapter(schema).json_schema()
    except PydanticInvalidForJsonSchema as error:
        raise PromptError(
            f"params_schema {_named(schema)}: no JSON Schema for it ({str(error).splitlines()[0]})"
        ) from error


def check_params_schema(schema: ParamsSchema) -> None:
    """Refuse a schema that would refuse the context: one that forbids extras, or a model without arbitrary types.

    The rule is that of the TFRobot document; it is applied through Optional, Union, Annotated, TypedDict and dataclass
    as well, and to `additionalProperties: false`.

    Raises:
        PromptError: Names every offender at once.
    """
    if isinstance(schema, Mapping):
        where = "the JSON Schema"
        faults = _malformed(schema, where) or [*_endless_references(schema, where), *_json_faults(schema, schema)]
    else:
        adapter = _adapter(schema)
        faults = list(_type_faults(adapter._type, set()))
        if (adapter._config or {}).get("extra") == "forbid":
            faults.append(f'the JSON Schema: the config of {_named(schema)} forbids extra fields: use extra="ignore"')
    if faults:
        raise PromptError(
            f"params_schema cannot be used by a prompt: {'; '.join(dict.fromkeys(faults))}",
            problems=faults_by_place(faults, "the JSON Schema"),
        )


def faults_by_place(faults: Iterable[str], where: str) -> list[tuple[str, str]]:
    """Return faults of a schema as (place in the schema, problem)."""
    problems = []
    for fault in dict.fromkeys(faults):
        place, _, problem = fault.removeprefix(where).lstrip(":.").partition(" ")
        problems.append((place, problem))
    return problems


def _type_faults(kind: Any, seen: set[int]) -> Iterator[str]:
    """Walk the alternatives of a top-level type; what its fields hold is their own business."""
    if id(kind) in seen:
        return
    seen.add(id(kind))
    behind = getattr(kind, "__value__", None) or getattr(kind, "__supertype__", None)  # `type X = ...`, NewType
    if behind is not None:
        yield from _type_faults(behind, seen)
        return
    if get_origin(kind) is not None and not inspect.isclass(kind):
        arguments = get_args(kind)
        is_union = get_origin(kind) is Union or type(kind).__name__ == "UnionType"
        for argument in arguments if is_union else arguments[:1]:
            yield from _type_faults(argument, seen)
        return
    if not inspect.isclass(kind):
        return
    if issubclass(kind, BaseModel) and kind.__pydantic_root_model__:
        yield from _type_faults(kind.model_fields["root"].annotation, seen)
    if issubclass(kind, BaseModel):
        config: Mapping[str, Any] = kind.model_config
    elif dataclasses.is_dataclass(kind) or is_typeddict(kind):
        config = getattr(kind, "__pydantic_config__", None) or {}
    else:
        return
    if config.get("extra") == "forbid" or getattr(kind, "__closed__", False) is True:
        yield f'{kind.__name__} forbids extra fields, but a prompt passes the whole context: use extra="ignore"'
    if issubclass(kind, BaseModel) and not config.get("arbitrary_types_allowed"):
        yield f"{kind.__name__} must set arbitrary_types_allowed=True: context values are not JSON types"


_HOLDS_SCHEMAS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_LISTS_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_CONDITION = ("if", "then", "else")
_IS_SCHEMA = (
    *("items", "additionalProperties", "unevaluatedProperties", "not", "contains", "propertyNames"),
    *_CONDITION,
)
_MAX_DEPTH = 64


def schema_faults(schema: object, where: str) -> list[str]:
    """Return why something is not a JSON Schema that can be held against values."""
    faults = _malformed(schema, where)
    return faults if faults or not isinstance(schema, Mapping) else list(_endless_references(schema, where))


def _malformed(schema: object, where: str) -> list[str]:
    """Find what is no JSON Schema at all, also where only references lead."""
    faults = list(pattern_faults(schema, where)) or list(_shape_faults(schema, where))
    if faults or not isinstance(schema, Mapping):
        return faults
    targets = {one["$ref"]: resolve(one["$ref"], schema) for one in _references(schema) if one["$ref"][:1] == "#"}
    walked: set[int] = set()
    for reference, target in targets.items():
        if id(target) in walked:
            continue
        walked.add(id(target))
        if not reference.startswith(("#/$defs/", "#/definitions/")) or reference.count("/") > 2:  # not walked yet
            faults += _shape_faults(target, f"{where}: the target of {shown_name(reference)}")
    return faults


def _shape_faults(schema: object, where: str) -> Iterator[str]:
    """Find what is no JSON Schema at all, before anything walks it: level by level, as parts may be shared."""
    checked: set[int] = set()
    level: dict[int | str, tuple[str, object]] = {id(schema): (where, schema)}
    for _ in range(_MAX_DEPTH + 1):
        below: dict[int | str, tuple[str, object]] = {}
        for place, node in level.values():
            if not isinstance(node, Mapping):
                if not isinstance(node, bool):
                    yield f"{place} must be an object or a boolean, got {type(node).__name__}"
                continue
            for inner_place, inner in _inner_schemas(node, place):
                below.setdefault(id(inner) if isinstance(inner, Mapping) else inner_place, (inner_place, inner))
            if id(node) not in checked:
                checked.add(id(node))
                yield from _own_faults(node, place)
        level = below
    if level:
        yield f"{where} nests deeper than {_MAX_DEPTH} levels"


def _inner_schemas(schema: Mapping[str, Any], where: str) -> Iterator[tuple[str, object]]:
    for keyword in _HOLDS_SCHEMAS:
        held = schema.get(keyword)
        if isinstance(held, Mapping):
            yield from ((f"{where}.{keyword}.{shown_name(str(name))}", item) for name, item in held.items())
    for keyword in _LISTS_SCHEMAS:
        options = schema.get(keyword)
        if isinstance(options, list | tuple):
            yield from ((f"{where}.{keyword}[{index}]", item) for index, item in enumerate(options))
    for keyword in _IS_SCHEMA:
        if keyword in schema:
            yield f"{where}.{keyword}", schema[keyword]


def _own_faults(schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield what is wrong in a schema beside what is wrong in those inside it."""
    for keyword in _HOLDS_SCHEMAS:
        if not isinstance(schema.get(keyword, {}), Mapping):
            yield f"{where}.{keyword} must be an object of schemas, got {type(schema[keyword]).__name__}"
    needs = schema.get("dependentRequired", {})
    lists = needs.values() if isinstance(needs, Mapping) else [None]
    if not all(isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) for names in lists):
        yield f"{where}.dependentRequired must be an object of lists of names, got {brief(needs)}"
    for keyword in _LISTS_SCHEMAS:
        if not isinstance(schema.get(keyword, ()), list | tuple):
            yield f"{where}.{keyword} must be a list of schemas, got {type(schema[keyword]).__name__}"
    yield from bound_faults(schema, where)
    for keyword in ("required", "enum"):
        if not isinstance(schema.get(keyword, ()), list | tuple):
            yield f"{where}.{keyword} must be a list, got {type(schema[keyword]).__name__}"
    for keyword in ("required", "type"):
        names = schema.get(keyword, ())
        for name in names if isinstance(names, list | tuple) else [names] if keyword == "type" else ():
            if not isinstance(name, str):
                yield f"{where}.{keyword} must hold names, got {type(name).__name__}"
    if not isinstance(schema.get("$ref", ""), str):
        yield f"{where}.$ref must be a str, got {type(schema['$ref']).__name__}"


def _json_faults(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[str]:
    """Walk the alternatives of the whole value, each once, however many ways lead there."""
    seen: set[int] = set()
    waiting: list[Any] = [schema]
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, Mapping) or id(schema) in seen:
            continue
        seen.add(id(schema))
        if schema.get("additionalProperties") is False or schema.get("unevaluatedProperties") is False:
            title = schema.get("title", "the JSON Schema")
            yield f"{title} sets additionalProperties to false, but a prompt passes the whole context: leave it out"
        waiting += _same_value(schema, root)


def _endless_references(document: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield a fault where references lead back to themselves without going into the value: they judge nothing."""
    graph: dict[int, list[int]] = {}
    waiting: list[Any] = list(_references(document))
    names = {id(one): one["$ref"] for one in waiting}
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, Mapping) and id(schema) not in graph:
            below = _same_value(schema, document)
            graph[id(schema)] = [id(one) for one in below]
            waiting += below
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        steps = " -> ".join(dict.fromkeys(names[key] for key in error.args[1] if key in names))
        yield f"{where}: {steps} leads back to itself without going into the value, so it describes nothing"


def _references(document: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object with a reference in a document."""
    for node in iter_nodes(document):
        if isinstance(node, Mapping) and isinstance(node.get("$ref"), str):
            yield node


def _same_value(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Any]:
    """Return the schemas that look at the same value as `schema`."""
    found = [option for keyword in ("anyOf", "oneOf", "allOf") for option in schema.get(keyword) or ()]
    found += [schema[keyword] for keyword in ("not", *_CONDITION) if keyword in schema]
    found += (schema.get("dependentSchemas") or {}).values()
    reference = schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        found.append(resolve(reference, root))
    return found


def _named(schema: object) -> str:
    name = getattr(schema, "__name__", None) or getattr(getattr(schema, "_type", None), "__name__", None)
    return str(name or repr(schema))


def params_checker(schema: ParamsSchema) -> Callable[[Mapping[str, Any]], tuple[Mapping[str, Any], list[Problem]]]:
    """Return a function that checks values, giving them with defaults filled in, and every problem at once."""
    if isinstance(schema, Mapping):
        document = dict(schema)
        checker = JsonChecker(document)
        return lambda values: (_with_defaults(document, values), checker.problems(values))
    validate = _bounded(_adapter(schema))

    def check(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Problem]]:
        try:
            checked = validate(dict(values))
        except ValidationError as error:
            return values, [
                (".".join(map(str, item["loc"])) or "(value)", item["msg"]) for item in error.errors(include_url=False)
            ]
        except StepsExceeded as error:
            return values, [("(value)", str(error))]
        return {**values, **_fields(checked)}, []

    return check


def _bounded(adapter: TypeAdapter[Any]) -> Callable[[Any], Any]:
    """Return what validates like an adapter; in steps where its unions could multiply them."""
    if not multiplies(adapter.core_schema):
        return adapter.validate_python
    inner: Any = getattr(
        adapter.validator, "_schema_validator", adapter.validator
    )  # inside of what plugins put around it
    schema, config = inner.__reduce__()[1][:2]
    return partial(within, _MAX_STEPS, SchemaValidator(bounded(schema), config, _use_prebuilt=False).validate_python)


def _fields(value: Any) -> Mapping[str, Any]:
    """Return the fields of a validated object without dumping it."""
    if isinstance(value, BaseModel):
        return {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    return value if isinstance(value, Mapping) else {}


def _with_defaults(schema: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
    defaults = {
        name: item["default"]
        for name, item in schema.get("properties", {}).items()
        if name not in values and isinstance(item, Mapping) and "default" in item
    }
    return {**values, **defaults} if defaults else values
