"""Signature of a function: JSON Schema and validator of its arguments, and their conversion to a call."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import (
    Annotated,
    Any,
    NoReturn,
    NotRequired,
    Required,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import Field, GetCoreSchemaHandler, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, PydanticUndefined, core_schema, to_jsonable_python
from typing_extensions import ReadOnly, is_typeddict

# Before Python 3.12, this is not `typing.Unpack`.
from typing_extensions import Unpack as OldUnpack

from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.schemas.annotations import annotations_of, context_annotations
from agentkit_tools.schemas.argument_reader import ArgumentReader, Arguments, reader_of
from agentkit_tools.schemas.deps_type import context_of, deps_type
from agentkit_tools.schemas.foreign_shapes import injected_class
from agentkit_tools.schemas.schema_values import with_null_defaults

_QUALIFIERS = (Required, NotRequired, ReadOnly)
_NO_NAN = core_schema.CoreConfig(allow_inf_nan=False)


class PlainSchema(GenerateJsonSchema):
    """Generator of pydantic's JSON Schema without titles from the names of parameters, and unsorted."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def sort(self, value: Any, parent_key: str | None = None) -> Any:
        # The generated order has the type first, and is the same in all processes.
        return value

    def default_schema(self, schema: Any) -> dict[str, Any]:
        result = super().default_schema(schema)
        if not _is_finite(result.get("default")):
            del result["default"]
        return result

    def build_schema_type_to_method(self) -> dict[Any, Any]:
        return _Methods(self)


def _is_finite(default: Any) -> bool:
    """True if no number in a default is infinity or NaN, which JSON cannot express."""
    try:
        return not isinstance(default, float | list | dict) or bool(json.dumps(default, allow_nan=False))
    except ValueError:
        return False


class _Methods(dict[Any, Any]):
    """Methods of a generator by kind of schema, looked up on first use: pydantic looks up all sixty for each schema."""

    def __init__(self, generator: GenerateJsonSchema) -> None:
        super().__init__()
        self._generator = generator

    def __missing__(self, kind: str) -> Any:
        method = self[kind] = getattr(self._generator, f"{kind.replace('-', '_')}_schema")
        return method


@dataclass(slots=True, eq=False, repr=False)
class _Field:
    """Property of the arguments."""

    annotation: Any
    required: bool
    alias: str | None = None
    description: str | None = None


def _field(name: str, annotation: Any, required: bool) -> _Field:
    """Return the property of a parameter, with the alias and the description that its annotation contains.

    Raises:
        ToolDefinitionError: The parameter has several aliases.
    """
    result = _Field(annotation, required)
    if get_origin(annotation) is not Annotated:
        return result
    kind, *extras = get_args(annotation)
    for extra in extras:
        if isinstance(extra, str):
            result.description = extra
        elif isinstance(extra, FieldInfo):
            result.alias = _alias_of(extra, name) or result.alias
    if result.alias:
        result.annotation = Annotated[kind, *map(_without_alias, extras)]
    return result


def _alias_of(field: FieldInfo, name: str) -> str | None:
    alias = field.validation_alias or field.alias
    if alias is not None and not isinstance(alias, str):
        raise ToolDefinitionError(f"parameter {name}: the alias of a tool parameter must be one str", names=[name])
    return alias


def _without_alias(extra: Any) -> Any:
    """Remove the alias of a pydantic `Field`. `Signature` applies it; pydantic would warn about it."""
    if not isinstance(extra, FieldInfo):
        return extra
    bare = copy(extra)
    bare.alias = bare.validation_alias = bare.serialization_alias = None
    return bare


