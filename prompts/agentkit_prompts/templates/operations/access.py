"""Attributes, elements and names of values: what a template may read, by an allow-list per type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from functools import cached_property
from types import DynamicClassAttribute, MappingProxyType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

from pydantic import BaseModel

from agentkit_prompts.context.frozen import FrozenDict, ReadOnlyDict
from agentkit_prompts.context.parts import Url
from agentkit_prompts.templates.operations.meter import Meter
from agentkit_prompts.templates.operations.objects import Cycler, Function, Loop, Macro, Namespace
from agentkit_prompts.templates.operations.values import Fault, Undefined, require

__all__ = ["MAPPINGS", "attribute", "element", "made_in_python", "readable", "slice_of"]

# A set lives as long as a program that reads the name: names of templates long gone do not pile up.
_READABLE: WeakValueDictionary[str, set[type]] = WeakValueDictionary()
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_MAX_TYPES = 1000
_MAX_FREE_KEY = 256
_ABSENT = 20
"""Steps of making an undefined value, after an exception."""
_LOOKED_UP = 10
"""Steps of finding out whether the class of an object lets an attribute be read."""
MAPPINGS = frozenset({dict, FrozenDict, MappingProxyType, ReadOnlyDict})
"""Mappings whose keys can be read without running anybody's code."""
_DATE = frozenset({"year", "month", "day"})
_TIME = frozenset({"hour", "minute", "second", "microsecond"})
_BUILTIN: dict[type, frozenset[str]] = {
    date: _DATE,
    time: _TIME,
    datetime: _DATE | _TIME,
    timedelta: frozenset({"days", "seconds", "microseconds"}),
    range: frozenset({"start", "stop", "step"}),
    Url: frozenset({"fragment", "host", "path", "port", "query", "scheme"}),
    Loop: Loop.FIELDS,
    Cycler: frozenset({"current"}),
    Macro: frozenset(),
    Function: frozenset(),
}


def made_in_python(kind: type) -> bool:
    """Tell whether a class was made by a class statement: only those have fields that somebody meant to be read."""
    return bool(kind.__flags__ & _HEAP_TYPE)


def readable(name: str) -> set[type]:
    """Return the types from which generated code reads `name` directly, learnt as templates run."""
    known = _READABLE.get(name)
    if known is None:
        known = _READABLE[name] = set()
    return known


def attribute(meter: Meter, value: Any, name: str) -> Any:
    """Return `value.name` as templates see it: a key of a mapping, a field, a property; never a method."""
    kind = type(value)
    if kind in MAPPINGS:
        try:
            return value[name]
        except KeyError:
            meter.charge(_ABSENT)
            return Undefined(name, value)
    meter.charge(_LOOKED_UP)
    if isinstance(value, Undefined):
        value.fail()
    if name[:1] == "_":
        raise Fault(f"{name[:80]!r} is private: templates read public names only", name[:80])
    if kind is Namespace:
        return value.names[name] if name in value.names else Undefined(name, value)
    if isinstance(value, Mapping):
        return value[name] if name in value else Undefined(name, value)
    if _is_readable(kind, name):
        if not _learn(kind, name):
            meter.tick()
        return getattr(value, name)
    held = getattr(value, "__dict__", None)
    holds_data = kind is SimpleNamespace or (made_in_python(kind) and not issubclass(kind, ModuleType | type))
    if type(held) is dict and name in held and holds_data:
        return held[name]
    if isinstance(value, BaseModel) and name in (value.__pydantic_extra__ or ()):
        return value.__pydantic_extra__[name]  # type: ignore[index]
    if callable(getattr(kind, name, None)):
        return Undefined(
            name, value, f"{kind.__name__}.{name} is a method: templates read fields and do not call methods"
        )
    return Undefined(name, value)


def element(meter: Meter, value: Any, key: Any) -> Any:
    """Return `value[key]` as templates see it; a text key that is no element is read as an attribute."""
    kind = type(value)
    meter.charge(4 if kind in MAPPINGS else 14)
    if isinstance(key, tuple | frozenset) or (isinstance(key, str) and len(key) > _MAX_FREE_KEY):
        meter.key(key, len(value) if kind in MAPPINGS else 0)
    if kind in MAPPINGS:
        try:
            return value[key]
        except KeyError:
            meter.charge(_ABSENT)
            return Undefined(key, value)
        except TypeError:
            raise Fault(f"a {type(key).__name__} cannot be a key") from None
    if isinstance(value, Undefined) or isinstance(key, Undefined):
        require(value, key)
    if isinstance(value, Mapping):
        return value[key] if key in value else Undefined(key, value)
    if isinstance(key, str):
        return attribute(meter, value, str.__str__(key))
    if type(key) is int and (isinstance(value, list | tuple | str | range) or _has_own_elements(kind)):
        try:
            return value[key]
        except LookupError:
            meter.charge(_ABSENT)
            return Undefined(key, value)
    raise Fault(f"{kind.__name__} has no elements that a {type(key).__name__} could name")


def slice_of(meter: Meter, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """Return `value[start:stop:step]`."""
    require(value)
    is_plain = isinstance(value, list | tuple | str | range)
    if not is_plain and (isinstance(value, Mapping) or not _has_own_elements(type(value))):
        raise Fault(f"{type(value).__name__} cannot be sliced: expected text, a list or a tuple")
    made = value[start:stop:step]
    meter.pay("operator.[:]", made)
    return made


def _has_own_elements(kind: type) -> bool:
    return made_in_python(kind) and hasattr(kind, "__getitem__") and not issubclass(kind, type)


def _is_readable(kind: type, name: str) -> bool:
    """Tell whether `name` is a field or property of `kind`, so that reading it runs nothing else."""
    known = _BUILTIN.get(kind)
    if known is not None:
        return name in known
    if issubclass(kind, datetime | date | time | timedelta):
        return name in _DATE | _TIME
    if not made_in_python(kind) or issubclass(kind, type | ModuleType):
        return False
    if issubclass(kind, BaseModel):
        if name in kind.model_fields:
            return True
        if name.startswith("model_"):
            return False
    elif is_dataclass(kind) and any(field.name == name for field in fields(kind)):
        return True
    for base in kind.__mro__:
        if name in base.__dict__:
            found = base.__dict__[name]
            if isinstance(found, property | cached_property | DynamicClassAttribute | MemberDescriptorType):
                return True
            if type(found).__name__ == "_tuplegetter":
                return True
            return not callable(found) and not hasattr(type(found), "__get__")
    return False


def _learn(kind: type, name: str) -> bool:
    """Let generated code read the attribute directly from now on, unless that would run code of the caller's."""
    if not kind.__module__.startswith("agentkit_prompts.") and (
        type.__getattribute__(kind, "__getattribute__") is not object.__getattribute__
        or isinstance(getattr(kind, name, None), property | cached_property | DynamicClassAttribute)
    ):
        return False
    known = readable(name)
    if len(known) >= _MAX_TYPES:
        known.clear()
    known.add(kind)
    return True
