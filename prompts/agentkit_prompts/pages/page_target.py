"""`PageTarget`: receives tags and text from the parser, and writes blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentkit_prompts.pages.block_writer import BlockWriter
from agentkit_prompts.pages.formula import Formula
from agentkit_prompts.pages.list_items import new_list
from agentkit_prompts.pages.page_blocks import MAX_PART, Block, BlockKind
from agentkit_prompts.pages.style_sheet import StyleSheet
from agentkit_prompts.pages.styles import Visibility, style_of
from agentkit_prompts.pages.table_rows import TableRows
from agentkit_prompts.pages.visibility import (
    CONTENT,
    FOREIGN,
    HIDDEN_TAGS,
    JUDGED_ATTRIBUTES,
    is_content_role,
    is_marked,
    visibility_of,
)

_MAX_DOUBTFUL = 1500
"""Maximum characters outside of links of navigation, footers and cookie banners that are left out."""
_MAX_JUDGED = 2000
"""Maximum different elements of a page whose visibility is stored."""
_MAX_LIST_DEPTH = 8
"""Maximum indentation of an item of a list, in levels."""
_BREAKS = frozenset(
    {"html", "head", "body", "p", "div", "section", "article", "main", "header", "footer", "aside", "address", "hr"}
    | {"blockquote", "dl", "dt", "dd", "figure", "figcaption", "form", "fieldset", "legend", "details", "summary"}
    | {"caption", "center", "hgroup", "search", "dialog", "template"}
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_NESTED: Mapping[str, BlockKind] = {
    **dict.fromkeys(("ul", "ol", "menu", "dir"), "list"),
    "table": "table",
    **dict.fromkeys(("pre", "listing", "xmp", "plaintext", "textarea"), "code"),
}
_CAPTURED = frozenset({"sup", "sub", "ruby", "rt", "title"})
_QUOTES = {"q": '"', "del": "~~", "s": "~~", "strike": "~~"}
"""Text at both edges of an element."""
_FORMS = frozenset({"input", "option", "select", "button"})
_SPACE = re.compile(r"[ \t\r\n\f\x0b\x1f]+")
_JUDGED = HIDDEN_TAGS | {"svg", "nav", "footer"}
"""Elements whose visibility depends on their name."""
_RARE_ATTRIBUTES = JUDGED_ATTRIBUTES - {"class", "id", "style"}
_NO_ATTRIBUTES: Mapping[str, str] = {}
_VALUES = frozenset({"text", "search", "email", "url", "tel", "number", "date", "time", "button", "submit", "reset"})
"""Kinds of inputs that show their value."""
_PERMALINKS = frozenset({"¶", "#", "§", "🔗", "\u200b", "\uf0c1"})


@dataclass(slots=True)
class _Doubt:
    """An element that is left out if it contains little text outside of links."""

    depth: int
    blocks: list[Block]
    """Blocks before the element."""
    title: tuple[bool, bool]
    characters: int = 0


class PageTarget(BlockWriter):
    """Target of the parser: the parser calls it with tags and text, and it collects blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.is_silent = True
        """True if the parser has called no method since the value was set."""
        # Visibility of each open element.
        self._states: list[Visibility] = ["shown"]
        self._sheet = StyleSheet()
        # Text of a style sheet or a TeX script that is being read.
        self._source: list[str] | None = None
        # Number of open elements at the start of the content, or 0 outside the content.
        self._content = 0
        self._formula: Formula | None = None
        self._is_linked = False
        self._doubts: list[_Doubt] = []
        # Tags whose visibility depends on their name, or on a style sheet of the page.
        self._judged_tags = _JUDGED
        # Visibility by tag, attributes and place.
        self._judged: dict[tuple[object, ...], Visibility] = {}
        # Values of `class` by their effect: False if they can decide about the visibility of an element.
        self._plain: dict[str, bool] = {}

    def take(self) -> list[Block]:
        """Return the complete blocks, except blocks of elements that can still be left out."""
        if self._doubts:
            if self._doubts[-1].characters <= _MAX_DOUBTFUL:
                return []
            while self._doubts:
                self._end_doubt()
        blocks, self._blocks = self._blocks, []
        return blocks

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Start an element."""
        self.is_silent = False
        states = self._states
        state = states[-1]
        if state == "hidden":
            states.append(state)
            return
        if not attributes:
            # The empty mapping of lxml is slow.
            attributes = _NO_ATTRIBUTES
        # Most elements are as visible as their parent.
        if tag in self._judged_tags or state == "drawing" or (attributes and not self._is_plain(attributes)):
            state = self._state(tag, attributes)
        if state == "doubtful":
            state = self._start_doubt(tag)
        states.append(state)
        if not self._content and (tag in CONTENT or ("role" in attributes and is_content_role(attributes))):
            self._content = len(states)
        if state != "shown":
            self._start_unseen(tag, attributes)
        elif self._formula is not None:
            self._formula.start(tag, attributes)
        elif tag in _STARTS:
            _STARTS[tag](self, tag, attributes)

    def end(self, tag: str) -> None:
        """End an element."""
        self.is_silent = False
        states = self._states
        state: Visibility = "shown"
        if len(states) > 1:
            state = states.pop()
        if state == "hidden" and states[-1] == "hidden":
            return
        if self._content > len(states):
            self._content = 0
        if self._doubts and len(states) < self._doubts[-1].depth:
            self._end_doubt()
        if state != "shown":
            if self._source is not None and states[-1] != "hidden":
                self._end_source(tag)
        elif self._formula is not None:
            self._end_formula(tag)
        elif tag in _ENDS:
            _ENDS[tag](self, tag)

    def data(self, text: str) -> None:
        """Add text of the current element."""
        self.is_silent = False
        if self._states[-1] != "shown":
            if self._source is not None:
                self._source.append(text)
            return
        if self._formula is not None:
            self._formula.data(text)
            return
        if self._code:
            if self._is_after_line:
                text = text.removeprefix("\n")
        elif text.isspace() and self._is_space_redundant():
            # Most texts of a page are the line ends between its blocks.
            return
        elif "  " in text or not text.isprintable():
            text = _SPACE.sub(" ", text)
        if self._doubts and not self._is_linked:
            self._doubts[-1].characters += len(text)
        if self._is_permalink(text):
            return
        # An empty text is added once.
        for start in range(0, len(text) or 1, MAX_PART):
            self._add(text[start : start + MAX_PART])

    def _is_permalink(self, text: str) -> bool:
        """True for the sign of a link from a heading to the heading."""
        return bool(self._link) and self._kind == "heading" and text.strip() in _PERMALINKS

    def close(self) -> None:
        """End of the page; lxml requires the method."""

    def end_page(self) -> None:
        """Emit the last block, and the title of a page without text."""
        while self._doubts:
            self._end_doubt()
        self._end_block()
        if self._title and not self._has_title:
            self._blocks.append(Block("", "heading", 0, self._title))

    def _state(self, tag: str, attributes: Mapping[str, str]) -> Visibility:
        """Return the visibility of an element. Many elements of a page are equal to another element."""
        parent = self._states[-1]
        names = tuple(map(attributes.get, JUDGED_ATTRIBUTES))
        key = (tag, parent, bool(self._content), self._is_after_formula, names)
        state = self._judged.get(key)
        if state is None:
            if len(self._judged) >= _MAX_JUDGED:
                self._judged.clear()
            state = self._judged[key] = self._judge(tag, attributes, parent)
        return state

    def _is_plain(self, attributes: Mapping[str, str]) -> bool:
        """True if no attribute of an element can decide about its visibility."""
        if not _RARE_ATTRIBUTES.isdisjoint(attributes):
            return False
        style = attributes.get("style")
        if style:
            hides, _, visibility, font = style_of(style)
            if hides or visibility or font:
                return False
        name = attributes.get("id")
        if name and (f"#{name}" in self._sheet.names or is_marked(name)):
            return False
        classes = attributes.get("class")
        if not classes:
            return True
        is_plain = self._plain.get(classes)
        if is_plain is None:
            if len(self._plain) >= _MAX_JUDGED:
                self._plain.clear()
            is_plain = not is_marked(classes) and not self._sheet.has_class(classes)
            self._plain[classes] = is_plain
        return is_plain

    def _judge(self, tag: str, attributes: Mapping[str, str], parent: Visibility) -> Visibility:
        if tag in FOREIGN:
            return parent
        classes = attributes.get("class", "")
        # Styles of KaTeX and MathJax hide one of two copies of a formula, each for another kind of reader.
        if "katex-html" in classes and not self._is_after_formula:
            attributes = {}
        elif "MathJax_Preview" in classes:
            return "hidden"
        sheet = self._sheet.style(tag, attributes)
        return visibility_of(tag, attributes, parent, sheet, in_content=bool(self._content))

    # Elements that are left out if they are short.

    def _start_doubt(self, tag: str) -> Visibility:
        """Start an element that is left out if it is short; return its visibility."""
        # A part of a line, a list or a table is left out at once: a block cannot end here.
        if tag not in _BREAKS | _NESTED.keys() | {"nav"} or self._tables or self._lists or self._captures or self._code:
            return "hidden"
        self._end_block()
        self._doubts.append(_Doubt(len(self._states) + 1, self._blocks, (self._has_title, self._has_heading)))
        self._blocks = []
        return "shown"

    def _end_doubt(self) -> None:
        self._end_block()
        doubt = self._doubts.pop()
        if doubt.characters > _MAX_DOUBTFUL:
            doubt.blocks += self._blocks
            if self._doubts:
                self._doubts[-1].characters += doubt.characters
        else:
            self._has_title, self._has_heading = doubt.title
        self._blocks = doubt.blocks

    # Elements that are not seen.

    def _start_unseen(self, tag: str, attributes: Mapping[str, str]) -> None:
        kind = attributes.get("type", "").lower()
        if tag == "style":
            if attributes.get("media", "").strip().lower() in ("", "all", "screen", "only screen"):
                self._source = []
        elif tag == "script" and kind.startswith("math/tex") and not self._is_after_formula:
            self._source = []

    def _end_source(self, tag: str) -> None:
        source = "".join(self._source or ())
        self._source = None
        if tag == "style":
            self._sheet.read(source)
            self._judged_tags = _JUDGED | self._sheet.names
            self._judged.clear()
            self._plain.clear()
        elif tag == "script" and self._states[-1] == "shown":
            self._add(_SPACE.sub(" ", source).strip())

    # Elements that are seen.

    def _start_break(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._break()

    def _start_heading(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._end_block()
        self._kind, self._level = "heading", _HEADINGS[tag]

    def _add_line_end(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._add("\n")
        self._is_after_line = False

    def _add_alternative(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._add(attributes.get("alt", ""))

    def _start_formula(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._formula = Formula(attributes)

    def _start_quote(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._add(_QUOTES[tag])

    def _end_break(self, tag: str) -> None:
        self._break()
        if tag == "caption":
            # The caption is not a row of the table.
            self._end_at_edge()

    def _end_item(self, tag: str) -> None:
        if self._code:
            self._break()

    def _end_link(self, tag: str) -> None:
        self._link, self._is_linked = "", False

    def _end_heading(self, tag: str) -> None:
        self._end_block()

    def _end_table_row(self, tag: str) -> None:
        self._end_row()

    def _end_quote(self, tag: str) -> None:
        self._add(_QUOTES[tag])

    def _start_link(self, tag: str, attributes: Mapping[str, str]) -> None:
        href = attributes.get("href", "")
        self._is_linked = True
        is_note = "noteref" in attributes.get("role", "") or "noteref" in attributes.get("epub:type", "")
        self._link = href if "#" in href or is_note else ""
        if self._link and self._captures:
            self._captures[-1].is_note = True

    def _start_control(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Add the state or the value of a control of a form."""
        kind = attributes.get("type", "text").lower()
        if tag == "button":
            # A button in code copies it.
            if self._code:
                self._states[-1] = "hidden"
        elif tag == "option":
            if "selected" not in attributes:
                self._states[-1] = "hidden"
        elif kind == "checkbox":
            self._add("[x] " if "checked" in attributes else "[ ] ")
        elif kind == "radio":
            self._add("(x) " if "checked" in attributes else "( ) ")
        elif kind in _VALUES and attributes.get("value"):
            self._add(f" {attributes['value']} ")

    def _start_nested(self, tag: str, attributes: Mapping[str, str]) -> None:
        kind = _NESTED[tag]
        if kind == "code":
            self._end_block()
            self._code += 1
        else:
            self._end_at_edge()
            if kind == "table":
                is_layout = attributes.get("role", "").lower() in ("presentation", "none")
                self._tables.append(TableRows(is_layout=is_layout))
            else:
                self._lists.append(new_list(tag, attributes))
        self._kind = self._context()

    def _end_nested(self, tag: str) -> None:
        kind = _NESTED[tag]
        if kind == "code":
            self._end_block()
            self._code = max(0, self._code - 1)
            self._kind = self._context()
            return
        if kind == "table" and self._tables:
            self._end_row()
            self._tables.pop()
        elif kind == "list" and self._lists:
            self._lists.pop()
        self._end_at_edge()

    def _start_entry(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Start an item of a list, or a row or cell of a table."""
        if self._code:
            self._break()
        elif tag == "li":
            self._release()
            self._add_readings()
            marker = self._lists[-1].marker(attributes) if self._lists else "- "
            self._add("\n" + "\t" * min(len(self._lists) - 1, _MAX_LIST_DEPTH) + marker)
        elif not self._tables:
            self._add(" ")
        elif tag == "tr":
            self._start_row()
        else:
            self._start_cell(attributes)

    def _end_formula(self, tag: str) -> None:
        if self._formula is None:
            return
        if tag != "math":
            self._formula.end(tag)
            return
        text = self._formula.text
        self._formula = None
        self._add(text)
        self._is_after_formula = True


_STARTS: Mapping[str, Callable[[PageTarget, str, Mapping[str, str]], None]] = {
    **dict.fromkeys(_QUOTES, PageTarget._start_quote),
    **dict.fromkeys(_FORMS, PageTarget._start_control),
    "math": PageTarget._start_formula,
    "a": PageTarget._start_link,
    "img": PageTarget._add_alternative,
    "br": PageTarget._add_line_end,
    **dict.fromkeys(("li", "tr", "td", "th"), PageTarget._start_entry),
    **dict.fromkeys(_CAPTURED, PageTarget._start_capture),
    **dict.fromkeys(_NESTED, PageTarget._start_nested),
    **dict.fromkeys(_HEADINGS, PageTarget._start_heading),
    **dict.fromkeys(_BREAKS, PageTarget._start_break),
}
"""Start of the elements that are more than their text."""
_ENDS: Mapping[str, Callable[[PageTarget, str], None]] = {
    **dict.fromkeys(_QUOTES, PageTarget._end_quote),
    "tr": PageTarget._end_table_row,
    **dict.fromkeys(_CAPTURED, PageTarget._end_capture),
    **dict.fromkeys(_NESTED, PageTarget._end_nested),
    **dict.fromkeys(_HEADINGS, PageTarget._end_heading),
    "a": PageTarget._end_link,
    "li": PageTarget._end_item,
    **dict.fromkeys(_BREAKS, PageTarget._end_break),
}
