"""Wrappers of toolsets: limit of the calls of a run, cache of results, store for the text of cut results."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import MutableMapping
from dataclasses import replace
from hashlib import blake2b
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import Field
from pydantic_core import from_json

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.result_content import with_note
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import ToolFailure
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext
from agentkit_tools.toolsets.wrapped_tool import Proceed

K = TypeVar("K")
V = TypeVar("V")

_MAX_CHARS = 20_000
Start: TypeAlias = Annotated[int, Field(ge=0, description="The first character to show.")]
Length: TypeAlias = Annotated[int, Field(ge=1, le=_MAX_CHARS, description="The number of characters to show.")]


class LatestEntries(OrderedDict[K, V]):
    """A mapping of the last `maximum` new keys; older entries are removed."""

    def __init__(self, maximum: int = 64) -> None:
        super().__init__()
        self._maximum = maximum

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self._maximum:
            self.popitem(last=False)


class CallLimit:
    """Limit of the calls of some tools together in a run."""

    def __init__(self, maximum: int, names: str) -> None:
        self._maximum = maximum
        self._key = f"{names} (together)"

    async def around(self, proceed: Proceed, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        """Make the call, or deny it."""
        if context.calls is not None:
            count = context.calls.get(self._key, 0)
            if count >= self._maximum:
                text = f"one run allows at most {self._maximum} calls of {self._key}."
                return ToolResult(call.id, call.name, f"{call.name} was not called: {text}", "denied")
            context.calls[self._key] = count + 1
        return await proceed(call, context)


class ResultCache:
    """Cache of the results of equal calls of the same run."""

    def __init__(self, maximum: int) -> None:
        self._results = LatestEntries[tuple[str, str, str], ToolResult](maximum)

    async def around(self, proceed: Proceed, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        """Return the result of an equal call, or make the call."""
        try:
            arguments = json.dumps(from_json(call.arguments or "{}"), sort_keys=True)
        except (ValueError, TypeError, RecursionError):
            return await proceed(call, context)
        # The run is part of the key: other runs can have other users.
        key = (context.run_id, call.name, arguments)
        if key in self._results:
            return self._results[key].answering(call)
        result = await proceed(call, context)
        # A failure is not cached: the same call can succeed later.
        if result.ok:
            self._results[key] = result
        return result


class ResultStore:
    """Store of the complete texts of cut results by reference, with a tool that reads them."""

    def __init__(self, store: MutableMapping[str, str]) -> None:
        self._store = store

    async def around(self, proceed: Proceed, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        """Make the call; store the complete text of a cut result, and add its reference to the note."""
        result = await proceed(call, context)
        if result.whole is None:
            return result
        seed = f"{context.run_id}\0{call.id}\0{result.whole}"
        reference = blake2b(seed.encode("utf-8", "replace"), digest_size=8).hexdigest()
        self._store[reference] = result.whole
        note = f'[Read the rest with read_result(reference="{reference}", start=...).]'
        return replace(result, content=with_note(result.content, note))

    def reader(self) -> Tool:
        """Return the tool `read_result`."""
        about = "Show a part of an earlier tool result that was too large to be shown completely."
        return Tool(self.read_result, description=about, max_result_chars=None)

    async def read_result(
        self,
        reference: Annotated[str, "The reference in the note of a cut result."],
        start: Start = 0,
        length: Length = 4_000,
    ) -> str:
        try:
            text = self._store[reference]
        except KeyError:
            raise ToolFailure("no result is stored under this reference (any more): call the tool again") from None
        return part_of_text(text, start, length)


def part_of_text(text: str, start: int, length: int) -> str:
    """Return a part of the text of a result, with a note of its place.

    Raises:
        ToolFailure: The text ends before `start`.
    """
    if start >= len(text):
        raise ToolFailure("the result is shorter than that", {"start": start, "characters": len(text)})
    end = min(start + length, len(text))
    rest = "this is its end"
    if end < len(text):
        rest = f"{len(text) - end:,} characters follow"
    return f"{text[start:end]}\n[Characters {start:,} to {end:,} of {len(text):,}; {rest}.]"
