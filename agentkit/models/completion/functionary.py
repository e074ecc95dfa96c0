"""Replies in the format of functionary 3: messages, each behind the name of the tool, or of all, that is to read it."""

from __future__ import annotations

from agentkit.models.completion.text_tool_calls import Marks
from agentkit_prompts.chat_templates.tool_calls.reply_text import Schemas, made_call
from agentkit_prompts.context.messages import ToolCall

__all__ = ["FunctionaryReply"]

_MARK = ">>>"
_ALL = "all"


class FunctionaryReply:
    """Takes the tool calls out of a reply as it arrives, as `TextToolCalls` does.

    A reply goes on behind `>>>`. What is addressed to `all` is shown, what is addressed to a tool there is, is a call;
    one whose arguments are no JSON object stays text.
    """

    def __init__(self, schemas: Schemas) -> None:
        self.calls: list[ToolCall] = []
        self.is_cut = False
        self._names = frozenset(schemas)
        self._marks = Marks([f"{_MARK}{name}\n" for name in (_ALL, *schemas)])
        self._held = _MARK
        self._is_begun = False
        self._tool = ""
        """Whom the message is for that is being written; empty where it is shown."""
        self._arguments: list[str] = []

    def add(self, text: str) -> str:
        """Take a piece of the reply, and return what of it can be shown."""
        text = self._held + text
        shown: list[str] = []
        at = 0
        for mark in self._marks.pattern.finditer(text):
            shown += (self._taken(text[at : mark.start()]), self._closed())
            self._is_begun = True
            name = mark[0][len(_MARK) : -1]
            self._tool = name
            if name == _ALL:
                self._tool = ""
            at = mark.end()
        keep = self._marks.partial_start(text, at)
        if not self._is_begun and keep < len(_MARK) and not text[:keep].strip(_MARK):
            keep = 0
        shown.append(self._taken(text[at:keep]))
        self._held = text[keep:]
        return "".join(shown)

    def end(self, *, at_limit: bool = False) -> str:
        """Return what was held back and is shown; without half a call, where the reply is `at_limit` of its tokens."""
        held, self._held = self._held, ""
        if at_limit and len(held) > len(_MARK) and any(f"{_MARK}{name}\n".startswith(held) for name in self._names):
            self.is_cut, held = True, ""
        shown = self._taken(held)
        if at_limit and self._tool:
            self.is_cut = made_call(self._tool, "".join(self._arguments).strip()) is None
        closed = self._closed()
        if self.is_cut:
            return shown
        return shown + closed

    def _taken(self, text: str) -> str:
        # Some models repeat the mark at the end of the prompt.
        if text and not self._is_begun:
            text, self._is_begun = text.removeprefix(_MARK), True
        if not self._tool:
            return text
        self._arguments.append(text)
        return ""

    def _closed(self) -> str:
        """End a message, and return what of it is shown."""
        tool, text = self._tool, "".join(self._arguments)
        self._tool, self._arguments = "", []
        if not tool:
            return ""
        call = made_call(tool, text.strip() or "{}")
        if call is None:
            return f"{_MARK}{tool}\n{text}"
        self.calls.append(call)
        return ""
