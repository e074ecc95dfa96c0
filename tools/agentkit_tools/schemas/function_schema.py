"""What a function takes: its parameters as a validator of JSON text, a JSON Schema, and a way to pass them on."""

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

# One of its own before Python 3.12.
from typing_extensions import Unpack as OldUnpack

from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.schemas.annotations import annotations_of, context_annotations
from agentkit_tools.schemas.argument_reader import ArgumentReader, Arguments, reader_of
from agentkit_tools.schemas.deps_type import context_of, deps_type

__all__ = ["PlainSchema", "Signature", "context_parameters", "read_signature", "without_titles"]

_QUALIFIERS = (Required, NotRequired, ReadOnly)
_NO_NAN = core_schema.CoreConfig(allow_inf_nan=False)


class PlainSchema(GenerateJsonSchema):
    """Pydantic's JSON Schema without the titles it makes up from the names of parameters, and unsorted."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def sort(self, value: Any, parent_key: str | None = None) -> Any:
        # As it is generated: types first, and the same every time.
        return value

    def default_schema(self, schema: Any) -> dict[str, Any]:
        made = super().default_schema(schema)
        if not _is_finite(made.get("default")):
            del made["default"]
        return made

    def build_schema_type_to_method(self) -> dict[Any, Any]:
        return _Methods(self)


def _is_finite(default: Any) -> bool:
    """Whether no number in a default is infinity or NaN: no request could hold it."""
    try:
        return not isinstance(default, float | list | dict) or bool(json.dumps(default, allow_nan=False))
    except ValueError:
        return False


class _Methods(dict[Any, Any]):
    """The method of each kind of schema, looked up when there is one of it: pydantic looks for all sixty each time."""

    def __init__(self, generator: GenerateJsonSchema) -> None:
        super().__init__()
        self._generator = generator

    def __missing__(self, kind: str) -> Any:
        method = self[kind] = getattr(self._generator, f"{kind.replace('-', '_')}_schema")
        return method


@dataclass(slots=True, eq=False, repr=False)
class _Field:
    """One property of the arguments."""

    annotation: Any
    required: bool
    alias: str | None = None
    description: str | None = None


def _field(name: str, annotation: Any, required: bool) -> _Field:
    """Return the property of a parameter, with the alias and the description that its annotation contains.

    Raises:
        ToolDefinitionError: It has several aliases.
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
        raise ToolDefinitionError(f"parameter {name}: a tool parameter has one alias, a str", names=[name])
    return alias


def _without_alias(extra: Any) -> Any:
    """The alias is ours to apply; pydantic warns of one outside of a model."""
    if not isinstance(extra, FieldInfo):
        return extra
    bare = copy(extra)
    bare.alias = bare.validation_alias = bare.serialization_alias = None
    return bare


@dataclass(slots=True, eq=False, repr=False)
class Signature:
    """The parameters of a function, as a model sees them and as Python wants them."""

    fields: dict[str, _Field] = field(default_factory=dict)
    extras: Any = None
    contexts: tuple[str, ...] = ()
    """Parameters that receive the `ToolContext`."""
    deps_types: tuple[Any, ...] = ()
    """What they say `deps` are, where that can be checked."""
    injected: dict[str, FieldInfo] = field(default_factory=dict)
    """Parameters whose default is a pydantic `Field`."""
    untyped: tuple[str, ...] = ()
    """Parameters without an annotation."""
    positional: tuple[tuple[str, Any], ...] | None = None
    """Parameters to pass by position, with their defaults; the last may be `*name`. None: all go by keyword."""
    reader: ArgumentReader = field(init=False)
    """Reads `Arguments` from JSON text."""
    parameters: dict[str, Any] = field(init=False)
    """The JSON Schema of the arguments, an object."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        fields = {}
        for name, one in self.fields.items():
            schema = handler.generate_schema(one.annotation)
            fields[name] = core_schema.typed_dict_field(schema, required=one.required, validation_alias=one.alias)
        if self.extras is None:
            return core_schema.typed_dict_schema(fields, extra_behavior="forbid", config=_NO_NAN)
        extras = handler.generate_schema(self.extras)
        return core_schema.typed_dict_schema(fields, extra_behavior="allow", extras_schema=extras, config=_NO_NAN)

    @property
    def binding(self) -> Callable[[Arguments, Any], tuple[tuple[Any, ...], Arguments]] | None:
        """Return `bind`; None where arguments need not go through it."""
        if self.contexts or self.injected or self.positional is not None:
            return self.bind
        return None

    def add_context(self, name: str, hint: Any) -> None:
        """Note a parameter that receives the context."""
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
        # It would end the coroutine of the call, as if that had returned.
        raise RuntimeError(f"the default of {name} raised StopIteration") from error


def read_signature(
    function: Callable[..., Any], texts: Mapping[str, str], *, tool: str, skip_first: bool = False
) -> Signature:
    """Read what `function` takes.

    `texts` are descriptions by parameter name, `skip_first` leaves out `self`.

    Raises:
        ToolDefinitionError: There is no signature, an annotation cannot be resolved or described in JSON Schema.
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
    named = [parameter.name for parameter in parameters if parameter.kind not in _VARIADIC]
    result.untyped = tuple([name for name in named if name not in hints])
    result.positional = _positional(parameters, defaults)
    _build(result, tool)
    _describe(result, texts, defaults)
    return result


