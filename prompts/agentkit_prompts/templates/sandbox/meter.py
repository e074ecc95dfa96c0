"""Limits of one rendering of a Jinja template, for prompt templates and chat templates."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from time import thread_time
from typing import Any, NamedTuple

from jinja2.utils import Namespace

from agentkit_prompts.limits import MAX_DEPTH, MAX_VALUES
from agentkit_prompts.templates.sandbox.operation_errors import LimitReached, TemplateOperationError

MAX_INT_BITS = 8192
"""Maximum bits of an integer."""
_MAX_INT_DIGITS = 2466  # digits of a number with `MAX_INT_BITS` bits
_MAX_COLLIDING_KEYS = 1_000
"""Maximum number of keys whose hashes an attacker can choose: if the hashes are equal, a lookup compares all keys."""
_FIRST_CHOSEN_HASH = 1 << 60
"""Numbers from this number on can have equal hashes, because Python reduces numbers modulo 2**61 - 1."""
_WIDE = 1 << 64
_BITS_PER_CHAR = 1_024
"""Square of the bits of a large number that counts as one character, because writing its digits takes quadratic
time."""
_CHARS_PER_ITEM = 8
"""Characters that an item of a new list counts as: the size of a reference in bytes."""
_TOO_LARGE = "a value is too large; a part that is contained several times is counted each time"
_LARGE = 1_000
"""Number of characters or items of an operation above which the clock is read."""
ROUNDS_PER_LOOK = 64
"""Rounds of a loop, or small operations, between two reads of the clock."""
_CHARS_PER_VALUE = 6
"""Estimated characters of a short value in the text of a list, such as `None, `."""
VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset, *VIEWS, Namespace)
_TEXTS = (str, bytes)
_SCALARS = frozenset({bool, float, type(None)})


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum work of one rendering.

    C code cannot be interrupted, so the clock is read between operations, and the sizes of the input and result of an
    operation are limited before it runs.
    """

    rounds: int = 500_000
    """Maximum sum of the rounds of all loops and the items that filters visit."""
    output_chars: int = 4_000_000
    """Maximum characters of the output, and of any single text."""
    text_chars: int = 48_000_000
    """Maximum characters of all intermediate texts; an item of a new list counts as 8."""
    seconds: float = 0.7
    """Maximum CPU seconds of the thread. An operation that cannot be interrupted can take half a second more."""


DEFAULT = Limits()
CHAT_LIMITS = Limits(output_chars=8_000_000)
"""Limits of a chat template: enough for a context of some million tokens."""


class Size(NamedTuple):
    """Size of a value with the values inside it; a value that is contained twice counts twice."""

    values: int
    chars: int
    depth: int
    """Levels of containers; 0 for a text."""

    @property
    def written(self) -> int:
        """Estimated number of characters of the text of the value, including punctuation and indent."""
        if not self.depth:
            return self.chars
        return self.chars + self.values * (_CHARS_PER_VALUE + self.depth)


def _too_long(chars: int, max_chars: int) -> TemplateOperationError:
    return TemplateOperationError(f"the template makes a text of {chars:,} characters: more than {max_chars:,}")


def join_output(texts: Collection[str], max_chars: int) -> str:
    """Join the parts of an output, after a check of their total length.

    Raises:
        TemplateOperationError: The output is longer than `max_chars`.
    """
    length = sum(map(len, texts))
    if length > max_chars:
        raise _too_long(length, max_chars)
    return "".join(texts)


def refuse_large(*numbers: Any) -> None:
    """Reject numbers whose arithmetic or printing would be slow."""
    for number in numbers:
        if isinstance(number, int) and number.bit_length() > MAX_INT_BITS:
            raise TemplateOperationError(f"the number is too large: it has more than {MAX_INT_BITS:,} bits")
        if isinstance(number, Decimal) and number.is_finite() and number.adjusted() > _MAX_INT_DIGITS:
            raise TemplateOperationError(f"the number is too large: it has more than {_MAX_INT_DIGITS:,} digits")


