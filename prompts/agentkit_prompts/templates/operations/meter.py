"""Limits of one run of a template. Work is charged in steps, so that the same input always gets the same answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, thread_time
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from agentkit_prompts.templates.operations.costs import COSTS, cost
from agentkit_prompts.templates.operations.values import Fault, Nothing, TooMuchWork, Undefined

__all__ = ["DEFAULT", "Limits", "Meter", "has_chosen_hash"]

_CHARS_PER_STEP = 16
_STEPS_BETWEEN_CLOCKS = 50_000
_CALL = 10
"""Steps of calling anything at all."""
_SECONDS_BETWEEN_CLOCKS = 0.005
_MAX_CALL_DEPTH = 100
_MAX_NESTING = 100
_OURS = "agentkit_prompts."
_COLLIDES = (1 << 61) - 1  # whole numbers from here on have hashes that were chosen by whoever chose them
_SCALARS = frozenset({bool, float, type(None)})
_QUICK = _SCALARS | {int, str}
_KEYS = _SCALARS | {str}
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset, *_VIEWS)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one run of a template may do.

    One step is about one node of the template evaluated, 16 characters or one element handled: some 50 ns.
    """

    output_chars: int = 4_000_000
    """Characters of text it may produce; also the longest string it may make on the way."""
    steps: int = 1_250_000
    """Steps of work: a loop over 10,000 documents whose body has 60 nodes passes, a nested-loop bomb does not."""
    seconds: float = 2.0
    """CPU time of the thread. A backstop of `steps` for slow properties and iterators of the caller's own objects;
    every round of a loop looks at it."""


DEFAULT = Limits()
_Container = TypeVar("_Container", list[Any], tuple[Any, ...], dict[Any, Any])


def has_chosen_hash(value: object) -> bool:
    """Tell whether many values with the hash of this one can be looked for beforehand: it is no secret."""
    return isinstance(value, _CONTAINERS) or (isinstance(value, int) and not -_COLLIDES < value < _COLLIDES)


