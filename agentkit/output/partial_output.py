"""`GrowingOutput`: an answer of a type while the model still writes it."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from agentkit.models.model import Delta
from agentkit.output.json_in_text import behind_thinking
from agentkit_prompts.composition.declarations import OutputRequest

__all__ = ["GrowingOutput"]

_MIN_PART = 50
"""The part of the text that has to be new, 1 in so many, before it is read again: so all of it takes linear time."""


class GrowingOutput:
    """Reads an answer as it arrives: the text of a reply, or the arguments of the call that it is asked for with.

    Args:
        request: How the answer was asked for.
    """

    __slots__ = ("_last", "_length", "_read", "_request", "_text")

    def __init__(self, request: OutputRequest) -> None:
        self._request = request
        self._text: list[str] = []
        self._length = 0
        self._read = 0
        self._last: Any = None

    def add(self, delta: Delta) -> Any:
        """Take a piece of the reply, and return the answer so far; None where there is nothing new to see.

        Objects and lists are what they hold so far, a text at the end may be half of one.
        """
        if self._request.mode != "tool":
            if delta.kind != "text":
                return None
        elif delta.kind != "arguments" or self._request.tool is None or delta.name != self._request.tool.name:
            return None
        self._text.append(delta.text)
        self._length += len(delta.text)
        # Parsing for every piece would take quadratic time.
        if self._length - self._read > self._length // _MIN_PART:
            return self.now()
        return None

    def now(self) -> Any:
        """Return the answer so far; None where there is nothing new to see."""
        if self._read == self._length:
            return None
        self._read = self._length
        whole = "".join(self._text)
        self._text = [whole]
        text = behind_thinking(whole)
        start = min((at for opening in "{[" if (at := text.find(opening)) >= 0), default=-1)
        if start < 0:
            return None
        try:
            found = from_json(text[start:], allow_partial="trailing-strings")
        except ValueError:
            return None
        if self._request.wrapped:
            found = found.get("value") if isinstance(found, dict) else None
        if (
            found is None
            or (not found and self._last is None)
            or (found == self._last and type(found) is type(self._last))
        ):
            return None
        self._last = found
        return found
