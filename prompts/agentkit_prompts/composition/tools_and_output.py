"""The tools and the requested output of a model call, which are declared in addition to its messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from agentkit_prompts.context.frozen import DerivedCache
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, TokenCounter, message_tokens, tool_tokens

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema


@dataclass(frozen=True, slots=True, eq=False)
class OutputRequest:
    """Request for an answer that follows a schema."""

    schema: JsonSchema
    """JSON Schema of the answer: an object."""
    mode: Literal["native", "tool", "prompted"] = "native"
    """`native` declares the schema to the endpoint, `tool` uses it as parameters of a tool, `prompted` puts it into a
    prompt."""
    strict: bool = False
    """True if the schema is in the subset that endpoints enforce."""
    tool: ToolSpec | None = None
    """The tool, in the mode `tool`."""
    wrapped: bool = False
    """True if the schema is an object with one property, `value`, because the type of the answer is not an object."""


class ToolsAndOutputTokens(NamedTuple):
    """Tokens of the tools and the requested output, counted by one counter."""

    tools: int
    """Tokens of the tools as JSON."""
    schema: int
    """Tokens of the schema of the answer; 0 if the schema is not declared to the endpoint."""
    of_message: Callable[[Message], int]
    """Function that counts the tokens of a message: one object per counter, because it is a cache key."""


class ToolsAndOutput(DerivedCache):
    """Tools and the request for the answer; their wire forms and token counts are computed once.

    A `RenderCache` returns the same object for every composition with the same tools and request.

    Attributes:
        context_tools: Tools of the context, without the tool whose arguments are the answer.
        tools: All tools that the model can call.
        output: The request for the answer; None if the answer is text.
    """

    __slots__ = ("context_tools", "output", "tools")

    def __init__(self, tools: tuple[ToolSpec, ...], output: OutputRequest | JsonSchema | None) -> None:
        if output is not None and not isinstance(output, OutputRequest):
            output = OutputRequest(output)
        self.context_tools = tools
        self.output = output
        self.tools = tools
        if output is not None and output.tool is not None:
            self.tools = (*tools, output.tool)

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the cached values, whose keys are functions.
        return ToolsAndOutput, (self.context_tools, self.output)

    def has_tools(self, tools: tuple[ToolSpec, ...]) -> bool:
        """True if `tools` contains exactly the tool objects of the context."""
        return self.context_tools is tools or (
            len(self.context_tools) == len(tools) and all(map(is_, self.context_tools, tools))
        )

    def has_output(self, output: OutputRequest | JsonSchema | None) -> bool:
        """True if `output` is the same request object, or the schema object of the request."""
        return self.output is output or (self.output is not None and self.output.schema is output)

    @property
    def schema(self) -> JsonSchema | None:
        """JSON Schema of the answer; None if the answer is text, or if its schema is sent in a tool or a prompt."""
        if self.output is None or self.output.mode != "native":
            return None
        return self.output.schema

    def tokens(self, counter: TokenCounter) -> ToolsAndOutputTokens:
        """Return the tokens of the tools and the schema, and the function that counts a message."""
        return self.derive(_counted, counter)


NO_TOOLS_NO_OUTPUT = ToolsAndOutput((), None)


def _counted(tools_and_output: ToolsAndOutput, counter: TokenCounter) -> ToolsAndOutputTokens:
    schema = 0
    if tools_and_output.schema is not None:
        schema = counter.count(json.dumps(tools_and_output.schema, ensure_ascii=False)) + MESSAGE_OVERHEAD
    return ToolsAndOutputTokens(tool_tokens(tools_and_output.tools, counter), schema, message_tokens(counter))
