"""`StyleSheet`: rules of the style sheets in a page that hide elements by a class, an id or a tag."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

from agentkit_prompts.pages.styles import Means, Style, style_of

_MAX_SHEET = 2 * 1024 * 1024
"""Maximum characters of a style sheet that is read."""

_MAX_RULES = 50
"""Maximum different rules of one name that are read."""
_MAX_DECLARATIONS = 2000
"""Maximum characters of the declarations of one selector that are read."""

_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_SIMPLE = re.compile(r"([a-z][a-z0-9-]*+)?+((?:[.#][\w-]++)*+)", re.IGNORECASE)
_NAME = re.compile(r"[.#][\w-]++")
_HIDING = re.compile(
    r"none|hidden|collapse|visible|opacity|font:|font-size|transparent|#0000|rgba|rect\(|inset\(|circle\(|scale|overflow"
    r"|background|-\d{2}"
)
"""Parts of declarations that can hide an element, in lower case."""
_SHOWING = re.compile("display|visible|opacity|height|width|transform|clip")
_SCREEN = re.compile(r"@(?:media\s+(?:only\s+)?(?:screen|all)\s*|layer\b.*|supports\b.*)", re.IGNORECASE)


class StyleSheet:
    """Rules of the style sheets of a page.

    Only rules with one simple selector, such as `.note` or `p.note`, hide elements. An element that any rule shows by
    the same means, also in a condition or for another state, is not hidden by a sheet: scripts show it.
    """

    def __init__(self) -> None:
        # Declarations by the names of a simple selector, by its first name. They are read when an element matches.
        self._rules: dict[str, dict[frozenset[str], str]] = {}
        # Names of all selectors with declarations that can show an element, by each name.
        self._states: dict[str, list[tuple[frozenset[str], str]]] = {}
        # Selectors and declarations that are not in `_states` yet: most pages never need them.
        self._unread: list[tuple[str, str]] = []

    @property
    def names(self) -> Set[str]:
        """Names in the rules that can hide an element: a tag, `.` and a class, or `#` and an id."""
        return self._rules.keys()

    def has_class(self, classes: str) -> bool:
        """True if a rule that can hide an element is for one of its classes."""
        return bool(self._rules) and any(f".{name}" in self._rules for name in classes.split())

    def read(self, text: str) -> None:
        """Add the rules of a style sheet."""
        if len(text) > _MAX_SHEET:
            return
        # Selectors and conditions of the open braces.
        preludes: list[str] = []
        for part in _COMMENT.sub("", text).split("}"):
            *starts, body = part.split("{")
            preludes += [start.rpartition(";")[2].strip() for start in starts]
            if preludes:
                self._add_rule(preludes.pop(), body, is_always=all(map(_SCREEN.fullmatch, preludes)))

    def style(self, tag: str, attributes: Mapping[str, str]) -> Style | None:
        """Return the facts of the rules for an element, or None."""
        if not self._rules:
            return None
        names = {tag}
        if "class" in attributes:
            names.update(f".{name}" for name in attributes["class"].split())
        if "id" in attributes:
            names.add(f"#{attributes['id']}")
        style = Style()
        for name in names & self._rules.keys():
            for required, declarations in self._rules[name].items():
                if required <= names:
                    facts = self._facts(name, required, declarations)
                    visibility, font = facts.visibility or style.visibility, facts.font or style.font
                    style = Style(style.hides | facts.hides, visibility=visibility, font=font)
        return style

    def _facts(self, name: str, required: frozenset[str], declarations: str) -> Style:
        """Return the facts of a rule, without the means that a rule for the same elements in another state undoes."""
        facts = style_of(declarations)
        if not facts.hides and facts.visibility != "invisible":
            return facts
        self._read_states()
        shows: set[Means] = set()
        for names, body in self._states.get(name, ()):
            if required <= names:
                shows |= style_of(body).shows
        visibility = facts.visibility
        if visibility == "invisible" and "display" in shows:
            visibility = None
        return Style(facts.hides - shows, visibility=visibility, font=facts.font)

    def _add_rule(self, prelude: str, body: str, *, is_always: bool) -> None:
        if prelude.startswith("@"):
            return
        lower = body.lower()
        if _SHOWING.search(lower):
            self._unread.append((prelude, body))
        if not is_always or not _HIDING.search(lower):
            return
        for selector in prelude.split(","):
            match = _SIMPLE.fullmatch(selector.strip())
            names = _names(match)
            if names:
                rules = self._rules.setdefault(min(names), {})
                if len(rules) < _MAX_RULES:
                    # A later declaration of the same element replaces an earlier declaration.
                    rules[names] = f"{rules.get(names, '')};{body.strip()}"[-_MAX_DECLARATIONS:]

    def _read_states(self) -> None:
        rules, self._unread = self._unread, []
        for prelude, body in rules:
            for selector in prelude.split(","):
                compound = selector.strip()
                names = _names(_SIMPLE.fullmatch(compound)) or frozenset(_NAME.findall(compound))
                for name in names:
                    states = self._states.setdefault(name, [])
                    if len(states) < _MAX_RULES:
                        states.append((names, body.strip()))


def _names(selector: re.Match[str] | None) -> frozenset[str]:
    """Return the names of a simple selector: its tag, classes and ids; no names for another selector."""
    if selector is None:
        return frozenset()
    names = frozenset(_NAME.findall(selector[2]))
    if selector[1]:
        names |= {selector[1].lower()}
    return names
