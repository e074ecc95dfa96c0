"""Readers of the fields of a context. They record all problems with their places, instead of raising the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from operator import countOf
from typing import Any, TypeAlias, cast

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.frozen import ReadOnlyDict, plain_text
from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.context.trusted import NEVER_TRUSTED, Trusted
from agentkit_prompts.errors import ContextError, MessageError, Problem, Problems, PromptError, kind_of
from agentkit_prompts.hints import option_hint
from agentkit_prompts.limits import MAX_NAME_CHARS
from agentkit_prompts.lists import is_list
from agentkit_prompts.names import nearest

Reader: TypeAlias = Callable[[Any, str, Problems], Any]
"""Function of an input value, its place, and a list of problems. It returns the value of the field, and adds the
problems of the input value to the list."""
NO_DATA = ReadOnlyDict()
NO_MESSAGES = Conversation()
_FIELDS = {
    "Document": "documents",
    "Example": "examples",
    "Fact": "knowledge",
    "Message": "conversation",
    "RecalledMessage": "recalled",
    "Skill": "skills",
    "ToolSpec": "tools",
}
"""Fields of a context, by the classes of their items."""


def _items(value: Any, place: str, expected: str, problems: Problems) -> list[Any]:
    """Return the items of an iterable; empty, with a problem, for text, a mapping or any other value."""
    if is_list(value):
        return list(value)
    problems.append(Problem(place, f"expected a sequence of {expected}, got {kind_of(value)}"))
    return []


def unknown_field(place: str, name: object, names: Iterable[str], class_name: str = "PromptContext") -> Problem:
    """Return the problem of the unknown field `name` in the value at `place`; `names` are the fields of its class."""
    if not isinstance(name, str):
        return Problem(place, f"names must be str, got {type(name).__name__}")
    hint = option_hint(class_name, name)
    if hint is not None:
        return Problem(_inner(place, name), f"unknown field; use {hint}")
    return Problem(_inner(place, name[:MAX_NAME_CHARS]), f"unknown field{nearest(name, names)}")


def _inner(place: str, name: str) -> str:
    """Return the place of the field `name` of the value at `place`; both can be empty."""
    return ".".join([step for step in (place, name) if step])


def make_item(
    item_class: type, values: Mapping[Any, Any], place: str, problems: Problems, aliases: Sequence[str] = ()
) -> Any:
    """Create an item from a mapping of its fields, or return None and add its problems to `problems`.

    `aliases` are other names of arguments that the class accepts.
    """
    names = [*[field.name for field in fields(item_class)], *aliases]
    problems += [unknown_field(place, name, names, item_class.__name__) for name in values if name not in names]
    data = {name: value for name, value in values.items() if name in names}
    for name in [field.name for field in fields(item_class) if field.default is MISSING is field.default_factory]:
        if name not in data:
            problems.append(Problem(f"{place}.{name}", "missing"))
            # With a placeholder the class can check the other fields, so that all problems are reported.
            data[name] = ""
    try:
        return item_class(**data)
    except ContextError as error:
        problems += [Problem(_inner(place, problem.place), problem.text) for problem in error.problems]
    except PromptError as error:
        problems.append(Problem(place, str(error)))
    return None


@dataclass(frozen=True)
class ItemsReader:
    """Reader of a sequence of items of one class; an item can be a mapping of its fields."""

    kind: type
    from_text: bool = False
    """True if an item can be passed as text, the value of its first field."""
    from_other: Callable[[object], Any] | None = None
    """Converter of an item of another library, which returns None for any other value; None if no item is converted."""

    def read(self, value: Any, place: str, problems: Problems) -> tuple[Any, ...]:
        """Return the items of a value; a `Reader`."""
        # Fast path: most turns pass the documents of the previous turn.
        if type(value) is tuple and countOf(map(type, value), self.kind) == len(value):
            return value
        items = _items(value, place, self.kind.__name__, problems)
        return tuple([self._item(item, f"{place}[{index}]", problems) for index, item in enumerate(items)])

    def _item(self, item: Any, place: str, problems: Problems) -> Any:
        if isinstance(item, self.kind):
            return item
        if isinstance(item, str) and self.from_text:
            return self.kind(item)
        if isinstance(item, Mapping):
            return make_item(self.kind, item, place, problems)
        if self.from_other is not None:
            try:
                converted = self.from_other(item)
            except ContextError as error:
                problems += [Problem(_inner(place, problem.place), problem.text) for problem in error.problems]
                return None
            if converted is not None:
                return converted
        kinds = f"{self.kind.__name__} or mapping"
        if self.from_text:
            kinds = f"{self.kind.__name__}, mapping or str"
        name = type(item).__name__
        advice = ""
        # Other libraries have classes with the same names.
        if name in _FIELDS and name != self.kind.__name__:
            advice = f"; use {_FIELDS[name]}=[...]"
        problems.append(Problem(place, f"expected {kinds}, got {kind_of(item)}{advice}"))
        return None


def read_names(value: Any, place: str, problems: Problems) -> tuple[str, ...]:
    """Return names as a tuple of plain `str`; any other item is a problem."""
    names: list[str] = []
    for index, name in enumerate(_items(value, place, "names", problems)):
        if isinstance(name, str):
            names.append(plain_text(name))
        else:
            problems.append(Problem(f"{place}[{index}]", f"names must be str, got {type(name).__name__}"))
    return tuple(names)


def read_conversation(value: Any, place: str, problems: Problems, *, allow_media: bool = False) -> Conversation:
    """Return a conversation of messages of this library or of a provider; `allow_media` as in `read_messages`."""
    if type(value) is Conversation:
        return value
    # Imported here, because programs that pass a `Conversation` need no reader of wire forms.
    from agentkit_prompts.context.wire.read_messages import read_messages

    try:
        return Conversation(read_messages(value, where=place, allow_media=allow_media))
    except MessageError as error:
        problems += error.problems
    return NO_MESSAGES


read_conversation_with_media: Reader = partial(read_conversation, allow_media=True)


def read_parts(value: Any, place: str, problems: Problems) -> str | tuple[Part, ...]:
    """Return text as plain `str`, and a part or an iterable of parts as a tuple."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        _refuse_trusted(value, place, problems)
        return plain_text(value)
    if isinstance(value, Text | Media):
        return (cast(Part, value),)
    parts: list[Any] = []
    for index, part in enumerate(_items(value, place, "parts, or text", problems)):
        if isinstance(part, str):
            _refuse_trusted(part, f"{place}[{index}]", problems)
            parts.append(Text(plain_text(part)))
        elif isinstance(part, Text | Media):
            parts.append(part)
        else:
            reason = f"expected text or a content part, got {type(part).__name__}"
            problems.append(Problem(f"{place}[{index}]", reason))
    return tuple(parts)


def _refuse_trusted(text: str, place: str, problems: Problems) -> None:
    if type(text) is Trusted:
        problems.append(Problem(place, NEVER_TRUSTED))


def read_data(value: Any, place: str, problems: Problems) -> ReadOnlyDict:
    """Return a mapping of names to values as a read-only dict."""
    # The same object instead of a copy, because `compose` caches by identity.
    if type(value) is ReadOnlyDict:
        return value
    # A check of an abstract class is slow, and most programs pass a dict.
    if not isinstance(value, (dict, Mapping)):
        problems.append(Problem(place, f"expected a mapping of names to values, got {type(value).__name__}"))
        return NO_DATA
    for name in value:
        if not isinstance(name, str):
            problems.append(Problem(place, f"names must be str, got {type(name).__name__}"))
    return ReadOnlyDict(value) if value else NO_DATA


def one_of(kind: type) -> Reader:
    """Return a reader that accepts a value of one type, or None."""

    def read(value: Any, place: str, problems: Problems) -> Any:
        if value is not None and not isinstance(value, kind):
            problems.append(Problem(place, f"expected {kind.__name__} or None, got {kind_of(value)}"))
        if isinstance(value, str):
            _refuse_trusted(value, place, problems)
            return plain_text(value)
        return value

    return read
