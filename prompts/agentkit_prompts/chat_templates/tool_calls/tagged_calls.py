"""Readers of tool calls with arguments as plain text between tags: Qwen3-Coder, GLM-4.5, MiniMax-M2, DeepSeek V3.2,
Kimi K3, Step 3, Hunyuan 3, MiniCPM 5 and others.

If the tag has no type, the parameter of the tool determines the type of the argument.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from agentkit_prompts.chat_templates.tool_calls.argument_types import schema_of, typed
from agentkit_prompts.chat_templates.tool_calls.json_calls import decoded
from agentkit_prompts.chat_templates.tool_calls.reply_text import (
    Calls,
    NoCallError,
    Reader,
    ReplyText,
    Schemas,
    expect,
    match_at,
    new_call,
    skip,
    some_calls,
)
from agentkit_prompts.context.messages import ToolCall

_FUNCTION = re.compile(r"\s*+<function=")
_FUNCTION_NAME = re.compile(r"\s*+([\w.:/-]++)\s*+>")
_NAME = re.compile(r"\s*+([\w.:/-]++)\s*+")
_NAMED = r"""(?P<quote>["']?)(?P<key>[^<>"'\n]++)(?P=quote)"""
_STRING = r"""(?:\s++string=(?P<mark>["']?)(?P<type>true|false)(?P=mark))?"""
_CDATA = re.compile(r"\s*+<!\[CDATA\[(.*)\]\]>\s*+", re.S)
_K3_CALL = re.compile(r'\s*+<\|open\|>call\s++tool="(?P<key>[^"<]++)"[^<]*+<\|sep\|>')
_K3_JSON = re.compile(r"\s*+<\|open\|>json[^<]*+<\|sep\|>")
_INVOKE_NAME = re.compile(rf"{_NAMED}\s*+>")
_DECLARED: Mapping[str, object] = {"true": {"type": "string"}, "string": {"type": "string"}}
"""Schemas of the types that an opening tag can declare; a value of another declared type is JSON."""

ValueOf: TypeAlias = Callable[[str], str]
"""Function that returns the value of the text between two tags."""


def exact(text: str) -> str:
    """Return the text: the template writes the value and nothing else between the tags."""
    return text


def unbroken(text: str) -> str:
    """Return a text without the line breaks that the template writes after the opening and before the closing tag."""
    return text.removeprefix("\n").removesuffix("\n")


def _uncoded(text: str) -> str:
    """Return the content of a CDATA section; other text unchanged."""
    section = _CDATA.fullmatch(text)
    if section is None:
        return text
    return section[1]


class _Tags(NamedTuple):
    """Tags of the arguments of a call."""

    before: str
    """Text at the start of a call."""
    opening: re.Pattern[str]
    """Opening tag, with the group `key`, and the group `type` if the tag can declare a type."""
    closing: str
    after: str
    """Text after the last argument."""
    value_of: ValueOf = exact
    key_of: ValueOf = exact


_PARAMETER = re.compile(r"<parameter=(?P<key>[^<>\n]++)>")
_PARAM = _Tags("<function", re.compile(rf"<param\s++name={_NAMED}\s*+>"), "</param>", "</function>", _uncoded)
_K3_ARGUMENT = _Tags(
    "<|open|>call",
    re.compile(r'<\|open\|>argument\s++key="(?P<key>[^"<]++)"(?:\s++type="(?P<type>\w++)")?[^<]*+<\|sep\|>'),
    "<|close|>argument<|sep|>",
    "<|close|>call<|sep|>",
    key_of=html.unescape,
)
_SOLAR_ARGUMENT = _Tags(
    "<|tool_call:start|>",
    re.compile(r"<\|tool_arg:start\|>(?P<key>[^<>\n]++)<\|tool_arg:value\|>"),
    "<|tool_arg:end|>",
    "<|tool_call:end|>",
)


def function_tag(value_of: ValueOf) -> Reader:
    """Return a reader of `<function=NAME><parameter=KEY>VALUE</parameter>...</function>`."""
    read_parameters = parameter_tags(value_of)

    def read(reply: ReplyText, start: int) -> Calls:
        opening = match_at(_FUNCTION, reply.text, start)
        calls, end = read_parameters(reply, opening.end())
        return Calls(calls, expect("</function>", reply.text, end))

    return read


def parameter_tags(value_of: ValueOf) -> Reader:
    """Return a reader of the text after `<function=`, up to the place of `</function>`."""
    tags = _Tags("<function=", _PARAMETER, "</parameter>", "</function>", value_of)

    def read(reply: ReplyText, start: int) -> Calls:
        name = match_at(_FUNCTION_NAME, reply.text, start)
        return _call(reply, name[1], name.end(), tags)

    return read


def param_tags(reply: ReplyText, start: int) -> Calls:
    """Read a name and `<param name="KEY">VALUE</param>...`, between `<function name=` and `</function>`."""
    name = match_at(_INVOKE_NAME, reply.text, start)
    return _call(reply, name["key"], name.end(), _PARAM)


def pair_call(before: str, key: str, value: str, after: str, separator: str = "") -> Reader:
    """Return a reader of `NAME<KEY>...</KEY><VALUE>...</VALUE>...`, between the places of `before` and `after`.

    Args:
        before: Text at the start of a call.
        key: Tag of a key, such as `arg_key`.
        value: Tag of a value.
        after: Text after the last argument.
        separator: Text after the name.
    """
    opening = re.compile(rf"<{key}>(?P<key>[^<>]*+)</{key}>\s*+<{value}>")
    tags = _Tags(before, opening, f"</{value}>", after)

    def read(reply: ReplyText, start: int) -> Calls:
        name = match_at(_NAME, reply.text, start)
        return _call(reply, name[1], expect(separator, reply.text, name.end()), tags)

    return read


def solar_call(reply: ReplyText, start: int) -> Calls:
    """Read `NAME`, and arguments between the tokens of Solar Open 2, up to the place of `<|tool_call:end|>`."""
    name = match_at(_NAME, reply.text, start)
    return _call(reply, name[1], name.end(), _SOLAR_ARGUMENT)


def invoke_calls(prefix: str) -> Reader:
    """Return a reader of `<invoke name="NAME"><parameter name="KEY">VALUE</parameter>...</invoke>`, several in a row.

    Tag names start with `prefix`. An argument with `string="true"` is text, with `string="false"` JSON. One JSON object
    can replace all arguments.
    """
    opening = re.compile(rf"\s*+<{prefix}invoke\s++name={_NAMED}\s*+>")
    parameter = re.compile(rf"<{prefix}parameter\s++name={_NAMED}{_STRING}\s*+>")
    tags = _Tags(f"<{prefix}invoke", parameter, f"</{prefix}parameter>", f"</{prefix}invoke>")

    def read_arguments(reply: ReplyText, name: str, start: int) -> Calls:
        body = skip(reply.text, start)
        if reply.text.startswith(("{", "["), body):
            value, end = decoded(reply.text, body)
            return Calls([new_call(name, value)], end)
        return _call(reply, name, start, tags)

    return _calls_in_a_row(opening, read_arguments, tags.after)


def _calls_in_a_row(
    opening: re.Pattern[str], read_arguments: Callable[[ReplyText, str, int], Calls], closing: str
) -> Reader:
    """Return a reader of calls that follow each other; `opening` has the group `key`, the name of the tool."""

    def read(reply: ReplyText, start: int) -> Calls:
        calls: list[ToolCall] = []
        while (match := opening.match(reply.text, start)) is not None:
            try:
                call, end = read_arguments(reply, match["key"], match.end())
                start = expect(closing, reply.text, end)
            except NoCallError:
                break
            calls += call
        return some_calls(calls, start)

    return read


def _k3_call(reply: ReplyText, escaped_name: str, start: int) -> Calls:
    name = html.unescape(escaped_name)
    block = _K3_JSON.match(reply.text, start)
    if block is None:
        return _call(reply, name, start, _K3_ARGUMENT)
    value, end = decoded(reply.text, skip(reply.text, block.end()))
    return Calls([new_call(name, value)], expect("<|close|>json<|sep|>", reply.text, end))


kimi_k3_calls = _calls_in_a_row(_K3_CALL, _k3_call, _K3_ARGUMENT.after)
"""Reader of `<|open|>call tool="NAME" index="1"<|sep|>...<|close|>call<|sep|>`, several in a row.

The arguments are typed elements, or one JSON object.
"""


# Arguments


class _Argument(NamedTuple):
    """One argument: the match of its opening tag, and its text."""

    tag: re.Match[str]
    text: str


def _call(reply: ReplyText, name: str, start: int, tags: _Tags) -> Calls:
    """Return the call whose arguments start at a place, and the place of the text after the arguments."""
    arguments, end = _arguments(reply, start, tags)
    root = reply.schemas.get(name, {})
    values: dict[str, object] = {}
    for tag, text in arguments:
        key = tags.key_of(tag["key"].strip())
        kind = tag.groupdict().get("type")
        schema = schema_of(key, root)
        if kind is not None:
            schema = _DECLARED.get(kind, {})
        values[key] = typed(text, schema, root)
    return Calls([new_call(name, values)], end)


def _arguments(reply: ReplyText, at: int, tags: _Tags) -> tuple[list[_Argument], int]:
    """Return the arguments that start at a place, and the place of the text that must follow the last argument.

    An argument without a closing tag ends at the next argument.

    Raises:
        NoCallError: The last argument is not closed, or other text follows.
    """
    # An argument can contain the opening of another call. To stay linear, text is copied only after all arguments are
    # well formed, and failed places are recorded.
    text, kind = reply.text, tags.closing + tags.after
    ends = _value_ends(reply, tags)
    borders: list[tuple[re.Match[str], int]] = []
    places: list[int] = []
    at = skip(text, at)
    while (tag := tags.opening.match(text, at)) is not None:
        border = None
        if not reply.is_dead(kind, at):
            border = ends.get(at)
        if border is None:
            reply.has_open_value = True
            reply.bury(kind, places)
            raise NoCallError
        borders.append((tag, border[0]))
        at = skip(text, border[1])
        places.append(at)
    # Well-formed tags can belong to a call that does not end.
    if not text.startswith(tags.after, at) or reply.is_dead(kind, at):
        reply.bury(kind, places)
        raise NoCallError
    reply.passed += [(kind, place) for place in places]
    reply.charge(sum([end - tag.end() for tag, end in borders]))
    return [_Argument(tag, tags.value_of(text[tag.end() : end])) for tag, end in borders], at


_Borders: TypeAlias = dict[int, tuple[int, int]]
"""End of the value, and start of the text after it, by the place of the opening tag of an argument."""


def _value_ends(reply: ReplyText, tags: _Tags) -> _Borders:
    """Return the borders of all arguments in a reply, without the arguments that have no end."""
    borders: _Borders | None = reply.memory.get(tags)
    if borders is None:
        borders = reply.memory[tags] = _matched_tags(reply, tags)
    return borders


def _matched_tags(reply: ReplyText, tags: _Tags) -> _Borders:
    """Match the tags of all arguments in one pass over a reply.

    A value can contain tags: they are matched as brackets. A closing tag of the outermost argument is text if neither
    another argument nor the end of the call follows.
    """
    text = reply.text
    token = re.compile(rf"(?:{tags.opening.pattern})|(?P<closing>{re.escape(tags.closing)})")
    following = re.compile(rf"\s*+(?:{tags.opening.pattern}|{re.escape(tags.after)})")
    keys = _parameter_names(reply.schemas)
    borders: _Borders = {}
    opened: list[re.Match[str]] = []
    unmatched: list[re.Match[str]] = []
    for match in token.finditer(text):
        if match["closing"] is None:
            if not unmatched or _starts_argument(text, match, keys):
                opened.append(match)
                unmatched.append(match)
        elif len(unmatched) > 1 or (unmatched and following.match(text, match.end())):
            borders[unmatched.pop().start()] = (match.start(), match.end())
    # An argument that is not closed ends at the next argument of its call.
    for tag, after in pairwise(opened):
        start = tag.end()
        # An argument that is cut can quote a call: the next argument belongs to the quoted call.
        is_other_call = any(text.find(mark, start, after.start()) >= 0 for mark in (tags.before, tags.after))
        if tag.start() not in borders and not is_other_call:
            end = after.start()
            value_end = end - text.endswith("\n", start, end)
            borders[tag.start()] = (value_end, end)
    return borders


def _starts_argument(text: str, tag: re.Match[str], keys: frozenset[str]) -> bool:
    """True if a tag in a value can be an argument: it starts a line, or names a parameter of a tool."""
    return not keys or text[tag.start() - 1] == "\n" or tag["key"].strip() in keys


def _parameter_names(schemas: Schemas) -> frozenset[str]:
    """Return the names of the parameters of all tools; an empty set if a tool accepts other names."""
    names: set[str] = set()
    for schema in schemas.values():
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or schema.get("additionalProperties"):
            return frozenset()
        names.update(properties)
    return frozenset(names)
