"""Paths into a context, such as `documents[3].text` or `additional_kwargs['a, b']`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from itertools import starmap
from typing import Any, Final, NamedTuple

from agentkit_prompts.names import nearest, similar

KWARGS = "additional_kwargs"
ABSENT: Final = object()
"""The result for a path without a value; None is a value."""
_NAME = r"[^\W\d]\w*"
_ESCAPE = r"\\[\\'\"nrtxuU]"
_STEP = rf"""\.({_NAME})|\[(\d+)\]|\[('(?:[^'\\]|{_ESCAPE})*'|"(?:[^"\\]|{_ESCAPE})*")\]"""
_NEXT_STEP = re.compile(_STEP)
_PATH = re.compile(rf"({_NAME})((?:{_STEP})*)")


class ContextPath(tuple[str | int, ...]):
    """The steps of a path: names of fields and keys, and indices."""

    __slots__ = ()

    @property
    def root(self) -> str:
        """The first name."""
        return str(self[0])

    def is_below(self, other: ContextPath) -> bool:
        """True if the paths are equal, or the value at `other` contains the value at this path."""
        return self[: len(other)] == other

    def upto(self, length: int) -> ContextPath:
        """Return the path of the first `length` steps."""
        return ContextPath(self[:length])

    def value(self, names: Mapping[str, Any]) -> Any:
        """Return the value at the path, or `ABSENT`; `names` maps the names of the context to their values."""
        value: Any = names.get(self.root, ABSENT)
        for step in self[1:]:
            value = _inner(value, step)
        return value

    def __str__(self) -> str:
        text = self.root
        for step in self[1:]:
            if isinstance(step, str) and step.isidentifier():
                text += f".{step}"
            else:
                text += f"[{step!r}]"
        return text


def parse_path(text: str) -> ContextPath | None:
    """Return the path that a text spells, or None if the text is not a path.

    `user_input.additional_kwargs.x` is read as `additional_kwargs.x`.
    """
    match = _PATH.fullmatch(text)
    if match is None:
        return None
    steps: list[str | int] = [match[1]]
    try:
        steps += starmap(_step, _NEXT_STEP.findall(match[2]))
    # For example, an index has too many digits for Python, or an escape is incomplete.
    except (ValueError, SyntaxError):
        return None
    if steps[:2] == ["user_input", KWARGS]:
        del steps[0]
    return ContextPath(steps)


def _step(name: str, index: str, key: str) -> str | int:
    """Return the step that a match of `_NEXT_STEP` spells."""
    if name:
        return name
    if index:
        return int(index)
    text: str = ast.literal_eval(key)
    return text


def paths_of(pointer: str) -> list[ContextPath]:
    """Return the paths of the context values that text with a pointer shows; see `Segment.pointer`."""
    paths = [parse_path(pointer)]
    # The pointer of an expression lists the paths that it reads.
    if paths == [None]:
        paths = [parse_path(path) for path in pointer.split(", ")]
    return [path for path in paths if path is not None]


def _inner(value: Any, step: str | int) -> Any:
    """Return the item or the public field `step` of a value, or `ABSENT`; methods are not fields."""
    if isinstance(value, Mapping):
        return value.get(step, ABSENT)
    if isinstance(step, int):
        if not _is_list(value) or step >= len(value):
            return ABSENT
        return value[step]
    if step.startswith("_") or isinstance(value, Sequence):
        return ABSENT
    field = getattr(value, step, ABSENT)
    if callable(field):
        return ABSENT
    return field


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


class Advice(NamedTuple):
    """End of the message of an error about an unknown path."""

    text: str
    suggestion: str | None = None
    """The nearest valid path or name; None if no name is similar."""


def advice_for(path: ContextPath, names: Mapping[str, Any]) -> Advice:
    """Return advice that names the valid path nearest to an unknown path, whose first name must be valid."""
    outer = path.upto(1)
    while path.upto(len(outer) + 1).value(names) is not ABSENT:
        outer = path.upto(len(outer) + 1)
    step, value = str(path[len(outer)]), outer.value(names)
    if isinstance(value, Mapping | Sequence) and not value:
        return Advice(f": {outer} is empty")
    if _is_list(value):
        last = f"{outer}[{len(value) - 1}]"
        return Advice(f": {outer} has {len(value)} items; did you mean {last!r}?", last)
    valid = _steps_of(value)
    if not valid:
        return Advice(f": {outer} is {type(value).__name__}, which has no fields or items")
    return Advice(nearest(step, valid), similar(step, valid))


def _steps_of(value: Any) -> list[str]:
    """Return the keys of a mapping, or the names of the fields of a dataclass; other values have no steps."""
    if isinstance(value, Mapping):
        return [str(key) for key in value]
    if is_dataclass(value):
        return [name for name in dir(value) if _inner(value, name) is not ABSENT]
    return []
