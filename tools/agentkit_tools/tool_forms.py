"""`ToolForms`: conversion of a tool to the format of each provider."""

from __future__ import annotations

import json
from typing import Any

from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.schemas.provider_tools import anthropic_form, gemini_form, openai_form


class ToolForms:
    """Base of `Tool`: methods that convert its `spec`."""

    __slots__ = ()

    spec: ToolSpec

    def to_openai(self) -> dict[str, Any]:
        """Return an entry of `tools` of a chat completion request; a strict tool is marked strict.

        A description of more than 1,024 characters is cut, with a `ToolFormWarning`.
        """
        return dict(openai_form(self.spec))

    def to_anthropic(self) -> dict[str, Any]:
        """Return an entry of `tools` of an Anthropic messages request.

        Property names that the API refuses are replaced; the tool accepts the replaced names as arguments. A strict
        tool is marked strict if the API can enforce its parameters; otherwise a `ToolFormWarning` is issued.
        """
        return dict(anthropic_form(self.spec))

    def to_gemini(self) -> dict[str, Any]:
        """Return a function declaration for Gemini in its subset of OpenAPI; without `parameters` for no parameters.

        Property names that the API refuses are replaced; the tool accepts the replaced names as arguments. References
        are expanded, and keywords outside of the subset are omitted; arguments are still validated by the full schema.
        """
        return dict(gemini_form(self.spec))

    def to_mcp(self) -> dict[str, Any]:
        """Return an entry of the result of `tools/list` of MCP."""
        return {"name": self.spec.name, "description": self.spec.description, "inputSchema": self.spec.parameters}

    def to_text(self) -> str:
        """Return the tool as one line of JSON text for a prompt; equal tools have the same text."""
        return json.dumps(self.to_openai(), ensure_ascii=False)