def _parameters_of(function: Callable[..., Any], tool: str) -> list[Parameter]:
    try:
        return list(signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            f"tool {tool}: {function!r} has no signature that can be read ({error})", tool=tool
        ) from error


def _add_field(result: Signature, parameter: Parameter, hint: Any) -> Any:
    """Add a parameter that the model can give, and return its default, or `Parameter.empty`."""
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
    """Return the parameters to pass by position, with their defaults; None if all can go by keyword."""
    # Keywords are the cheaper way, and the arguments are a dict already.
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
    """Return what `function` takes besides its arguments: the parameters that receive the `ToolContext`.

    Raises:
        ToolDefinitionError: One of them has the name of an argument in `taken`, or a type that cannot be resolved.
    """
    found = Signature()
    for name, hint in context_annotations(function, tool).items():
        if name != "return" and context_of(hint) is not None:
            found.add_context(name, hint)
    if clashes := sorted(set(found.contexts) & set(taken)):
        raise ToolDefinitionError(
            f"tool {tool}: {', '.join(clashes)} is both an argument and the context: rename it",
            tool=tool,
            names=clashes,
        )
    return found


def _default_of(field: FieldInfo, result: Signature, name: str) -> Any:
    """The default a pydantic `Field` gives a parameter, which Python does not know of."""
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
            f"tool {tool}: **kwargs can unpack a TypedDict, not {shape!r}", tool=tool, names=[name]
        )
    for name, annotation in get_type_hints(shape, include_extras=True).items():
        required = name in shape.__required_keys__
        while (qualifier := get_origin(annotation)) in _QUALIFIERS:
            required = {Required: True, NotRequired: False}.get(qualifier, required)
            (annotation,) = get_args(annotation)
        result.fields[name] = _field(name, annotation, required)


def _build(result: Signature, tool: str) -> None:
    shown = Counter(one.alias or name for name, one in result.fields.items())
    if twice := [name for name, times in shown.items() if times > 1]:
        raise ToolDefinitionError(
            f"tool {tool}: more than one parameter is called {', '.join(twice)}: change an alias",
            tool=tool,
            names=twice,
        )
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(result)  # type: ignore[arg-type]
        result.reader = reader_of(adapter.validator.validate_json, adapter.core_schema)
        result.parameters = adapter.json_schema(schema_generator=PlainSchema)
    except Exception as error:
        _explain(result, tool, error)


def _explain(result: Signature, tool: str, cause: Exception) -> NoReturn:
    """Raise an error that names every parameter at fault."""
    reasons: dict[str, str] = {}
    for name, one in result.fields.items():
        try:
            TypeAdapter(one.annotation).json_schema(schema_generator=PlainSchema)
        except Exception as error:
            reasons[name] = f"parameter {name}: {str(error).splitlines()[0]}"
    reason = "; ".join(reasons.values()) or str(cause).splitlines()[0]
    raise ToolDefinitionError(
        f"tool {tool}: no JSON Schema can describe it; {reason}", tool=tool, names=reasons
    ) from cause


def _describe(result: Signature, texts: Mapping[str, str], defaults: Mapping[str, Any]) -> None:
    """Put the schema into its final form: documented properties, JSON defaults, no titles made of class names."""
    raw = result.parameters
    properties = raw.get("properties", {})
    for name, one in result.fields.items():
        entry = properties.get(one.alias or name)
        if entry is not None:
            _add_description(entry, one.description or texts.get(name))
            _add_default(entry, defaults.get(name, PydanticUndefined))
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if raw.get("required"):
        parameters["required"] = raw["required"]
    parameters["additionalProperties"] = raw.get("additionalProperties", True)
    if raw.get("$defs"):
        parameters["$defs"] = raw["$defs"]
    result.parameters = without_titles(parameters)


def _add_description(entry: dict[str, Any], text: str | None) -> None:
    if text and "description" not in entry:
        entry["description"] = text


def _add_default(entry: dict[str, Any], default: Any) -> None:
    if "default" in entry or default is PydanticUndefined:
        return
    # A default that JSON cannot write is still what Python uses.
    with suppress(ValueError, TypeError):
        written = to_jsonable_python(default)
        if _is_finite(written):
            entry["default"] = written


def without_titles(parameters: dict[str, Any]) -> dict[str, Any]:
    """Take the titles out that pydantic makes up from the names of classes."""
    for key, entry in parameters.get("$defs", {}).items():
        if key.endswith(str(entry.get("title", "\0")).replace("[", "_").replace("]", "_")):
            del entry["title"]
    return parameters
