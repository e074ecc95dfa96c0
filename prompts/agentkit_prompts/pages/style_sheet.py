"""`StyleSheet`: rules of the style sheets in a page that hide elements by a class, an id or a tag."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentkit_prompts.pages.visibility import Style, style_of

__all__ = ["StyleSheet"]

_MAX_SHEET = 2 * 1024 * 1024
"""Maximum characters of a style sheet that is read."""

_MAX_RULES = 20
"""Maximum different rules of one name that are read."""

_BRACE = re.compile(r"([{}])")
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_SIMPLE = re.compile(r"([a-z][a-z0-9-]*+)?+((?:[.#][\w-]++)*+)", re.IGNORECASE)
_NAME = re.compile(r"[.#][\w-]++")
_PROPERTIES = re.compile(r"display|visibility|font|text-indent|color|position", re.IGNORECASE)
_SCREEN = re.compile(r"@(?:media\s+(?:only\s+)?(?:screen|all)\s*|layer\b.*|supports\b.*)", re.IGNORECASE)


class StyleSheet:
    """Rules of the style sheets of a page.

    Only rules with one simple selector, such as `.note` or `p.note`, hide elements. An element that any rule displays,
    also in a condition or for another state, is not hidden by a sheet: scripts show it.
    """

    def __init__(self) -> None:
        self._rules: dict[str, dict[frozenset[str], Style]] = {}
        # Names in the selectors that display an element, by each name.
        self._displayed: dict[str, set[frozenset[str]]] = {}

    @property
    def has_rules(self) -> bool:
        """True if a rule can hide an element."""
        return bool(self._rules)

    def read(self, text: str) -> None:
        """Add the rules of a style sheet."""
        if len(text) > _MAX_SHEET or not _PROPERTIES.search(text):
            return
        # Selectors and conditions of the open braces.
        preludes: list[str] = []
        rest = ""
        for token in _BRACE.split(_COMMENT.sub("", text)):
            if token == "{":
                preludes.append(rest.rpartition(";")[2].strip())
            elif token == "}":
                if preludes:
                    self._add_rule(preludes.pop(), rest, is_always=all(map(_SCREEN.fullmatch, preludes)))
            else:
                rest = token

    def style(self, tag: str, attributes: Mapping[str, str]) -> Style | None:
        """Return the facts of the rules for an element, or None."""
        if not self._rules:
            return None
        names = {tag}
        if "class" in attributes:
            names.update(f".{name}" for name in attributes["class"].split())
        if "id" in attributes:
            names.add(f"#{attributes['id']}")
        style = None
        for name in names & self._rules.keys():
            for required, facts in self._rules[name].items():
                if required <= names and not (facts.is_hidden and self._is_displayed(name, required)):
                    style = facts
        return style

    def _is_displayed(self, name: str, required: frozenset[str]) -> bool:
        """True if a rule for an element of these names, in some state, displays it."""
        return any(required <= names for names in self._displayed.get(name, ()))

    def _add_rule(self, prelude: str, body: str, *, is_always: bool) -> None:
        if prelude.startswith("@") or not _PROPERTIES.search(body):
            return
        style = style_of(body.strip())
        if style == Style():
            return
        for selector in prelude.split(","):
            compound = selector.strip()
            match = _SIMPLE.fullmatch(compound)
            names = frozenset(_NAME.findall(compound))
            if match is not None and match[1]:
                names |= {match[1].lower()}
            if style.is_displayed:
                for name in names:
                    states = self._displayed.setdefault(name, set())
                    if len(states) < _MAX_RULES:
                        states.add(names)
            elif is_always and match is not None and names:
                rules = self._rules.setdefault(min(names), {})
                if len(rules) < _MAX_RULES:
                    rules[names] = style
