"""Read-only dicts and lists that are still dicts and lists to `json` and to every SDK.

Values that are used as keys by identity must be immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from agentkit_prompts.errors import ContextError
from agentkit_prompts.limits import MAX_CACHED_PER_OBJECT, MAX_DEPTH

__all__ = [
    "Derived",
    "Deriving",
    "FrozenDict",
    "FrozenList",
    "ReadOnlyDict",
    "freeze",
    "plain_text",
    "set_plain_text",
    "thawed",
]

T = TypeVar("T")

_ATOMS = (str, int, float, bool, type(None))


class Derived:
    """Mixin: a slot for derived values, which are not compared, copied or stored."""

    __slots__ = ("_derived",)

    _derived: Any


class Deriving(Derived):
    """Mixin: cache derived values per instance."""

    __slots__ = ()

    def derive(self, function: Callable[..., T], about: object = None) -> T:
        """Return `function(self)` or `function(self, about)`, and cache the last result of each function.

        Keys are compared by identity: pass the same objects every time. The results of a few functions are stored.
        """
        result: T
        try:
            cached_about, result = self._derived[function]
        # The first call.
        except (AttributeError, KeyError):
            pass
        else:
            if cached_about is about:
                return result
        result = function(self) if about is None else function(self, about)
        derived = getattr(self, "_derived", None)
        # A new mapping, because other threads read the old mapping without a lock.
        if derived is None or len(derived) >= MAX_CACHED_PER_OBJECT:
            derived = {}
            object.__setattr__(self, "_derived", derived)
        derived[function] = (about, result)
        return result


def plain_text(text: str) -> str:
    """Return text of a subclass of `str` as plain `str`.

    A subclass, such as an enum of texts, can override `str()`, `format()` and `hash()`, and equal contexts would then
    render differently.
    """
    return text if type(text) is str else str.__str__(text)


def set_plain_text(value: object, *names: str) -> None:
    """Replace text of a subclass of `str` in these fields of a frozen value."""
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
    """A read-only dict, as are the dicts and lists inside it."""

    __slots__ = ("json",)

    json: str
    """Cached JSON text: a message of a long conversation is sent with every request."""


class FrozenList(list[Any]):
    """A read-only list, as are the dicts and lists inside it."""

    __slots__ = ()
    __setitem__ = __delitem__ = append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


_IMMUTABLE = (*_ATOMS, FrozenDict, FrozenList)


def _frozen_mapping(mapping: Mapping[Any, Any], json_only: bool, depth: int) -> FrozenDict:
    if json_only:
        _require_text_names(mapping)
    return FrozenDict({key: freeze(item, json_only=json_only, depth=depth + 1) for key, item in mapping.items()})


def freeze(value: Any, *, json_only: bool = False, depth: int = 0) -> Any:
    """Return a deeply read-only copy of JSON-like data; other values are returned unchanged, unless `json_only`.

    Raises:
        ContextError: The data is cyclic or nests deeper than 100 levels, or a value is not JSON.
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


def _require_text_names(data: Mapping[Any, Any]) -> None:
    for name in data:
        if not isinstance(name, str):
            raise ContextError("data", [("", f"names must be str, got {type(name).__name__}")])


def thawed(value: Any) -> Any:
    """Return frozen data as new dicts and lists, for libraries that check types and for callers that change the
    data.
    """
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [thawed(item) for item in value]
    return value
