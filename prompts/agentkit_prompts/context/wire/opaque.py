"""Opaque data, which only one provider understands, put back into what is sent to that provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentkit_prompts.context.frozen import FrozenDict, freeze

__all__ = ["with_opaque"]


def with_opaque(wire: Mapping[str, Any], opaque: Mapping[str, Any], providers: Iterable[str]) -> FrozenDict:
    """Return the wire form with the opaque data of these providers in it; mappings in it are merged."""
    for provider in providers if opaque else ():
        if isinstance(data := opaque.get(provider), Mapping):
            wire = _merged(wire, data)
    return wire if isinstance(wire, FrozenDict) else FrozenDict(wire)


def _merged(wire: Mapping[str, Any], data: Mapping[str, Any]) -> FrozenDict:
    merged = dict(wire)
    for key, value in data.items():
        here = merged.get(key)
        merged[key] = _merged(here, value) if isinstance(here, dict) and isinstance(value, Mapping) else freeze(value)
    return FrozenDict(merged)
