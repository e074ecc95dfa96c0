"""Read-only dicts and lists, and caches of derived values.

The classes are subclasses of `dict` and `list`, because `json` and SDKs check these types. Caches compare their keys by
identity, which requires that the keys cannot change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from agentkit_prompts.errors import ContextError
from agentkit_prompts.limits import MAX_CACHED_PER_OBJECT, MAX_DEPTH

T = TypeVar("T")

_ATOMS = (str, int, float, bool, type(None))


class DerivedSlot:
    """Mixin with a slot for values derived from the object.

    The slot is not a field, so it is not compared or stored.
    """

    __slots__ = ("_derived",)

    _derived: Any


class DerivedCache(DerivedSlot):
    """Mixin with a cache of values derived from the object."""

    __slots__ = ()

    def derive(self, function: Callable[..., T], argument: object = None) -> T:
        """Return `function(self, argument)`, or `function(self)` if `argument` is None; cache the last result.

        `argument` is compared by identity: pass the same object every time. If the results of too many functions are
        cached, all are dropped.
        """
        result: T
        try:
            cached_argument, result = self._derived[function]
        except (AttributeError, KeyError):
            # This function has no cached result.
            pass
        else:
            if cached_argument is argument:
                return result
        result = function(self) if argument is None else function(self, argument)
        derived = getattr(self, "_derived", None)
        # A new dict instead of clearing the old dict, because other threads read the old dict without a lock.
        if derived is None or len(derived) >= MAX_CACHED_PER_OBJECT:
            derived = {}
            object.__setattr__(self, "_derived", derived)
        derived[function] = (argument, result)
        return result


def plain_text(text: str) -> str:
    """Return text as plain `str`, also text of a subclass of `str`.

    A subclass, such as an enum of texts, can override `str()`, `format()` and `hash()`, so that equal contexts would
    render differently.
    """
    return text if type(text) is str else str.__str__(text)


def set_plain_text(value: object, *names: str) -> None:
    """Replace text of a subclass of `str` by plain `str` in these fields of a frozen object."""
    for name in names:
        text = getattr(value, name)
        if type(text) is not str and isinstance(text, str):
            object.__setattr__(value, name, plain_text(text))


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(f"this {type(self).__name__} is read-only: copy it with dict(...) or list(...) first")


class ReadOnlyDict(dict[str, Any]):
    """A read-only dict; its values are not frozen."""

    __slots__ = ()
    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = _refuse
    __ior__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


class FrozenDict(ReadOnlyDict):
    """A read-only dict; dicts and lists inside it are read-only, too."""

    __slots__ = ("json",)

    json: str
    """The JSON text, cached because a message of a conversation is sent with every request; unset before its use."""


class FrozenList(list[Any]):
    """A read-only list; dicts and lists inside it are read-only, too."""

    __slots__ = ()
    __setitem__ = __delitem__ = append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


_IMMUTABLE = (*_ATOMS, FrozenDict, FrozenList)


def _frozen_mapping(mapping: Mapping[Any, Any], json_only: bool, depth: int) -> FrozenDict:
    if json_only:
        for name in mapping:
            if not isinstance(name, str):
                raise ContextError("data", [("", f"names must be str, got {type(name).__name__}")])
    return FrozenDict({key: freeze(item, json_only=json_only, depth=depth + 1) for key, item in mapping.items()})


def freeze(value: Any, *, json_only: bool = False, depth: int = 0) -> Any:
    """Return a deeply read-only copy of JSON-like data; other values are returned unchanged, unless `json_only`.

    Raises:
        ContextError: The data is cyclic or nests deeper than 100 levels; or, with `json_only`, a value is not JSON.
    """
    if type(value) in _IMMUTABLE:
        return value
    # Cyclic data would recurse without end.
    if depth > MAX_DEPTH:
        raise ContextError("data", [("", f"cyclic, or nests deeper than {MAX_DEPTH} levels; pass flatter data")])
    if isinstance(value, Mapping):
        return _frozen_mapping(value, json_only, depth)
    if isinstance(value, list | tuple):
        return FrozenList([freeze(item, json_only=json_only, depth=depth + 1) for item in value])
    if json_only and not isinstance(value, _ATOMS):
        raise ContextError("data", [("", f"a {type(value).__name__} is not JSON")])
    return value


def thawed(value: Any) -> Any:
    """Return a copy of frozen data in plain dicts and lists, which the caller may change."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [thawed(item) for item in value]
    return value
