"""`ListItems`: the markers of the items of a list."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl")),
    *((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)


@dataclass(slots=True)
class ListItems:
    """Number of the next item of a list; None for a list without numbers."""

    number: int | None = None
    step: int = 1
    style: str = "1"

    def marker(self, attributes: Mapping[str, str]) -> str:
        """Return the number or dash of the next item, and the state of a task."""
        state = ""
        is_checkbox = attributes.get("role") in ("checkbox", "menuitemcheckbox")
        mark = attributes.get("aria-checked") if is_checkbox else attributes.get("data-list")
        if mark in ("checked", "true"):
            state = "[x] "
        elif mark in ("unchecked", "false"):
            state = "[ ] "
        if self.number is None:
            return f"- {state}"
        number = _integer(attributes.get("value", ""), self.number)
        self.number = number + self.step
        return f"{_numeral(number, self.style)}. {state}"


def new_list(tag: str, attributes: Mapping[str, str]) -> ListItems:
    """Return the markers of a list by its attributes."""
    is_unnumbered = "list-style:none" in attributes.get("style", "").replace("-type", "").replace(" ", "")
    if tag != "ol" or is_unnumbered:
        return ListItems()
    start = _integer(attributes.get("start", ""), 1)
    step = 1
    if "reversed" in attributes:
        if "start" not in attributes:
            # The first number is the number of items, which is not known yet.
            return ListItems()
        step = -1
    return ListItems(start, step, attributes.get("type", "1"))


def _integer(text: str, default: int) -> int:
    text = text.strip()
    if re.fullmatch(r"-?[0-9]{1,9}", text):
        return int(text)
    return default


def _numeral(number: int, style: str) -> str:
    """Return the number of an item of a list in the style of the list: `1`, `a`, `A`, `i` or `I`."""
    if style not in ("a", "A", "i", "I") or not 0 < number < 4000:
        return str(number)
    text = ""
    if style in "aA":
        while number:
            number, letter = divmod(number - 1, 26)
            text = chr(ord("a") + letter) + text
    else:
        text = roman_numeral(number)
    return text.upper() if style.isupper() else text


def roman_numeral(number: int) -> str:
    """Return a number as a Roman numeral in lower case."""
    text = ""
    for value, numeral in _ROMAN:
        count, number = divmod(number, value)
        text += numeral * count
    return text