@dataclass(slots=True, eq=False, repr=False)
class Signature:
    """Parameters of a function, in the form for a model and in the form for Python."""

    fields: dict[str, _Field] = field(default_factory=dict)
    extras: Any = None
    contexts: tuple[str, ...] = ()
    """Parameters that receive the `ToolContext`."""
    deps_types: tuple[Any, ...] = ()
    """Types of `deps` that these parameters declare, without types that cannot be checked."""
    injected: dict[str, FieldInfo] = field(default_factory=dict)
    """Parameters whose default is a pydantic `Field`."""
    untyped: tuple[str, ...] = ()
    """Parameters without an annotation."""
    positional: tuple[tuple[str, Any], ...] | None = None
    """Parameters to pass by position, with their defaults; the last can be `*name`. None: pass all by keyword."""
    reader: ArgumentReader = field(init=False)
    """Reader of `Arguments` from JSON text."""
    parameters: dict[str, Any] = field(init=False)
    """JSON Schema of the arguments, an object."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Defaults of omitted arguments, by property name, without defaults that JSON cannot express.

        A function without described parameters, such as the function of a foreign schema, has none.
        """
        properties = getattr(self, "parameters", {}).get("properties", {})
        return {name: entry["default"] for name, entry in properties.items() if "default" in entry}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        fields = {}
        for name, item in self.fields.items():
            schema = handler.generate_schema(item.annotation)
            fields[name] = core_schema.typed_dict_field(schema, required=item.required, validation_alias=item.alias)
        if self.extras is None:
            return core_schema.typed_dict_schema(fields, extra_behavior="forbid", config=_NO_NAN)
        extras = handler.generate_schema(self.extras)
        return core_schema.typed_dict_schema(fields, extra_behavior="allow", extras_schema=extras, config=_NO_NAN)

    @property
    def binding(self) -> Callable[[Arguments, Any], tuple[tuple[Any, ...], Arguments]] | None:
        """`bind`, or None if the validated arguments are the keyword arguments of the call."""
        if self.contexts or self.injected or self.positional is not None:
            return self.bind
        return None

    def add_context(self, name: str, hint: Any) -> None:
        """Add a parameter that receives the context."""
        self.contexts += (name,)
        declared = deps_type(hint)
        if declared is not None and declared not in self.deps_types:
            self.deps_types += (declared,)

    def bind(self, arguments: Arguments, context: Any) -> tuple[tuple[Any, ...], Arguments]:
        """Return positional and keyword arguments for one call."""
        for name in self.contexts:
            arguments[name] = context
        for name, default in self.injected.items():
            if name not in arguments:
                arguments[name] = _injected_default(default, name)
        if self.positional is None:
            return (), arguments
        values: list[Any] = []
        for name, default in self.positional:
            if name.startswith("*"):
                values.extend(arguments.pop(name[1:], ()))
            else:
                values.append(arguments.pop(name, default))
        return tuple(values), arguments


def _injected_default(field: FieldInfo, name: str) -> Any:
    try:
        return field.get_default(call_default_factory=True, validated_data={})
    except StopIteration as error:
        # A StopIteration would end the coroutine of the call like a return.
        raise RuntimeError(f"the default of {name} raised StopIteration") from error


def read_signature(
    function: Callable[..., Any], texts: Mapping[str, str], *, tool: str, skip_first: bool = False
) -> Signature:
    """Read the signature of `function`.

    `texts` contains descriptions by parameter name, `skip_first` omits `self`.

    Raises:
        ToolDefinitionError: The function has no signature, or an annotation cannot be resolved or expressed in JSON
            Schema.
    """
    parameters = _parameters_of(function, tool)
    if skip_first:
        parameters = parameters[1:]
    hints = annotations_of(function, parameters, tool)
    result = Signature()
    defaults: dict[str, Any] = {}
    for parameter in parameters:
        hint = hints.get(parameter.name, Any)
        if context_of(hint) is not None:
            result.add_context(parameter.name, hint)
        elif parameter.kind is Parameter.VAR_KEYWORD:
            _add_extras(result, parameter.name, hint, texts.get(parameter.name), tool)
        elif parameter.kind is Parameter.VAR_POSITIONAL:
            items = list[hint]  # type: ignore[valid-type]
            result.fields[parameter.name] = _Field(items, required=False)
        else:
            default = _add_field(result, parameter, hint)
            if default is not Parameter.empty:
                defaults[parameter.name] = default
    _refuse_injected({name: item.annotation for name, item in result.fields.items()}, tool)
    named = [parameter.name for parameter in parameters if parameter.kind not in _VARIADIC]
    result.untyped = tuple([name for name in named if name not in hints])
    result.positional = _positional(parameters, defaults)
    _build(result, tool)
    _describe(result, texts, defaults)
    return result


def _refuse_injected(annotations: Mapping[str, Any], tool: str) -> None:
    """Refuse parameters for which another library injects a value: the model must not write the context of a run."""
    problems: dict[str, str] = {}
    for name, annotation in annotations.items():
        injected = injected_class(annotation)
        if injected:
            problems[name] = f"parameter {name}: another library injects {injected}; use a ToolContext of agentkit"
    if problems:
        raise ToolDefinitionError(f"tool {tool}: {'; '.join(problems.values())}", tool=tool, names=problems)


def _parameters_of(function: Callable[..., Any], tool: str) -> list[Parameter]:
    try:
        return list(signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            f"tool {tool}: {function!r} has no signature that can be read ({error})", tool=tool
        ) from error


def _add_field(result: Signature, parameter: Parameter, hint: Any) -> Any:
    """Add a parameter for an argument from the model, and return its default, or `Parameter.empty`."""
    name, default = parameter.name, parameter.default
    if isinstance(default, FieldInfo):
        hint, default = Annotated[hint, default], _default_of(default, result, name)
    elif default is Parameter.empty and get_origin(hint) is Annotated:
        for extra in get_args(hint)[1:]:
            if isinstance(extra, FieldInfo):
                default = _default_of(extra, result, name)
    result.fields[name] = _field(name, hint, required=default is Parameter.empty)
    return default


_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_BY_POSITION_ONLY = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)


