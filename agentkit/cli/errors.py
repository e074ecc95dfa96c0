"""Errors that are one line on stderr instead of a traceback."""

from __future__ import annotations

from agentkit.errors import AgentError
from agentkit.models.errors import ModelError
from agentkit_memory.errors import StoreError
from agentkit_prompts.errors import PromptError
from agentkit_tools.errors import ToolError

__all__ = ["LIBRARY_ERRORS"]

LIBRARY_ERRORS = (AgentError, ModelError, PromptError, StoreError, ToolError)
