"""Assertions about the effects of a run, read from its journal."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, TypeAlias

from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_steps import Entry

Recorded: TypeAlias = Any
"""A journal, the result of a run, or the error that ended a run."""
_GAP = "..."
"""Item of a pattern that matches any number of effects."""


def effects(recorded: Recorded) -> list[str]:
    """Return the effects of a run in order, such as `CallModel`, and `CallTools(look)` for each tool call.

    A call without a result has its status after the name: `CallTools(look, error)`; also `timeout`, `denied`,
    `cancelled` and `unavailable`.

    Args:
        recorded: A journal, the result of a run, or the error that ended a run.
    """
    return [_effect_name(entry) for entry in _journal(recorded).entries]


def assert_effects(recorded: Recorded, expected: Sequence[str | EllipsisType]) -> None:
    """Compare the effects of a run with the expected effects.

    Args:
        recorded: A journal, the result of a run, or the error that ended a run.
        expected: Names of effects. `"CallTools"` matches a successful call of any tool, `"CallTools(look)"` a
            successful call of this tool, `"CallTools(look, error)"` a failed call, and `...` any number of effects.

    Raises:
        AssertionError: The effects differ; the message contains the difference.
    """
    names = effects(recorded)
    if isinstance(expected, str):
        raise TypeError(f"assert_effects: expected a list of effects, got one str; write [{expected!r}]")
    pattern = [_GAP if item is ... else item for item in expected]
    if not _matches(names, pattern):
        lines = difflib.unified_diff(pattern, names, "expected", "the run", lineterm="", n=len(names))
        raise AssertionError("the run had other effects\n" + "\n".join(lines))


def assert_no_tool_errors(recorded: Recorded) -> None:
    """Check that each tool call of a run succeeded, also in agents that ran as tools; denied calls are no errors.

    Args:
        recorded: A journal, the result of a run, or the error that ended a run.

    Raises:
        AssertionError: Calls failed; the message contains their tracebacks.
    """
    failed = _journal(recorded).tool_errors
    if failed:
        details = [f"{call}\n{call.traceback}".rstrip() for call in failed]
        raise AssertionError("tools failed in the run\n" + "\n".join(details))


def _journal(recorded: Recorded) -> Journal:
    if isinstance(recorded, Journal):
        return recorded
    journal = getattr(recorded, "journal", None)
    if not isinstance(journal, Journal):
        name = type(recorded).__name__
        raise TypeError(f"expected a journal, the result of a run or the error that ended a run, got {name}")
    return journal


def _effect_name(entry: Entry) -> str:
    if entry.effect != "CallTools":
        return entry.effect
    result = entry.answer[0]
    if result.ok:
        return f"CallTools({result.name})"
    return f"CallTools({result.name}, {result.status})"


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """True if effects match a pattern."""
    # The numbers of effects that the items so far can match, so that no combination is tried twice.
    counts = {0}
    for item in pattern:
        if item == _GAP:
            counts = {*range(min(counts, default=len(names) + 1), len(names) + 1)}
        else:
            counts = {at + 1 for at in counts if at < len(names) and item in _patterns(names[at])}
    return len(names) in counts


def _patterns(name: str) -> tuple[str, ...]:
    """Return the items that match an effect. The bare `CallTools` matches no failed call, which would go unnoticed."""
    if ", " in name:
        return (name,)
    return name, name.partition("(")[0]
