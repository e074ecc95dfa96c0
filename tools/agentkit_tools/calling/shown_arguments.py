"""The arguments of a call as lines of text, for the person who approves the call."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from agentkit_prompts.templates.unseen_characters import UNSEEN

_HIDDEN = re.compile(rf"{UNSEEN}|[\x85\u2028\u2029\ue000-\uf8ff\U000f0000-\U0010ffff]")
"""Characters that are invisible, end a line, change the order of the text, or differ between fonts."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*+")
_MAX_WHOLE = 240
"""Characters of a value that is shown whole on its line."""
_SHOWN_ENDS = 100
"""Characters at the start and at the end of a value that is cut."""
_MAX_PATH = 240
"""Characters of the path of an object or list that gets a line for each item: each line repeats the path."""
_MAX_LEVELS = 40
"""Levels of objects and lists that get a line for each item. Deeper values, and values with a longer path, are shown
whole on one line."""


class RepeatedNameError(ValueError):
    """An object of a JSON text has the same name twice, so that two readers can read two different values."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class _Object(list[tuple[str, Any]]):
    """The members of a JSON object, also members with the same name."""


def check_unique_names(text: str) -> None:
    """Refuse JSON text with an object that has the same name twice, in any spelling. Accept text that is not JSON.

    Raises:
        RepeatedNameError: The name that occurs twice.
    """
    try:
        _loaded(text, _unique)
    except RepeatedNameError:
        raise
    except (ValueError, RecursionError):
        return


def visible_json(value: Any) -> str:
    """Return a value as one line of JSON text, with escapes for invisible characters.

    Raises:
        TypeError, ValueError, RecursionError: The value has no JSON form.
    """
    text = _HIDDEN.sub(_escape, json.dumps(value, ensure_ascii=False))
    if text.isprintable():
        return text
    # Unicode reserves characters without a meaning, and programs show some of them as nothing.
    return "".join([character if character.isprintable() else _escaped(character) for character in text])


def argument_lines(text: str, *, is_whole: bool = False) -> list[str]:
    """Return the arguments of a call as lines `name: value`.

    All names and all short values are whole. A long object or list gets a line for each item, such as `to.name: "Ada"`
    or `items[2]: 7`. A long text is cut in the middle, with the number of its characters. Control characters, invisible
    characters and line ends are escaped, so that a value cannot look like another line.

    Args:
        text: JSON text of the arguments. If an object has the same name twice, both values are shown.
        is_whole: True to cut no value.
    """
    try:
        value = _loaded(text, _Object)
    except (ValueError, RecursionError):
        return [f"not JSON: {_shown_value(text, is_whole=is_whole)}"]
    if not isinstance(value, _Object):
        return [f"not an object: {_shown_value(value, is_whole=is_whole)}"]
    return [line for name, item in value for line in _lines(_shown_name(name), item, 1, is_whole=is_whole)]


def _lines(path: str, value: Any, level: int, *, is_whole: bool) -> Iterator[str]:
    if not isinstance(value, list) or level > _MAX_LEVELS or len(path) > _MAX_PATH:
        yield f"{path}: {_shown_value(value, is_whole=is_whole or isinstance(value, list))}"
        return
    json_text = _json_of(value)
    if len(json_text) <= _MAX_WHOLE:
        yield f"{path}: {json_text}"
    elif isinstance(value, _Object):
        for name, item in value:
            yield from _lines(f"{path}.{_shown_name(name)}", item, level + 1, is_whole=is_whole)
    else:
        for index, item in enumerate(value):
            yield from _lines(f"{path}[{index}]", item, level + 1, is_whole=is_whole)


def _shown_name(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    # In quotes: a name with a dot, a colon or a line end could look like another name.
    return visible_json(name)


def _shown_value(value: Any, *, is_whole: bool) -> str:
    json_text = _json_of(value)
    if is_whole or len(json_text) <= _MAX_WHOLE:
        return json_text
    return f"{json_text[:_SHOWN_ENDS]} ... {json_text[-_SHOWN_ENDS:]} (cut: {len(json_text):,} characters)"


def _json_of(value: Any) -> str:
    """Return JSON text of a loaded value. An object with the same name twice keeps both."""
    if isinstance(value, _Object):
        return "{" + ", ".join([f"{visible_json(name)}: {_json_of(item)}" for name, item in value]) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([_json_of(item) for item in value]) + "]"
    if isinstance(value, _Number):
        return value
    return visible_json(value)


class _Number(str):
    """A number, as the JSON text spells it: a conversion could round it."""

    __slots__ = ()


def _loaded(text: str, object_of: Any) -> Any:
    return json.loads(
        text, object_pairs_hook=object_of, parse_int=_Number, parse_float=_Number, parse_constant=_Number, strict=False
    )


def _unique(members: list[tuple[str, Any]]) -> None:
    names: set[str] = set()
    for name, _ in members:
        if name in names:
            raise RepeatedNameError(name)
        names.add(name)


def _escape(match: re.Match[str]) -> str:
    if match[0] == " ":
        return " "
    return _escaped(match[0])


def _escaped(character: str) -> str:
    # The escapes of JSON: two of them for a character above U+FFFF.
    return json.dumps(character)[1:-1]
