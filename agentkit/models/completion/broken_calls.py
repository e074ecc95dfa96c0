"""Tool calls in the text of a reply whose arguments are nearly JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentkit.models.http.json_end import is_json
from agentkit_prompts.chat_templates.tool_calls.reply_text import Schemas, made_call, new_id
from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.argument_repair import repaired

_ARGUMENTS = re.compile(r"""["'](?:arguments|parameters)["']\s*+:\s*+(?=\{)""")
_BRACKET = re.compile(r"""[{}\[\]]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)""", re.S)
_REST = re.compile(r"[\s}\],]*+(?:```\s*+)?(?:<[^<>\s]++>\s*+)*+")
"""Text after the arguments of a call: closing brackets, the end of a code fence, and closing tags."""
_OUTER = re.compile(r"\s*+(?:,\s*+)?\}")
_WORD = re.compile(r"[\w.:/-]++")


def named_tool(text: str, schemas: Schemas) -> str | None:
    """Return the first known tool that a text names; None if it names no tool."""
    return next((word[0] for word in _WORD.finditer(text) if word[0] in schemas), None)


def broken_call(text: str, schemas: Schemas) -> ToolCall | None:
    """Return the call of a known tool with unchanged arguments, which are nearly JSON.

    The tool refuses them, or repairs them if its policy is `repair=True`, as at a chat endpoint. None if the text has
    another problem: a call that was cut, or whose parts are unclear, is not repaired.
    """
    name = named_tool(text, schemas)
    if name is None:
        return None
    key = _ARGUMENTS.search(text)
    start = text.find("{", text.find(name)) if key is None else key.end()
    end = _closing_bracket(text, start)
    if end is None or _REST.fullmatch(text, end) is None:
        return None
    # With a key, the arguments are inside another object.
    if key is not None and _OUTER.match(text, end) is None:
        return None
    arguments = text[start:end]
    if not _is_nearly_json(arguments, schemas[name]):
        return None
    return ToolCall(new_id(), name, arguments)


def call_of(name: str, arguments: str, schemas: Schemas) -> ToolCall | None:
    """Return a call with arguments that are a JSON object or nearly JSON; None if the call cannot be read."""
    call = made_call(name, arguments)
    if call is None and _is_nearly_json(arguments, schemas.get(name, {})):
        return ToolCall(new_id(), name, arguments)
    return call


def _is_nearly_json(arguments: str, parameters: Mapping[str, Any]) -> bool:
    """True if arguments are invalid, and a tool with `repair=True` repairs them."""
    return not is_json(arguments) and repaired(arguments, parameters) is not None


def _closing_bracket(text: str, start: int) -> int | None:
    """Return the end of the brackets that open at a place; None if they are not closed."""
    if start < 0:
        return None
    depth = 0
    for token in _BRACKET.finditer(text, start):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
        if depth == 0:
            return token.end()
    return None
