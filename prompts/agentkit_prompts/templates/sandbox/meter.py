"""Limits of one rendering of a Jinja template, for prompt templates and chat templates."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from time import thread_time
from typing import Any, NamedTuple

from jinja2.utils import Namespace

from agentkit_prompts.limits import MAX_DEPTH, MAX_VALUES
from agentkit_prompts.templates.sandbox.faults import Fault, LimitReached

__all__ = [
    "CHAT_LIMITS",
    "DEFAULT",
    "MAX_INT_BITS",
    "ROUNDS_PER_LOOK",
    "VIEWS",
    "Limits",
    "Meter",
    "SharedLimits",
    "Size",
    "join_output",
    "refuse_large",
]

MAX_INT_BITS = 8192
"""Bits of an integer."""
_MAX_INT_DIGITS = 2466  # of a number with that many bits
_MAX_COLLIDING_KEYS = 1_000
"""Keys whose hashes an attacker can choose. Finding one of them may compare it with all others."""
_FIRST_CHOSEN_HASH = 1 << 60
"""Numbers from here on can have the same hash: Python reduces them modulo 2**61 - 1."""
_WIDE = 1 << 64
_BITS_PER_CHAR = 1_024
"""Square of bits of a large number that counts as one character: writing its digits takes quadratic time."""
_CHARS_PER_ITEM = 8
"""Characters that an item of a new list counts as: the size of a reference."""
_TOO_LARGE = "a value is too large: its parts are counted as often as they are contained"
_LARGE = 1_000
"""Characters or items that take long enough to look at the clock."""
ROUNDS_PER_LOOK = 64
"""Rounds of a loop, or small operations, between two looks at the clock."""
_CHARS_PER_VALUE = 6
"""Characters of a short value in the text of a list, such as `None, `."""
VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset, *VIEWS, Namespace)
_TEXTS = (str, bytes)
_SCALARS = frozenset({bool, float, type(None)})


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum work of one rendering.

    C code cannot be interrupted. So the clock is read between operations, and the size of what a single operation reads
    or makes is limited before it runs.
    """

    rounds: int = 500_000
    """Rounds of all loops together, and items that filters visit."""
    output_chars: int = 4_000_000
    """Characters of the output, and of any single text."""
    text_chars: int = 48_000_000
    """Characters of all intermediate texts together; an item of a new list counts as 8."""
    seconds: float = 0.7
    """CPU time of the thread. One operation that cannot be interrupted can take half a second more."""


DEFAULT = Limits()
CHAT_LIMITS = Limits(output_chars=8_000_000)
"""Limits of a chat template: a context of some million tokens passes."""


class Size(NamedTuple):
    """Size of a nested value, with a value that is contained twice counted twice."""

    values: int
    chars: int
    depth: int
    """Levels of containers; 0 for a text."""

    @property
    def written(self) -> int:
        """Characters of its text, as far as they are known: also the signs and the indent around each value."""
        if not self.depth:
            return self.chars
        return self.chars + self.values * (_CHARS_PER_VALUE + self.depth)


def _too_long(chars: int, max_chars: int) -> Fault:
    return Fault(f"the template makes a text of {chars:,} characters: more than {max_chars:,}")


def join_output(texts: Collection[str], max_chars: int) -> str:
    """Join the parts of an output: the same long text can be many of them, and all together longer than the memory.

    Raises:
        Fault: The output is longer than `max_chars`.
    """
    length = sum(map(len, texts))
    if length > max_chars:
        raise _too_long(length, max_chars)
    return "".join(texts)


def refuse_large(*numbers: Any) -> None:
    """Refuse integers that are so large that arithmetic or printing takes long."""
    for number in numbers:
        if isinstance(number, int) and number.bit_length() > MAX_INT_BITS:
            raise Fault(f"the number is too large: it has more than {MAX_INT_BITS:,} bits")
        if isinstance(number, Decimal) and number.is_finite() and number.adjusted() > _MAX_INT_DIGITS:
            raise Fault(f"the number is too large: it has more than {_MAX_INT_DIGITS:,} digits")


