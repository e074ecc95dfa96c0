"""A composition as the one string that a local model was trained on, by way of its chat template.

What untrusted text says cannot become one of the template's control tokens; what the developer wrote is untouched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens, control_tokens_of
from agentkit_prompts.chat_templates.guard.reasoning import with_reasoning
from agentkit_prompts.chat_templates.guard.taint import Policy, Run, Said, Tree, attempt, guarded, is_harmless, plain
from agentkit_prompts.context.items import Document
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Text
from agentkit_prompts.context.wire.read_tools import openai_tool
from agentkit_prompts.errors import ChatTemplateError
from agentkit_prompts.templates.spans import Segment

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.protocol import ChatTemplate
    from agentkit_prompts.composition.composition import Composition

__all__ = ["chat_template_of", "chat_text"]

_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")


def chat_text(
    composition: Composition,
    chat_template: ChatTemplate | str,
    *,
    control_tokens: Policy = "escape",
    add_generation_prompt: bool = True,
    more: Iterable[tuple[Message, Iterable[Segment]]] = (),
    **kwargs: Any,
) -> str:
    """Return the composition, and the messages in `more` behind it, as `chat_template` writes it, media as alt text.

    A name is looked up among the registered templates. The template is given messages and tools in the form of a
    chat-completions request, as plain dicts. `kwargs` go to it as they are; `documents` among them are untrusted,
    everything else is the developer's.

    Raises:
        ChatTemplateError: No template has this name, or the template cannot say this conversation.
        ControlTokenError: Untrusted text forms control tokens, and `control_tokens` is `reject`; or they cannot be
            told from the template's own.
    """
    if control_tokens not in get_args(Policy):
        raise ChatTemplateError(
            f"control_tokens: expected one of {', '.join(map(repr, get_args(Policy)))}, got {control_tokens!r}"
        )
    template = chat_template_of(chat_template, composition.context.now)
    tokens = control_tokens_of((*template.control_tokens, *(getattr(template, "stop_words", None) or ())))
    known = frozenset(_words_of_tools(composition)) if control_tokens != "allow" else frozenset[str]()
    read = _Reader(tokens, known, is_split=control_tokens != "allow")
    tree: dict[str, Tree] = {"messages": [read.message(*pair) for pair in (*composition.walk(), *more)]}
    tree["tools"] = [dict(openai_tool(tool)) for tool in composition.tools] or None
    if "documents" in kwargs:
        tree["documents"] = read.untrusted(kwargs.pop("documents"), "documents")

    def render(drawn: Tree) -> str:
        return template.render(add_generation_prompt=add_generation_prompt, **{**kwargs, **drawn})

    if control_tokens == "allow" or is_harmless(tree, tokens):
        return render(plain(tree))
    text = attempt(render, plain(tree))
    return guarded(render, with_reasoning(render, tree, tokens), text, tokens, control_tokens)


def chat_template_of(given: ChatTemplate | str, now: datetime | None = None) -> ChatTemplate:
    """Return the template, made from the registry where it is given by name.

    One that prints a date, and has none of its own, prints that of `now`.

    Raises:
        ChatTemplateError: No template has this name, or it is none.
    """
    if isinstance(given, str):
        from agentkit_prompts.chat_templates.registry import CHAT_TEMPLATES

        return CHAT_TEMPLATES.get(given)()
    if isinstance(given, type) or not (hasattr(given, "render") and hasattr(given, "control_tokens")):
        what = f"the class {given.__name__}, which has to be called" if isinstance(given, type) else repr(given)[:80]
        raise ChatTemplateError(
            f"expected a chat template (with `render` and `control_tokens`) or the name of a registered one, got {what}"
        )
    dated: Callable[[datetime], ChatTemplate] | None = getattr(given, "with_now", None)
    return given if now is None or dated is None else dated(now)


class _Reader:
    """Turns messages into trees whose leaves know what is untrusted in them."""

    def __init__(self, tokens: ControlTokens, known: frozenset[str], *, is_split: bool) -> None:
        self._tokens = tokens
        self._known = known
        self._is_split = is_split

    def message(self, message: Message, segments: Iterable[Segment]) -> Tree:
        """Return the wire form of one message of a composition."""
        segments = list(segments)
        if segments and segments[0].prompt not in ("conversation", "intermediate"):
            return {"role": message.role, "content": Said(_runs(segments))}
        pointer = segments[0].pointer.partition(".")[0] if segments else "conversation"
        texts = [part.text if isinstance(part, Text) else part.alt for part in message.parts]
        content = Said(Run(text, segment.pointer) for text, segment in zip(texts, segments, strict=False))
        tree: dict[str, Tree] = {"role": message.role, "content": content}
        if message.tool_calls:
            tree["tool_calls"] = [
                self._call(call, f"{pointer}.tool_calls[{index}]") for index, call in enumerate(message.tool_calls)
            ]
        if message.thinking and (reasoning := message.reasoning):
            tree["reasoning_content"] = self._word(reasoning, f"{pointer}.thinking")
        if message.tool_call_id is not None:
            tree["tool_call_id"] = self._word(message.tool_call_id, f"{pointer}.tool_call_id")
        if message.name:
            tree["name"] = self._word(message.name, f"{pointer}.name")
        return tree

    def untrusted(self, value: object, pointer: str) -> Tree:
        """Return JSON-like data with every text in it untrusted."""
        if isinstance(value, Document):
            value = {"title": value.title, "text": value.text}
        if isinstance(value, str):
            return Said([Run(str(value), pointer)])
        if isinstance(value, Mapping):
            return {key: self.untrusted(item, f"{pointer}.{key}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.untrusted(item, f"{pointer}[{index}]") for index, item in enumerate(value)]
        return value

    def _call(self, call: ToolCall, pointer: str) -> Tree:
        arguments = f"{pointer}.arguments"
        runs = self._json(call.arguments, arguments) if self._is_split else [Run(call.arguments, arguments)]
        function = {"name": self._word(call.name, f"{pointer}.name"), "arguments": Said(runs)}
        return {"id": self._word(call.id, f"{pointer}.id"), "type": "function", "function": function}

    def _word(self, text: str, pointer: str) -> Said:
        return Said([Run(text, pointer, text not in self._known)])

    def _json(self, text: str, pointer: str) -> list[Run]:
        """Cut the JSON text of arguments: what its strings say is tainted, its syntax is not."""
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return [Run(text, pointer)]
        runs: list[Run] = []
        start = 0
        for found in _LITERAL.finditer(text):
            runs.append(Run(text[start : found.start(1)], pointer, False))
            runs += self._literal(found[1], pointer)
            start = found.end(1)
        return [*runs, Run(text[start:], pointer, False)]

    def _literal(self, text: str, pointer: str) -> Iterator[Run]:
        """Cut the inside of a JSON string; an escape that stands for a character of a control token is written out."""
        if text in self._known:
            yield Run(text, pointer, False)
            return
        start = 0
        for found in _ESCAPE.finditer(text):
            yield Run(text[start : found.start()], pointer)
            character = json.loads(f'"{found[0]}"')
            is_written_out = character in self._tokens.alphabet
            yield Run(character if is_written_out else found[0], pointer, is_written_out)
            start = found.end()
        yield Run(text[start:], pointer)


def _runs(segments: Iterable[Segment]) -> Iterator[Run]:
    for segment in segments:
        text = segment.text if segment.media is None else segment.media.alt
        yield Run(text, segment.pointer or segment.prompt, segment.trust == "untrusted")


def _words_of_tools(composition: Composition) -> Iterator[str]:
    """Yield the names that the developer gave to tools and their parameters: a template may look them up."""
    for tool in composition.tools:
        yield tool.name
        properties = tool.parameters.get("properties")
        if isinstance(properties, Mapping):
            yield from properties
