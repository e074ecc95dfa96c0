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
from agentkit_prompts.limits import MAX_CACHED, MAX_FOREIGN_NAME_CHARS, MAX_SHOWN_CHARS
from agentkit_prompts.templates.sandbox.operation_errors import PromptUndefined, TemplateOperationError, require

# Only programs hold the sets, so that the names of deleted templates do not accumulate.
_DIRECT_TYPES: WeakValueDictionary[str, set[type]] = WeakValueDictionary()
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_MAPPINGS = frozenset({dict, FrozenDict, MappingProxyType, ReadOnlyDict})
"""Types of mappings whose keys can be read without running code of the developer."""
_LOOP_FIELDS = frozenset(
    ("depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem", "revindex", "revindex0")
)
_DATE = frozenset({"year", "month", "day"})
_TIME = frozenset({"hour", "minute", "second", "microsecond"})
_BUILTIN: dict[type, frozenset[str]] = {
    datetime: _DATE | _TIME,
    date: _DATE,
    time: _TIME,
    timedelta: frozenset({"days", "seconds", "microseconds"}),
    range: frozenset({"start", "stop", "step"}),
    Url: frozenset({"fragment", "host", "path", "port", "query", "scheme"}),
    Cycler: frozenset({"current"}),
    LoopContext: _LOOP_FIELDS,
}
"""Readable fields of types that also have other attributes. A subtype is listed before its base types."""
_PROPERTIES = (property, cached_property, DynamicClassAttribute, MemberDescriptorType)


def is_python_class(kind: type) -> bool:
    """True if a class was created by a class statement, not in C; only such classes have fields for templates."""
    return bool(kind.__flags__ & _HEAP_TYPE)


def direct_types(name: str) -> set[type]:
    """Return the set of types from which generated code reads `name` directly; renderings add types to the set."""
    types = _DIRECT_TYPES.get(name)
    if types is None:
        types = _DIRECT_TYPES[name] = set()
    return types


def refuse_private(name: str) -> None:
    """Raise an error for a name that starts with an underscore."""
    if name[:1] == "_":
        raise TemplateOperationError(
            f"{name[:MAX_SHOWN_CHARS]!r} is private: templates read public names only", name[:MAX_SHOWN_CHARS]
        )


def attribute(value: Any, name: str) -> Any:
    """Return `value.name` for a template: a key of a mapping, a field or a property, never a method."""
    if type(value) not in _MAPPINGS:
        require(value)
        refuse_private(name)
        if isinstance(value, Namespace):
            value = value._Namespace__attrs
        if not isinstance(value, Mapping):
            return _field(value, name)
    if name in value:
        return value[name]
    return PromptUndefined(obj=value, name=name)


def _field(value: Any, name: str) -> Any:
    kind = type(value)
    if len(name) > MAX_FOREIGN_NAME_CHARS:
        # A very long name is never a field; an AttributeError, which contains the name, would be slow.
        return PromptUndefined(obj=value, name=name[:MAX_FOREIGN_NAME_CHARS])
    if _is_readable(kind, name):
        _allow_direct_read(kind, name)
        return getattr(value, name)
    instance_fields = _instance_fields(value)
    if name in instance_fields:
        return instance_fields[name]
    if callable(getattr(kind, name, None)):
        hint = f"{kind.__name__}.{name} is a method: templates read fields and do not call methods"
        return PromptUndefined(hint, value, name)
    return PromptUndefined(obj=value, name=name)


def _instance_fields(value: Any) -> dict[str, Any]:
    """Return the fields that are set on an object but not declared by its class; empty for other types of values."""
    kind = type(value)
    if kind is not SimpleNamespace and not _has_fields(kind):
        return {}
    instance_fields = getattr(value, "__dict__", None)
    if type(instance_fields) is not dict:
        return {}
    extra = None
    if isinstance(value, BaseModel):
        extra = value.__pydantic_extra__
    if extra:
        return {**instance_fields, **extra}
    return instance_fields


def element(value: Any, key: Any) -> Any:
    """Return `value[key]` for a template; if a value is not a mapping, a text key is read as an attribute."""
    kind = type(value)
    require(value, key)
    if kind in _MAPPINGS or isinstance(value, Mapping):
        try:
            if key in value:
                return value[key]
            return PromptUndefined(obj=value, name=key)
        except TypeError:
            raise TemplateOperationError(f"a {type(key).__name__} cannot be a key") from None
    if isinstance(key, str):
        return attribute(value, str.__str__(key))
    if type(key) is int and _has_elements(value):
        try:
            return value[key]
        except LookupError:
            return PromptUndefined(obj=value, name=key)  # type: ignore[arg-type]
    raise TemplateOperationError(f"{kind.__name__} has no elements with a {type(key).__name__} as key")


def _has_fields(kind: type) -> bool:
    """True if a class was created by a class statement, and its instances are not classes or modules."""
    return is_python_class(kind) and not issubclass(kind, type | ModuleType)


def _has_elements(value: Any) -> bool:
    kind = type(value)
    return isinstance(value, list | tuple | str | range) or (_has_fields(kind) and hasattr(kind, "__getitem__"))


def _is_readable(kind: type, name: str) -> bool:
    """True if `name` is a field or property of the class, so that reading it calls no method."""
    for base, names in _BUILTIN.items():
        if issubclass(kind, base):
            return name in names
    return _has_fields(kind) and _is_field(kind, name)


def _is_field(kind: type, name: str) -> bool:
    """True if `name` is a field or property of a class that a class statement created."""
    if issubclass(kind, BaseModel) and (name in kind.model_fields or name.startswith("model_")):
        return name in kind.model_fields
    if is_dataclass(kind) and any(field.name == name for field in fields(kind)):
        return True
    for base in kind.__mro__:
        if name in base.__dict__:
            return _is_data(base.__dict__[name])
    return False


def _is_data(member: Any) -> bool:
    """True if a member of a class is a property or a constant, not a method."""
    if isinstance(member, _PROPERTIES) or type(member).__name__ == "_tuplegetter":
        return True
    return not callable(member) and not hasattr(type(member), "__get__")


def _allow_direct_read(kind: type, name: str) -> None:
    """Allow generated code to read the attribute directly, unless a read would run code of the developer."""
    if not kind.__module__.startswith("agentkit_prompts.") and (
        type.__getattribute__(kind, "__getattribute__") is not object.__getattribute__
        or isinstance(getattr(kind, name, None), property | cached_property | DynamicClassAttribute)
    ):
        return
    types = direct_types(name)
    if len(types) >= MAX_CACHED:
        types.clear()
    types.add(kind)
