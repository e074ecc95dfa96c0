"""Trees: input of a chat template in which each text is split into trusted and untrusted segments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens
from agentkit_prompts.chat_templates.guard.taint_tracking import is_harmless
from agentkit_prompts.chat_templates.guard.tainted_text import Segments, Tree, untagged, untrusted
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Text
from agentkit_prompts.context.wire.wire_tools import openai_tool
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import Segment

_SPEC_WORDS = frozenset(
    (
        *("type", "function", "name", "description", "strict", "parameters", "properties", "required", "items", "enum"),
        *("const", "default", "title", "examples", "format", "additionalProperties", "anyOf", "oneOf", "allOf", "not"),
        *("$ref", "$defs", "definitions", "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems"),
        *("maxItems", "uniqueItems", "string", "number", "integer", "boolean", "object", "array", "null", "text"),
    )
)
"""Words that chat templates compare with keys and types of tools or documents. They are trusted as keys and types,
because untrusted text can be changed, and a changed word would not equal the word of the template."""
_WORDS_AT = frozenset(("type", "required"))
"""Keys of a schema whose value can be one of `_SPEC_WORDS`."""
_LITERAL = re.compile(r'(?<!\\)"((?:[^"\\]|\\.)*+)"')
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")


class CheckedTree(NamedTuple):
    """The tree of a message or of a prompt, with the result of the check for control tokens."""

    tree: Tree
    plain: Tree
    """The tree with all texts as `str`."""
    is_harmless: bool
    """True if no untrusted text in it can be part of a control token."""


@dataclass(frozen=True, slots=True)
class TreeReader:
    """Converter of stored messages to trees, in the form of a chat-completions request."""

    tokens: ControlTokens
    trusted_words: frozenset[str]
    """Names of tools and parameters that the developer wrote. A text that equals one of the names is trusted."""
    is_split: bool
    """True if the JSON text of arguments is split into the content of strings (untrusted) and the syntax (trusted)."""

    def __call__(self, message: Message) -> CheckedTree:
        """Return the tree of a stored message, whose pointers start at the message, so that the tree can be cached."""
        return checked(self.message(message), self.tokens)

    def message(self, message: Message, pointer: str = "") -> dict[str, Tree]:
        """Return the tree of a stored message, with all text untrusted except trusted names.

        `pointer` is the path of the message in the context, such as `conversation[3]`.
        """
        tree: dict[str, Tree] = {"role": message.role, "content": self._content(message, f"{pointer}.content")}
        if message.tool_calls:
            tree["tool_calls"] = [
                self._call(call, f"{pointer}.tool_calls[{index}]") for index, call in enumerate(message.tool_calls)
            ]
        if message.thinking and message.reasoning:
            tree["reasoning_content"] = self._word(message.reasoning, f"{pointer}.thinking")
        if message.tool_call_id is not None:
            tree["tool_call_id"] = self._word(message.tool_call_id, f"{pointer}.tool_call_id")
        if message.name:
            tree["name"] = self._word(message.name, f"{pointer}.name")
        return tree

    def _content(self, message: Message, pointer: str) -> Segments:
        if isinstance(message.content, str):
            return untrusted(message.content, pointer)
        segments: list[Segment] = []
        for index, part in enumerate(message.parts):
            text = part.text if isinstance(part, Text) else part.alt
            segments.append(Segment(text, f"{pointer}[{index}]", "untrusted"))
        return Segments(segments)

    def tool(self, tool: ToolSpec, pointer: str) -> Tree:
        """Return a tool in the form of a chat-completions request.

        If the tool is untrusted, only the words of JSON Schema in it are trusted.
        """
        wire = openai_tool(tool)
        if tool.trust == "trusted":
            return dict(wire)
        return self.json_data(wire, pointer)

    def json_data(self, value: object, pointer: str, *, is_type: bool = False) -> Tree:
        """Return JSON data with all text untrusted, except schema words that are a key or a type."""
        if isinstance(value, str):
            return value if is_type and value in _SPEC_WORDS else untrusted(str(value), pointer)
        if isinstance(value, Mapping):
            return {
                self._key(key, pointer): self.json_data(item, f"{pointer}.{key}", is_type=key in _WORDS_AT)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.json_data(item, f"{pointer}[{index}]", is_type=is_type) for index, item in enumerate(value)]
        return value

    def _key(self, key: object, pointer: str) -> Any:
        if key is None or isinstance(key, int | float) or key in _SPEC_WORDS:
            return key
        return untrusted(str(key), pointer)

    def _call(self, call: ToolCall, pointer: str) -> Tree:
        arguments = untrusted(call.arguments, f"{pointer}.arguments")
        if self.is_split:
            arguments = Segments(self._json(call.arguments, f"{pointer}.arguments"))
        function = {"name": self._word(call.name, f"{pointer}.name"), "arguments": arguments}
        return {"id": self._word(call.id, f"{pointer}.id"), "type": "function", "function": function}

    def _word(self, text: str, pointer: str) -> Segments:
        if text in self.trusted_words:
            return Segments([Segment(text, pointer)])
        return untrusted(text, pointer)

    def _json(self, text: str, pointer: str) -> Iterator[Segment]:
        """Split the JSON text of arguments: the content of strings is untrusted, the syntax is trusted."""
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            yield Segment(text, pointer, "untrusted")
            return
        start = 0
        for match in _LITERAL.finditer(text):
            yield Segment(text[start : match.start(1)], pointer)
            yield from self._literal(match[1], pointer)
            start = match.end(1)
        yield Segment(text[start:], pointer)

    def _literal(self, text: str, pointer: str) -> Iterator[Segment]:
        """Split the content of a JSON string. An escape is decoded if control tokens contain its character, because a
        template can decode the escape, too.
        """
        if text in self.trusted_words:
            yield Segment(text, pointer)
            return
        start = 0
        for match in _ESCAPE.finditer(text):
            yield Segment(text[start : match.start()], pointer, "untrusted")
            character = json.loads(f'"{match[0]}"')
            is_of_token = character in self.tokens.alphabet
            yield Segment(character, pointer, "untrusted") if is_of_token else Segment(match[0], pointer)
            start = match.end()
        yield Segment(text[start:], pointer, "untrusted")


def checked(tree: Tree, tokens: ControlTokens) -> CheckedTree:
    """Return a tree together with its plain form and the result of the check for control tokens."""
    return CheckedTree(tree, untagged(tree), is_harmless(tree, tokens))


@dataclass(frozen=True, slots=True)
class PromptReader:
    """Converter of a rendered prompt to a tree; `path` is the path of the prompt."""

    path: str
    tokens: ControlTokens

    def __call__(self, rendered: Rendered) -> CheckedTree:
        """Return the text of the rendering as a checked tree of segments."""
        segments = [
            # Template text has the path of its prompt, and media become their alt text.
            segment._replace(text=segment.plain, media=None, pointer=segment.pointer or segment.prompt)
            for segment in rendered.segments(self.path)
        ]
        return checked(Segments(segments), self.tokens)


def words_of_tools(tools: Iterable[ToolSpec]) -> frozenset[str]:
    """Return the names of trusted tools and of their parameters, which a template may look up."""
    return frozenset(word for tool in tools if tool.trust == "trusted" for word in tool.derive(_words))


def is_harmless_tool(tool: ToolSpec, tokens: ControlTokens) -> bool:
    """True if no untrusted text of a tool can be part of a control token."""
    return tool.trust == "trusted" or is_harmless(TreeReader(tokens, frozenset(), False).tool(tool, ""), tokens)


def _words(tool: ToolSpec) -> frozenset[str]:
    properties = tool.parameters.get("properties")
    if not isinstance(properties, Mapping):
        return frozenset([tool.name])
    return frozenset([tool.name, *properties])
