"""Detection of the format of a call that a chat template renders, by reading the call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentkit_prompts.chat_templates.tool_calls.calls_at import calls_at
from agentkit_prompts.chat_templates.tool_calls.formats import (
    FUNCTIONARY,
    HARMONY,
    TOOL_CALL_FORMATS,
    bare_readers,
    formats_in_texts,
    forms_of,
)
from agentkit_prompts.chat_templates.tool_calls.reply_text import ReplyText, Schemas, end_of, skip, try_read
from agentkit_prompts.context.messages import ToolCall

_THOUGHT = re.compile(r"\s*+(?:<think>\s*+</think>\s*+)?")
_TOKENS = re.compile(r"(?:\s++|<[^<>\s]++>|\[/?[A-Z_]++\])*+")
"""Text after a call without tags: stop words and tokens of turns."""
_WHOLE_REPLY = {
    HARMONY: r"to=(?:functions\.)?{name}\b[^{{]*?<\|message\|>\s*+\{{",
    FUNCTIONARY: r"(?:>>>|\A){name}\n\{{",
}
"""Patterns of a call in the formats whose replies consist of messages."""


class RenderedCall:
    """The reply of a model with one tool call, as its chat template renders the reply.

    Args:
        text: Text after the prompt, with the header of the reply if the prompt does not contain it.
        header: Header of a reply, which the prompt contains.
        name: Name of the tool.
        arguments: Arguments of the call.
        schemas: Parameters of the tools.
    """

    def __init__(self, text: str, header: str, name: str, arguments: Mapping[str, Any], schemas: Schemas) -> None:
        self._text = text
        body = text.removeprefix(header)
        self._body = body[end_of(_THOUGHT, body, 0) :]
        self._name = name
        self._arguments = arguments
        self._schemas = schemas

    def format(self, candidates: Sequence[str]) -> str | None:
        """Return the first of the candidates that reads the call, or else another format whose texts are around the
        call; None if no format reads it.
        """
        for name in candidates:
            if self.is_read_in(name):
                return name
        return next((name for name in TOOL_CALL_FORMATS if self._is_marked(name)), None)

    def is_read_in(self, format: str | None) -> bool:
        """True if this format reads the call; any format for None."""
        pattern = _WHOLE_REPLY.get(format or "")
        if pattern is not None:
            return re.search(pattern.format(name=re.escape(self._name)), self._text) is not None
        return self._is_marked(format) or self._is_bare(format)

    def _is_marked(self, format: str | None) -> bool:
        forms = forms_of(format)
        reply = ReplyText(self._text, self._schemas)
        for opening in {form.opening for form in forms}:
            at = self._text.find(opening)
            while at >= 0:
                block = calls_at(reply, at, forms)
                if block is not None and self._is_same(block.calls):
                    return True
                at = self._text.find(opening, at + 1)
        return False

    def _is_bare(self, format: str | None) -> bool:
        # The reply ends before the tokens after the call.
        for end in range(len(self._body), 0, -1):
            if self._body[end - 1] in "]}" and _TOKENS.fullmatch(self._body, end):
                reply = ReplyText(self._body[skip(self._body, 0) : end], self._schemas)
                blocks = [try_read(read, reply, 0) for read in bare_readers(format)]
                return any(block is not None and self._is_same(block.calls) for block in blocks)
        return False

    def _is_same(self, calls: list[ToolCall]) -> bool:
        return [(call.name, json.loads(call.arguments)) for call in calls] == [(self._name, self._arguments)]


def detected_format(texts: Sequence[str], rendered_call: Callable[[], RenderedCall | None]) -> str | None:
    """Return the format of the tool calls that a chat template renders; None if any format can be used.

    Args:
        texts: Source texts of the template.
        rendered_call: Function that renders a call; None if the template renders no calls.
    """
    candidates = formats_in_texts(texts)
    call = None
    # Several formats have the same signs, so the template renders a call, which is read.
    if candidates or any("tool_calls" in text for text in texts):
        call = rendered_call()
    if call is not None and (format := call.format(candidates)) is not None:
        return format
    if not candidates or (call is not None and call.is_read_in(None)):
        return None
    return candidates[0]
