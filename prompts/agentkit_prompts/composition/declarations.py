"""Declarations of a request, sent in addition to its messages: tools, and the schema of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Literal, NamedTuple

from agentkit_prompts.context.frozen import Deriving
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, TokenCounter, message_tokens, tool_tokens

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema

__all__ = ["NO_DECLARATIONS", "Declarations", "DeclaredTokens", "OutputRequest"]


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
    """True if the object has one property, `value`, which is the answer."""


class DeclaredTokens(NamedTuple):
    """Tokens of declarations, for one counter."""

    tools: int
    """Tokens of the tools as JSON."""
    schema: int
    """Tokens of the schema of the answer, if it is declared to the endpoint."""
    of_message: Callable[[Message], int]
    """Counter of the tokens of a message; the same function for the same counter."""


class Declarations(Deriving):
    """Tools and the request for the answer; their wire form and token counts are derived once.

    A `RenderCache` returns the same object for every composition with the same tools and request.

    Attributes:
        given: Tools of the context, without the tool for the answer.
        tools: All tools that the model can call.
        output: The request for the answer; None if it is text.
    """

    __slots__ = ("given", "output", "tools")

    def __init__(self, tools: tuple[ToolSpec, ...], output: OutputRequest | JsonSchema | None) -> None:
        if output is not None and not isinstance(output, OutputRequest):
            output = OutputRequest(output)
        self.given = tools
        self.output = output
        self.tools = tools
        if output is not None and output.tool is not None:
            self.tools = (*tools, output.tool)

    def declares(self, tools: tuple[ToolSpec, ...]) -> bool:
        """True if the tools are the same objects."""
        return self.given is tools or (len(self.given) == len(tools) and all(map(is_, self.given, tools)))

    def requests(self, output: OutputRequest | JsonSchema | None) -> bool:
        """True if `output` is the same request or schema object."""
        return self.output is output or (self.output is not None and self.output.schema is output)

    @property
    def schema(self) -> JsonSchema | None:
        """JSON Schema of the answer, if it is declared to the endpoint."""
        if self.output is None or self.output.mode != "native":
            return None
        return self.output.schema

    def tokens(self, counter: TokenCounter) -> DeclaredTokens:
        """Return the tokens of the tools and the schema, and the function that counts a message."""
        return self.derive(_counted, counter)


NO_DECLARATIONS = Declarations((), None)


def _counted(declared: Declarations, counter: TokenCounter) -> DeclaredTokens:
    schema = 0
    if declared.schema is not None:
        schema = counter.count(json.dumps(declared.schema, ensure_ascii=False)) + MESSAGE_OVERHEAD
    return DeclaredTokens(tool_tokens(declared.tools, counter), schema, message_tokens(counter))
