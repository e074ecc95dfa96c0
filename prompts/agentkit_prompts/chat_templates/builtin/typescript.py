"""Types of TypeScript for the parameters of tools, in the form that gpt-oss reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit_prompts.chat_templates.chat_turns import json_text
from agentkit_prompts.schemas.references import target_in

_MAX_SCHEMAS = 2_000
"""Maximum schemas that are written for a tool; further schemas are `any`. References can multiply them."""
_NAMES = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def function_type(tool: Mapping[str, Any]) -> str:
    """Return the declaration of a tool, with its description in a comment, and an empty line after it."""
    parameters = tool.get("parameters")
    signature = ""
    if isinstance(parameters, Mapping) and parameters.get("properties"):
        signature = f"_: {_TypeWriter(parameters).type_of(parameters, '')}"
    return f"{_comment(tool.get('description'), '')}type {tool['name']} = ({signature}) => any;\n\n"


class _TypeWriter:
    """Writer of the types of one document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._left = _MAX_SCHEMAS
        self._open = {"#"}
        """References that are being written: a schema that contains itself is `any` inside itself."""

    def type_of(self, schema: Any, indent: str) -> str:
        """Return the type of a schema; the lines of an object begin with `indent`."""
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < 0:
            return "any"
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._referred(reference, indent)
        if "const" in schema:
            return json_text(schema["const"])
        values = schema.get("enum")
        if isinstance(values, list):
            return " | ".join([json_text(value) for value in values]) or "any"
        kinds = schema.get("type")
        options = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(kinds, list):
            options = [{**schema, "type": kind} for kind in kinds]
        if isinstance(options, list):
            return " | ".join(dict.fromkeys([self.type_of(option, indent) for option in options])) or "any"
        if kinds == "array":
            item = self.type_of(schema.get("items"), indent)
            return f"({item})[]" if " | " in item else f"{item}[]"
        if isinstance(properties := schema.get("properties"), Mapping) and properties:
            return self._object(properties, schema.get("required"), indent)
        return _NAMES.get(str(kinds), "object" if kinds == "object" else "any")

    def _referred(self, reference: str, indent: str) -> str:
        if reference in self._open:
            return "any"
        self._open.add(reference)
        text = self.type_of(target_in(self._document, reference), indent)
        self._open.remove(reference)
        return text

    def _object(self, properties: Mapping[str, Any], required: object, indent: str) -> str:
        lines = ["{\n"]
        needed = required if isinstance(required, list) else ()
        for name, schema in properties.items():
            key = name if name.isidentifier() else json_text(name)
            mark = "" if name in needed else "?"
            fields = schema if isinstance(schema, Mapping) else {}
            kind = self.type_of(schema, f"{indent}    ")
            comment = _comment(fields.get("description"), indent)
            lines.append(f"{comment}{indent}{key}{mark}: {kind},{_default(fields)}\n")
        return f"{''.join(lines)}{indent}}}"


def _comment(text: Any, indent: str) -> str:
    if not isinstance(text, str):
        return ""
    return "".join([f"{indent}// {line}\n" for line in text.splitlines()])


def _default(schema: Mapping[str, Any]) -> str:
    if "default" not in schema:
        return ""
    text = json_text(schema["default"])
    # The values of an enumeration are names.
    if "enum" in schema:
        text = text.strip('"')
    return f" // default: {text}"
