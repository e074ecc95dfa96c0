"""Reads what the fields of a context are given; whatever is wrong is noted with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from operator import countOf
from typing import Any, TypeAlias, TypeVar, cast

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.frozen import ReadOnlyDict
from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.errors import ContextError, MessageError, Problem, Problems, PromptError, nearest

__all__ = [
    "NO_DATA",
    "NO_MESSAGES",
    "Reader",
    "items_of",
    "make_item",
    "one_of",
    "read_as",
    "read_conversation",
    "read_data",
    "read_names",
    "read_parts",
    "unknown",
]

Reader: TypeAlias = Callable[[Any, str, Problems], Any]
"""Returns a field's value made of what was given for it; adds what is wrong, with its place, to the problems."""
T = TypeVar("T")
NO_DATA = ReadOnlyDict()
NO_MESSAGES = Conversation()


def read_as(kind: Callable[[Any], T], value: Any, place: str, problems: Problems) -> T:
    """Return `kind(value)`, empty when the code of the value fails."""
    try:
        return kind(value)
    except Exception as error:
        problems.append(Problem(place, f"cannot be read: {type(error).__name__}: {error}"))
        return kind(())


def _plain_text(value: Any) -> Any:
    """Return text of another class as plain `str`, anything else as it is."""
    return str.__str__(value) if isinstance(value, str) else value


def _listed(value: Any, place: str, what: str, problems: Problems) -> list[Any]:
    """Return the items of a sequence; an empty one for anything else."""
    if not isinstance(value, str | bytes | bytearray | Mapping) and isinstance(value, Iterable):
        return read_as(list, value, place, problems)
    problems.append(Problem(place, f"expected a sequence of {what}, got {type(value).__name__}"))
    return []


def unknown(name: object, names: Iterable[str]) -> str:
    """Return what is wrong with the name of a field that there is not."""
    if not isinstance(name, str):
        return f"names must be str, got {type(name).__name__}"
    return f"unknown field {name[:64]!r}{nearest(name, names)}"


def make_item(kind: type, given: Mapping[Any, Any], place: str, problems: Problems, also: Sequence[str] = ()) -> Any:
    """Make an item of a mapping of its fields; `also` are other names of some."""
    data = read_as(dict, given, place, problems)
    known = {item.name: item for item in fields(kind)}
    names = [*known, *also]
    problems += [Problem(place, unknown(name, names)) for name in data if name not in names]
    required = [name for name, item in known.items() if item.default is MISSING is item.default_factory]
    problems += [Problem(f"{place}.{name}", "missing") for name in required if name not in data]
    filled: dict[str, Any] = dict.fromkeys(required, "")
    try:
        return kind(**filled | {name: data[name] for name in data if name in names})
    except ContextError as error:
        problems += [Problem(f"{place}.{at}" if at else place, what) for at, what in error.problems]
    except PromptError as error:
        problems.append(Problem(place, str(error)))
    return None


def items_of(kind: type, from_text: bool = False) -> Reader:
    """Return what reads items of one kind, which may be given as mappings of their fields."""
    what = f"{kind.__name__}, mapping or str" if from_text else f"{kind.__name__} or mapping"

    def read(value: Any, place: str, problems: Problems) -> tuple[Any, ...]:
        if type(value) is tuple and countOf(map(type, value), kind) == len(value):
            return value
        made: list[Any] = []
        for index, item in enumerate(_listed(value, place, kind.__name__, problems)):
            if isinstance(item, kind):
                made.append(item)
            elif isinstance(item, str) and from_text:
                made.append(kind(item))
            elif isinstance(item, Mapping):
                made.append(make_item(kind, item, f"{place}[{index}]", problems))
            else:
                problems.append(Problem(f"{place}[{index}]", f"expected {what}, got {type(item).__name__}"))
        return tuple(made)

    return read


def read_names(value: Any, place: str, problems: Problems) -> tuple[str, ...]:
    """Return names."""
    names = tuple([_plain_text(name) for name in _listed(value, place, "names", problems)])
    problems += [
        Problem(f"{place}[{at}]", unknown(name, ())) for at, name in enumerate(names) if not isinstance(name, str)
    ]
    return names


def read_conversation(value: Any, place: str, problems: Problems, *, allow_media: bool = False) -> Conversation:
    """Return messages of ours, or in the form of a provider, as a conversation; `allow_media` as `read_messages`."""
    if type(value) is Conversation:
        return value
    from agentkit_prompts.context.wire.read_messages import read_messages

    try:
        return Conversation(read_messages(value, where=place, allow_media=allow_media))
    except MessageError as error:
        problems += error.problems
    except Exception as error:
        problems.append(Problem(place, f"cannot be read: {type(error).__name__}: {error}"))
    return NO_MESSAGES


def read_parts(value: Any, place: str, problems: Problems) -> str | tuple[Part, ...]:
    """Return text as it is, anything else as parts."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Text | Media):
        return (cast(Part, value),)
    parts: list[Any] = []
    for index, part in enumerate(_listed(value, place, "parts, or text", problems)):
        if not isinstance(part, str | Text | Media):
            problems.append(Problem(f"{place}[{index}]", f"expected text or a content part, got {type(part).__name__}"))
        parts.append(Text(part) if isinstance(part, str) else part)
    return tuple(parts)


def read_data(value: Any, place: str, problems: Problems) -> ReadOnlyDict:
    """Return a mapping of names, read-only."""
    if type(value) is ReadOnlyDict:
        return value
    if type(value) is dict:
        data = ReadOnlyDict(value)
    elif isinstance(value, Mapping):
        data = read_as(ReadOnlyDict, value, place, problems)
    else:
        problems.append(Problem(place, f"expected a mapping of names to values, got {type(value).__name__}"))
        return NO_DATA
    if countOf(map(type, data), str) != len(data):
        problems += [Problem(place, unknown(name, ())) for name in data if not isinstance(name, str)]
    return data or NO_DATA


def one_of(kind: type) -> Reader:
    """Return what reads a value of one kind, or None."""

    def read(value: Any, place: str, problems: Problems) -> Any:
        if value is not None and not isinstance(value, kind):
            problems.append(Problem(place, f"expected {kind.__name__} or None, got {type(value).__name__}"))
        return _plain_text(value)

    return read
