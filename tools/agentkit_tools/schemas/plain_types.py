"""The JSON Schema of plain types, read off their core schema: most parameters need no more, and it takes no time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["plain_schema"]

_NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def plain_schema(core: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what pydantic's own generator gives for text, numbers, booleans, literals, lists and optional ones.

    None when there is more to it than that: constraints, models, anything else.
    """
    kind = core["type"]
    if len(core) == 1:
        return {"type": _NAMES[kind]} if kind in _NAMES else None
    if len(core) > 2:
        return None
    if kind == "list" and "items_schema" in core:
        items = plain_schema(core["items_schema"])
        return items and {"type": "array", "items": items}
    if kind == "nullable" and core["schema"]["type"] not in ("nullable", "any"):
        inner = plain_schema(core["schema"])
        return inner and {"anyOf": [inner, {"type": "null"}]}
    if kind == "literal" and len(core["expected"]) > 1 and all(type(value) is str for value in core["expected"]):
        return {"enum": list(core["expected"]), "type": "string"}
    return None