class Meter:
    """What one run has used of its limits."""

    __slots__ = ("depth", "end", "gate", "left", "levels", "limits", "look_at")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.left = limits.steps
        self.gate = limits.steps - _STEPS_BETWEEN_CLOCKS if limits.steps > _STEPS_BETWEEN_CLOCKS else 0
        self.end = 0.0
        self.depth = 0
        self.look_at = 0.0
        self.levels: dict[int, tuple[int, object]] = {}

    def charge(self, steps: int) -> None:
        """Take steps off what is left.

        Raises:
            Fault: There are not that many, or the time is over.
        """
        self.left -= steps
        if self.left < self.gate:
            self._check()

    def _check(self) -> None:
        if self.left < 0:
            raise TooMuchWork(f"the template does too much work: more than {self.limits.steps:,} steps")
        self.tick()
        self.gate = max(0, self.left - _STEPS_BETWEEN_CLOCKS)

    def tick(self) -> None:
        """Look at the clock: called where code of the caller's own objects runs, which steps cannot foresee."""
        now = thread_time()
        if not self.end:
            self.end = now + self.limits.seconds
        elif now > self.end:
            raise Fault(f"the template takes too long: more than {self.limits.seconds} s")

    def look(self) -> None:
        """Look at the clock and at what is left: a round of a loop does so when `look_at` is over."""
        if self.left < 0:
            self._check()
        self.tick()
        self.look_at = monotonic() + _SECONDS_BETWEEN_CLOCKS

    def pay(self, name: str, *operands: Any, **keywords: Any) -> None:
        """Charge what a row of the table of costs takes at worst for these operands."""
        self.charge(_CALL + cost(name, operands, keywords))

    def walk(self, name: str, *values: Any) -> None:
        """Charge what a row of the table of costs does with every value that is nested in these."""
        if COSTS[name].walks:
            getattr(self, COSTS[name].walks)(*values)

    def chars(self, count: int) -> None:
        """Charge a string of `count` characters that is about to be made or searched."""
        if count > self.limits.output_chars:
            self.too_long(count)
        self.charge(1 + count // _CHARS_PER_STEP)

    def too_long(self, count: int) -> NoReturn:
        """Refuse a text of `count` characters."""
        raise Fault(f"the template makes a text of {count:,} characters: more than {self.limits.output_chars:,}")

    def enter(self) -> None:
        """Start a macro or a recursive loop."""
        self.depth += 1
        if self.depth > _MAX_CALL_DEPTH:
            raise Fault(f"macros or recursive loops nest deeper than {_MAX_CALL_DEPTH}")
        self.charge(40)

    def items(self, value: object, weight: int = 1) -> Sequence[Any]:
        """Return what a loop over `value` visits, `weight` steps charged for each item.

        Raises:
            Fault: It is not iterable, has no fixed order, or never ends.
        """
        kind = type(value)
        if kind is tuple or kind is list or kind is range:
            self.left -= weight * len(value) + 2  # type: ignore[arg-type]
            if self.left < self.gate:
                self._check()
            return value  # type: ignore[return-value]
        if kind is dict or kind is MappingProxyType:
            self.charge(weight * len(value) + (len(value) >> 3) + 2)  # type: ignore[arg-type]
            return list(value)  # type: ignore[call-overload,no-any-return]
        if isinstance(value, Undefined):
            return () if kind is Nothing else value.fail()
        if isinstance(value, str):
            self.charge(weight * len(value) + 2)
            return str.__str__(value)
        if isinstance(value, set | frozenset):
            raise Fault(f"a {kind.__name__} has no fixed order: sort it first, with `|sort`")
        if isinstance(value, bytes | bytearray | memoryview):
            raise Fault(f"{kind.__name__} is not text: decode it before it gets here")
        if isinstance(value, Mapping) or hasattr(kind, "__len__"):
            self.charge(max(weight, 2) * len(value) + 2)  # type: ignore[arg-type]
            if kind.__module__.startswith(_OURS):
                return list(value)  # type: ignore[call-overload,no-any-return]
            weight = 1
        elif not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
            raise Fault(f"{kind.__name__} cannot be looped over: expected a list, a mapping or text")
        return list(self._charged(value, weight))  # type: ignore[arg-type]

    def _charged(self, value: Iterable[Any], weight: int) -> Iterator[Any]:
        for item in value:
            self.charge(weight)
            self.tick()
            yield item

    def nest(self, made: _Container) -> _Container:
        """Return a container that was just made, when no value in it nests too deeply.

        Hashing, comparing and printing recurse in C, where too many levels are the end of the process.
        """
        for item in made.values() if type(made) is dict else made:
            if isinstance(item, _CONTAINERS):
                self._level(made, 1)
                break
        return made

    def _level(self, value: Any, above: int) -> int:
        """Return how many levels a container has; they are kept for the run, and the container with them."""
        known = self.levels.get(id(value))
        if known is None:
            if above > _MAX_NESTING:
                self._too_deep()
            self.charge(40 + 3 * len(value))
            inner = 0
            for item in value.values() if isinstance(value, dict) else value:
                if isinstance(item, _CONTAINERS):
                    inner = max(inner, self._level(item, above + 1))
            known = self.levels[id(value)] = (inner + 1, value)
        if known[0] + above > _MAX_NESTING + 1:
            self._too_deep()
        return known[0]

    def _too_deep(self) -> NoReturn:
        raise Fault(f"a value nests deeper than {_MAX_NESTING} levels of lists, tuples and mappings")

    def measure(self, *values: object) -> None:
        """Charge every node of nested containers that are about to be compared, hashed or sorted.

        Raises:
            Fault: They are more than is left, or nest so deeply that hashing them is not safe.
        """
        level: list[Any] = [values]
        for _ in range(_MAX_NESTING + 4):  # what is measured may stand in a list of keys, or of arguments
            inner: list[Any] = []
            for value in level:
                self.charge(18 + 2 * len(value))
                if isinstance(value, dict):
                    self.keys(value)
                steps = 0
                for item in value.values() if isinstance(value, dict) else value:
                    kind = type(item)
                    if kind is str:
                        steps += len(item) >> 8
                    elif kind is int:
                        if not -_COLLIDES < item < _COLLIDES:
                            steps += 1_000 + (item.bit_length() >> 10)
                    elif kind not in _SCALARS:
                        if isinstance(item, _CONTAINERS):
                            inner.append(item)
                        elif isinstance(item, str):
                            steps += len(item) >> 8
                self.charge(steps)
            if not inner:
                return
            level = inner
        self._too_deep()

    def sort(self, keys: list[Any]) -> None:
        """Charge the sorting of values: each is compared as often as their number has binary digits."""
        before = self.left
        self.measure(keys, keys)
        self.charge((before - self.left) * len(keys).bit_length() // 4)

    def hash(self, keys: Sequence[Any]) -> None:
        """Charge what becomes the keys of a mapping or a set."""
        self.measure(keys)
        self.keys(keys)

    def keys(self, keys: Collection[Any]) -> None:
        """Charge finding each of some keys among the others, whose hashes may all be the same."""
        if not _KEYS.issuperset(map(type, keys)) and any(map(has_chosen_hash, keys)):
            self.charge(len(keys) ** 2 // 4)

    def search(self, value: object, items: Sequence[Any]) -> None:
        """Charge the comparing of a value with each of `items`."""
        kind = type(value)
        if kind is str:
            self.charge((len(value) >> 8) * len(items))  # type: ignore[arg-type]
        elif isinstance(value, _CONTAINERS):
            self.measure(value, items)
        elif kind not in _QUICK or not _QUICK.issuperset(map(type, items)):  # such as a Decimal, or the caller's own
            self.charge(60 * len(items))
            self.tick()

    def key(self, value: object, size: int) -> None:
        """Charge the hashing of a value, and finding it among `size` others whose hashes may all be the same."""
        self.measure(value)
        if has_chosen_hash(value):
            self.charge(size)
