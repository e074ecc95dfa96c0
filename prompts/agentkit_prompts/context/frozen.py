"""Read-only dicts and lists that are still dicts and lists to `json` and to every SDK.

What is memoised by identity must not change behind the memo's back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from agentkit_prompts.errors import ContextError

__all__ = ["Derived", "Deriving", "FrozenDict", "FrozenList", "ReadOnlyDict", "as_plain_text", "freeze", "thawed"]

T = TypeVar("T")

_MAX_DEPTH = 100
_MAX_DERIVED = 8
_ATOMS = (str, int, float, bool, type(None))


class Derived:
    """Base of values with a slot for what is derived from them: it is not compared, copied or stored."""

    __slots__ = ("_derived",)

    _derived: Any


class Deriving(Derived):
    """Base of values of which things are worked out once."""

    __slots__ = ()

    def derive(self, function: Callable[..., T], about: object = None) -> T:
        """Return `function(self)`, or `function(self, about)`, worked out once; per function the last result is kept.

        Both are known again by identity: pass the same objects every time. A few functions are remembered.
        """
        result: T
        try:
            known_about, result = self._derived[function]
        except (AttributeError, KeyError):  # the first time
            pass
        else:
            if known_about is about:
                return result
        result = function(self) if about is None else function(self, about)
        derived = getattr(self, "_derived", None)
        if derived is None or len(derived) >= _MAX_DERIVED:
            derived = {}
            object.__setattr__(self, "_derived", derived)
        derived[function] = (about, result)
        return result


def as_plain_text(value: object, *names: str) -> None:
    """Have these fields of a frozen value hold plain `str` where they hold text of another class.

    What such a class does its own way, as an enum of texts does `str()`, `format()` or `hash()`, is no part of a value.
    """
    for name in names:
        text = getattr(value, name)
        if type(text) is not str and isinstance(text, str):
            object.__setattr__(value, name, str.__str__(text))


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
    """A read-only dict, as are the dicts and lists inside it."""

    __slots__ = ("json",)

    json: str
    """Its JSON text, where it was written before: a message of a long conversation is sent with every request."""


class FrozenList(list[Any]):
    """A read-only list, as are the dicts and lists inside it."""

    __slots__ = ()
    __setitem__ = __delitem__ = append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


_AS_THEY_ARE = (*_ATOMS, FrozenDict, FrozenList)


def freeze(value: Any, *, json_only: bool = False, depth: int = 0) -> Any:
    """Return a deeply read-only copy of JSON-like data; other values pass through untouched, unless `json_only`.

    Raises:
        ContextError: The data is cyclic or nests deeper than 100 levels, or a value has no place in JSON.
    """
    if type(value) in _AS_THEY_ARE:
        return value
    if depth > _MAX_DEPTH:
        raise ContextError("data", [("", f"cyclic, or nests deeper than {_MAX_DEPTH} levels; pass flatter data")])
    if isinstance(value, Mapping):
        for name in value:
            if json_only and not isinstance(name, str):
                raise ContextError("data", [("", f"names must be str, got {type(name).__name__}")])
        return FrozenDict({key: freeze(item, json_only=json_only, depth=depth + 1) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return FrozenList([freeze(item, json_only=json_only, depth=depth + 1) for item in value])
    if json_only and not isinstance(value, _ATOMS):
        raise ContextError("data", [("", f"a {type(value).__name__} is not JSON")])
    return value


def thawed(value: Any) -> Any:
    """Return frozen data as dicts and lists: some libraries look at their types, and whoever gets it may change it."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    return [thawed(item) for item in value] if isinstance(value, list | tuple) else value
