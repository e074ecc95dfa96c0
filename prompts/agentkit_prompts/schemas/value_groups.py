"""Groups of values that a schema cannot distinguish: the items of all lists at one place, the properties of one name.

A list of 10,000 objects with ten properties has twelve groups, so its cost is computed as fast as the cost of one
object.
"""

from __future__ import annotations

from collections.abc import Collection
from math import frexp
from typing import Any, NamedTuple, TypeVar

from agentkit_prompts.limits import MAX_VALUES

__all__ = ["CHARS_PER_UNIT", "Places", "TooManyGroupsError", "ValueGroup", "grouped", "number_units"]

CHARS_PER_UNIT = 100
"""Characters of a text that count as another value."""
_MAX_GROUPS = 50_000
"""Maximum number of groups of one value; a group needs up to ten microseconds."""

_MAX_CHEAP = 1 << 64
_BITS_PER_UNIT = 150

K = TypeVar("K")


def number_units(number: float) -> int:
    """Return the number of values that a number counts as: the library converts and divides large numbers digit by
    digit.
    """
    bits = number.bit_length() if isinstance(number, int) else abs(frexp(number)[1])
    return (bits // _BITS_PER_UNIT) ** 2


class TooManyGroupsError(ValueError):
    """A value has too many groups that a schema can distinguish."""


class Places(NamedTuple):
    """Places that the schemas of a document distinguish."""

    names: Collection[str]
    """Properties whose values have a group for each name."""
    longest_prefix: int
    """Items before this index have a group for each index."""
    with_names: bool
    """True to create a group of the names of properties."""


class ValueGroup:
    """The values at one place.

    Attributes:
        count: Number of the values.
        containers: Number of the values that are objects or lists.
        size: Number of the values, and units of their characters and digits.
        largest: The size of the largest value, without its parts.
        max_per_value: Maximum number of values of the group in one value of the outer group.
        properties: Name -> values of that property; None -> values of all properties that no schema names.
        items: Index -> items; None -> items that belong to no prefix.
        names: The names of properties, as texts, if a schema is applied to them.
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
        # The values are not needed any more, because the next groups contain their parts.
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
    """Return the groups of a value with all values inside it, each before the groups inside it.

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
