"""Calls whose arguments stand between tags, each as plain text: Qwen3-Coder, GLM-4.5, MiniMax-M2, DeepSeek V3.2.

The text of an argument says nothing of its type, unless its tag does: a parameter of the tool that takes text gets it
as it is, any other is read as JSON, or as Python writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from agentkit_prompts.chat_templates.tool_calls.json_calls import decoded
from agentkit_prompts.chat_templates.tool_calls.python_calls import python_value
from agentkit_prompts.chat_templates.tool_calls.reply_text import Found, Reader, ReplyText, made_call, skip
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.schemas.check import target_in
from agentkit_prompts.schemas.json_values import is_json, kind_of_json

__all__ = ["function_tag", "glm_call", "invoke_calls", "parameter_tags", "typed"]

_FUNCTION = re.compile(r"\s*+<function=")
_FUNCTION_NAME = re.compile(r"\s*+([\w.:/-]++)\s*+>")
_PARAMETER = re.compile(r"\s*+<parameter=(?P<key>[^<>\n]++)>")
_NAME = re.compile(r"\s*+([\w.:/-]++)\s*+")
_KEY = re.compile(r"\s*+<arg_key>(?P<key>[^<>]*+)</arg_key>\s*+<arg_value>")
_NAMED = r"""(?P<quote>["']?)(?P<key>[^<>"'\n]++)(?P=quote)"""
_STRING = r"""(?:\s++string=(?P<mark>["']?)(?P<string>true|false)(?P=mark))?"""
_MAX_DEPTH = 20
"""References that are followed to the type of a parameter."""
_ANY = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))


def function_tag(reply: ReplyText, start: int) -> Found:
    """Read `<function=NAME><parameter=KEY>VALUE</parameter>...</function>`."""
    opening = _FUNCTION.match(reply.text, start)
    found = opening and parameter_tags(reply, opening.end())
    if not found:
        return None
    end = skip(reply.text, found[1])
    return (found[0], end + len("</function>")) if reply.text.startswith("</function>", end) else None


def parameter_tags(reply: ReplyText, start: int) -> Found:
    """Read what stands behind `<function=`, up to where `</function>` has to stand."""
    named = _FUNCTION_NAME.match(reply.text, start)
    found = named and _tagged(reply, named.end(), _PARAMETER, "</parameter>", "</function>")
    if not named or not found:
        return None
    return _call(reply, named[1], [(tag, _unbroken(text)) for tag, text in found[0]], found[1])


def glm_call(reply: ReplyText, start: int) -> Found:
    """Read `NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>...`, up to where `</tool_call>` has to stand."""
    named = _NAME.match(reply.text, start)
    found = named and _tagged(reply, named.end(), _KEY, "</arg_value>", "</tool_call>")
    return _call(reply, named[1], *found) if named and found else None


def invoke_calls(prefix: str) -> Reader:
    """Return what reads `<invoke name="NAME"><parameter name="KEY">VALUE</parameter>...</invoke>`, several in a row.

    The names of the tags begin with `prefix`. With `string="true"` an argument is its text, with `string="false"` it
    is JSON. One JSON object may stand in the place of all arguments.
    """
    opening = re.compile(rf"\s*+<{prefix}invoke\s++name={_NAMED}\s*+>")
    parameter = re.compile(rf"\s*+<{prefix}parameter\s++name={_NAMED}{_STRING}\s*+>")
    closing, behind = f"</{prefix}parameter>", f"</{prefix}invoke>"

    def one(reply: ReplyText, named: re.Match[str]) -> Found:
        body = skip(reply.text, named.end())
        if (whole := decoded(reply.text, body)) is not None:
            call = made_call(named["key"], whole[0])
            return None if call is None else ([call], whole[1])
        tagged = _tagged(reply, named.end(), parameter, closing, behind)
        return tagged and _call(reply, named["key"], [(tag, _unbroken(text)) for tag, text in tagged[0]], tagged[1])

    def read(reply: ReplyText, start: int) -> Found:
        calls: list[ToolCall] = []
        while (named := opening.match(reply.text, start)) and (found := one(reply, named)):
            end = skip(reply.text, found[1])
            if not reply.text.startswith(behind, end):
                break
            calls += found[0]
            start = end + len(behind)
        return (calls, start) if calls else None

    return read


