"""Wrappers of toolsets: limit the calls of a run, reuse results, keep the whole text of results that were cut."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import MutableMapping
from dataclasses import replace
from hashlib import blake2b
from typing import Annotated, Any, TypeVar

from pydantic import Field
from pydantic_core import from_json

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.result_content import with_note
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import ToolFailure
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext
from agentkit_tools.toolsets.wrapped_tool import Proceed

__all__ = ["CallLimit", "KeptResults", "Newest", "ResultCache"]

K = TypeVar("K")
V = TypeVar("V")

_MAX_CHARS = 20_000


class Newest(OrderedDict[K, V]):
    """A mapping that keeps the entries that were set last."""

    def __init__(self, maximum: int = 64) -> None:
        super().__init__()
        self._maximum = maximum

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self._maximum:
            self.popitem(last=False)


class CallLimit:
    """Denies calls of some tools after a number of calls of these tools in a run."""

    def __init__(self, maximum: int, names: str) -> None:
        self._maximum = maximum
        self._key = f"{names} (together)"

    async def around(self, proceed: Proceed, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        """Make the call, or deny it."""
        if context.calls is not None:
            count = context.calls.get(self._key, 0)
            if count >= self._maximum:
                text = f"at most {self._maximum} calls of {self._key} may be made in one run."
                return ToolResult(call.id, call.name, f"{call.name} was not called: {text}", "denied")
            context.calls[self._key] = count + 1
        return await proceed(call, context)


class ResultCache:
    """Answers a call with the result of an equal call of the same run."""

    def __init__(self, maximum: int) -> None:
        self._results = Newest[tuple[str, str, str], ToolResult](maximum)

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
        # A failure is not kept: the same call can succeed later.
        if result.ok:
            self._results[key] = result
        return result


class KeptResults:
    """Keeps the whole text of cut results, by a reference, and has the function of the tool that reads on in it."""

    def __init__(self, store: MutableMapping[str, str]) -> None:
        self._store = store

    async def around(self, proceed: Proceed, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        """Make the call; put the text of a cut result into the store, and its reference into the note."""
        result = await proceed(call, context)
        if result.whole is None:
            return result
        reference = _reference(context, call, result.whole)
        self._store[reference] = result.whole
        note = f'[The whole is kept: read_result(reference="{reference}", start=...) reads on.]'
        return replace(result, content=with_note(result.content, note))

    def reader(self) -> Tool:
        """Return the tool `read_result`."""
        about = "Show a part of an earlier tool result that was too large to be shown whole."
        return Tool(self.read_result, description=about, max_result_chars=None)

    async def read_result(
        self,
        reference: Annotated[str, "The reference that the note of a cut result names."],
        start: Annotated[int, Field(ge=0, description="The first character to show.")] = 0,
        length: Annotated[int, Field(ge=1, le=_MAX_CHARS, description="How many characters to show.")] = 4_000,
    ) -> str:
        try:
            text = self._store[reference]
        except KeyError:
            raise ToolFailure("nothing is kept under this reference (any more): call the tool again") from None
        if start >= len(text):
            raise ToolFailure("the result is shorter than that", {"start": start, "characters": len(text)})
        end = min(start + length, len(text))
        left = "this is its end"
        if end < len(text):
            left = f"{len(text) - end:,} characters follow"
        return f"{text[start:end]}\n[Characters {start:,} to {end:,} of {len(text):,}; {left}.]"


def _reference(context: ToolContext[Any], call: ToolCall, text: str) -> str:
    """Return a reference that cannot be guessed, so that a model can read the results of its run only."""
    seed = f"{context.run_id}\0{call.id}\0{text}"
    return blake2b(seed.encode("utf-8", "replace"), digest_size=8).hexdigest()
