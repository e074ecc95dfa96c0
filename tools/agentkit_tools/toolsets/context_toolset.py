"""`ContextToolset`: tools that also add a part of the context to each prompt, such as skills."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.tree.layers import Place
from agentkit_prompts.tree.prompt import BasePrompt
from agentkit_tools.toolsets.toolset import Toolset

__all__ = ["ContextToolset"]


class ContextToolset(Toolset):
    """Tools that add a part of the context to each prompt of an agent.

    The part is derived from the messages of the conversation: a resumed run, and a replay, have the same part.
    """

    __slots__ = ()

    noun: ClassVar[str] = ""
    """Content of the part, for errors."""
    shows: ClassVar[frozenset[str]] = frozenset()
    """Names in the context that a prompt of the layers must show."""
    advice: ClassVar[str] = ""
    """Advice if no prompt of the layers shows the names."""

    @classmethod
    def prompts(cls) -> Mapping[Place, BasePrompt]:
        """Return the prompts that show the part, for an agent without custom layers.

        The places are `system`, `before_input` and `after_intermediate`.
        """
        return {}

    @property
    def texts(self) -> Mapping[str, str]:
        """Texts by name that are parts of the version of the agent."""
        return {}

    @property
    def version(self) -> str:
        """Hash of the settings, or text that contains them."""
        return ""

    def check_tools(self, names: Collection[str]) -> None:
        """Check the settings that name tools, by the names of all tools of an agent.

        Raises:
            ToolDefinitionError: No tool has a name in the settings.
        """

    def add_to(self, ctx: PromptContext) -> PromptContext:
        """Return the context with the part. Called before each prompt of a run."""
        raise NotImplementedError
