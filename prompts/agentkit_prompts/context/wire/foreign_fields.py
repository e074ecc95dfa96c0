"""Fields of objects of other libraries, which can be objects or mappings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentkit_prompts.context.json_problems import fits_json
from agentkit_prompts.errors import Problem, Problems

_EMPTY: tuple[object, ...] = (None, "", [], {}, ())


def field_of(item: object, name: str) -> Any:
    """Return a field of an object or of a mapping; None if it is missing."""
    if isinstance(item, Mapping):
        return item.get(name)
    if isinstance(item, type):
        return None
    return getattr(item, name, None)


def list_of(item: object, name: str, where: str, problems: Problems) -> list[Any]:
    """Return a field as a list; empty if it is missing or, with a problem, has another type."""
    value = field_of(item, name)
    if value is None or isinstance(value, list | tuple):
        return list(value or ())
    problems.append(Problem(f"{where}.{name}", f"expected a list, got {type(value).__name__}"))
    return []


def mapping_of(item: object, name: str, where: str, problems: Problems) -> Mapping[str, Any]:
    """Return a field as a mapping; empty if it is missing or, with a problem, has another type."""
    value = field_of(item, name)
    if value is None or isinstance(value, Mapping):
        return value or {}
    problems.append(Problem(f"{where}.{name}", f"expected a mapping, got {type(value).__name__}"))
    return {}


def text_of(item: object, name: str) -> str:
    """Return a field if it is text; empty for any other value."""
    value = field_of(item, name)
    return value if isinstance(value, str) else ""


def values_of(item: object) -> Mapping[str, Any]:
    """Return the fields of an object as a mapping, without conversion of their values."""
    if isinstance(item, Mapping):
        return item
    names = getattr(type(item), "model_fields", None)
    if isinstance(names, Mapping):
        return {name: getattr(item, name, None) for name in names}
    if is_dataclass(item):
        return {each.name: getattr(item, each.name, None) for each in fields(item) if not each.name.startswith("_")}
    return getattr(item, "__dict__", {})


def json_rest(item: object, used: frozenset[str], where: str, problems: Problems) -> dict[str, Any]:
    """Return the fields that are neither in `used` nor empty, as JSON. A value that is not JSON becomes a problem."""
    rest: dict[str, Any] = {}
    for name, value in values_of(item).items():
        if name in used or value in _EMPTY:
            continue
        try:
            data = to_jsonable_python(value, bytes_mode="base64")
        except (PydanticSerializationError, ValueError, RecursionError):
            reason = f"{type(value).__name__} is not JSON and cannot be stored with the message: remove it"
            problems.append(Problem(f"{where}.{name}", reason))
            continue
        if data not in _EMPTY and fits_json(data, f"{where}.{name}", problems):
            rest[name] = data
    return rest
