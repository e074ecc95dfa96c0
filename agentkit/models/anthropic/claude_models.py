"""What each family of Claude models takes of the settings, as a table: the API answers 400 to the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["ClaudeRules", "claude_rules"]

_Version: TypeAlias = tuple[int, int]

_LEVELS = ("low", "medium", "high")
_WITH_MAX = (*_LEVELS, "max")
_ALL = (*_LEVELS, "xhigh", "max")
_NEWEST = (99, 0)
_NAMED_FIRST = re.compile(r"claude-([a-z]+)(?:-(\d{1,2})(?!\d)(?:[.-](\d{1,2})(?!\d))?)?")
_NUMBER_FIRST = re.compile(r"claude-(\d{1,2})(?:[.-](\d{1,2}))?(?:-([a-z]+))?")


class ClaudeRules(NamedTuple):
    """What a model takes."""

    sampling: Literal["any", "one", "none"]
    """Whether temperature, top_p and top_k are known, and temperature and top_p beside each other."""
    thinking_budget: bool
    """Whether the tokens that it may think can be given."""
    no_thinking: str | None
    """The kind of `thinking` that stands for none, or for the least there is; None where it always thinks."""
    efforts: tuple[str, ...]
    """The levels of effort that it knows, the least first."""
    forced_tools: bool
    """Whether it can be made to call a tool."""


_ROWS: Sequence[tuple[tuple[str, ...], _Version, ClaudeRules]] = (
    (("fable", "mythos"), (5, 1), ClaudeRules("none", False, None, _ALL, forced_tools=False)),
    (("fable", "mythos"), (0, 0), ClaudeRules("none", False, None, _ALL, forced_tools=True)),
    (("haiku",), (5, 5), ClaudeRules("none", False, "disabled", _ALL, forced_tools=True)),
    (("sonnet",), (5, 5), ClaudeRules("none", False, "between_tools", _ALL, forced_tools=False)),
    ((), (5, 5), ClaudeRules("none", False, None, _ALL, forced_tools=False)),
    ((), (4, 7), ClaudeRules("none", False, "disabled", _ALL, forced_tools=True)),
    ((), (4, 6), ClaudeRules("one", True, "disabled", _WITH_MAX, forced_tools=True)),
    (("opus",), (4, 5), ClaudeRules("one", True, "disabled", _LEVELS, forced_tools=True)),
    ((), (4, 1), ClaudeRules("one", True, "disabled", (), forced_tools=True)),
    ((), (3, 7), ClaudeRules("any", True, "disabled", (), forced_tools=True)),
    ((), (0, 0), ClaudeRules("any", False, "disabled", (), forced_tools=True)),
)
"""Families (none: all the others), the version from which on the rules hold, and the rules. From the migration guides
of platform.claude.com, and its pages on thinking and effort, as of November 2026."""

_OTHERS = ClaudeRules("any", True, "disabled", _ALL, forced_tools=True)
"""A model of another name, behind a server that speaks the protocol."""


def claude_rules(model: str) -> ClaudeRules:
    """Return what a model of this name takes; a Claude model that is not in the table is taken for a new one."""
    found = _family_and_version(model.lower())
    if found is None:
        return _OTHERS
    family, version = found
    return next(rules for families, since, rules in _ROWS if version >= since and (not families or family in families))


def _family_and_version(name: str) -> tuple[str, _Version] | None:
    if number := _NUMBER_FIRST.search(name):
        return number[3] or "", (int(number[1]), int(number[2] or 0))
    named = _NAMED_FIRST.search(name)
    if named is None:
        return None
    if named[1] == "instant":
        return named[1], (1, 0)
    is_preview = named[1] == "mythos" and "preview" in name
    version = (int(named[2]), int(named[3] or 0)) if named[2] else (0, 0) if is_preview else _NEWEST
    return named[1], version
