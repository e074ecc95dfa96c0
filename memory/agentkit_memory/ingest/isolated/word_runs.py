"""Text of a paragraph of a Word document."""

from __future__ import annotations

from typing import Any

from agentkit_memory.ingest.isolated.zip_parts import attribute, current_choice, local_name

_LEFT_OUT = frozenset({"del", "moveFrom", "delText", "instrText", "delInstrText", "rPr", "pPr", "sdtPr", "sdtEndPr"})
"""Deleted text, the commands of fields, and properties."""
_CHARACTERS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_BRACKETS = {"f": ("num", "/", "den"), "sSup": ("e", "^", "sup"), "sSub": ("e", "_", "sub")}
"""Formulas of two parts: the names of the parts, and the sign between them."""


class Runs:
    """The text of a paragraph as a reader sees it, and its text boxes."""

    def __init__(self, paragraph: Any) -> None:
        self.boxes: list[Any] = []
        self._pieces: list[str] = []
        self._children(paragraph)

    @property
    def text(self) -> str:
        """Text of the paragraph, without its text boxes."""
        return "".join(self._pieces)

    def _children(self, element: Any) -> None:
        for child in element:
            self._add(child)

    def _add(self, element: Any) -> None:
        name = local_name(element)
        if name == "t":
            self._pieces.append(element.text or "")
        elif name in _CHARACTERS:
            self._pieces.append(_CHARACTERS[name])
        elif name == "sym":
            self._pieces.append(_symbol(element))
        elif name in ("footnoteReference", "endnoteReference"):
            self._pieces.append(f"[{name.removesuffix('Reference')} {attribute(element, 'id')}]")
        elif name == "r":
            self._run(element)
        elif name == "ruby":
            self._ruby(element)
        elif name in _BRACKETS:
            self._formula(element, *_BRACKETS[name])
        elif name == "AlternateContent":
            self._children(current_choice(element))
        elif name == "txbxContent":
            self.boxes.append(element)
        elif name == "docPr" and attribute(element, "descr"):
            self._pieces.append(f"[image: {attribute(element, 'descr')}]")
        elif name and name not in _LEFT_OUT:
            self._children(element)

    def _run(self, run: Any) -> None:
        raised = False
        for properties in run:
            if local_name(properties) != "rPr":
                continue
            for each in properties:
                # Hidden text.
                if local_name(each) == "vanish" and attribute(each, "val") not in ("0", "false", "off"):
                    return
                raised = raised or (local_name(each) == "vertAlign" and attribute(each, "val") == "superscript")
        start = len(self._pieces)
        self._children(run)
        before, added = "".join(self._pieces[:start])[-1:], "".join(self._pieces[start:])
        # 10 with a raised 6 is not 106.
        if raised and (before.isalnum() or before == ")") and added.strip() and not added.startswith("["):
            self._pieces[start:] = ["^" + added]

    def _ruby(self, ruby: Any) -> None:
        base, reading = "", ""
        for child in ruby:
            if local_name(child) == "rubyBase":
                base = Runs(child).text
            elif local_name(child) == "rt":
                reading = Runs(child).text
        self._pieces.append(base + (f"({reading})" if reading.strip() else ""))

    def _formula(self, element: Any, first: str, sign: str, second: str) -> None:
        texts = {local_name(child): Runs(child).text.strip() for child in element}
        terms = [
            text if len(text) < 2 or text.isalnum() else f"({text})"
            for text in (texts.get(first, ""), texts.get(second, ""))
        ]
        self._pieces.append(sign.join(terms))


def _symbol(element: Any) -> str:
    """Return the character of a symbol, unless it is a number in a symbol font, which has no meaning elsewhere."""
    code = attribute(element, "char")
    try:
        character = chr(int(code, 16))
    except (ValueError, OverflowError):
        return ""
    if "\ue000" <= character <= "\uf8ff":
        return _SYMBOLS.get(code[-2:].upper(), "•")
    return character


_SYMBOLS = {"FE": "☑", "FC": "✓", "FD": "☒", "A8": "☐", "6F": "☐", "E0": "→", "DF": "←", "F0": "⇒"}
"""Signs of the font Wingdings with a meaning in texts."""
