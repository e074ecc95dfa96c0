"""Groups of values that a schema cannot distinguish, such as all items of the lists at one place.

A list of 10,000 objects with ten properties has twelve groups: the cost of its validation is computed as fast as the
cost for one object.
"""

from __future__ import annotations

from collections.abc import Collection
from math import frexp
from typing import Any, NamedTuple, TypeVar

from agentkit_prompts.limits import MAX_VALUES

CHARS_PER_UNIT = 100
"""Number of characters of a text that count as one more value."""
_MAX_GROUPS = 50_000
"""Maximum number of groups of one value; a group takes up to ten microseconds."""

_MAX_CHEAP = 1 << 64
_BITS_PER_UNIT = 150

K = TypeVar("K")


def number_units(number: float) -> int:
    """Return the number of values that a number counts as. A large number counts as many, because the library converts
    and divides it digit by digit.
    """
    bits = number.bit_length() if isinstance(number, int) else abs(frexp(number)[1])
    return (bits // _BITS_PER_UNIT) ** 2


class TooManyGroupsError(ValueError):
    """A value has too many groups, or too many values."""


class Places(NamedTuple):
    """Places that the schemas of a document distinguish."""

    names: Collection[str]
    """Names of properties whose values form a group of each name; all other properties form one group."""
    longest_prefix: int
    """Index before which the items of each index form a group; later items form one group."""
    with_names: bool
    """True if the names of properties form a group, because a schema is applied to them."""


class ValueGroup:
    """The values at one place.

    Attributes:
        count: Number of the values.
        containers: Number of the values that are objects or lists.
        size: Number of the values, plus the units for long texts and large numbers.
        largest: Size of the largest value, without its parts.
        max_per_value: Maximum number of values of the group in one value of the outer group.
        properties: Groups of the values of properties, by name; None is the key of all properties without a schema.
        items: Groups of items, by index; None is the key of the items after the longest prefix.
        names: Group of the names of properties; None if no schema is applied to them.
    """

    __slots__ = ("containers", "count", "items", "largest", "max_per_value", "names", "properties", "size", "values")

    def __init__(self, max_per_value: int, values: list[Any]) -> None:
        self.values = values
        self.max_per_value = max_per_value
        self.containers, self.count, self.size, self.largest = 0, 0, 0, 1
        self.properties: dict[str | None, ValueGroup] = {}
        self.items: dict[int | None, ValueGroup] = {}
        self.names: ValueGroup | None = None

    @property
    def parts(self) -> list[ValueGroup]:
        """The groups inside this group."""
        inner = [*self.properties.values(), *self.items.values()]
        if self.names is not None:
            inner.append(self.names)
        return inner

    def divide(self, places: Places) -> None:
        """Measure the values, and create the groups of their parts."""
        objects: list[dict[str, Any]] = []
        lists: list[list[Any]] = []
        texts: list[str] = []
        numbers: list[float] = []
        for value in self.values:
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, dict):
                objects.append(value)
            elif isinstance(value, list):
                lists.append(value)
            elif value is not None and not -_MAX_CHEAP < value < _MAX_CHEAP:
                numbers.append(value)
        self._measure([len(text) // CHARS_PER_UNIT for text in texts], [*map(number_units, numbers)])
        self.containers = len(objects) + len(lists)
        self._divide_objects([value for value in objects if value], places)
        self._divide_lists([value for value in lists if value], places)
        # The values are released, because the inner groups contain their parts.
        self.values = []

    def _measure(self, *units: list[int]) -> None:
        self.count = len(self.values)
        self.size = self.count + sum(map(sum, units))
        self.largest = 1 + max([max(some, default=0) for some in units])

    def _divide_objects(self, objects: list[dict[str, Any]], places: Places) -> None:
        max_per_value = max(map(len, objects), default=0)
        for value in objects:
            for name, inner in value.items():
                if name in places.names:
                    _add(self.properties, name, 1, [inner])
                else:
                    _add(self.properties, None, max_per_value, [inner])
        if objects and places.with_names:
            self.names = ValueGroup(max_per_value, [name for value in objects for name in value])

    def _divide_lists(self, lists: list[list[Any]], places: Places) -> None:
        max_per_value = max(map(len, lists), default=0)
        for value in lists:
            for index, item in enumerate(value[: places.longest_prefix]):
                _add(self.items, index, 1, [item])
            _add(self.items, None, max_per_value, value[places.longest_prefix :])


def _add(groups: dict[K, ValueGroup], key: K, max_per_value: int, values: Any) -> None:
    if key in groups:
        groups[key].values += values
    elif values:
        groups[key] = ValueGroup(max_per_value, [*values])


def grouped(value: Any, places: Places) -> list[ValueGroup]:
    """Return the groups of a value and of all values inside it, outer groups first.

    Raises:
        TooManyGroupsError: The value has too many groups, or too many values.
    """
    groups = [ValueGroup(1, [value])]
    count = 0
    for group in groups:
        count += len(group.values)
        if count > 2 * MAX_VALUES or len(groups) > _MAX_GROUPS:
            raise TooManyGroupsError
        group.divide(places)
        groups += group.parts
    return groups
