"""Readers of tool calls with arguments as plain text between tags: Qwen3-Coder, GLM-4.5, MiniMax-M2, DeepSeek V3.2.

If the tag has no type, the parameter of the tool decides: for a text parameter the text is unchanged, otherwise it is
read as JSON or as a Python literal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agentkit_prompts.chat_templates.tool_calls.json_calls import decoded
from agentkit_prompts.chat_templates.tool_calls.python_calls import python_value
from agentkit_prompts.chat_templates.tool_calls.reply_text import (
    Calls,
    NoCallError,
    Reader,
    ReplyText,
    expect,
    match_at,
    new_call,
    skip,
    some_calls,
)
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.schemas.json_values import is_json, kind_of_json
from agentkit_prompts.schemas.references import target_in

__all__ = ["function_tag", "glm_call", "invoke_calls", "parameter_tags", "typed"]

_FUNCTION = re.compile(r"\s*+<function=")
_FUNCTION_NAME = re.compile(r"\s*+([\w.:/-]++)\s*+>")
_PARAMETER = re.compile(r"\s*+<parameter=(?P<key>[^<>\n]++)>")
_NAME = re.compile(r"\s*+([\w.:/-]++)\s*+")
_KEY = re.compile(r"\s*+<arg_key>(?P<key>[^<>]*+)</arg_key>\s*+<arg_value>")
_NAMED = r"""(?P<quote>["']?)(?P<key>[^<>"'\n]++)(?P=quote)"""
_STRING = r"""(?:\s++string=(?P<mark>["']?)(?P<string>true|false)(?P=mark))?"""
_ANY = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))


def function_tag(reply: ReplyText, start: int) -> Calls:
    """Read `<function=NAME><parameter=KEY>VALUE</parameter>...</function>`."""
    opening = match_at(_FUNCTION, reply.text, start)
    calls, end = parameter_tags(reply, opening.end())
    return Calls(calls, expect("</function>", reply.text, end))


def parameter_tags(reply: ReplyText, start: int) -> Calls:
    """Read the text after `<function=`, up to the place of `</function>`."""
    name = match_at(_FUNCTION_NAME, reply.text, start)
    arguments = _arguments(reply, name.end(), _PARAMETER, "</parameter>", "</function>")
    return _call(reply, name[1], [_unbroken(argument) for argument in arguments.items], arguments.end)


def glm_call(reply: ReplyText, start: int) -> Calls:
    """Read `NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>...`, up to the place of `</tool_call>`."""
    name = match_at(_NAME, reply.text, start)
    arguments = _arguments(reply, name.end(), _KEY, "</arg_value>", "</tool_call>")
    return _call(reply, name[1], arguments.items, arguments.end)


def invoke_calls(prefix: str) -> Reader:
    """Return a reader of `<invoke name="NAME"><parameter name="KEY">VALUE</parameter>...</invoke>`, several in a row.

    Tag names start with `prefix`. An argument with `string="true"` is text, with `string="false"` JSON. One JSON object
    can replace all arguments.
    """
    opening = re.compile(rf"\s*+<{prefix}invoke\s++name={_NAMED}\s*+>")
    parameter = re.compile(rf"\s*+<{prefix}parameter\s++name={_NAMED}{_STRING}\s*+>")
    parameter_end, invoke_end = f"</{prefix}parameter>", f"</{prefix}invoke>"

    def read_arguments(reply: ReplyText, name: str, start: int) -> Calls:
        body = skip(reply.text, start)
        if reply.text.startswith(("{", "["), body):
            value, end = decoded(reply.text, body)
            return Calls([new_call(name, value)], end)
        arguments = _arguments(reply, start, parameter, parameter_end, invoke_end)
        return _call(reply, name, [_unbroken(argument) for argument in arguments.items], arguments.end)

    def read(reply: ReplyText, start: int) -> Calls:
        calls: list[ToolCall] = []
        while (match := opening.match(reply.text, start)) is not None:
            try:
                call, end = read_arguments(reply, match["key"], match.end())
                start = expect(invoke_end, reply.text, end)
            except NoCallError:
                break
            calls += call
        return some_calls(calls, start)

    return read


class _Argument(NamedTuple):
    """One argument: the match of its opening tag, and its text."""

    tag: re.Match[str]
    text: str


class _Arguments(NamedTuple):
    """Consecutive arguments, and the end of the last argument."""

    items: list[_Argument]
    end: int


