"""Signature of a tool that creates a pydantic model or dataclass, which is validated as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, SchemaValidator

from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.schemas.argument_reader import ArgumentReader, Arguments, ModelArguments, reader_of
from agentkit_tools.schemas.function_schema import PlainSchema, Signature, without_titles
from agentkit_tools.schemas.schema_values import with_null_defaults


def read_model(model: Any, texts: Mapping[str, str], *, tool: str) -> Signature:
    """Read the signature of a pydantic model or dataclass. Its reader returns `ModelArguments`.

    `texts` contains descriptions by field name.

    Raises:
        ToolDefinitionError: The model has no JSON Schema, or is not an object.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(model)
    config = getattr(model, "model_config", None) or getattr(model, "__pydantic_config__", None) or {}
    try:
        parameters = adapter.json_schema(schema_generator=PlainSchema)
        core: CoreSchema = adapter.core_schema
        # By default pydantic ignores unknown fields, but the calling model must receive an error for an invented field.
        if "extra" not in config:
            core = cast(CoreSchema, _closed(cast(dict[str, Any], core)))
        reader = reader_of(SchemaValidator(core, _use_prebuilt=False).validate_json, core)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ToolDefinitionError(
            f"tool {tool}: no JSON Schema can describe {model.__name__}; {reason}", tool=tool
        ) from error
    definitions = parameters.get("$defs", {})
    # The schema of a recursive model is a reference to a definition.
    if (own := str(parameters.get("$ref", "")).rpartition("/")[2]) in definitions:
        parameters = {**definitions[own], "$defs": definitions}
    if parameters.get("type") != "object":
        kind = parameters.get("type", "another type")
        raise ToolDefinitionError(
            f"tool {tool}: the parameters of a tool must be an object, but {model.__name__} is {kind}", tool=tool
        )
    result = Signature()
    described = _described(parameters, model, texts, is_closed="extra" not in config)
    result.parameters = with_null_defaults(without_titles(described))
    result.reader = ArgumentReader(_with_model(reader.at_once), reader.max_chars, _with_model(reader.thoroughly))
    return result


def _with_model(validate: Callable[[str], Any]) -> Callable[[str], Arguments]:
    """Return a reader of arguments and of the model that they create."""

    def read(text: str) -> Arguments:
        model: Any = validate(text)
        arguments = ModelArguments(_values(model))
        arguments.model = model
        return arguments

    return read


def _values(model: Any) -> Mapping[str, Any]:
    if not is_dataclass(model):
        values: Mapping[str, Any] = vars(model)
        return values
    return {field.name: getattr(model, field.name) for field in fields(model) if hasattr(model, field.name)}


def _closed(node: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose outermost object refuses unknown properties instead of ignoring them."""
    if node["type"] == "definitions":
        return {**node, "schema": _closed(_defined(node))}
    if node["type"] in ("model-fields", "dataclass-args"):
        return {**node, "extra_behavior": "forbid"}
    if isinstance(node.get("schema"), Mapping):
        return {**node, "schema": _closed(node["schema"])}
    return node


def _defined(node: Mapping[str, Any]) -> Any:
    """Return the schema of a node with definitions; for a reference, a copy of the definition."""
    inner = node["schema"]
    if inner["type"] != "definition-ref":
        return inner
    target = next(definition for definition in node["definitions"] if definition.get("ref") == inner["schema_ref"])
    return {key: value for key, value in target.items() if key != "ref"}


def _described(parameters: dict[str, Any], model: Any, texts: Mapping[str, str], *, is_closed: bool) -> dict[str, Any]:
    """Return the schema without the title and text of the model, and with the texts of the docstring."""
    result = {key: value for key, value in parameters.items() if key not in ("title", "description")}
    properties, model_fields = result.get("properties", {}), getattr(model, "__pydantic_fields__", {})
    for name in texts.keys() & model_fields.keys():
        entry = properties.get(_shown_name(model_fields[name], name))
        if isinstance(entry, dict):
            entry.setdefault("description", texts[name])
    if is_closed:
        result["additionalProperties"] = False
    return result


def _shown_name(field: FieldInfo, name: str) -> str:
    """Return the name of a field in JSON."""
    aliases = (field.validation_alias, field.alias)
    return next((alias for alias in aliases if isinstance(alias, str)), name)
