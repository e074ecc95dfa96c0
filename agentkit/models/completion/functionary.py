"""Parser of replies in the format of functionary 3: messages that start with the name of their recipient."""

from __future__ import annotations

from agentkit.models.completion.broken_calls import call_of
from agentkit.models.completion.text_tool_calls import Marks
from agentkit_prompts.chat_templates.tool_calls.reply_text import Schemas, made_call
from agentkit_prompts.context.messages import ToolCall

_MARK = ">>>"
_ALL = "all"


class FunctionaryReply:
    """Extracts the tool calls from a reply as it arrives, with the methods of `TextToolCalls`.

    The prompt ends in `>>>`, and each further message of the reply starts with `>>>`. A message to `all` is visible
    text, a message to a known tool is a tool call. A call whose arguments are not a JSON object stays text.
    """

    def __init__(self, schemas: Schemas) -> None:
        self.calls: list[ToolCall] = []
        self.is_cut = False
        self.unreadable: list[str] = []
        """Texts of the calls that cannot be read; the visible text contains them."""
        self._schemas = schemas
        self._names = frozenset(schemas)
        self._marks = Marks([f"{_MARK}{name}\n" for name in (_ALL, *schemas)])
        self._held = _MARK
        self._has_started = False
        self._tool = ""
        """Recipient of the current message; empty if the message is visible text."""
        self._arguments: list[str] = []

    def add(self, text: str) -> str:
        """Read a piece of the reply, and return its visible text."""
        text = self._held + text
        visible: list[str] = []
        start = 0
        for mark in self._marks.pattern.finditer(text):
            visible += (self._add_text(text[start : mark.start()]), self._finish_message())
            self._has_started = True
            name = mark[0][len(_MARK) : -1]
            self._tool = name
            if name == _ALL:
                self._tool = ""
            start = mark.end()
        end = self._marks.partial_start(text, start)
        if not self._has_started and end < len(_MARK) and not text[:end].strip(_MARK):
            end = 0
        visible.append(self._add_text(text[start:end]))
        self._held = text[end:]
        return "".join(visible)

    def end(self, *, at_limit: bool = False) -> str:
        """Return the rest of the visible text; with `at_limit` without the tool call that the token limit has cut."""
        text, self._held = self._held, ""
        if at_limit and len(text) > len(_MARK) and any(f"{_MARK}{name}\n".startswith(text) for name in self._names):
            self.is_cut, text = True, ""
        visible = self._add_text(text)
        if at_limit and self._tool:
            self.is_cut = made_call(self._tool, "".join(self._arguments).strip()) is None
        last_message = self._finish_message()
        if self.is_cut:
            return visible
        return visible + last_message

    def _add_text(self, text: str) -> str:
        """Add text to the current message, and return its visible text."""
        # Some models repeat the mark at the end of the prompt.
        if text and not self._has_started:
            text, self._has_started = text.removeprefix(_MARK), True
        if not self._tool:
            return text
        self._arguments.append(text)
        return ""

    def _finish_message(self) -> str:
        """Finish the current message, and return a tool call that stays text."""
        tool, text = self._tool, "".join(self._arguments)
        self._tool, self._arguments = "", []
        if not tool:
            return ""
        call = call_of(tool, text.strip() or "{}", self._schemas)
        if call is None:
            self.unreadable.append(f"{_MARK}{tool}\n{text}")
            return self.unreadable[-1]
        self.calls.append(call)
        return ""
