"""Properties of a core schema of pydantic that determine the cost of validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

_KNOWN_CODE = frozenset(
    {"agentkit_prompts", "agentkit_tools", "builtins", "datetime", "ipaddress", "pydantic", "pydantic_core"}
)
_TEXTS = frozenset({"bool", "date", "enum", "literal", "none", "str", "url"})

Parts: TypeAlias = Sequence[Mapping[str, Any]]
"""All objects in a core schema."""


def hashes_numbers(parts: Parts) -> bool:
    """True if members of a set or keys of a dict can be numbers, whose hashes a model can choose."""
    return any(_hashes_numbers(part) for part in parts if isinstance(part.get("type"), str))


def _hashes_numbers(node: Mapping[str, Any]) -> bool:
    # Keys of JSON are text, unless a type converts them.
    if node["type"] == "dict":
        return _kind(node.get("keys_schema")) not in (*_TEXTS, "any")
    return node["type"] in ("set", "frozenset") and _kind(node.get("items_schema")) not in _TEXTS


def _kind(node: Any) -> str:
    while (
        isinstance(node, Mapping) and str(node.get("type")).startswith(("function-", "nullable")) and "schema" in node
    ):
        node = node["schema"]
    if node is None:
        return "any"
    return str(node.get("type"))


def most_required(parts: Parts) -> int:
    """Return the maximum number of required fields of an object: pydantic creates an error for each missing field."""
    return max(map(_required, parts), default=0)


def _required(node: Mapping[str, Any]) -> int:
    if node.get("type") not in ("dataclass-args", "model-fields", "typed-dict"):
        return 0
    fields: Any = node["fields"]
    listed = fields.values() if isinstance(fields, dict) else fields
    return sum([field.get("required", True) and field["schema"].get("type") != "default" for field in listed])


def has_own_code(parts: Parts) -> bool:
    """True if validation runs functions of the developer, which can take any time."""
    return any(map(_runs_own_code, parts))


def _runs_own_code(node: Mapping[str, Any]) -> bool:
    if not isinstance(node.get("type"), str):
        return False
    if node.get("post_init") or node.get("custom_init"):
        return True
    function = node.get("function")
    code = [function.get("function") if isinstance(function, Mapping) else function, node.get("default_factory")]
    return any(not _is_known(called) for called in code if called is not None)


def _is_known(code: Any) -> bool:
    while isinstance(code, partial):
        code = code.func
    module = getattr(code, "__module__", None) or type(code).__module__
    return str(module).partition(".")[0] in _KNOWN_CODE