def _positional(parameters: Sequence[Parameter], defaults: Mapping[str, Any]) -> tuple[tuple[str, Any], ...] | None:
    """Return the parameters to pass by position, with their defaults; None if all can be passed by keyword."""
    # Keywords are cheaper: the arguments are a dict already.
    if not any(parameter.kind in _BY_POSITION_ONLY for parameter in parameters):
        return None
    by_position: list[tuple[str, Any]] = []
    for parameter in parameters:
        name = parameter.name
        if parameter.kind is Parameter.VAR_POSITIONAL:
            by_position.append((f"*{name}", None))
        elif parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
            by_position.append((name, defaults.get(name, parameter.default)))
    return tuple(by_position)


def context_parameters(function: Callable[..., Any], *, tool: str, taken: Iterable[str] = ()) -> Signature:
    """Return a signature of the parameters of `function` that receive the `ToolContext`.

    Raises:
        ToolDefinitionError: A parameter has the name of an argument in `taken`, or a type that cannot be resolved.
    """
    result = Signature()
    for name, hint in context_annotations(function, tool).items():
        if name != "return" and context_of(hint) is not None:
            result.add_context(name, hint)
    if clashes := sorted(set(result.contexts) & set(taken)):
        raise ToolDefinitionError(
            f"tool {tool}: {', '.join(clashes)} is both an argument and the context: rename it",
            tool=tool,
            names=clashes,
        )
    return result


def _default_of(field: FieldInfo, result: Signature, name: str) -> Any:
    """Return the default of a pydantic `Field`, which `bind` adds to the arguments."""
    if field.is_required():
        return Parameter.empty
    result.injected[name] = field
    return field.default


def _add_extras(result: Signature, name: str, hint: Any, text: str | None, tool: str) -> None:
    if get_origin(hint) not in (Unpack, OldUnpack):
        result.extras = Annotated[hint, Field(description=text)] if text else hint
        return
    (shape,) = get_args(hint)
    if not is_typeddict(shape):
        raise ToolDefinitionError(
            f"tool {tool}: **kwargs can unpack only a TypedDict, got {shape!r}", tool=tool, names=[name]
        )
    for name, annotation in get_type_hints(shape, include_extras=True).items():
        required = name in shape.__required_keys__
        while (qualifier := get_origin(annotation)) in _QUALIFIERS:
            required = {Required: True, NotRequired: False}.get(qualifier, required)
            (annotation,) = get_args(annotation)
        result.fields[name] = _field(name, annotation, required)


def _build(result: Signature, tool: str) -> None:
    counts = Counter(item.alias or name for name, item in result.fields.items())
    if repeated := [name for name, count in counts.items() if count > 1]:
        raise ToolDefinitionError(
            f"tool {tool}: several parameters have the same name: {', '.join(repeated)}; change an alias",
            tool=tool,
            names=repeated,
        )
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(result)  # type: ignore[arg-type]
        result.reader = reader_of(adapter.validator.validate_json, adapter.core_schema)
        result.parameters = adapter.json_schema(schema_generator=PlainSchema)
    except Exception as error:
        _explain(result, tool, error)


def _explain(result: Signature, tool: str, cause: Exception) -> NoReturn:
    """Raise an error that lists the parameters without a JSON Schema."""
    reasons: dict[str, str] = {}
    for name, item in result.fields.items():
        try:
            TypeAdapter(item.annotation).json_schema(schema_generator=PlainSchema)
        except Exception as error:
            reasons[name] = f"parameter {name}: {str(error).splitlines()[0]}"
    reason = "; ".join(reasons.values()) or str(cause).splitlines()[0]
    raise ToolDefinitionError(
        f"tool {tool}: no JSON Schema can describe it; {reason}", tool=tool, names=reasons
    ) from cause


def _describe(result: Signature, texts: Mapping[str, str], defaults: Mapping[str, Any]) -> None:
    """Add descriptions and JSON defaults to the schema, and remove titles from class names."""
    raw = result.parameters
    properties = raw.get("properties", {})
    for name, item in result.fields.items():
        entry = properties.get(item.alias or name)
        if entry is not None:
            _add_description(entry, item.description or texts.get(name))
            _add_default(entry, defaults.get(name, PydanticUndefined))
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if raw.get("required"):
        parameters["required"] = raw["required"]
    parameters["additionalProperties"] = raw.get("additionalProperties", True)
    if raw.get("$defs"):
        parameters["$defs"] = raw["$defs"]
    result.parameters = with_null_defaults(without_titles(parameters))


def _add_description(entry: dict[str, Any], text: str | None) -> None:
    if text and "description" not in entry:
        entry["description"] = text


def _add_default(entry: dict[str, Any], default: Any) -> None:
    if "default" in entry or default is PydanticUndefined:
        return
    # A default that JSON cannot express is missing in the schema; Python still uses it.
    with suppress(ValueError, TypeError):
        written = to_jsonable_python(default)
        if _is_finite(written):
            entry["default"] = written


def without_titles(parameters: dict[str, Any]) -> dict[str, Any]:
    """Remove the titles that pydantic creates from class names."""
    for key, entry in parameters.get("$defs", {}).items():
        if key.endswith(str(entry.get("title", "\0")).replace("[", "_").replace("]", "_")):
            del entry["title"]
    return parameters
