"""Opaque data: data of a provider in a message or a part that this library does not interpret, but sends back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from agentkit_prompts.context.frozen import FrozenDict, freeze
from agentkit_prompts.context.json_problems import fits_json
from agentkit_prompts.errors import MessageError, Problem, Problems, error_of_problems

Opaque: TypeAlias = Annotated[Mapping[str, Any], Field(exclude_if=lambda data: not data)]
"""Additional data by the name of the provider; sent back unchanged, to that provider only."""

NO_OPAQUE = FrozenDict()


def no_opaque() -> FrozenDict:
    """Return empty opaque data: the default of fields."""
    return NO_OPAQUE


def opaque_data(data: object) -> FrozenDict:
    """Return opaque data as a read-only dict.

    Raises:
        MessageError: The data does not map providers to JSON data, so it cannot be stored or sent.
    """
    if type(data) is FrozenDict:
        return data
    problems: Problems = []
    if not isinstance(data, Mapping) or not all(isinstance(provider, str) for provider in data):
        reason = f"expected a mapping of providers to their data, got {type(data).__name__}"
        problems.append(Problem("opaque", reason))
    elif fits_json(data, "opaque", problems):
        return FrozenDict(freeze(data))
    raise error_of_problems(MessageError, "", problems, name="opaque")


def with_opaque(wire: Mapping[str, Any], opaque: Mapping[str, Any], providers: Iterable[str]) -> FrozenDict:
    """Return the wire form with the opaque data of these providers added, also inside its mappings.

    Opaque data never replaces an entry of the wire form, so that stored data cannot change a role, a type or a text.
    The exception: the role `system` can become `developer`.
    """
    if not opaque:
        return wire if isinstance(wire, FrozenDict) else FrozenDict(wire)
    for provider in providers:
        data = opaque.get(provider)
        if isinstance(data, Mapping):
            wire = _merged(wire, data)
    return wire if isinstance(wire, FrozenDict) else FrozenDict(wire)


def _merged(wire: Mapping[str, Any], data: Mapping[str, Any]) -> FrozenDict:
    merged = dict(wire)
    for key, value in data.items():
        entry = merged.get(key)
        if key not in merged or (key, entry, value) == ("role", "system", "developer"):
            merged[key] = freeze(value)
        elif isinstance(entry, dict) and isinstance(value, Mapping):
            merged[key] = _merged(entry, value)
    return FrozenDict(merged)
