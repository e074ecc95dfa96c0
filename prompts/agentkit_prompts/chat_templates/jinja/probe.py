"""Small conversations that show how a chat template treats what it is given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from agentkit_prompts.chat_templates.jinja.dropped_content import WORD, ContentCheck
from agentkit_prompts.chat_templates.normalise import Form
from agentkit_prompts.errors import ChatTemplateError

__all__ = ["CALL", "NAME", "TOOL", "WORD", "Probe", "conversation_of"]

Renderer: TypeAlias = Callable[[Sequence[dict[str, Any]], Sequence[dict[str, Any]] | None, bool], str]
"""Renders messages and tools as they are; the flag is `add_generation_prompt`."""

NAME = "probe_tool"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "A tool.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string", "description": "A key."}}},
    },
}
"""A tool that no template holds."""
_ID = "000000000"
_TEXT_OF_PART = re.compile(r"[.'\"]text\b")


def CALL(arguments: Any) -> dict[str, Any]:  # noqa: N802 (a constant with a hole)
    """Return an assistant message that calls the tool."""
    call = {"id": _ID, "type": "function", "function": {"name": NAME, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def conversation_of(role: str, content: Any, arguments: Any = None) -> list[dict[str, Any]]:
    """Return a short conversation with a message of `role` that holds `content`; a tool is called with `arguments`."""
    user = {"role": "user", "content": "a"}
    match role:
        case "user":
            return [{"role": "user", "content": content}]
        case "assistant":
            return [user, {"role": "assistant", "content": content}, {"role": "user", "content": "b"}]
        case "tool":
            call = CALL(arguments or {"key": "c"})
            return [user, call, {"role": "tool", "tool_call_id": _ID, "name": NAME, "content": content}]
        case _:
            return [{"role": role, "content": content}, user]


class Probe:
    """What a template does with small conversations; each is rendered once."""

    def __init__(self, render: Renderer, source: str) -> None:
        self._render = render
        self._source = source
        self._known: dict[str, str | ChatTemplateError] = {}
        self._forms: dict[tuple[str, str], Form] = {}
        self.text_roles: set[str] = set()
        """Roles whose text, it is known by now, the template takes as it is."""
        self.content_check = ContentCheck()

    def outcome(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None, prompt: bool = False
    ) -> str | ChatTemplateError:
        """Return the text of a conversation, or why it has no text."""
        key = json.dumps([messages, tools, prompt])
        if key not in self._known:
            try:
                self._known[key] = self._render(messages, tools, prompt)
            except ChatTemplateError as error:
                self._known[key] = error
        return self._known[key]

    def holds(self, word: str, messages: Sequence[dict[str, Any]]) -> bool:
        """Tell whether the text of a conversation holds a word."""
        found = self.outcome(messages)
        return isinstance(found, str) and word in found

    def content(self, role: str, at_hand: str) -> Form:
        """Tell the form in which the template takes the content of a role; `any` when the one at hand will do."""
        known = self._forms.get((role, at_hand))
        if known is None:
            takes, takes_other = self._takes_text, self._takes_parts
            other: Form = "parts"
            if at_hand == "parts":
                takes, takes_other, other = takes_other, takes, "text"
            # A template that says no small conversation: one that never names `text` cannot take parts.
            wants_text = at_hand == "parts" and _TEXT_OF_PART.search(self._source) is None
            known = "any" if takes(role) or not (takes_other(role) or wants_text) else other
            self._forms[role, at_hand] = known
            if at_hand == "text" and known == "any":
                self.text_roles.add(role)
        return known

    def _takes_text(self, role: str) -> bool:
        return self.holds(WORD, conversation_of(role, WORD)) or (
            role == "tool" and self.holds(WORD, conversation_of(role, WORD, '{"key": "c"}'))
        )

    def _takes_parts(self, role: str) -> bool:
        found = self.outcome(conversation_of(role, [{"type": "text", "text": WORD}]))
        if isinstance(found, ChatTemplateError) or WORD not in found:
            return False
        found = found.lower()  # the template may
        return f"'text': '{WORD}'" not in found and f'"text": "{WORD}"' not in found

    @cached_property
    def arguments(self) -> Form:
        """The form in which the template takes the arguments of tool calls; `any` when it drops them."""
        user = {"role": "user", "content": "a"}
        as_object = self.outcome([user, CALL({"key": WORD})], [TOOL])
        as_text = self.outcome([user, CALL(f'{{"key": "{WORD}"}}')], [TOOL])
        if isinstance(as_object, ChatTemplateError) or WORD not in as_object:
            return "text" if isinstance(as_text, str) and WORD in as_text else "any"
        return "text" if f"'{WORD}'" in as_object and isinstance(as_text, str) and WORD in as_text else "object"
