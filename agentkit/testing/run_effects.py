"""Assertions on what a run asked for, from its journal."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, TypeAlias

from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_steps import Entry

__all__ = ["assert_effects", "effects"]

Recorded: TypeAlias = Any
"""A journal, or what has one: the result of a run, or the error that ended it."""
_GAP = "..."


def effects(recorded: Recorded) -> list[str]:
    """Return the effects of a run in order, such as `CallModel` and `CallTools(look)`, one for each tool call.

    Args:
        recorded: A journal, the result of a run, or the error that ended one.
    """
    return [_shown(entry) for entry in _journal(recorded).entries]


def assert_effects(recorded: Recorded, expected: Sequence[str | EllipsisType]) -> None:
    """Compare the effects of a run with those expected.

    Args:
        recorded: A journal, the result of a run, or the error that ended one.
        expected: Names of effects. `"CallTools"` stands for any tool, `"CallTools(look)"` for one, `...` for any number
            of any effects.

    Raises:
        AssertionError: They are others; shows the difference.
    """
    found = effects(recorded)
    if isinstance(expected, str):
        raise TypeError(f"assert_effects: expected a list of effects, got one str; write [{expected!r}]")
    wanted = [_GAP if one is ... else one for one in expected]
    if not _fits(found, wanted):
        lines = difflib.unified_diff(wanted, found, "expected", "the run", lineterm="", n=len(found))
        raise AssertionError("the run had other effects\n" + "\n".join(lines))


def _journal(recorded: Recorded) -> Journal:
    journal = recorded if isinstance(recorded, Journal) else getattr(recorded, "journal", None)
    if not isinstance(journal, Journal):
        what = type(recorded).__name__
        raise TypeError(f"effects: expected a journal, the result of a run or the error that ended one, got {what}")
    return journal


def _shown(entry: Entry) -> str:
    if entry.effect != "CallTools":
        return entry.effect
    return f"CallTools({entry.answer[0].name})"


def _fits(found: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return True if effects match a pattern; all lengths of a gap are tried together."""
    reached = {0}
    for one in wanted:
        if one == _GAP:
            reached = {*range(min(reached, default=len(found) + 1), len(found) + 1)}
        else:
            reached = {at + 1 for at in reached if at < len(found) and one in (found[at], found[at].partition("(")[0])}
    return len(found) in reached
