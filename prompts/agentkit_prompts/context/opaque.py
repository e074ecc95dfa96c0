"""Opaque data: what else a provider wrote about a message or a part, which goes back to it as it came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from agentkit_prompts.context.frozen import FrozenDict, freeze
from agentkit_prompts.context.json_problems import fits_json
from agentkit_prompts.errors import MessageError, Problem, Problems, listed

__all__ = ["NO_OPAQUE", "Opaque", "no_opaque", "opaque_data", "with_opaque"]

Opaque: TypeAlias = Annotated[Mapping[str, Any], Field(exclude_if=lambda data: not data)]
"""Provider -> what else it wrote here. It goes back to that provider unchanged, and to no other."""

NO_OPAQUE = FrozenDict()


def no_opaque() -> FrozenDict:
    """Return empty opaque data."""
    return NO_OPAQUE


def opaque_data(data: object) -> FrozenDict:
    """Return opaque data, read-only.

    Raises:
        MessageError: It does not map providers to data, or is not JSON: then no store and no provider could have it.
    """
    if type(data) is FrozenDict:
        return data
    problems: Problems = []
    try:
        if not isinstance(data, Mapping) or not all(isinstance(provider, str) for provider in data):
            problems.append(
                Problem("opaque", f"expected a mapping of providers to their data, got {type(data).__name__}")
            )
        elif fits_json(data, "opaque", problems):
            return FrozenDict(freeze(data))
    except Exception as error:  # of the code of a mapping
        raise MessageError(f"opaque: cannot be read: {type(error).__name__}: {error}", name="opaque") from error
    raise MessageError(listed(problems), name="opaque", problems=problems)


def with_opaque(wire: Mapping[str, Any], opaque: Mapping[str, Any], providers: Iterable[str]) -> FrozenDict:
    """Return the wire form with the opaque data of these providers added to it, also in its mappings.

    What the wire form says itself stays: a role, a type or a text is never that of opaque data. Only a system message
    may be one of the developer, which is another word for it.
    """
    for provider in providers if opaque else ():
        if isinstance(data := opaque.get(provider), Mapping):
            wire = _merged(wire, data)
    return wire if isinstance(wire, FrozenDict) else FrozenDict(wire)


def _merged(wire: Mapping[str, Any], data: Mapping[str, Any]) -> FrozenDict:
    merged = dict(wire)
    for key, value in data.items():
        here = merged.get(key)
        if key not in merged or (key, here, value) == ("role", "system", "developer"):
            merged[key] = freeze(value)
        elif isinstance(here, dict) and isinstance(value, Mapping):
            merged[key] = _merged(here, value)
    return FrozenDict(merged)
