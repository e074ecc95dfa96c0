"""Replies in the harmony format of gpt-oss: messages on channels, some of them thoughts and some tool calls."""

from __future__ import annotations

import re

from agentkit_prompts.chat_templates.tool_calls.reply_text import made_call
from agentkit_prompts.context.messages import ToolCall

__all__ = ["HarmonyReply"]

_RECIPIENT = re.compile(r"\bto=([\w.:/-]++)")
_CHANNEL = re.compile(r"<\|channel\|>\s*+(\w++)")
_ROLE = re.compile(r"\s*+([\w.:/-]*+)")
_TO = "to="
_NAMES = ("start", "channel", "constrain", "message", "end", "return", "call")
_TOKEN = re.compile(rf"<\|({'|'.join(_NAMES)})\|>")
_MAX_TOKEN = len("<|constrain|>")
_MAX_HEADER = 1_000
"""Characters in front of `<|message|>`; a reply with more of them is plain text."""


class HarmonyReply:
    """Takes the thoughts and the tool calls out of a reply as it arrives, as `TextToolCalls` does.

    A reply goes on behind `<|start|>assistant`. What is on the channel `analysis` is thought, what is addressed to a
    function is a call, everything else is shown. A call whose arguments are no JSON object stays text, and so does a
    message that is not of the assistant.
    """

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.is_cut = False
        self.thoughts: list[str] = []
        self._held = ""
        self._header: list[str] | None = []
        """What stands in front of `<|message|>`; None in the body of a message and behind it."""
        self._raw: list[str] = []
        """The message as it was written, where it may have to be shown as it is."""
        self._body: list[str] = []
        self._kind = "unknown"
        self._recipient = ""
        self._has_shown = False
        self._breaks = False
        self._breaks_thought = False

    def add(self, text: str) -> str:
        """Take a piece of the reply, and return what of it can be shown."""
        text, self._held = self._held + text, ""
        shown: list[str] = []
        at = 0
        for token in _TOKEN.finditer(text):
            shown.append(self._text(text[at : token.start()]))
            shown.append(self._token(token[1], token[0]))
            at = token.end()
        keep = _possible_token(text, at)
        self._held = text[keep:]
        shown.append(self._text(text[at:keep]))
        return "".join(shown)

    def end(self, *, at_limit: bool = False) -> str:
        """Return what was held back and is shown; without half a call, where the reply is `at_limit` of its tokens."""
        held, self._held = self._held, ""
        shown = self._text(held)
        if self._header is not None:
            raw, self._header, self._raw = "".join(self._raw), None, []
            # The message was cut before it had any text.
            if at_limit and "<|" in raw:
                self.is_cut = _RECIPIENT.search(raw) is not None
                return shown
            return shown + self._show(raw if raw.strip() else "")
        if at_limit and self._kind == "call":
            self.is_cut = made_call(self._recipient, "".join(self._body).strip()) is None
        closed = self._close()
        if self.is_cut:
            return shown
        return shown + closed

    def _token(self, name: str, token: str) -> str:
        if name == "start":
            shown = self._close() if self._header is None else self.end()
            self._header, self._raw = [], [token]
            return shown
        # Some servers leave out `<|start|>assistant` between two messages.
        if self._header is None and name in ("channel", "constrain", "message"):
            shown = self._close()
            self._header, self._raw = [], []
            return shown + self._token(name, token)
        if self._header is not None:
            self._raw.append(token)
            if name in ("channel", "constrain"):
                self._header.append(token)
                return ""
            if name == "message":
                self._open("".join(self._header))
                return ""
            raw, self._header, self._raw = "".join(self._raw), None, []
            return self._show(raw)
        self._raw.append(token)
        return self._close()

    def _open(self, header: str) -> None:
        """Begin the body of a message."""
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

    def _text(self, text: str) -> str:
        if not text:
            return ""
        if self._header is not None:
            self._header.append(text)
            self._raw.append(text)
            # A server that removes special tokens sends the text alone.
            if not self._is_plain():
                return ""
            raw, self._header, self._raw, self._kind = "".join(self._raw), None, [], "shown"
            return self._show(raw)
        if self._kind in ("call", "foreign"):
            self._raw.append(text)
        if self._kind == "thought":
            self.thoughts.append(f"\n\n{text}" if self._breaks_thought and self.thoughts else text)
            self._breaks_thought = False
            return ""
        if self._kind == "call":
            self._body.append(text)
            return ""
        if self._kind == "foreign":
            return ""
        return self._show(text)

    def _is_plain(self) -> bool:
        """Return whether this is no message on a channel, but text: a server took the tokens out."""
        begun = "".join(self._raw)
        head = begun.lstrip()
        is_header = head.startswith(("<|", "assistant")) or _TO.startswith(head[: len(_TO)])
        return not is_header or len(begun) > _MAX_HEADER

    def _show(self, text: str) -> str:
        if self._breaks and text.strip():
            text, self._breaks = f"\n\n{text}", False
        self._has_shown = self._has_shown or bool(text.strip())
        return text

    def _close(self) -> str:
        """End a message, and return what of it is shown."""
        body, raw, kind = "".join(self._body), "".join(self._raw), self._kind
        self._body, self._raw, self._kind = [], [], "between"
        if kind == "call":
            call = made_call(self._recipient, body.strip() or "{}")
            # Arguments that are no JSON object are shown, so that nothing of a reply is lost.
            if call is None:
                return self._show(raw)
            self.calls.append(call)
        elif kind == "foreign":
            return self._show(raw)
        return ""


def _possible_token(text: str, at: int) -> int:
    """Return where a token may be beginning at the end of the text."""
    start = text.rfind("<", max(at, len(text) - _MAX_TOKEN + 1))
    may_begin = start >= 0 and any(f"<|{name}|>".startswith(text[start:]) for name in _NAMES)
    if may_begin:
        return start
    return len(text)
