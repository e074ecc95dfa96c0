"""Parser of replies in the harmony format of gpt-oss: messages on channels, with thinking and tool calls."""

from __future__ import annotations

import re

from agentkit.models.completion.broken_calls import call_of
from agentkit_prompts.chat_templates.tool_calls.reply_text import Schemas, made_call
from agentkit_prompts.context.messages import ToolCall

_RECIPIENT = re.compile(r"\bto=([\w.:/-]++)")
_CHANNEL = re.compile(r"<\|channel\|>\s*+(\w++)")
_ROLE = re.compile(r"\s*+([\w.:/-]*+)")
_TO = "to="
_NAMES = ("start", "channel", "constrain", "message", "end", "return", "call")
_TOKEN = re.compile(rf"<\|({'|'.join(_NAMES)})\|>")
_MAX_TOKEN = len("<|constrain|>")
_MAX_HEADER = 1_000
"""Maximum characters before `<|message|>`; a reply with a longer header is plain text."""


class HarmonyReply:
    """Extracts thinking and tool calls from a reply as it arrives, with the methods of `TextToolCalls`.

    The prompt ends in `<|start|>assistant`. A message on the channel `analysis` is thinking, a message to a function is
    a tool call, any other message is visible text. A call whose arguments are not a JSON object stays text, and so does
    a message of another role than the assistant.
    """

    def __init__(self, schemas: Schemas | None = None) -> None:
        self.calls: list[ToolCall] = []
        self.is_cut = False
        self.unreadable: list[str] = []
        """Texts of the calls that cannot be read; the visible text contains them."""
        self._schemas = schemas or {}
        self.thoughts: list[str] = []
        self._held = ""
        self._header: list[str] | None = []
        """Header before `<|message|>`; None in the body of a message and between messages."""
        self._raw: list[str] = []
        """The unparsed message, in case that it stays text."""
        self._body: list[str] = []
        self._kind = "unknown"
        self._recipient = ""
        self._has_shown = False
        self._breaks = False
        self._breaks_thought = False

    def add(self, text: str) -> str:
        """Read a piece of the reply, and return its visible text."""
        text, self._held = self._held + text, ""
        visible: list[str] = []
        start = 0
        for token in _TOKEN.finditer(text):
            visible.append(self._add_text(text[start : token.start()]))
            visible.append(self._add_token(token[1], token[0]))
            start = token.end()
        end = _possible_token(text, start)
        self._held = text[end:]
        visible.append(self._add_text(text[start:end]))
        return "".join(visible)

    def end(self, *, at_limit: bool = False) -> str:
        """Return the rest of the visible text; with `at_limit` without the tool call that the token limit has cut."""
        text, self._held = self._held, ""
        visible = self._add_text(text)
        if self._header is not None:
            raw = self._raw_header()
            # The message was cut before its body.
            if at_limit and "<|" in raw:
                self.is_cut = _RECIPIENT.search(raw) is not None
                return visible
            if raw.strip():
                visible += self._visible(raw)
            return visible
        if at_limit and self._kind == "call":
            self.is_cut = made_call(self._recipient, "".join(self._body).strip()) is None
        last_message = self._finish_message()
        if self.is_cut:
            return visible
        return visible + last_message

    def _add_token(self, name: str, token: str) -> str:
        """Read a token, and return the visible text that it completes."""
        visible = ""
        if name == "start":
            visible = self._finish_message() if self._header is None else self.end()
            self._header, self._raw = [], [token]
            return visible
        # Some servers omit `<|start|>assistant` between two messages.
        if self._header is None and name in ("channel", "constrain", "message"):
            visible = self._finish_message()
            self._header, self._raw = [], []
        self._raw.append(token)
        if self._header is None:
            return self._finish_message()
        if name in ("channel", "constrain"):
            self._header.append(token)
        elif name == "message":
            self._start_body("".join(self._header))
        else:
            visible += self._visible(self._raw_header())
        return visible

    def _raw_header(self) -> str:
        """End the header, and return the unparsed message."""
        raw = "".join(self._raw)
        self._header, self._raw = None, []
        return raw

    def _start_body(self, header: str) -> None:
        """Start the body of a message."""
        self._header = None
        recipient, channel, role = _RECIPIENT.search(header), _CHANNEL.search(header), _ROLE.match(header)
        self._recipient = ""
        if recipient:
            self._recipient = recipient[1].removeprefix("functions.")
        if role is not None and not role[1].startswith(_TO[:-1]) and role[1] not in ("", "assistant"):
            self._kind = "foreign"
        elif recipient:
            self._kind = "call"
        else:
            self._kind = "shown"
            if channel and channel[1] == "analysis":
                self._kind = "thought"
            self._raw = []
        self._breaks = self._kind == "shown" and self._has_shown
        self._breaks_thought = True

    def _add_text(self, text: str) -> str:
        """Add text to the header or the body, and return its visible text."""
        if not text:
            return ""
        if self._header is not None:
            self._header.append(text)
            self._raw.append(text)
            # A server that removes special tokens sends only the text.
            if not self._is_plain():
                return ""
            self._kind = "shown"
            return self._visible(self._raw_header())
        if self._kind == "thought":
            self._add_thinking(text)
            return ""
        if self._kind not in ("call", "foreign"):
            return self._visible(text)
        self._raw.append(text)
        if self._kind == "call":
            self._body.append(text)
        return ""

    def _add_thinking(self, text: str) -> None:
        if self._breaks_thought and self.thoughts:
            text = f"\n\n{text}"
        self._breaks_thought = False
        self.thoughts.append(text)

    def _is_plain(self) -> bool:
        """True if the header is plain text: the server has removed the tokens."""
        raw = "".join(self._raw)
        head = raw.lstrip()
        is_header = head.startswith(("<|", "assistant")) or _TO.startswith(head[: len(_TO)])
        return not is_header or len(raw) > _MAX_HEADER

    def _visible(self, text: str) -> str:
        """Return visible text, after a blank line if it starts another message."""
        if self._breaks and text.strip():
            text, self._breaks = f"\n\n{text}", False
        self._has_shown = self._has_shown or bool(text.strip())
        return text

    def _finish_message(self) -> str:
        """Finish a message, and return a message that stays text."""
        body, raw, kind = "".join(self._body), "".join(self._raw), self._kind
        self._body, self._raw, self._kind = [], [], "between"
        if kind == "call":
            call = call_of(self._recipient, body.strip() or "{}", self._schemas)
            # A call whose arguments are not a JSON object is visible, so that no part of a reply is lost.
            if call is None:
                self.unreadable.append(raw)
                return self._visible(raw)
            self.calls.append(call)
        elif kind == "foreign":
            return self._visible(raw)
        return ""


def _possible_token(text: str, at: int) -> int:
    """Return the position of an incomplete token at the end of the text; else the length of the text."""
    start = text.rfind("<", max(at, len(text) - _MAX_TOKEN + 1))
    if start >= 0 and any(f"<|{name}|>".startswith(text[start:]) for name in _NAMES):
        return start
    return len(text)
