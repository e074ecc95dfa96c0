"""The steps that validating one call may take: whatever its schema and its arguments are, it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from pydantic import ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

__all__ = ["MAX_STEPS", "QUICK_STEPS", "StepsExceeded", "bounded", "counted", "has_own_code", "limited", "once"]

QUICK_STEPS = 10_000
"""Steps that are taken where the call is made; those that need more are validated in a thread."""
MAX_STEPS = 1_000_000
_CHARS_PER_STEP = 16
_KNOWN_CODE = frozenset({"agentkit_tools", "builtins", "pydantic", "pydantic_core"})


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
            raise StepsExceeded("validating takes too many steps: fewer alternatives, or shorter arguments, need fewer")


_now: ContextVar[_Steps | None] = ContextVar("agentkit_tools_validation_steps", default=None)


@contextmanager
def limited(limit: int) -> Iterator[None]:
    """Let a validation inside take so many steps.

    Raises:
        StepsExceeded: It takes more.
    """
    token = _now.set(_Steps(limit))
    try:
        yield
    finally:
        _now.reset(token)


def counted(schema: CoreSchema, alternatives: int = 1) -> CoreSchema:
    """Return a schema that takes steps for each of its alternatives, more for what is long."""

    def count(value: Any) -> Any:
        steps = _now.get()
        if steps is not None:
            length = len(value) if isinstance(value, str | list | dict) else 0
            steps.take(alternatives * (1 + length // _CHARS_PER_STEP))
        return value

    return core_schema.no_info_before_validator_function(count, schema)


def once(schema: CoreSchema, reference: str, *, keep: bool) -> CoreSchema:
    """Return the definition `reference`, which refuses the same value only once with all its reasons.

    Args:
        schema: What it defines.
        reference: The name it is referred to by.
        keep: Whether a value comes out as it went in.
    """

    def check(value: Any, handler: Callable[[Any], Any]) -> Any:
        steps = _now.get() or _Steps(MAX_STEPS)
        steps.take(1)
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


def bounded(schema: CoreSchema) -> CoreSchema | None:
    """Return a schema of pydantic's whose definitions take steps; None when nothing can multiply them: alternatives
    of a union that lead to definitions.
    """
    whole: Any = schema
    if whole.get("type") != "definitions" or not _multiplies(whole):
        return None
    definitions = []
    for definition in whole["definitions"]:
        inner: Any = {key: value for key, value in definition.items() if key != "ref"}
        definitions.append(once(inner, definition["ref"], keep=False))
    return core_schema.definitions_schema(whole["schema"], definitions)


def _multiplies(schema: Mapping[str, Any]) -> bool:
    for node in _nodes(schema):
        if node.get("type") == "union":
            leading = [one for one in node["choices"] if any(map(_is_reference, _nodes(one)))]
            if len(leading) > 1:
                return True
    return False


def _is_reference(node: Mapping[str, Any]) -> bool:
    return node.get("type") == "definition-ref"


def has_own_code(schema: CoreSchema) -> bool:
    """Return whether validating runs functions that are not pydantic's, which may take any time."""
    for node in _nodes(schema):
        function = node.get("function")
        code = function.get("function") if isinstance(function, Mapping) else None
        while isinstance(code, partial):
            code = code.func
        module = getattr(code, "__module__", None) or type(code).__module__
        if code is not None and module.partition(".")[0] not in _KNOWN_CODE:
            return True
    return False


def _nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object in a core schema."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(value for key, value in node.items() if key not in ("metadata", "serialization", "default"))
        elif isinstance(node, list | tuple):
            waiting.extend(node)
