"""What validating arguments with pydantic may take, known when the tool is made: how often a value is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from pydantic_core import CoreSchema, from_json

__all__ = ["ValidationCost", "has_own_code", "hashes_numbers", "most_required", "validation_cost"]

_KNOWN_CODE = frozenset(
    {"agentkit_prompts", "agentkit_tools", "builtins", "datetime", "ipaddress", "pydantic", "pydantic_core"}
)
_TEXTS = frozenset({"bool", "date", "enum", "literal", "none", "str", "url"})
_MAX_LOOKS = 1 << 40
_CHARS_PER_VALUE = 16


class ValidationCost(NamedTuple):
    """How often one value is looked at, at most: `looks` times, and `factor` times more with each level of nesting."""

    looks: int
    factor: int

    @property
    def is_linear(self) -> bool:
        """Whether it depends on nothing but the length of the arguments."""
        return self.factor <= 1

    def is_below(self, limit: int, text: str) -> bool:
        """Return whether validating `text` looks at less than `limit` characters, each as often as it is looked at."""
        if self.looks * len(text) > limit:
            return False
        if self.is_linear:
            return True
        try:
            waiting = [(from_json(text), self.looks * _CHARS_PER_VALUE)]
        except (ValueError, RecursionError):
            return True  # nothing will be validated
        spent = len(text)
        while waiting:
            value, price = waiting.pop()
            spent += price
            if spent > limit:
                return False
            if isinstance(value, dict | list):
                items = value.values() if isinstance(value, dict) else value
                waiting.extend([(item, price * self.factor) for item in items])
        return True


def validation_cost(schema: CoreSchema) -> ValidationCost:
    """Return what validating with a schema of pydantic's may take: its unions try one alternative after the other."""
    looks, leading = 1, 0
    known: dict[int, tuple[int, int]] = {}
    whole: Any = schema
    for part in [*whole.get("definitions", ()), whole.get("schema") if "definitions" in whole else whole]:
        here = _alternatives(part, known)
        looks, leading = max(looks, here[0]), max(leading, here[1])
    return ValidationCost(min(looks, _MAX_LOOKS), leading)


def _alternatives(node: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return how many ways lead through a part of a schema to one value, and how many of them to a definition."""
    if isinstance(node, dict):
        if id(node) not in known:
            known[id(node)] = _of_schema(node, known)
        return known[id(node)]
    found = [_alternatives(item, known) for item in node] if isinstance(node, list | tuple) else []
    return _largest(found)


def _of_schema(node: dict[str, Any], known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    kind = node.get("type")
    if kind == "definition-ref":
        return 1, 1
    if kind == "union":
        found = [_alternatives(choice, known) for choice in node["choices"]]
        return sum(looks for looks, _ in found), sum(leading for _, leading in found)
    skipped = ("metadata", "serialization", "default") if isinstance(kind, str) else ()
    inner = [value for key, value in node.items() if isinstance(value, dict | list | tuple) and key not in skipped]
    return _largest([_alternatives(value, known) for value in inner])


def _largest(found: list[tuple[int, int]]) -> tuple[int, int]:
    looks, leading = 1, 0
    for one in found:
        looks, leading = max(looks, one[0]), max(leading, one[1])
    return looks, leading


Parts: TypeAlias = Sequence[Mapping[str, Any]]
"""All objects in a core schema."""


def hashes_numbers(parts: Parts) -> bool:
    """Return whether members of a set or keys of a dict may be what is hashed like a number: not text, not a choice."""
    return any(_hashes_numbers(part) for part in parts if isinstance(part.get("type"), str))


def _hashes_numbers(node: Mapping[str, Any]) -> bool:
    if node["type"] == "dict":  # the keys of JSON are text before anything is made of them
        return _kind(node.get("keys_schema")) not in (*_TEXTS, "any")
    return node["type"] in ("set", "frozenset") and _kind(node.get("items_schema")) not in _TEXTS


def _kind(node: Any) -> str:
    while (
        isinstance(node, Mapping) and str(node.get("type")).startswith(("function-", "nullable")) and "schema" in node
    ):
        node = node["schema"]
    return "any" if node is None else str(node.get("type"))


def most_required(parts: Parts) -> int:
    """Return how many fields one object must have, at most: pydantic notes each of them that is missing."""
    return max(map(_required, parts), default=0)


def _required(node: Mapping[str, Any]) -> int:
    if node.get("type") not in ("dataclass-args", "model-fields", "typed-dict"):
        return 0
    fields: Any = node["fields"]
    listed = fields.values() if isinstance(fields, dict) else fields
    return sum([one.get("required", True) and one["schema"].get("type") != "default" for one in listed])


def has_own_code(parts: Parts) -> bool:
    """Return whether validating runs functions that are not pydantic's, which may take any time."""
    return any(map(_runs_own_code, parts))


def _runs_own_code(node: Mapping[str, Any]) -> bool:
    if not isinstance(node.get("type"), str):
        return False
    if node.get("post_init") or node.get("custom_init"):
        return True
    function = node.get("function")
    code = [function.get("function") if isinstance(function, Mapping) else function, node.get("default_factory")]
    return any(not _is_known(one) for one in code if one is not None)


def _is_known(code: Any) -> bool:
    while isinstance(code, partial):
        code = code.func
    module = getattr(code, "__module__", None) or type(code).__module__
    return str(module).partition(".")[0] in _KNOWN_CODE
