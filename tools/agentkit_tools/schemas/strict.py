"""JSON Schemas in the strict subset of OpenAI-style structured outputs, which constrains what a model can write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit_tools.errors import ToolDefinitionError

__all__ = ["strict_parameters"]

# fmt: off
_DROPPED = frozenset({
    "$id", "$schema", "contentEncoding", "contentMediaType", "default", "deprecated", "discriminator", "examples",
    "maxLength", "maxProperties", "minLength", "minProperties", "nullable", "readOnly", "title", "uniqueItems",
    "writeOnly",
})
_FORMATS = frozenset({"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"})
# fmt: on
_IMPOSSIBLE = ("patternProperties", "prefixItems", "not", "if", "dependentRequired", "dependentSchemas", "contains")


def strict_parameters(parameters: Mapping[str, Any], *, tool: str) -> dict[str, Any]:
    """Return `parameters` with every property required, nothing additional, and null for what may be left out.

    Limits the subset has no words for are dropped here; the arguments are still validated against them.

    Raises:
        ToolDefinitionError: Something does not fit the subset, such as a free-form object; all such places are named.
    """
    problems: list[str] = []
    result: dict[str, Any] = _strict(parameters, "", problems)
    if "anyOf" in result:
        problems.append("parameters uses anyOf")
    if problems:
        raise ToolDefinitionError(f"tool {tool} cannot be strict: {'; '.join(problems)}")
    return result


def _strict(schema: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(schema, Mapping) or not schema.keys() - {"description", "default", "title"}:
        problems.append(f"{path or 'parameters'} accepts any value")
        return {}
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _DROPPED or (key == "format" and str(value) not in _FORMATS):
            continue
        if key in _IMPOSSIBLE:
            problems.append(f"{path or 'parameters'} uses {key}")
        elif key in ("anyOf", "oneOf"):
            result["anyOf"] = [_strict(option, path, problems) for option in value]
        elif key == "items":
            result["items"] = _strict(value, f"{path}[]", problems)
        elif key in ("$defs", "definitions"):
            result[key] = {name: _strict(item, name, problems) for name, item in value.items()}
        elif key == "allOf":
            if len(value) == 1:
                result.update(_strict(value[0], path, problems))
            else:
                problems.append(f"{path or 'parameters'} uses allOf")
        elif key not in ("properties", "required", "additionalProperties"):
            result[key] = value
    if schema.get("type") == "object" or "properties" in schema:
        _close(schema, result, path, problems)
    if not result:
        problems.append(f"{path or 'parameters'} accepts any value")
    if "$ref" in result and len(result) > 1 and path:  # a reference stands alone in the subset
        result = {"anyOf": [{"$ref": result.pop("$ref")}], **result}
    return result


def _close(schema: Mapping[str, Any], result: dict[str, Any], path: str, problems: list[str]) -> None:
    if schema.get("additionalProperties") or ("properties" not in schema and "additionalProperties" not in schema):
        problems.append(f"{path or 'parameters'} takes properties of any name")
    required = set(schema.get("required", ()))
    made = {
        name: _strict(item, f"{path}.{name}" if path else name, problems)
        for name, item in schema.get("properties", {}).items()
    }
    result["properties"] = {name: item if name in required else _or_null(item) for name, item in made.items()}
    result["required"] = list(result["properties"])
    result["additionalProperties"] = False


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if "anyOf" in schema:
        if {"type": "null"} in schema["anyOf"]:
            return schema
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if kind is None or "$ref" in schema or "const" in schema or "enum" in schema:
        description = {"description": schema["description"]} if "description" in schema else {}
        bare = {key: value for key, value in schema.items() if key != "description"}
        return {"anyOf": [bare, {"type": "null"}], **description}
    kinds = kind if isinstance(kind, list) else [kind]
    return schema if "null" in kinds else {**schema, "type": [*kinds, "null"]}
