"""JSON Schemas in the strict subset of OpenAI-style structured outputs, which constrains what a model can write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit_prompts.schemas.provider_rules import OPENAI_STRICT
from agentkit_prompts.schemas.provider_schema import fitted
from agentkit_tools.errors import ToolDefinitionError

__all__ = ["strict_parameters"]


def strict_parameters(parameters: Mapping[str, Any], *, tool: str) -> dict[str, Any]:
    """Return `parameters` with every property required, nothing additional, and null for what may be left out.

    Limits the subset has no words for are left out; the arguments are still validated against them.

    Raises:
        ToolDefinitionError: Something does not fit the subset, such as a free-form object; all such places are named.
    """
    found, problems = fitted(parameters, OPENAI_STRICT)
    if problems:
        raise ToolDefinitionError(
            f"tool {tool} cannot be strict: {'; '.join(problems)}",
            tool=tool,
            names=[problem.partition(" ")[0] for problem in problems],
        )
    return found
