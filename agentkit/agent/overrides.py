"""Replacement of objects in a `with` block and in all functions that the block calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar, cast

T = TypeVar("T")
_OVERRIDES: ContextVar[Mapping[int, tuple[Any, Any]]] = ContextVar("agentkit_overrides", default=MappingProxyType({}))
"""(original, replacement) by `id(original)`. The reference keeps the original alive, so that its id is not reused."""


@contextmanager
def overriding(original: T, replacement: T) -> Iterator[None]:
    """Make `overridden(original)` return the replacement inside a `with` block."""
    token = _OVERRIDES.set({**_OVERRIDES.get(), id(original): (original, replacement)})
    try:
        yield
    finally:
        _OVERRIDES.reset(token)


def overridden(original: T) -> T:
    """Return the current replacement of an object, or the object."""
    pair = _OVERRIDES.get().get(id(original))
    if pair is None:
        return original
    return cast(T, pair[1])
