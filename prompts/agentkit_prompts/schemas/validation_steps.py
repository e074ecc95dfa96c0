"""The steps that validating a value may take: whatever the schema and the value are, it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

__all__ = ["StepsExceeded", "bounded", "counted", "multiplies", "nodes", "once", "within"]

V = TypeVar("V")
R = TypeVar("R")

_CHARS_PER_STEP = 16
_STEPS_OF_DEFINITION = 10
"""What one look at a definition of pydantic's takes: about that many times what a step of ours does."""
_SCALARS = frozenset({"any", "none", "bool", "int", "float", "str", "literal", "enum", "missing-sentinel"})


_NO_SCHEMAS = frozenset({"metadata", "serialization", "default", "function", "cls", "config", "expected"})
"""Keys of a core schema below which there are no schemas that judge values."""


class StepsExceeded(Exception):
    """Validating was given up. It passes through every union, because it is not a ValueError."""


class _Steps:
    """The steps of one validation, and what was refused in it."""

    __slots__ = ("left", "refused")

    def __init__(self, limit: int) -> None:
        self.left = limit
        self.refused: dict[tuple[str, int], Any] = {}
        """The value for every definition and id of a value: the id is taken as long as the value is kept."""

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise StepsExceeded("validating takes too many steps: fewer alternatives, or shorter values, need fewer")


_now: ContextVar[_Steps | None] = ContextVar("agentkit_validation_steps", default=None)


def within(limit: int, validate: Callable[[V], R], value: V) -> R:
    """Return `validate(value)`, which may take so many steps.

    Raises:
        StepsExceeded: It takes more.
    """
    token = _now.set(_Steps(limit))
    try:
        return validate(value)
    finally:
        _now.reset(token)


def counted(schema: CoreSchema, alternatives: int = 1, *, required: int = 0) -> CoreSchema:
    """Return a schema that takes steps for each of its alternatives, more for what is long.

    An object takes another one for each of its `required` properties that it cannot have: pydantic notes every one.
    """

    def count(value: Any) -> Any:
        steps = _now.get()
        if steps is not None:
            length = len(value) if isinstance(value, str | list | dict) else 0
            missing = max(0, required - length) if isinstance(value, dict) else 0
            steps.take(alternatives * (1 + length // _CHARS_PER_STEP) + missing)
        return value

    return core_schema.no_info_before_validator_function(count, schema)


def once(schema: CoreSchema, reference: str, *, keep: bool) -> CoreSchema:
    """Return the definition `reference`, which refuses the same value only once with all its reasons.

    Args:
        schema: What it defines.
        reference: The name it is referred to by.
        keep: Whether a value comes out as it went in.
    """
    price = 1 if keep else _STEPS_OF_DEFINITION

    def check(value: Any, handler: Callable[[Any], Any]) -> Any:
        steps = _now.get()
        if steps is None:
            return handler(value)
        steps.take(price)
        key = (reference, id(value))
        if key in steps.refused:
            raise PydanticCustomError("refused", "does not fit here either")
        try:
            found = handler(value)
        except ValidationError:
            steps.refused[key] = value
            raise
        return value if keep else found

    return core_schema.no_info_wrap_validator_function(check, schema, ref=reference)


def bounded(schema: CoreSchema) -> CoreSchema:
    """Return a schema of pydantic's whose definitions, and unions of what holds other values, take steps.

    It accepts and refuses the same, with one exception: where it validates JSON, types that are strict want Python's
    form of a value in it.
    """
    return cast(CoreSchema, _Bounding().bound(schema))


class _Bounding:
    """Rebuilds one schema; parts that are shared stay shared."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}

    def bound(self, node: Any) -> Any:
        if isinstance(node, list | tuple):
            return type(node)([self.bound(item) for item in node])
        if not isinstance(node, dict):
            return node
        if id(node) not in self._made:
            self._made[id(node)] = (node, self._rebuilt(node))  # the node too: it keeps its id
        return self._made[id(node)][1]

    def _rebuilt(self, node: dict[str, Any]) -> Any:
        made: dict[str, Any] = {**node, **{key: self.bound(value) for key, value in _below(node)}}
        kind = node.get("type")
        if kind == "definitions":
            made["definitions"] = [_once(self.bound(one)) for one in node["definitions"]]
        elif _is_ambiguous(node):
            reference = made.pop("ref", None)
            made = {**counted(cast(CoreSchema, made), len(node["choices"]))}
            if reference is not None:
                made["ref"] = reference
        return made


def _once(definition: dict[str, Any]) -> CoreSchema:
    inner: Any = {key: value for key, value in definition.items() if key != "ref"}
    return once(inner, definition["ref"], keep=False)


def multiplies(schema: CoreSchema) -> bool:
    """Return whether a schema of pydantic's may look at a value more than once: a union of what holds others does."""
    return any(map(_is_ambiguous, nodes(schema)))


def _is_ambiguous(node: Mapping[str, Any]) -> bool:
    return node.get("type") == "union" and sum(map(_holds_others, node["choices"])) > 1


def _holds_others(choice: Any) -> bool:
    schema = choice[0] if isinstance(choice, tuple) else choice
    return schema.get("type") not in _SCALARS


def nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object in a core schema, once."""
    seen: dict[int, Any] = {}
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if id(node) not in seen:
                seen[id(node)] = node
                yield node
                is_schema = isinstance(node.get("type"), str)
                waiting += [value for key, value in node.items() if not (is_schema and key in _NO_SCHEMAS)]
        elif isinstance(node, list | tuple):
            waiting.extend(node)


def _below(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a schema, or a mapping of names to schemas, holds of schemas."""
    is_schema = isinstance(node.get("type"), str)
    for key, value in node.items():
        if not (is_schema and key in _NO_SCHEMAS):
            yield key, value
