"""What one rendering of an untrusted chat template may do: work, text and time, counted without threads.

Compiled templates call these wherever a value can grow, be walked or be printed; results are Jinja's own.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import replace
from time import monotonic
from typing import Any

from jinja2.utils import Namespace

from agentkit_prompts.templates.engine import Limits
from agentkit_prompts.templates.operations.meter import Meter, has_chosen_hash
from agentkit_prompts.templates.operations.operators import PERCENT, refuse_large, refuse_large_numbers, room_of
from agentkit_prompts.templates.operations.values import Fault

__all__ = ["CHAT_LIMITS", "OPERATORS", "Bounds", "SharedLimits"]

CHAT_LIMITS = Limits(output_chars=8_000_000, steps=1_000_000, seconds=3.0)
"""Limits of an untrusted chat template: a context of some million tokens passes."""

_MAX_FIELD = 10_000
_INSPECTED = 25
"""Steps of reading what may not be there: the sandbox tries both ways and makes an undefined value."""
_MAX_QUICK_SEARCH = 1 << 16
_MAX_STEPS_AHEAD = 10_000
"""Steps that are taken before they are charged."""
_MAX_WRITTEN = 250
"""Levels of a value that is written out: namespaces in lists count as more than one."""
_CONTAINERS = (list, tuple, dict, set, frozenset)
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_DIGITS = re.compile(r"\d{5,}")
_NESTED = re.compile(r"\{[^{}]*\{")


class Bounds(Meter):
    """What one rendering has used, with the guarded forms of what templates do to values."""

    __slots__ = ()

    clock = staticmethod(monotonic)
    """What a round of a loop looks at."""

    def text(self, value: Any) -> str:
        """Return what `{{ value }}` prints."""
        if type(value) is str:
            self.left -= 1 + (len(value) >> 4)
            if self.left < self.gate:
                self._check()
            return value
        self.weigh(value)
        return str(value)

    def printed(self, value: Any) -> Any:
        """Return a value that is about to be escaped and printed, charged."""
        self.weigh(value)
        return value

    def joined(self, values: tuple[Any, ...]) -> str:
        """Return `a ~ b ~ ...`."""
        texts = [self.text(value) for value in values]
        self.chars(sum(map(len, texts)))
        return "".join(texts)

    def concat(self, texts: Iterable[str]) -> str:
        """Return the text of a buffer."""
        kept = texts if isinstance(texts, list) else list(texts)
        total = sum(map(len, kept))
        if total > self.limits.output_chars:
            self.too_long(total)
        return "".join(kept)

    def grown(self, value: Any) -> Any:
        """Return a value that an expression just made, its size charged."""
        kind = type(value)
        if kind is str:
            size = len(value)
            if size > self.limits.output_chars:
                self.too_long(size)
            self.left -= size >> 4
            if self.left < self.gate:
                self._check()
        elif kind is list or kind is tuple:
            self.charge(len(value))
        elif isinstance(value, str | bytes):
            self.chars(len(value))
        elif kind is int:
            refuse_large(value.bit_length())
        return value

    def room(self, size: int) -> bool:
        """Charge a text of `size` characters that is about to be made; always true."""
        if size > self.limits.output_chars:
            self.too_long(size)
        self.left -= 4 + (size >> 4)
        if self.left < self.gate:
            self._check()
        return True

    def added(self, left: Any, right: Any) -> Any:
        """Return `left + right`."""
        if isinstance(left, str | bytes) and isinstance(right, str | bytes):
            self.room(len(left) + len(right))
            return left + right  # type: ignore[operator]
        refuse_large_numbers(left, right)
        self.pay("operator.+", left, right)
        made = left + right
        if type(made) is int:
            refuse_large(made.bit_length())
        return made

    def inspected(self, value: Any) -> Any:
        """Return a value of which the sandbox is asked for more than a key that it has, charged."""
        self.charge(_INSPECTED)
        return value

    def multiplied(self, left: Any, right: Any) -> Any:
        """Return `left * right`."""
        if isinstance(left, int) and isinstance(right, int):
            refuse_large(left.bit_length() + right.bit_length())
        else:
            count, value = (left, right) if isinstance(left, int) else (right, left)
            if isinstance(count, int) and isinstance(value, str | bytes):
                self.chars(len(value) * max(0, count))
        self.pay("operator.*", left, right)
        return left * right

    def raised(self, left: Any, right: Any) -> Any:
        """Return `left ** right`."""
        if isinstance(left, int) and isinstance(right, int):
            refuse_large(left.bit_length() * abs(right))
        self.pay("operator.**", left, right)
        return left**right

    def modulo(self, left: Any, right: Any) -> Any:
        """Return `left % right`: a remainder, or text with its `%` fields filled."""
        if isinstance(left, str):
            self.percent(left, right)
            return self.grown(left % right)
        refuse_large_numbers(left, right)
        self.pay("operator.%", left, right)
        return left % right

    def percent(self, template: str, values: Any) -> None:
        """Charge the filling of `%` fields, before it is done."""
        self.pay("operator.%", template, values)
        room = sum(map(room_of, PERCENT.finditer(template)))
        self.chars(room + template.count("%") * self.longest(values))

    def filled(self, template: str, args: tuple[Any, ...], kwargs: Any) -> None:
        """Charge the filling of `{}` fields, before it is done."""
        self.pay("str.format", template)
        if _DIGITS.search(template) or _NESTED.search(template.replace("{{", "")):
            raise Fault("the text to format has fields of a computed width, or wider than 9,999 characters")
        fields = template.count("{")
        self.chars(fields * (self.longest((args, kwargs)) + (_MAX_FIELD if ":" in template else 0)) if fields else 0)

    def longest(self, values: Any) -> int:
        """Return how many characters the longest of the values can take when it is written out."""
        if isinstance(values, str):
            return self.weigh(values)
        if isinstance(values, dict):
            return max((self.longest(value) for value in values.values()), default=0)
        return max(map(self.weigh, values), default=0) if isinstance(values, tuple) else self.weigh(values)

    def weigh(self, *values: Any) -> int:
        """Charge every node of values that are about to be written out, and return about how long that is."""
        level: list[Any] = [values]
        total = 0
        for _ in range(_MAX_WRITTEN):
            inner: list[Any] = []
            for container in level:
                self.charge(16 + 5 * len(container))
                steps = 0
                for item in container:
                    kind = type(item)
                    if kind is int:
                        bits = item.bit_length()
                        total += 2 + bits // 3
                        steps += bits * bits >> 17
                    elif item is None or kind is bool:
                        total += 24
                    elif kind is float:
                        total += 24
                        steps += 10
                    elif isinstance(item, str | bytes):
                        total += len(item)
                        steps += len(item) >> 4
                    elif isinstance(item, dict):
                        steps += 20
                        if steps > _MAX_STEPS_AHEAD:
                            self.charge(steps)
                            steps = 0
                        inner += (item.keys(), item.values())
                    elif isinstance(item, _CONTAINERS) or kind in _VIEWS:
                        steps += 8
                        inner.append(item)
                    elif isinstance(item, Namespace):
                        inner.append([item._Namespace__attrs])
                    else:
                        total += 24
                self.charge(steps)
                if total > self.limits.output_chars:
                    self.too_long(total)
            if not inner:
                return total
            level = inner
        raise Fault("a value nests too deeply to be written out")

    def weighed(self, value: Any) -> Any:
        """Return a value that is about to be compared or hashed, charged."""
        kind = type(value)
        if kind is str:
            self.charge(len(value) >> 8)
        elif kind is int:
            self.charge(value.bit_length() >> 10)
        elif isinstance(value, _CONTAINERS) or kind in _VIEWS:
            self.measure(list(value) if kind in _VIEWS else value)
        return value

    def looked_up(self, container: Any, value: Any) -> Any:
        """Return a key that is about to be looked up in a container, or among so many others, charged."""
        if has_chosen_hash(value):
            others = len(container) if isinstance(container, dict) else container
            self.key(value, others if isinstance(others, int) else 0)
        elif type(value) is str:
            self.charge(len(value) >> 8)
        elif type(value) is int:
            self.charge(value.bit_length() >> 10)
        return value

    def searched(self, container: Any, value: Any) -> Any:
        """Return a container in which a value is about to be looked for, charged."""
        kind = type(container)
        if type(value) is str:
            if kind is dict:
                return container
            if kind is str and (work := len(container) * len(value)) < _MAX_QUICK_SEARCH:
                self.charge(2 + (work >> 5))
                return container
        if isinstance(container, str | bytes):
            self.pay("operator.in", container, value)
        elif isinstance(container, dict | set | frozenset):
            self.key(value, len(container))
        elif isinstance(container, list | tuple) or kind in _VIEWS:
            self.pay("operator.in", container, value)
            self.walk("operator.in", value, container if isinstance(container, list | tuple) else list(container))
        elif kind is range:
            self.charge(1 if type(value) is int else 2 * len(container))
        elif not isinstance(container, Sized):
            return self._compared(value, container)
        return container

    def iterated(self, value: Any, weight: int) -> Any:
        """Return what a loop visits; one round of it costs `weight` steps."""
        try:
            size = len(value)
        except TypeError:
            return self._counted(value, weight)
        self.charge(weight * size + 4)
        return value

    def looked(self, steps: int = 0) -> bool:
        """Charge the condition of a loop and look at the clock when it is time to; always true."""
        if steps:
            self.charge(steps)
        if monotonic() > self.look_at:
            self.look()
        return True

    def _counted(self, value: Any, weight: int) -> Iterator[Any]:
        for item in value:
            self.charge(weight)
            yield item

    def _compared(self, value: Any, items: Iterable[Any]) -> Iterator[Any]:
        """Yield items that a value is compared with, each comparison charged before it is made."""
        for item in items:
            self.charge(4)
            self.walk("operator.in", value, (item,))
            yield item

    def listed(self, value: Any, weight: int = 1) -> Any:
        """Return an iterator as a list; anything with a size as it is."""
        visited = self.iterated(value, weight)
        return visited if visited is value else list(visited)


class SharedLimits:
    """Limits of several renderings of a template: they share the steps, and each may take the time and the text."""

    def __init__(self, limits: Limits, output_chars: int | None = None) -> None:
        self.left = limits
        """What the next rendering may do."""
        if output_chars is not None and output_chars < limits.output_chars:
            self.left = replace(limits, output_chars=output_chars)

    def use(self, bounds: Bounds) -> None:
        """Take off what a rendering used, whether it ended or failed."""
        self.left = replace(self.left, steps=max(0, bounds.left))


def _of_numbers(sign: str, run: Callable[[Any, Any], Any]) -> Callable[[Bounds, Any, Any], Any]:
    def worked_out(bounds: Bounds, left: Any, right: Any) -> Any:
        refuse_large_numbers(left, right)
        bounds.pay(f"operator.{sign}", left, right)
        return run(left, right)

    return worked_out


OPERATORS: dict[str, Callable[[Bounds, Any, Any], Any]] = {
    "*": Bounds.multiplied,
    "**": Bounds.raised,
    "%": Bounds.modulo,
    "//": _of_numbers("//", operator.floordiv),
    "-": _of_numbers("-", operator.sub),
}
"""The operators that are bounded before they run; `+` is `Bounds.added`."""
