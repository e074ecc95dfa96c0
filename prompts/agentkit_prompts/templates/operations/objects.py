"""Objects that only templates see: macros, `loop`, namespaces, cyclers, joiners, global functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, ClassVar

from agentkit_prompts.templates.operations.costs import offered
from agentkit_prompts.templates.operations.meter import Meter
from agentkit_prompts.templates.operations.values import Fault, Undefined

__all__ = ["COUNTERS", "GLOBALS", "UNSET", "Cycler", "Function", "Loop", "Macro", "Namespace"]

UNSET = object()
"""An argument of a macro that was not given."""
COUNTERS = {
    "depth": "1",
    "depth0": "0",
    "first": "(not {i})",
    "index": "({i} + 1)",
    "index0": "{i}",
    "last": "({i} == {n} - 1)",
    "length": "{n}",
    "revindex": "({n} - {i})",
    "revindex0": "({n} - {i} - 1)",
}
"""What can be read off `loop` without a loop object: field -> code, by the names of index and length."""


class Macro:
    """A macro or call block: binds arguments and runs its body into a buffer."""

    __slots__ = ("arguments", "body", "name", "takes")

    def __init__(
        self, body: Callable[..., str], name: str, arguments: tuple[str, ...], takes: tuple[bool, bool, bool]
    ) -> None:
        self.body = body
        self.name = name
        self.arguments = arguments
        self.takes = takes
        """Whether the body is given its caller, its further keywords and its further values."""

    def call(self, meter: Meter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Run the body. The order of what it is given: arguments, caller, kwargs, varargs."""
        names = self.arguments
        takes_caller, takes_kwargs, takes_varargs = self.takes
        given: list[Any] = list(args[: len(names)])
        given += [kwargs.pop(name, UNSET) for name in names[len(given) :]]
        if takes_caller and "caller" not in names:
            given.append(
                kwargs.pop("caller", None)
                or Undefined("caller", hint=f"macro {self.name!r} was not called by a call block")
            )
        if takes_kwargs:
            given.append(meter.nest(kwargs))
        elif kwargs:
            raise Fault(f"macro {self.name!r} takes no argument {next(iter(kwargs))!r}")
        if takes_varargs:
            given.append(meter.nest(args[len(names) :]))
        elif len(args) > len(names):
            raise Fault(f"macro {self.name!r} takes at most {len(names)} arguments, got {len(args)}")
        meter.enter()
        try:
            return self.body(*given)
        finally:
            meter.depth -= 1


class Loop:
    """The `loop` of a for loop, where more of it is used than its counters."""

    __slots__ = ("_changed", "_items", "_recurse", "depth0", "index0")

    FIELDS: ClassVar[frozenset[str]] = frozenset({*COUNTERS, "nextitem", "previtem"})

    def __init__(self, items: Sequence[Any], recurse: Callable[[Any, int], str] | None = None, depth0: int = 0) -> None:
        self._items = items
        self._recurse = recurse
        self._changed: object = UNSET
        self.depth0 = depth0
        self.index0 = -1

    depth = property(lambda self: self.depth0 + 1)
    index = property(lambda self: self.index0 + 1)
    length = property(lambda self: len(self._items))
    first = property(lambda self: self.index0 == 0)
    last = property(lambda self: self.index0 == len(self._items) - 1)
    revindex = property(lambda self: len(self._items) - self.index0)
    revindex0 = property(lambda self: len(self._items) - self.index0 - 1)

    @property
    def previtem(self) -> Any:
        if self.index0 > 0:
            return self._items[self.index0 - 1]
        return Undefined("previtem", hint="the first round of a loop has no loop.previtem")

    @property
    def nextitem(self) -> Any:
        if self.index0 + 1 < len(self._items):
            return self._items[self.index0 + 1]
        return Undefined("nextitem", hint="the last round of a loop has no loop.nextitem")

    def cycle(self, meter: Meter, *values: Any) -> Any:
        """Return the value whose turn it is."""
        if not values:
            raise Fault("loop.cycle needs values to cycle through")
        return values[self.index0 % len(values)]

    def changed(self, meter: Meter, *values: Any) -> bool:
        """Tell whether the values differ from those of the last call."""
        meter.measure(values)
        if self._changed is not UNSET and self._changed == values:
            return False
        self._changed = values
        return True

    def recurse(self, meter: Meter, items: object) -> str:
        """Run a recursive loop over the next level."""
        if self._recurse is None:
            raise Fault("loop(...) works in a `for ... recursive` only")
        meter.enter()
        try:
            return self._recurse(items, self.depth0 + 1)
        finally:
            meter.depth -= 1


class Namespace:
    """Names a template can assign to from inside a loop."""

    __slots__ = ("names",)

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names


class Cycler:
    """Gives its values in turn."""

    __slots__ = ("_at", "_values")

    def __init__(self, values: tuple[Any, ...]) -> None:
        self._values = values
        self._at = 0

    @property
    def current(self) -> Any:
        return self._values[self._at]

    def next(self, meter: Meter) -> Any:
        """Return the current value and go on to the next."""
        value = self._values[self._at]
        self._at = (self._at + 1) % len(self._values)
        return value

    def reset(self, meter: Meter) -> str:
        """Go back to the first value."""
        self._at = 0
        return ""


class Function:
    """A function of templates. `run` gets the meter first."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run


def _range(meter: Meter, /, *args: Any) -> range:
    if not all(type(arg) is int for arg in args):
        raise Fault("range takes whole numbers")
    meter.pay("function.range")
    made = range(*args)
    if abs((made.stop - made.start) // made.step) > meter.limits.steps:
        raise Fault(f"the range has more than {meter.limits.steps:,} numbers")
    return made


def _dict(meter: Meter, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    meter.pay("function.dict", kwargs)
    for pairs in args:
        if isinstance(pairs, Mapping):
            meter.keys(pairs)
            made.update((key, pairs[key]) for key in meter.items(pairs, 8))
        else:
            for pair in meter.items(pairs, 8):
                key, value = meter.items(pair)
                meter.key(key, len(made))
                made[key] = value
    made.update(kwargs)
    return meter.nest(made)


def _cycler(meter: Meter, /, *values: Any) -> Cycler:
    if not values:
        raise Fault("cycler needs values to cycle through")
    meter.pay("function.cycler", values)
    meter.nest(values)
    return Cycler(values)


def _joiner(meter: Meter, /, sep: str = ", ") -> Function:
    """Return what gives nothing the first time it is called, and its separator from then on."""
    if not isinstance(sep, str):
        raise Fault(f"joiner takes a separator, got {type(sep).__name__}")
    meter.pay("function.joiner", sep)
    texts = chain([""], repeat(sep))
    return Function(lambda meter, /: next(texts))


def _namespace(meter: Meter, /, *args: Any, **kwargs: Any) -> Namespace:
    return Namespace(_dict(meter, *args, **kwargs))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cycler": _cycler,
    "dict": _dict,
    "joiner": _joiner,
    "namespace": _namespace,
    "range": _range,
}
GLOBALS = {name: Function(run) for name, run in offered("function", _FUNCTIONS).items()}
"""What templates can call without being given it."""
