"""`GrowingOutput`: partial output of an output type during a stream."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from agentkit.models.model import Delta
from agentkit.output.json_in_text import text_after_thinking
from agentkit_prompts.composition.tools_and_output import OutputRequest

_GROWTH = 50
"""The text is parsed again when at least 1/50 of the text is new, so that the total time is linear."""


class GrowingOutput:
    """Parses an answer as it arrives: the text of a reply, or the arguments of the answer tool.

    Args:
        request: The request for the output.
    """

    __slots__ = ("_latest", "_length", "_parsed_length", "_request", "_text")

    def __init__(self, request: OutputRequest) -> None:
        self._request = request
        self._text: list[str] = []
        self._length = 0
        self._parsed_length = 0
        self._latest: Any = None

    def add(self, delta: Delta) -> Any:
        """Add a delta, and return the answer so far; None if the answer did not change or was not parsed again.

        Objects, lists and the last string in the answer can be incomplete.
        """
        if self._request.mode != "tool":
            if delta.kind != "text":
                return None
        elif delta.kind != "arguments" or self._request.tool is None or delta.name != self._request.tool.name:
            return None
        self._text.append(delta.text)
        self._length += len(delta.text)
        # Parsing the text for every delta would take quadratic time.
        if self._length - self._parsed_length > self._length // _GROWTH:
            return self.current()
        return None

    def current(self) -> Any:
        """Return the answer so far; None if the answer did not change."""
        if self._parsed_length == self._length:
            return None
        self._parsed_length = self._length
        whole = "".join(self._text)
        self._text = [whole]
        text = text_after_thinking(whole)
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
        if output is None or (not output and self._latest is None):
            return None
        # 1 and True are equal, but different outputs.
        if output == self._latest and type(output) is type(self._latest):
            return None
        self._latest = output
        return output
