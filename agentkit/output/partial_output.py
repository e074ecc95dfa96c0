"""`GrowingOutput`: partial output of an output type during a stream."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from agentkit.models.model import Delta
from agentkit.output.json_in_text import behind_thinking
from agentkit_prompts.composition.declarations import OutputRequest

__all__ = ["GrowingOutput"]

_MIN_PART = 50
"""The text is parsed again when 1/50 of it is new, so that the total time is linear."""


class GrowingOutput:
    """Parses an answer as it arrives: the text of a reply, or the arguments of the answer tool.

    Args:
        request: The request for the output.
    """

    __slots__ = ("_last", "_length", "_read", "_request", "_text")

    def __init__(self, request: OutputRequest) -> None:
        self._request = request
        self._text: list[str] = []
        self._length = 0
        self._read = 0
        self._last: Any = None

    def add(self, delta: Delta) -> Any:
        """Add a delta, and return the answer so far if it changed, or None.

        Objects and lists can be incomplete, as can the last text.
        """
        if self._request.mode != "tool":
            if delta.kind != "text":
                return None
        elif delta.kind != "arguments" or self._request.tool is None or delta.name != self._request.tool.name:
            return None
        self._text.append(delta.text)
        self._length += len(delta.text)
        # Parsing the text for every delta would take quadratic time.
        if self._length - self._read > self._length // _MIN_PART:
            return self.now()
        return None

    def now(self) -> Any:
        """Return the answer so far if it changed, or None."""
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
            output = from_json(text[start:], allow_partial="trailing-strings")
        except ValueError:
            return None
        if self._request.wrapped:
            if not isinstance(output, dict):
                return None
            output = output.get("value")
        if output is None or (not output and self._last is None):
            return None
        # 1 and True are equal, but different outputs.
        if output == self._last and type(output) is type(self._last):
            return None
        self._last = output
        return output
