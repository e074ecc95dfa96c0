"""Results that were cut: their whole text under a reference, and the tool by which a model reads on in it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableMapping
from dataclasses import replace
from hashlib import blake2b
from typing import Annotated, Any, TypeVar

from pydantic import Field

from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.parts import Text
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import ToolFailure
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext
from agentkit_tools.toolsets.wrapped_tool import Around, Proceed

__all__ = ["Newest", "keeper", "reader"]

K = TypeVar("K")
V = TypeVar("V")

_MAX_CHARS = 20_000


class Newest(OrderedDict[K, V]):
    """A mapping that keeps only what was put in last."""

    def __init__(self, most: int = 64) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self._most:
            self.popitem(last=False)


def keeper(store: MutableMapping[str, str]) -> Around:
    """Return a wrapper that puts the whole of a cut result into `store`, and its reference into the note."""

    async def keep(proceed: Proceed, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        result = await proceed(call, context)
        if result.whole is None:
            return result
        reference = _reference(context, call, result.whole)
        store[reference] = result.whole
        note = f'\n[The whole is kept: read_result(reference="{reference}", start=...) reads on.]'
        content = result.content
        if isinstance(content, str):
            return replace(result, content=content + note)
        return replace(result, content=(*content, Text(note)))

    return keep


def reader(store: MutableMapping[str, str]) -> Tool:
    """Return the tool `read_result`."""

    async def read_result(
        reference: Annotated[str, "The reference that the note of a cut result names."],
        start: Annotated[int, Field(ge=0, description="The first character to show.")] = 0,
        length: Annotated[int, Field(ge=1, le=_MAX_CHARS, description="How many characters to show.")] = 4_000,
    ) -> str:
        try:
            text = store[reference]
        except KeyError:
            raise ToolFailure("nothing is kept under this reference (any more): call the tool again") from None
        if start >= len(text):
            raise ToolFailure("the result is shorter than that", {"start": start, "characters": len(text)})
        end = min(start + length, len(text))
        left = "this is its end"
        if end < len(text):
            left = f"{len(text) - end:,} characters follow"
        return f"{text[start:end]}\n[Characters {start:,} to {end:,} of {len(text):,}; {left}.]"

    about = "Show a part of an earlier tool result that was too large to be shown whole."
    return Tool.from_function(read_result, description=about, max_result_chars=None)


def _reference(context: ToolContext[Any], call: ToolCall, text: str) -> str:
    """Return a reference nobody can guess who has not seen the result: equal texts of other runs have others."""
    # A model can only read results of its own run: other runs have other references.
    seed = f"{context.run_id}\0{call.id}\0{text}"
    return blake2b(seed.encode("utf-8", "replace"), digest_size=8).hexdigest()
