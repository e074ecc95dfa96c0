"""Opaque data: additional data of a provider for a message or a part, sent back unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from agentkit_prompts.context.frozen import FrozenDict, freeze
from agentkit_prompts.context.json_problems import fits_json
from agentkit_prompts.errors import MessageError, Problem, Problems, error_of_problems

__all__ = ["NO_OPAQUE", "Opaque", "no_opaque", "opaque_data", "with_opaque"]

Opaque: TypeAlias = Annotated[Mapping[str, Any], Field(exclude_if=lambda data: not data)]
"""Provider -> its additional data, sent back unchanged to that provider only."""

NO_OPAQUE = FrozenDict()


def no_opaque() -> FrozenDict:
    """Return empty opaque data."""
    return NO_OPAQUE


def opaque_data(data: object) -> FrozenDict:
    """Return opaque data, read-only.

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
    """Return the wire form with the opaque data of these providers added to it, also in its mappings.

    Opaque data never replaces an entry of the wire form, such as a role, a type or a text. The exception is the role
    of a system message, which can be `developer`.
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
        here = merged.get(key)
        # Entries of the wire form are never replaced, so that stored data cannot change a role or a text.
        if key not in merged or (key, here, value) == ("role", "system", "developer"):
            merged[key] = freeze(value)
        elif isinstance(here, dict) and isinstance(value, Mapping):
            merged[key] = _merged(here, value)
    return FrozenDict(merged)
