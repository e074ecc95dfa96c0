"""`SchemaOutput`: an answer that a JSON Schema describes instead of a type, such as one that a client sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_core import SchemaError as InvalidSchema
from pydantic_core import to_json

from agentkit.errors import AgentDefinitionError
from agentkit_prompts.context.frozen import freeze
from agentkit_prompts.schemas.check import target_in
from agentkit_prompts.schemas.params import JsonSchema
from agentkit_tools.schemas.argument_validator import validator_for
from agentkit_tools.schemas.lenient_schema import SchemaError, normalise

__all__ = ["SchemaOutput"]

_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_MAX_SHOWN = 5
_NAMES = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
"""Keys whose values are named by the author: no keywords are there."""


class SchemaOutput:
    """Reads answers that a JSON Schema describes. What `validator_for` does not check is not checked here.

    Args:
        schema: JSON Schema of an object.

    Raises:
        AgentDefinitionError: It is no schema of an object, or refers to what is not in it: nothing is fetched.
    """

    __slots__ = ("_hash", "_read", "schema")

    __name__ = "answer"

    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            known = normalise(schema)
            if known.get("type", "object") != "object":
                raise SchemaError(f"expected the type object, got {known['type']!r:.80}: put it into a property of one")
            self.schema = cast(JsonSchema, freeze({"type": "object", **known}))
            missing = sorted({one for one in _references(self.schema) if target_in(self.schema, one) is None})
            if missing:
                shown = ", ".join(f"{one!r:.80}" for one in missing[:_MAX_SHOWN])
                raise SchemaError(f"$ref: what is not in the schema, and is not fetched: {shown}")
            self._hash = hash(to_json(self.schema))  # one with half of a surrogate pair can be sent to nobody
            self._read = validator_for(self.schema)
        except (ValueError, TypeError, AttributeError, RecursionError, InvalidSchema) as error:
            raise AgentDefinitionError(
                f"output: its JSON Schema cannot be used: {error or type(error).__name__}", name="output"
            ) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaOutput) and self.schema == other.schema

    def __hash__(self) -> int:
        return self._hash

    def validate_json(self, text: str | bytes) -> dict[str, Any]:
        """Return the answer that a text in JSON is.

        Raises:
            ValidationError: It does not follow the schema.
        """
        return self._read(text if isinstance(text, str) else text.decode())

    def validate_python(self, value: Any) -> dict[str, Any]:
        """Return JSON data as an answer.

        Raises:
            ValidationError: It does not follow the schema.
        """
        return self._read(to_json(value).decode())

    def dump_python(self, output: Any, **options: Any) -> Any:
        """Return an answer as JSON data."""
        return _ANY.dump_python(output, **options)


def _references(schema: Any, *, is_schema: bool = True) -> Iterator[Any]:
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if is_schema and key in ("const", "enum", "default", "examples"):
                continue
            if is_schema and key == "$ref":
                yield value
            else:
                yield from _references(value, is_schema=not (is_schema and key in _NAMES))
    elif isinstance(schema, list | tuple):
        for value in schema:
            yield from _references(value)
