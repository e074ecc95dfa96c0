"""Effects of a budget or of a `Size.max` on the layers of a composition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agentkit_prompts.context.frozen import ReadOnlyDict

Status = Literal["kept", "trimmed", "dropped"]


@dataclass(frozen=True, slots=True)
class Trim:
    """Cut of one layer."""

    remaining: int
    """Number of units after the cut: items, steps of the history, or pieces of text."""
    of: int
    """Number of units before the cut."""
    why: str
    """Reason of the cut, for a person: the number of units, and the limit."""
    first_item: str = ""
    """Path of the first item that was cut; empty if the units are no items of the context."""

    @property
    def status(self) -> Status:
        """`trimmed` if a unit remains, else `dropped`."""
        return "trimmed" if self.remaining else "dropped"


NO_TRIMS: Mapping[str, Trim] = ReadOnlyDict()
