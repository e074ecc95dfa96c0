"""Attributes and elements that a prompt template can read: fields of data, never methods or private names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from functools import cached_property
from types import DynamicClassAttribute, MappingProxyType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

from jinja2.runtime import LoopContext
from jinja2.utils import Cycler, Namespace
from pydantic import BaseModel

from agentkit_prompts.context.frozen import FrozenDict, ReadOnlyDict
from agentkit_prompts.context.parts import Url
from agentkit_prompts.limits import MAX_CACHED, MAX_SHOWN_CHARS
from agentkit_prompts.templates.sandbox.faults import Fault, PromptUndefined, require

__all__ = [
    "MAX_ATTRIBUTE_CHARS",
    "_LOOP_FIELDS",
    "attribute",
    "element",
    "is_python_class",
    "readable",
    "refuse_private",
]

# A set lives as long as a program that reads the name: names of templates that are gone do not pile up.
_READABLE: WeakValueDictionary[str, set[type]] = WeakValueDictionary()
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_MAPPINGS = frozenset({dict, FrozenDict, MappingProxyType, ReadOnlyDict})
"""Mappings whose keys can be read without running code of the developer."""
MAX_ATTRIBUTE_CHARS = 1_000
"""Characters of the name of an attribute."""
_LOOP_FIELDS = frozenset(
    ("depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem", "revindex", "revindex0")
)
_DATE = frozenset({"year", "month", "day"})
_TIME = frozenset({"hour", "minute", "second", "microsecond"})
_BUILTIN: dict[type, frozenset[str]] = {
    date: _DATE,
    time: _TIME,
    datetime: _DATE | _TIME,
    timedelta: frozenset({"days", "seconds", "microseconds"}),
    range: frozenset({"start", "stop", "step"}),
    Url: frozenset({"fragment", "host", "path", "port", "query", "scheme"}),
    Cycler: frozenset({"current"}),
}
_PROPERTIES = (property, cached_property, DynamicClassAttribute, MemberDescriptorType)


def is_python_class(kind: type) -> bool:
    """True if a class was made by a class statement: only those have fields that are meant to be read."""
    return bool(kind.__flags__ & _HEAP_TYPE)


def readable(name: str) -> set[type]:
    """Return the types from which generated code reads `name` directly, learnt as templates run."""
    types = _READABLE.get(name)
    if types is None:
        types = _READABLE[name] = set()
    return types


def refuse_private(name: str) -> None:
    """Raise an error for a name that starts with an underscore."""
    if name[:1] == "_":
        raise Fault(f"{name[:MAX_SHOWN_CHARS]!r} is private: templates read public names only", name[:MAX_SHOWN_CHARS])


def attribute(value: Any, name: str) -> Any:
    """Return `value.name` as templates see it: a key of a mapping, a field, a property; never a method."""
    kind = type(value)
    if kind in _MAPPINGS:
        return value[name] if name in value else PromptUndefined(obj=value, name=name)
    require(value)
    refuse_private(name)
    if isinstance(value, LoopContext):
        if name not in _LOOP_FIELDS:
            return PromptUndefined(obj=value, name=name)
        readable(name).add(kind)
        return getattr(value, name)
    if isinstance(value, Namespace):
        value = value._Namespace__attrs
    if isinstance(value, Mapping):
        return value[name] if name in value else PromptUndefined(obj=value, name=name)
    if len(name) > MAX_ATTRIBUTE_CHARS:
        # Python writes the name of a missing attribute into an error, which takes long for each item of a list.
        return PromptUndefined(obj=value, name=name[:MAX_ATTRIBUTE_CHARS])
    if _is_readable(kind, name):
        _learn(kind, name)
        return getattr(value, name)
    instance_fields = getattr(value, "__dict__", None)
    holds_data = kind is SimpleNamespace or (is_python_class(kind) and not issubclass(kind, ModuleType | type))
    if holds_data and type(instance_fields) is dict and name in instance_fields:
        return instance_fields[name]
    if isinstance(value, BaseModel) and name in (value.__pydantic_extra__ or ()):
        return value.__pydantic_extra__[name]  # type: ignore[index]
    if callable(getattr(kind, name, None)):
        hint = f"{kind.__name__}.{name} is a method: templates read fields and do not call methods"
        return PromptUndefined(hint, value, name)
    return PromptUndefined(obj=value, name=name)


def element(value: Any, key: Any) -> Any:
    """Return `value[key]` as templates see it; a text key that is no element is read as an attribute."""
    kind = type(value)
    require(value, key)
    if kind in _MAPPINGS or isinstance(value, Mapping):
        try:
            return value[key] if key in value else PromptUndefined(obj=value, name=key)
        except TypeError:
            raise Fault(f"a {type(key).__name__} cannot be a key") from None
    if isinstance(key, str):
        return attribute(value, str.__str__(key))
    if type(key) is int and (isinstance(value, list | tuple | str | range) or _has_own_elements(kind)):
        try:
            return value[key]
        except LookupError:
            return PromptUndefined(obj=value, name=key)  # type: ignore[arg-type]
    raise Fault(f"{kind.__name__} has no elements with a {type(key).__name__} as key")


def _has_own_elements(kind: type) -> bool:
    return is_python_class(kind) and hasattr(kind, "__getitem__") and not issubclass(kind, type)


def _is_readable(kind: type, name: str) -> bool:
    """True if `name` is a field or property of `kind`, so that reading it runs nothing else."""
    names = _BUILTIN.get(kind)
    if names is not None:
        return name in names
    if issubclass(kind, datetime | date | time | timedelta):
        return name in _DATE | _TIME
    if not is_python_class(kind) or issubclass(kind, type | ModuleType):
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
            member = base.__dict__[name]
            if isinstance(member, _PROPERTIES) or type(member).__name__ == "_tuplegetter":
                return True
            return not callable(member) and not hasattr(type(member), "__get__")
    return False


def _learn(kind: type, name: str) -> None:
    """Let generated code read the attribute directly from now on, unless that would run code of the developer."""
    if not kind.__module__.startswith("agentkit_prompts.") and (
        type.__getattribute__(kind, "__getattribute__") is not object.__getattribute__
        or isinstance(getattr(kind, name, None), property | cached_property | DynamicClassAttribute)
    ):
        return
    types = readable(name)
    if len(types) >= MAX_CACHED:
        types.clear()
    types.add(kind)
