"""Walk through nested data: mappings, lists and tuples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["iter_nodes"]


def iter_nodes(value: Any) -> Iterator[Any]:
    """Yield a value and all values inside it, but not the keys of mappings.

    A mapping, list or tuple is yielded once, even if it is at several places or contains itself.
    """
    seen: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping | list | tuple):
            if id(node) in seen:
                continue
            # Keeps the container alive: another object could get its id otherwise.
            seen[id(node)] = node
            waiting.extend(node.values() if isinstance(node, Mapping) else node)
        yield node
