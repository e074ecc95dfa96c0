"""What a request declares to the model beside its messages: tools, and the schema of the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from agentkit_prompts.context.frozen import FrozenList
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.schemas.params import JsonSchema
from agentkit_prompts.tokens.counter import TokenCounter, message_tokens, schema_tokens, tool_tokens

__all__ = ["Declarations"]

_Count: TypeAlias = Callable[[Message], int]
_Write: TypeAlias = Callable[[tuple[ToolSpec, ...]], FrozenList]


class Declarations:
    """Tools and the schema of the answer; the wire form and the token counts used last are kept.

    A `Memo` hands the same object to every composition with the same tools and schema.
    """

    __slots__ = ("_counted", "_written", "schema", "tools")

    def __init__(self, tools: tuple[ToolSpec, ...], schema: JsonSchema | None) -> None:
        self.tools = tools
        self.schema = schema
        self._counted: tuple[TokenCounter, tuple[int, int, _Count]] | None = None
        self._written: tuple[_Write, FrozenList] | None = None

    def tokens(self, counter: TokenCounter) -> tuple[int, int, _Count]:
        """Return what the tools cost as JSON, what the schema does, and the function that counts a message."""
        known = self._counted
        if known is None or known[0] is not counter:
            schema = 0 if self.schema is None else schema_tokens(self.schema, counter)
            counted = (tool_tokens(self.tools, counter), schema, message_tokens(counter))
            known = self._counted = (counter, counted)
        return known[1]

    def written(self, write: _Write) -> FrozenList:
        """Return what `write` makes of the tools."""
        known = self._written
        if known is None or known[0] is not write:
            known = self._written = (write, write(self.tools))
        return known[1]
