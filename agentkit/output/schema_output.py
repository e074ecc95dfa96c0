"""`SchemaOutput`: output type that is a JSON Schema, such as the schema of a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, from_json, to_json

from agentkit.errors import AgentDefinitionError
from agentkit_prompts.context.frozen import freeze
from agentkit_prompts.schemas.json_validator import JsonValidator
from agentkit_prompts.schemas.params import JsonSchema
from agentkit_prompts.schemas.schema_problems import SchemaProblem
from agentkit_tools.schemas.argument_reader import closed
from agentkit_tools.schemas.lenient_schema import SchemaError, normalise

_ANY: TypeAdapter[Any] = TypeAdapter(Any)


class SchemaOutput:
    """Output type that validates answers with a JSON Schema: all keywords except `format`, which is an annotation.

    Args:
        schema: JSON Schema of an object.

    Raises:
        AgentDefinitionError: The value is not the schema of an object, or refers to another document.
    """

    __slots__ = ("_hash", "_validator", "schema")

    __name__ = "answer"

    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            normalised = normalise(schema)
            if normalised.get("type", "object") != "object":
                raise SchemaError(
                    f"expected the type object, got {normalised['type']!r:.80}: wrap it in a property of an object"
                )
            self.schema = cast(JsonSchema, freeze({"type": "object", **normalised}))
            # Raises here for a schema that cannot be sent, such as text with a lone surrogate.
            self._hash = hash(to_json(self.schema))
            self._validator = JsonValidator(closed(self.schema), is_lenient=True)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise AgentDefinitionError(
                f"output: its JSON Schema cannot be used: {error or type(error).__name__}", name="output"
            ) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaOutput) and self.schema == other.schema

    def __hash__(self) -> int:
        return self._hash

    def validate_json(self, text: str | bytes) -> dict[str, Any]:
        """Return the answer in a JSON text.

        Raises:
            ValidationError: The answer does not match the schema.
        """
        return self._checked(_ANY.validate_json(text))

    def validate_python(self, value: Any) -> dict[str, Any]:
        """Return the answer in JSON data.

        Raises:
            ValidationError: The data does not match the schema.
        """
        return self._checked(from_json(to_json(value)))

    def _checked(self, value: Any) -> dict[str, Any]:
        problems = self._validator.problems_of_object(value)
        if problems:
            details = [_details(problem) for problem in problems]
            raise ValidationError.from_exception_data(self.__name__, details)
        answer: dict[str, Any] = value
        return answer

    def dump_python(self, output: Any, **options: Any) -> Any:
        """Return an answer as JSON data."""
        return _ANY.dump_python(output, **options)


def _details(problem: SchemaProblem) -> InitErrorDetails:
    kind: str | PydanticCustomError = "missing"
    if problem.keyword != "required":
        kind = PydanticCustomError("schema", "{problem}", {"problem": problem.expected})
    return InitErrorDetails(type=kind, loc=problem.path, input=problem.value)
