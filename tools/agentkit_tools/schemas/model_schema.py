"""Models and dataclasses of pydantic's as what a tool takes: one is validated as a whole, by its own rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import CoreSchema, SchemaValidator

from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.schemas.argument_reader import ArgumentReader, Arguments, ModelArguments, reader_of
from agentkit_tools.schemas.function_schema import PlainSchema, Signature, without_titles

__all__ = ["read_model"]


def read_model(model: Any, texts: Mapping[str, str], *, tool: str) -> Signature:
    """Read what a model or dataclass of pydantic's takes; its reader gives `ModelArguments`.

    `texts` are descriptions by the names of its fields.

    Raises:
        ToolDefinitionError: It has no JSON Schema, or is no object.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(model)
    config = getattr(model, "model_config", None) or getattr(model, "__pydantic_config__", None) or {}
    try:
        parameters = adapter.json_schema(schema_generator=PlainSchema)
        core: CoreSchema = adapter.core_schema
        # By default pydantic ignores other fields; a model has to know that it invented one.
        if "extra" not in config:
            core = _closed(core)
        reader = reader_of(SchemaValidator(core, _use_prebuilt=False).validate_json, core)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ToolDefinitionError(
            f"tool {tool}: no JSON Schema can describe {model.__name__}; {reason}", tool=tool
        ) from error
    definitions = parameters.get("$defs", {})
    # It contains itself.
    if (own := str(parameters.get("$ref", "")).rpartition("/")[2]) in definitions:
        parameters = {**definitions[own], "$defs": definitions}
    if parameters.get("type") != "object":
        kind = parameters.get("type", "something else")
        raise ToolDefinitionError(
            f"tool {tool}: the parameters of a tool are an object, and {model.__name__} is {kind}", tool=tool
        )
    result = Signature()
    result.parameters = without_titles(_described(parameters, model, texts, is_closed="extra" not in config))
    result.reader = ArgumentReader(_making(reader.at_once, model), reader.max_chars, _making(reader.thoroughly, model))
    return result


def _making(validate: Callable[[str], Any], model: Any) -> Callable[[str], Arguments]:
    names = [one.name for one in fields(model)] if is_dataclass(model) else None

    def read(text: str) -> Arguments:
        made: Any = validate(text)
        values = vars(made) if names is None else {name: getattr(made, name) for name in names if hasattr(made, name)}
        arguments = ModelArguments(values)
        arguments.made = made
        return arguments

    return read


def _closed(schema: Any) -> Any:
    """Return a schema whose outermost object has no further properties: what would be ignored is refused."""
    node: Any = schema
    if node["type"] == "definitions":
        inner, definitions = node["schema"], node["definitions"]
        if inner["type"] == "definition-ref":
            inner = next(one for one in definitions if one.get("ref") == inner["schema_ref"])
            inner = {key: value for key, value in inner.items() if key != "ref"}
        return {**node, "schema": _closed(inner)}
    if node["type"] in ("model-fields", "dataclass-args"):
        return {**node, "extra_behavior": "forbid"}
    if isinstance(node.get("schema"), Mapping):
        return {**node, "schema": _closed(node["schema"])}
    return schema


def _described(parameters: dict[str, Any], model: Any, texts: Mapping[str, str], *, is_closed: bool) -> dict[str, Any]:
    """Return the schema without what the tool itself says, and with the texts of the docstring."""
    found = {key: value for key, value in parameters.items() if key not in ("title", "description")}
    known = getattr(model, "__pydantic_fields__", {})
    for name, text in texts.items():
        if (field := known.get(name)) is None:
            continue
        shown = next((one for one in (field.validation_alias, field.alias, name) if isinstance(one, str)), name)
        entry = found.get("properties", {}).get(shown)
        if isinstance(entry, dict) and "description" not in entry:
            entry["description"] = text
    if is_closed:
        found["additionalProperties"] = False
    return found
