"""What stands in the place of an object until the end of a block, for whatever is called in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar, cast

__all__ = ["overridden", "overriding"]

T = TypeVar("T")
_OVERRIDES: ContextVar[Mapping[int, tuple[Any, Any]]] = ContextVar("agentkit_overrides", default=MappingProxyType({}))
"""What stands in the place of which object, by its id: it is kept, as another one could have its id later."""


@contextmanager
def overriding(original: T, other: T) -> Iterator[None]:
    """Have `overridden(original)` return the other one until the end of the block."""
    token = _OVERRIDES.set({**_OVERRIDES.get(), id(original): (original, other)})
    try:
        yield
    finally:
        _OVERRIDES.reset(token)


def overridden(original: T) -> T:
    """Return what stands in the place of an object now: itself, outside of all blocks."""
    found = _OVERRIDES.get().get(id(original))
    return original if found is None else cast(T, found[1])
