"""Small conversations that show the input forms of a chat template."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from agentkit_prompts.chat_templates.dropped_content import WORD, ContentCheck
from agentkit_prompts.chat_templates.normalise import Form
from agentkit_prompts.chat_templates.tool_calls.rendered_call import RenderedCall
from agentkit_prompts.errors import ChatTemplateError

__all__ = ["CALL", "NAME", "TOOL", "WORD", "Probe", "conversation_of"]

Renderer: TypeAlias = Callable[[Sequence[dict[str, Any]], Sequence[dict[str, Any]] | None, bool], str]
"""Function that renders messages and tools unchanged; the flag is `add_generation_prompt`."""

NAME = "probe_tool"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "A tool.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string", "description": "A key."}}},
    },
}
"""A tool that no template contains."""
_ID = "000000000"
_TEXT_OF_PART = re.compile(r"[.'\"]text\b")


def CALL(arguments: Any) -> dict[str, Any]:  # noqa: N802 (a constant with a hole)
    """Return an assistant message that calls the tool."""
    call = {"id": _ID, "type": "function", "function": {"name": NAME, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def conversation_of(role: str, content: Any, arguments: Any = None) -> list[dict[str, Any]]:
    """Return a short conversation with a message of `role` and `content`; a tool call has `arguments`."""
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
    """Renderer of small conversations with one template; each is rendered once."""

    def __init__(self, render: Renderer, source: str) -> None:
        self._render = render
        self._source = source
        self._known: dict[str, str | ChatTemplateError] = {}
        self._forms: dict[tuple[str, str], Form] = {}
        self.text_roles: set[str] = set()
        """Roles whose text the template reads unchanged; tested roles only."""
        self.content_check = ContentCheck()

    def outcome(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None, prompt: bool = False
    ) -> str | ChatTemplateError:
        """Return the text of a conversation, or the error of the template."""
        # Several tests render the same conversation.
        key = json.dumps([messages, tools, prompt])
        if key not in self._known:
            try:
                self._known[key] = self._render(messages, tools, prompt)
            except ChatTemplateError as error:
                self._known[key] = error
        return self._known[key]

    def holds(self, word: str, messages: Sequence[dict[str, Any]]) -> bool:
        """True if the text of a conversation contains a word."""
        return _contains(self.outcome(messages), word)

    def content(self, role: str, current: str) -> Form:
        """Return the form in which the template reads the content of a role; `any` if the current form is valid."""
        form = self._forms.get((role, current))
        if form is None:
            form = self._forms[role, current] = self._form_of(role, current)
            if current == "text" and form == "any":
                self.text_roles.add(role)
        return form

    def _form_of(self, role: str, current: str) -> Form:
        if current == "text":
            is_wrong = not self._takes_text(role) and self._takes_parts(role)
            return "parts" if is_wrong else "any"
        if self._takes_parts(role):
            return "any"
        # A template that refuses every small conversation reads no parts if its source does not contain `text`.
        is_wrong = self._takes_text(role) or _TEXT_OF_PART.search(self._source) is None
        return "text" if is_wrong else "any"

    def _takes_text(self, role: str) -> bool:
        if self.holds(WORD, conversation_of(role, WORD)):
            return True
        # The call before a result can need the other form of arguments.
        return role == "tool" and self.holds(WORD, conversation_of(role, WORD, '{"key": "c"}'))

    def _takes_parts(self, role: str) -> bool:
        outcome = self.outcome(conversation_of(role, [{"type": "text", "text": WORD}]))
        if isinstance(outcome, ChatTemplateError) or WORD not in outcome:
            return False
        # A template that prints the list itself does not read parts. It can change the case of the text.
        text = outcome.lower()
        return f"'text': '{WORD}'" not in text and f'"text": "{WORD}"' not in text

    @cached_property
    def arguments(self) -> Form:
        """The form in which the template reads the arguments of tool calls; `any` if it drops them."""
        user = {"role": "user", "content": "a"}
        as_object = self.outcome([user, CALL({"key": WORD})], [TOOL])
        takes_text = _contains(self.outcome([user, CALL(f'{{"key": "{WORD}"}}')], [TOOL]), WORD)
        if not _contains(as_object, WORD):
            return "text" if takes_text else "any"
        # Quotes of Python show that the template prints the object and expects JSON text.
        return "text" if takes_text and _contains(as_object, f"'{WORD}'") else "object"

    @cached_property
    def rendered_call(self) -> RenderedCall | None:
        """A reply with one tool call, as the template renders it; None if it renders no calls."""
        user = {"role": "user", "content": "a"}
        arguments = {"key": WORD}
        call = CALL(json.dumps(arguments) if self.arguments == "text" else arguments)
        result = {"role": "tool", "tool_call_id": _ID, "name": NAME, "content": "b"}
        before, prompt = self.outcome([user], [TOOL]), self.outcome([user], [TOOL], True)
        if isinstance(before, ChatTemplateError) or isinstance(prompt, ChatTemplateError):
            return None
        # Some templates refuse a conversation that ends in a call.
        for more in ([], [result]):
            text = self.outcome([user, call, *more], [TOOL])
            if isinstance(text, ChatTemplateError):
                continue
            reply = text[_common_length(before, text) :]
            if NAME in reply and WORD in reply:
                schemas = {NAME: TOOL["function"]["parameters"]}
                return RenderedCall(reply, prompt.removeprefix(before), NAME, arguments, schemas)
        return None


def _common_length(first: str, second: str) -> int:
    """Return the number of characters with which both texts start."""
    length = min(len(first), len(second))
    return next((index for index in range(length) if first[index] != second[index]), length)


def _contains(outcome: str | ChatTemplateError, text: str) -> bool:
    return isinstance(outcome, str) and text in outcome