class Meter:
    """Count of the work of one rendering. Its methods raise `LimitReached` if the work exceeds the limits.

    Attributes:
        rounds: Remaining rounds and items.
        chars: Remaining characters of intermediate texts.
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
        """Remaining CPU seconds."""
        if self._end is None:
            return self.limits.seconds
        return self._end - thread_time()

    def look(self) -> None:
        """Check the clock. The first call starts the clock, because most templates have no loop and need no clock."""
        now = thread_time()
        if self._end is None:
            self._end = now + self.limits.seconds
        if now >= self._end:
            raise LimitReached(f"the template takes too long: more than {self.limits.seconds} s of CPU time")

    def tick(self) -> None:
        """Count a small operation; check the clock once per `ROUNDS_PER_LOOK` operations."""
        self._calls += 1
        if self._calls >= ROUNDS_PER_LOOK:
            self._calls = 0
            self.look()

    def visit(self, count: int) -> None:
        """Count the rounds of a loop, or the items of an operation, before its start."""
        self.rounds -= count
        if self.rounds < 0:
            raise LimitReached(f"the template does too much work: more than {self.limits.rounds:,} rounds and items")
        # In addition, a loop with many rounds checks the clock between its rounds.
        self._calls += count
        if self._calls >= ROUNDS_PER_LOOK:
            self._calls = 0
            self.look()

    def make(self, chars: int) -> None:
        """Count an intermediate text of `chars` characters; if possible, before its creation."""
        if chars > self.limits.output_chars:
            raise _too_long(chars, self.limits.output_chars)
        self._use(chars)

    def make_small(self, chars: int) -> None:
        """Count a text that is usually short: faster than `make`, because the limits are checked less often."""
        self.chars -= chars
        self._calls += 1
        if chars > _LARGE or self._calls >= ROUNDS_PER_LOOK:
            self.chars += chars
            self._calls = 0
            self.make(chars)
            self.look()

    def join(self, texts: Collection[str]) -> str:
        """Return the joined texts, after counting the result."""
        self.make(sum(map(len, texts)))
        return "".join(texts)

    def make_items(self, count: int, chars: int = _CHARS_PER_ITEM) -> None:
        """Count a new list of `count` items, each as `chars` characters."""
        self._use(count * chars)

    def _use(self, chars: int) -> None:
        self.chars -= chars
        if self.chars < 0:
            raise LimitReached(f"the template makes more than {self.limits.text_chars:,} characters on the way")
        if chars > _LARGE:
            self.look()

    def result(self, value: Any) -> Any:
        """Count the result of an operation, and return it."""
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
            raise TemplateOperationError(f"macros or recursive loops nest deeper than {MAX_DEPTH} levels")
        self.tick()

    def leave(self) -> None:
        """Finish the macro, recursive loop or block of `enter`."""
        self._level -= 1

    def deep(self, value: Any) -> Any:
        """Check the size of a value before C code iterates over it, and return the value. A long text only checks the
        clock.
        """
        if isinstance(value, _TEXTS):
            if len(value) > _LARGE:
                self.look()
        elif isinstance(value, _CONTAINERS):
            self.size(value)
        return value

    def size(self, value: Any) -> Size:
        """Return the size of a value.

        A value is counted each time it is contained, because C code compares, hashes or writes it each time. If each of
        twenty nested lists contains the next list twice, the innermost list counts a million times.

        Raises:
            TemplateOperationError: The value is too large or nests too deeply.
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
                    raise TemplateOperationError(_TOO_LARGE)
                chars += _scan(container, inner)
                if chars > self.limits.text_chars:
                    raise TemplateOperationError(_TOO_LARGE)
            depth += 1
            # Up to four levels are added to the depth of the data: arguments, and pairs of a mapping.
            if depth > MAX_DEPTH + 4 and inner:
                raise TemplateOperationError(f"a value nests deeper than {MAX_DEPTH} levels")
            level = inner
        if values + chars > _LARGE:
            self.look()
        return Size(values, chars, depth)

    def keys(self, keys: Collection[Any]) -> None:
        """Check values before they become keys of a mapping or items of a set."""
        self.deep(keys)
        if sum(map(_allows_hash_collisions, keys)) > _MAX_COLLIDING_KEYS:
            raise TemplateOperationError(f"more than {_MAX_COLLIDING_KEYS:,} keys are tuples or large numbers")

    def items(self, value: Iterable[Any]) -> list[Any]:
        """Return the items of an iterator; each item is counted before the next item is created."""
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
    """Return the number of characters of the items of a container, and append the containers among the items to
    `inner`.
    """
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


def _allows_hash_collisions(key: Any) -> bool:
    """True if keys with the same hash are easy to construct. Hashes of text are not: Python adds a secret to them."""
    if isinstance(key, int | float):
        return not -_FIRST_CHOSEN_HASH < key < _FIRST_CHOSEN_HASH
    return not isinstance(key, str | bytes | None)


class SharedLimits:
    """Limits that several small renderings share; their time is half of the time of one rendering."""

    def __init__(self, limits: Limits, output_chars: int | None = None) -> None:
        output_chars = limits.output_chars if output_chars is None else min(output_chars, limits.output_chars)
        self.left = replace(limits, output_chars=output_chars, seconds=limits.seconds / 2)
        """Limits of the next rendering."""

    def use(self, meter: Meter) -> None:
        """Subtract the work of a finished or failed rendering from the limits of the next rendering."""
        seconds = max(0.0, meter.seconds)
        self.left = replace(self.left, rounds=max(0, meter.rounds), text_chars=max(0, meter.chars), seconds=seconds)