def _unbroken(argument: _Argument) -> _Argument:
    """Return an argument without the line breaks between its text and its tags."""
    return argument._replace(text=argument.text.removeprefix("\n").removesuffix("\n"))


def _arguments(reply: ReplyText, at: int, opening: re.Pattern[str], closing: str, after: str) -> _Arguments:
    """Return the arguments that start at a place; `after` must follow the last argument.

    Raises:
        NoCallError: An argument is not closed, or other text follows.
    """
    # An argument can contain the opening of another call. To stay linear, text is copied only after all arguments are
    # well formed, and failed places are recorded.
    text, kind = reply.text, closing + after
    borders: list[tuple[re.Match[str], int]] = []
    places: list[int] = []
    while (tag := opening.match(text, at)) is not None:
        end = -1
        if not reply.is_dead(kind, at):
            end = reply.find(closing, tag.end())
        if end < 0:
            reply.bury(kind, places)
            raise NoCallError
        borders.append((tag, end))
        at = end + len(closing)
        places.append(at)
    # Well-formed tags can belong to a call that does not end.
    is_closed = text.startswith(after, skip(text, at))
    if not is_closed or reply.is_dead(kind, at):
        reply.bury(kind, places)
        raise NoCallError
    reply.passed += [(kind, place) for place in places]
    return _Arguments([_Argument(tag, text[tag.end() : end]) for tag, end in borders], at)


def _call(reply: ReplyText, name: str, arguments: list[_Argument], end: int) -> Calls:
    root = reply.schemas.get(name, {})
    values: dict[str, object] = {}
    for tag, text in arguments:
        groups = tag.groupdict()
        key = groups["key"].strip()
        values[key] = typed(text, _schema_of(key, groups.get("string"), root), root)
    return Calls([new_call(name, values)], end)


def _schema_of(key: str, is_string: str | None, root: Mapping[str, Any]) -> object:
    """Return the schema of an argument. The tag can declare a string (`true`) or JSON (`false`)."""
    if is_string == "true":
        return {"type": "string"}
    if is_string == "false":
        return {}
    properties = root.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    return root.get("additionalProperties", {})


def typed(text: str, schema: object, root: Mapping[str, Any]) -> object:
    """Return the value of a text for a parameter of this schema."""
    kinds = _kinds(schema, root)
    if kinds == {"string"}:
        return text
    inner = text.strip()
    try:
        value = _literal(inner)
    except NoCallError:
        return text
    if "string" not in kinds or _is_of(kinds - {"string"}, value, inner):
        return value
    return text


def _is_of(kinds: frozenset[str], value: object, text: str) -> bool:
    """True if a value has one of these JSON types, and its text is canonical: 007 and 1.50 are strings."""
    is_usual = isinstance(value, list | dict) or json.dumps(value) == text
    return is_usual and any(is_json(value, kind) for kind in kinds)


def _literal(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return python_value(text)


def _kinds(schema: object, root: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types that the keywords of a schema allow."""
    kinds: set[str] = set()
    # A schema can contain itself by a reference.
    for option in iter_nodes(schema, lambda node: _schemas_inside(node, root)):
        if not isinstance(option, Mapping):
            return _ANY
        if not _schemas_inside(option, root):
            kinds.update(_own_kinds(option))
    return frozenset(kinds) or _ANY


def _schemas_inside(schema: object, root: Mapping[str, Any]) -> list[object]:
    """Return the nested schemas that define the type of a schema without `type`; none with `type`."""
    if not isinstance(schema, Mapping):
        return []
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        return [target_in(root, reference)]
    if not {"type", "enum", "const"}.isdisjoint(schema):
        return []
    options = [*_listed(schema, "anyOf"), *_listed(schema, "oneOf")]
    parts = _listed(schema, "allOf")
    if not options and len(parts) == 1:
        return parts
    return options


def _listed(schema: Mapping[str, Any], keyword: str) -> list[object]:
    value = schema.get(keyword)
    if isinstance(value, list):
        return value
    return []


def _own_kinds(schema: Mapping[str, Any]) -> Iterable[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if isinstance(kind, list):
        return [name for name in kind if isinstance(name, str)]
    values = schema.get("enum")
    if "const" in schema:
        values = [schema["const"]]
    return map(kind_of_json, values) if isinstance(values, list) else _ANY
