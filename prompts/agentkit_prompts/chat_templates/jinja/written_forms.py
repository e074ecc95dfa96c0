"""How a chat template writes tool calls and tools, as a small conversation shows, and whether a text has all of them.

A name proves nothing: that of a call stands in the declaration of its tool as well. A call as a whole does, with the
characters that this template puts between its name and its arguments, behind what its own message says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

__all__ = ["WrittenForms"]

_MAX_BETWEEN = 100
"""Characters between the name and the arguments of a call, at the most."""
_MAX_GAP = 200
"""Characters that mostly stand between two messages, at the most."""
_Write: TypeAlias = Callable[[Any], str]
_Spoken: TypeAlias = Callable[[dict[str, Any]], list[str]]
_compact: _Write = json.JSONEncoder(ensure_ascii=False).encode
_LAYOUTS: tuple[_Write, ...] = (
    _compact,
    *[partial(json.dumps, ensure_ascii=False, indent=indent) for indent in (4, 2)],
)
"""How templates lay out the JSON of a tool."""


class WrittenForms(NamedTuple):
    """What is always the same in the text of a call and of a tool; None where it was not recognised."""

    between: str | None = None
    """Stands between the name and the arguments of a call, which are compact JSON."""
    is_name_first: bool = True
    tool: _Write | None = None
    """Writes a tool, or its function, as JSON."""

    @classmethod
    def of(cls, text: str, tool: dict[str, Any], name: str, arguments: dict[str, Any]) -> WrittenForms:
        """Return the forms in a text that has one tool, and one call of it by its name."""
        writers: list[_Write] = [*_LAYOUTS, *[partial(_function_of, write) for write in _LAYOUTS]]
        write = next((write for write in writers if write(tool) in text), None)
        written = _compact(arguments)
        at = text.rfind(written)
        if at < 0:
            return cls(tool=write)
        before = text.rfind(name, max(0, at - _MAX_BETWEEN), at)
        if before >= 0:
            return cls(text[before + len(name) : at], True, write)
        end = at + len(written)
        after = text.find(name, end, end + _MAX_BETWEEN)
        return cls(text[end:after], False, write) if after >= 0 else cls(tool=write)

    def written_in(
        self, text: str, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None, spoken: _Spoken
    ) -> bool:
        """Whether a text surely has all messages, calls and tools; what is written in another way is not found.

        Messages and calls have to stand in it in their order, and the tools elsewhere. `spoken` returns the texts of a
        message.
        """
        around: list[str] = []
        at = 0
        for message in messages:
            wanted = spoken(message)
            if "tool_calls" in message:
                if self.between is None:
                    return False
                calls = [*map(self._call, message["tool_calls"])]
                thoughts = [one for one in (message["content"], message.get("reasoning_content")) if type(one) is str]
                if any(call in thought for call in calls for thought in thoughts):  # which may stand in front of them
                    return False
                wanted = [*wanted, *calls]
            for one in wanted:
                place = text.find(one, at, at + len(one) + _MAX_GAP)
                if place < 0 and (place := text.find(one, at)) < 0:
                    return False
                around.append(text[at:place])
                at = place + len(one)
        if not tools:
            return True
        if self.tool is None:
            return False
        declared = "\0".join([*around, text[at:]])
        return all(self.tool(tool) in declared for tool in tools)

    def _call(self, call: dict[str, Any]) -> str:
        function = call["function"]
        name, arguments = function["name"], function["arguments"]
        written = arguments if isinstance(arguments, str) else _compact(arguments)
        return f"{name}{self.between}{written}" if self.is_name_first else f"{written}{self.between}{name}"


def _function_of(write: _Write, tool: dict[str, Any]) -> str:
    return write(tool.get("function", tool))
