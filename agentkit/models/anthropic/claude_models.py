"""Table of the settings that each family of Claude models supports: the API refuses other settings with status 400."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

_Version: TypeAlias = tuple[int, int]

_LEVELS = ("low", "medium", "high")
_WITH_MAX = (*_LEVELS, "max")
_ALL = (*_LEVELS, "xhigh", "max")
_NEWEST = (99, 0)
_NAMED_FIRST = re.compile(r"claude-([a-z]+)(?:-(\d{1,2})(?!\d)(?:[.-](\d{1,2})(?!\d))?)?")
_NUMBER_FIRST = re.compile(r"claude-(\d{1,2})(?:[.-](\d{1,2}))?(?:-([a-z]+))?")


class ClaudeRules(NamedTuple):
    """Settings that a model supports."""

    sampling: Literal["any", "one", "none"]
    """Support of temperature, top_p and top_k: full; temperature or top_p, but not both; none."""
    thinking_budget: bool
    """True if the model supports a limit of thinking tokens."""
    no_thinking: str | None
    """Type of `thinking` that disables or minimises thinking; None if the model always thinks."""
    efforts: tuple[str, ...]
    """Levels of effort, in ascending order."""
    forced_tools: bool
    """True if a request can force the model to call a tool."""


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
"""Families (an empty tuple is any family), the first version of the rules, and the rules. From the migration guides and
the pages on thinking and effort of platform.claude.com, as of November 2026."""

_OTHERS = ClaudeRules("any", True, "disabled", _ALL, forced_tools=True)
"""Rules of a model with another name, at a compatible server."""


def claude_rules(model: str) -> ClaudeRules:
    """Return the rules of a model; an unknown Claude model has the rules of the newest models."""
    name = _family_and_version(model.lower())
    if name is None:
        return _OTHERS
    family, version = name
    return next(rules for families, since, rules in _ROWS if version >= since and (not families or family in families))


def _family_and_version(name: str) -> tuple[str, _Version] | None:
    if number := _NUMBER_FIRST.search(name):
        return number[3] or "", (int(number[1]), int(number[2] or 0))
    named = _NAMED_FIRST.search(name)
    if named is None:
        return None
    if named[1] == "instant":
        return named[1], (1, 0)
    if named[2]:
        return named[1], (int(named[2]), int(named[3] or 0))
    if named[1] == "mythos" and "preview" in name:
        return named[1], (0, 0)
    return named[1], _NEWEST