class Meter:
    """Work of one rendering, counted against its limits.

    Attributes:
        rounds: Rounds that are left.
        chars: Characters of intermediate texts that are left.
    """

    __slots__ = ("_calls", "_end", "_level", "chars", "limits", "rounds")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.rounds = limits.rounds
        self.chars = limits.text_chars
        self._end: float | None = None
        self._calls = 0
        self._level = 0

    @property
    def seconds(self) -> float:
        """CPU time that is left."""
        return self.limits.seconds if self._end is None else self._end - thread_time()

    def look(self) -> None:
        """Check the clock. It starts here: most templates have no loop, and reading it takes as long as a name."""
        now = thread_time()
        if self._end is None:
            self._end = now + self.limits.seconds
        if now >= self._end:
            raise LimitReached(f"the template takes too long: more than {self.limits.seconds} s of CPU time")

    def tick(self) -> None:
        """Count a small operation; check the clock after some of them."""
        self._calls += 1
        if self._calls >= ROUNDS_PER_LOOK:
            self._calls = 0
            self.look()

    def visit(self, count: int) -> None:
        """Count rounds of a loop, or items that an operation visits, before that happens."""
        self.rounds -= count
        if self.rounds < 0:
            raise LimitReached(f"the template does too much work: more than {self.limits.rounds:,} rounds and items")
        # Loops with more rounds than that look at the clock between them, too.
        self._calls += count
        if self._calls >= ROUNDS_PER_LOOK:
            self._calls = 0
            self.look()

    def make(self, chars: int) -> None:
        """Count an intermediate text, before it is made if its length is known."""
        if chars > self.limits.output_chars:
            raise _too_long(chars, self.limits.output_chars)
        self._use(chars)

    def make_small(self, chars: int) -> None:
        """Count a text that is short in most cases."""
        self.chars -= chars
        self._calls += 1
        if chars > _LARGE or self._calls >= ROUNDS_PER_LOOK:
            self.chars += chars
            self._calls = 0
            self.make(chars)
            self.look()

    def join(self, texts: Collection[str]) -> str:
        """Return texts as one text, which is counted before it is made."""
        self.make(sum(map(len, texts)))
        return "".join(texts)

    def make_items(self, count: int, chars: int = _CHARS_PER_ITEM) -> None:
        """Count the items of a new list, each of which takes the memory of some characters."""
        self._use(count * chars)

    def _use(self, chars: int) -> None:
        self.chars -= chars
        if self.chars < 0:
            raise LimitReached(f"the template makes more than {self.limits.text_chars:,} characters on the way")
        if chars > _LARGE:
            self.look()

    def result(self, value: Any) -> Any:
        """Return a value that an operation made, after counting it."""
        if isinstance(value, str | bytes):
            self.make(len(value))
        elif isinstance(value, list | tuple):
            self.make_items(len(value))
        elif isinstance(value, int):
            refuse_large(value)
        return value

    def enter(self) -> None:
        """Start a macro, a recursive loop or a block."""
        self._level += 1
        if self._level > MAX_DEPTH:
            raise Fault(f"macros or recursive loops nest deeper than {MAX_DEPTH} levels")
        self.tick()

    def leave(self) -> None:
        """End what `enter` started."""
        self._level -= 1

    def deep(self, value: Any) -> Any:
        """Return a value that C code is about to walk through, after limiting its size; look before a long text."""
        if isinstance(value, _TEXTS):
            if len(value) > _LARGE:
                self.look()
        elif isinstance(value, _CONTAINERS):
            self.size(value)
        return value

    def size(self, value: Any) -> Size:
        """Return the size of a value.

        Values are counted as often as they are contained: C code that compares, hashes or writes a value does the same,
        and twenty lists can contain each other a million times.

        Raises:
            Fault: It is too large or nests too deeply.
        """
        if isinstance(value, str):
            return Size(1, len(value), 0)
        values = chars = depth = 0
        level: list[Any] = [(value,)]
        while level:
            inner: list[Any] = []
            for container in level:
                values += len(container)
                if values > MAX_VALUES:
                    raise Fault(_TOO_LARGE)
                chars += _scan(container, inner)
                if chars > self.limits.text_chars:
                    raise Fault(_TOO_LARGE)
            depth += 1
            if depth > MAX_DEPTH + 4 and inner:  # arguments and pairs of a mapping are levels too
                raise Fault(f"a value nests deeper than {MAX_DEPTH} levels")
            level = inner
        if values + chars > _LARGE:
            self.look()
        return Size(values, chars, depth)

    def keys(self, keys: Collection[Any]) -> None:
        """Check values that are about to become keys of one mapping or set."""
        self.deep(keys)
        if sum(map(_has_chosen_hash, keys)) > _MAX_COLLIDING_KEYS:
            raise Fault(f"more than {_MAX_COLLIDING_KEYS:,} keys are tuples or large numbers")

    def items(self, value: Iterable[Any]) -> list[Any]:
        """Return the items of an iterator, each counted before the next one is made."""
        listed: list[Any] = []
        for item in value:
            self.rounds -= 1
            self.make_items(1)
            self.tick()
            if self.rounds < 0:
                self.visit(0)
            listed.append(item)
        return listed


def _scan(container: Iterable[Any], inner: list[Any]) -> int:
    """Return the number of characters of the items of a container, and append the containers among them to `inner`."""
    chars = 0
    for item in container:
        kind = type(item)
        if kind is str:
            chars += len(item)
        elif kind is int:
            if not -_WIDE < item < _WIDE:
                chars += item.bit_length() ** 2 // _BITS_PER_CHAR
        elif kind in _SCALARS:
            continue
        elif isinstance(item, dict):
            inner += (item.keys(), item.values())
        elif isinstance(item, Namespace):
            inner.append(item._Namespace__attrs.values())
        elif isinstance(item, _CONTAINERS):
            inner.append(item)
        elif isinstance(item, str | bytes):
            chars += len(item)
    return chars


def _has_chosen_hash(key: Any) -> bool:
    """True if other keys with the same hash are easy to find: the hash of a text is a secret of the process."""
    if isinstance(key, int | float):
        return not -_FIRST_CHOSEN_HASH < key < _FIRST_CHOSEN_HASH
    return not isinstance(key, str | bytes | None)


class SharedLimits:
    """Limits that several small renderings use up together, with half of the time of one rendering."""

    def __init__(self, limits: Limits, output_chars: int | None = None) -> None:
        output_chars = limits.output_chars if output_chars is None else min(output_chars, limits.output_chars)
        self.left = replace(limits, output_chars=output_chars, seconds=limits.seconds / 2)
        """Limits of the next rendering."""

    def use(self, meter: Meter) -> None:
        """Subtract the work of a rendering that ended or failed."""
        seconds = max(0.0, meter.seconds)
        self.left = replace(self.left, rounds=max(0, meter.rounds), text_chars=max(0, meter.chars), seconds=seconds)
