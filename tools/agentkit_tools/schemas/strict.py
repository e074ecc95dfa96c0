"""Conversion of JSON Schemas to the strict subset of OpenAI, which constrains the output of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit_prompts.schemas.provider_rules import OPENAI_STRICT
from agentkit_prompts.schemas.provider_schema import fitted
from agentkit_tools.errors import ToolDefinitionError


def strict_parameters(parameters: Mapping[str, Any], *, tool: str) -> dict[str, Any]:
    """Return `parameters` with all properties required, none additional, and null allowed for optional properties.

    Keywords outside of the subset are removed; the arguments are still validated by the full schema.

    Raises:
        ToolDefinitionError: The subset cannot express a part of the schema, such as a free-form object; the message
            lists all such parts.
    """
    schema, problems = fitted(parameters, OPENAI_STRICT)
    if problems:
        raise ToolDefinitionError(
            f"tool {tool} cannot be strict: {'; '.join(problems)}",
            tool=tool,
            names=[problem.partition(" ")[0] for problem in problems],
        )
    return schema