_Tagged: TypeAlias = "list[tuple[re.Match[str], str]]"
"""What opened each argument, and its text."""


def _unbroken(text: str) -> str:
    """Return the text of an argument without the line breaks that set it apart from its tags."""
    return text.removeprefix("\n").removesuffix("\n")


def _tagged(
    reply: ReplyText, at: int, opening: re.Pattern[str], closing: str, behind: str
) -> tuple[_Tagged, int] | None:
    """Return the text of each argument, and where the last one ends: there `behind` has to stand.

    An argument may hold what opens another call. So no text is copied before all of it is known to be well formed, and
    a place from where it is not is noted.
    """
    text, kind = reply.text, closing + behind
    given: list[tuple[re.Match[str], int]] = []
    places: list[int] = []
    while (opened := opening.match(text, at)) is not None:
        end = -1 if reply.is_dead(kind, at) else reply.find(closing, opened.end())
        if end < 0:
            reply.bury(kind, places)
            return None
        given.append((opened, end))
        at = end + len(closing)
        places.append(at)
    is_closed = text.startswith(behind, skip(text, at))
    if not is_closed or reply.is_dead(kind, at):
        reply.bury(kind, places)
        return None
    reply.passed += [(kind, place) for place in places]
    return [(opened, text[opened.end() : end]) for opened, end in given], at


def _call(reply: ReplyText, name: str, tagged: _Tagged, end: int) -> Found:
    root = reply.schemas.get(name, {})
    properties = root.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    other = root.get("additionalProperties", {})
    values: dict[str, object] = {}
    for opened, text in tagged:
        given = opened.groupdict()
        key, is_string = given["key"].strip(), given.get("string")
        schema = {"type": "string"} if is_string == "true" else {} if is_string == "false" else known.get(key, other)
        values[key] = typed(text, schema, root)
    call = made_call(name, values)
    return None if call is None else ([call], end)


def typed(text: str, schema: object, root: Mapping[str, Any]) -> object:
    """Return the value that a text is for a parameter of this schema."""
    kinds = frozenset(_kinds(schema, root, set())) or _ANY
    if kinds == {"string"}:
        return text
    inner = text.strip()
    found = _value(inner)
    if found is None:
        return text
    value = found[0]
    fits = type(value) is not str and any(is_json(value, kind) for kind in kinds)
    if "string" in kinds:  # 007 and 1.50 are texts where text is allowed, 7 is a number
        is_exact = isinstance(value, list | dict) or json.dumps(value) == inner
        return value if fits and is_exact else text
    return value


def _value(text: str) -> tuple[object] | None:
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return python_value(text)


def _kinds(schema: object, root: Mapping[str, Any], seen: set[int], depth: int = 0) -> Iterator[str]:
    """Yield the JSON types that a schema allows, as far as that can be seen; each schema in it is looked at once."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        yield from _ANY
        return
    if id(schema) in seen:
        return
    seen.add(id(schema))
    reference, kind = schema.get("$ref"), schema.get("type")
    options = [option for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list) for option in schema[key]]
    if isinstance(reference, str) and reference.startswith("#/"):
        yield from _kinds(target_in(root, reference), root, seen, depth + 1)
    elif isinstance(kind, str | list):
        yield from [kind] if isinstance(kind, str) else [one for one in kind if isinstance(one, str)]
    elif isinstance(values := schema.get("enum", [schema["const"]] if "const" in schema else None), list):
        for value in values:
            yield kind_of_json(value)
    elif options:
        for option in options:
            yield from _kinds(option, root, seen, depth + 1)
    elif isinstance(parts := schema.get("allOf"), list) and len(parts) == 1:
        yield from _kinds(parts[0], root, seen, depth + 1)
    else:
        yield from _ANY
