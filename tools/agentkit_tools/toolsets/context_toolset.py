"""`ContextToolset`: tools that also add a part of the context to each prompt, such as skills."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import ClassVar, NoReturn, Unpack

from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.tree.layers import Place
from agentkit_prompts.tree.prompt import BasePrompt
from agentkit_tools.calling.tool_policy import PolicyOptions
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool
from agentkit_tools.toolsets.toolset import ToolLike, Toolset
from agentkit_tools.toolsets.wrapped_tool import Around


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

    def renamed(self, names: Mapping[str, str] | Callable[[str], str]) -> NoReturn:
        """Refuse the change: a plain toolset would lose the part of the prompt. So do the other methods."""
        self._refuse()

    def filtered(self, keep: Callable[[Tool], bool]) -> NoReturn:
        """Refuse the change; see `renamed`."""
        self._refuse()

    def with_policy(self, **policy: Unpack[PolicyOptions]) -> NoReturn:
        """Refuse the change; see `renamed`."""
        self._refuse()

    def wrapped(self, around: Around) -> NoReturn:
        """Refuse the change; see `renamed`."""
        self._refuse()

    def __add__(self, other: Iterable[ToolLike]) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ToolDefinitionError(
            f"{type(self).__name__} adds a part to the prompt, and a changed toolset would lose it: pass it to the "
            "agent unchanged, in its list of tools"
        )

    def add_to(self, ctx: PromptContext) -> PromptContext:
        """Return the context with the part. Called before each prompt of a run."""
        raise NotImplementedError
