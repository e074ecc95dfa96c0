"""What a request declares to the model beside its messages: tools, and the schema of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable

from agentkit_prompts.context.frozen import Deriving
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.schemas.params import JsonSchema
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, TokenCounter, message_tokens, tool_tokens

__all__ = ["NO_DECLARATIONS", "Declarations"]


class Declarations(Deriving):
    """Tools and the schema of the answer; their wire form and token counts are derived once.

    A `Memo` hands the same object to every composition with the same tools and schema.
    """

    __slots__ = ("schema", "tools")

    def __init__(self, tools: tuple[ToolSpec, ...], schema: JsonSchema | None) -> None:
        self.tools = tools
        self.schema = schema

    def tokens(self, counter: TokenCounter) -> tuple[int, int, Callable[[Message], int]]:
        """Return what the tools cost as JSON, what the schema does, and the function that counts a message."""
        return self.derive(_counted, counter)


NO_DECLARATIONS = Declarations((), None)


def _counted(declared: Declarations, counter: TokenCounter) -> tuple[int, int, Callable[[Message], int]]:
    schema = 0
    if declared.schema is not None:
        schema = counter.count(json.dumps(declared.schema, ensure_ascii=False)) + MESSAGE_OVERHEAD
    return tool_tokens(declared.tools, counter), schema, message_tokens(counter)
