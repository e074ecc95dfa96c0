"""Walk through nested data: mappings, lists and tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from agentkit_prompts.errors import brief
from agentkit_prompts.limits import MAX_DEPTH, MAX_NAME_CHARS

T = TypeVar("T")


def values_in(container: Any) -> Iterable[Any]:
    """Return the values of a mapping, or the items of a list or tuple."""
    if isinstance(container, Mapping):
        return container.values()
    return cast("Iterable[Any]", container)


def iter_nodes(value: Any, inner: Callable[[Any], Iterable[Any]] = values_in) -> Iterator[Any]:
    """Yield a value and all values inside it in the order of the data, but not the keys of mappings.

    A mapping, list or tuple is yielded once, even if it is at several places or contains itself.

    Args:
        value: The data.
        inner: Function that returns the values to visit inside a mapping, list or tuple; by default all values.
    """
    return _walk(value, lambda node: node, inner)


class PlacedNode(NamedTuple):
    """A value inside nested data."""

    value: Any
    place: str
    """Path of the value, such as `a.b[2]`. Long keys are shortened."""
    depth: int
    """Number of containers around the value."""


def iter_placed_nodes(value: Any, place: str = "") -> Iterator[PlacedNode]:
    """Yield a value and all values inside it with their places, in the order of the data.

    A container is yielded once. The values of a container that is inside more than `MAX_DEPTH` containers are not
    yielded, because the length of a place grows with its depth.
    """
    return _walk(PlacedNode(value, place, 0), lambda node: node.value, _inner_nodes)


def _inner_nodes(node: PlacedNode) -> Iterator[PlacedNode]:
    """Yield the values of the container in a node, with their places."""
    container, place, depth = node
    if depth > MAX_DEPTH:
        return
    if isinstance(container, Mapping):
        for key, value in container.items():
            name = _shown_key(key)
            yield PlacedNode(value, f"{place}.{name}" if place else name, depth + 1)
    else:
        for index, value in enumerate(container):
            yield PlacedNode(value, f"{place}[{index}]", depth + 1)


def _shown_key(key: object) -> str:
    """Return a key as a step of a path."""
    if isinstance(key, str):
        return key[:MAX_NAME_CHARS]
    return brief(key, MAX_NAME_CHARS)


def _walk(first: T, value_of: Callable[[T], Any], inner: Callable[[Any], Iterable[T]]) -> Iterator[T]:
    """Yield nodes, each before the nodes inside it.

    Args:
        first: The outermost node.
        value_of: Function that returns the value of a node.
        inner: Function that returns the nodes inside a node whose value is a container.
    """
    seen: dict[int, Any] = {}
    # Iterators instead of lists of nodes, because such lists could be as long as the data.
    open_containers = [iter((first,))]
    while open_containers:
        for node in open_containers[-1]:
            value = value_of(node)
            if not isinstance(value, Mapping | list | tuple):
                yield node
            elif id(value) not in seen:
                # Keep the container alive, so that no other object gets its id.
                seen[id(value)] = value
                yield node
                open_containers.append(iter(inner(node)))
                break
        else:
            open_containers.pop()
