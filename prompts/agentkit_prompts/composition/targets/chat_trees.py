"""Messages as a chat template takes them, each text cut into trusted and untrusted runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens
from agentkit_prompts.chat_templates.guard.taint_tracking import is_harmless
from agentkit_prompts.chat_templates.guard.tainted_text import Run, Runs, Tree, untagged
from agentkit_prompts.chat_templates.normalise import plain
from agentkit_prompts.context.items import Document, ToolSpec
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Text
from agentkit_prompts.context.wire.wire_tools import openai_tool
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import Segment

__all__ = ["Entry", "PromptReader", "TreeReader", "entry_of", "is_harmless_tool", "runs_of", "words_of_tools"]

_SPEC_WORDS = frozenset(
    (
        *("type", "function", "name", "description", "strict", "parameters", "properties", "required", "items", "enum"),
        *("const", "default", "title", "examples", "format", "additionalProperties", "anyOf", "oneOf", "allOf", "not"),
        *("$ref", "$defs", "definitions", "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems"),
        *("maxItems", "uniqueItems", "string", "number", "integer", "boolean", "object", "array", "null", "text"),
    )
)
"""What chat templates look up in a tool or a document, and compare with: it is trusted where it is a key or a type."""
_WORDS_AT = frozenset(("type", "required"))
"""Keys of a schema whose value may be such a word."""
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")


class Entry(NamedTuple):
    """A message, or a piece of one, and what is known about it."""

    tree: Tree
    plain: Tree
    """The same with every text as a str."""
    is_harmless: bool
    """Whether nothing untrusted in it can be part of a control token."""


@dataclass(frozen=True, slots=True)
class TreeReader:
    """Turns stored messages into trees, in the form of a chat-completions request."""

    tokens: ControlTokens
    known: frozenset[str]
    """Names that the developer gave to tools and parameters: trusted wherever they are a whole text."""
    is_split: bool
    """Whether the JSON of arguments is cut into its strings, which are untrusted, and its syntax."""

    def __call__(self, message: Message) -> Entry:
        """Return a message of the conversation or of the tool traffic without saying where it is from."""
        return entry_of(self.message(message), self.tokens)

    def message(self, message: Message, pointer: str = "") -> dict[str, Tree]:
        """Return a message of the conversation or of the tool traffic, all of it untrusted."""
        texts = [part.text if isinstance(part, Text) else part.alt for part in message.parts]
        is_text = isinstance(message.content, str)
        places = [f"{pointer}.content{'' if is_text else f'[{index}]'}" for index in range(len(texts))]
        tree: dict[str, Tree] = {"role": message.role, "content": Runs(map(Run, texts, places))}
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
        """Return JSON-like data with every text in it untrusted, keys included."""
        if isinstance(value, Document):
            value = {"title": value.title, "text": value.text}
        if isinstance(value, str):
            return Runs([Run(str(value), pointer)])
        if isinstance(value, Mapping):
            return {self._key(key, pointer): self.untrusted(item, f"{pointer}.{key}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.untrusted(item, f"{pointer}[{index}]") for index, item in enumerate(value)]
        if value is None or isinstance(value, int | float):
            return value
        return self.untrusted(plain(value), pointer)  # a template reads a fact or a message by its fields

    def tool(self, tool: ToolSpec, pointer: str) -> Tree:
        """Return a tool in the form of a chat-completions request; all of an untrusted one but the words of schemas."""
        return dict(openai_tool(tool)) if tool.trust == "trusted" else self._spec(openai_tool(tool), pointer)

    def _spec(self, value: object, pointer: str, *, is_word: bool = False) -> Tree:
        if isinstance(value, str):
            return self._key(value, pointer) if is_word else Runs([Run(str(value), pointer)])
        if isinstance(value, Mapping):
            return {
                self._key(key, pointer): self._spec(item, f"{pointer}.{key}", is_word=key in _WORDS_AT)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._spec(item, f"{pointer}[{index}]", is_word=is_word) for index, item in enumerate(value)]
        return value

    def _key(self, text: object, pointer: str) -> Any:
        """Return a word of schemas as it is, since a template may look it up, anything else as runs."""
        if text is None or isinstance(text, int | float):
            return text
        if not isinstance(text, str):
            return Runs([Run(str(plain(text)), pointer)])
        return text if text in _SPEC_WORDS else Runs([Run(str(text), pointer)])

    def _call(self, call: ToolCall, pointer: str) -> Tree:
        arguments = f"{pointer}.arguments"
        runs = self._json(call.arguments, arguments) if self.is_split else [Run(call.arguments, arguments)]
        function = {"name": self._word(call.name, f"{pointer}.name"), "arguments": Runs(runs)}
        return {"id": self._word(call.id, f"{pointer}.id"), "type": "function", "function": function}

    def _word(self, text: str, pointer: str) -> Runs:
        return Runs([Run(text, pointer, text not in self.known)])

    def _json(self, text: str, pointer: str) -> list[Run]:
        """Cut the JSON text of arguments: what its strings hold is tainted, its syntax is not."""
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
        if text in self.known:
            yield Run(text, pointer, False)
            return
        start = 0
        for found in _ESCAPE.finditer(text):
            yield Run(text[start : found.start()], pointer)
            character = json.loads(f'"{found[0]}"')
            is_written_out = character in self.tokens.alphabet
            yield Run(character if is_written_out else found[0], pointer, is_written_out)
            start = found.end()
        yield Run(text[start:], pointer)


def entry_of(tree: Tree, tokens: ControlTokens) -> Entry:
    """Return what is known about a tree."""
    return Entry(tree, untagged(tree), is_harmless(tree, tokens))


@dataclass(frozen=True, slots=True)
class PromptReader:
    """Reads the rendering of the prompt at `path`."""

    path: str
    tokens: ControlTokens

    def __call__(self, rendered: Rendered) -> Entry:
        """Return its text as runs."""
        return entry_of(Runs(runs_of(rendered.segments(self.path))), self.tokens)


def runs_of(segments: Iterable[Segment]) -> Iterator[Run]:
    """Yield the text of a rendering in runs, media as their alt text."""
    for segment in segments:
        yield Run(segment.plain, segment.pointer or segment.prompt, segment.trust == "untrusted")


def words_of_tools(tools: Iterable[ToolSpec]) -> frozenset[str]:
    """Return the names that the developer gave to tools and parameters, which a template may look up."""
    return frozenset(word for tool in tools if tool.trust == "trusted" for word in tool.derive(_words))


def is_harmless_tool(tool: ToolSpec, tokens: ControlTokens) -> bool:
    """Whether nothing untrusted in a tool can be part of a control token."""
    return tool.trust == "trusted" or is_harmless(TreeReader(tokens, frozenset(), False).tool(tool, ""), tokens)


def _words(tool: ToolSpec) -> frozenset[str]:
    properties = tool.parameters.get("properties")
    return frozenset((tool.name, *(properties if isinstance(properties, Mapping) else ())))
