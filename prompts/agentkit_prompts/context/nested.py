"""Walk through nested data: mappings, lists and tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from agentkit_prompts.limits import MAX_DEPTH

__all__ = ["PlacedNode", "iter_nodes", "iter_placed_nodes", "values_in"]


def values_in(container: Any) -> Iterable[Any]:
    """Return the values of a mapping, list or tuple."""
    if isinstance(container, Mapping):
        return container.values()
    return cast("Iterable[Any]", container)


def iter_nodes(value: Any, inner: Callable[[Any], Iterable[Any]] = values_in) -> Iterator[Any]:
    """Yield a value and all values inside it, but not the keys of mappings.

    A mapping, list or tuple is yielded once, even if it is at several places or contains itself.

    Args:
        value: The data.
        inner: Returns the values inside a mapping, list or tuple that are of interest.
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
            waiting.extend(inner(node))
        yield node


class PlacedNode(NamedTuple):
    """A value inside nested data."""

    value: Any
    place: str
    """Path of the value, such as `a.b[2]`."""
    depth: int
    """Number of containers around it."""


def iter_placed_nodes(value: Any, place: str = "") -> Iterator[PlacedNode]:
    """Yield a value and all values inside it with their places, in the order of the data.

    A container is yielded once. A container inside more than `MAX_DEPTH` others is not entered: its values would have
    places as long as the data is deep.
    """
    seen: dict[int, Any] = {}
    waiting = [PlacedNode(value, place, 0)]
    while waiting:
        node = waiting.pop()
        if isinstance(node.value, Mapping | list | tuple):
            if id(node.value) in seen:
                continue
            seen[id(node.value)] = node.value
            if node.depth <= MAX_DEPTH:
                waiting += reversed([*_inner_nodes(node)])
        yield node


def _inner_nodes(node: PlacedNode) -> Iterator[PlacedNode]:
    """Yield the values of a container."""
    _, place, depth = node
    if isinstance(node.value, Mapping):
        for key, value in node.value.items():
            yield PlacedNode(value, f"{place}.{key}" if place else str(key), depth + 1)
    else:
        for index, value in enumerate(node.value):
            yield PlacedNode(value, f"{place}[{index}]", depth + 1)
