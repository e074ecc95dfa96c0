"""Every compiled pattern of the packages takes linear time for texts that repeat parts of the pattern."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from agentkit.models.completion.call_space import space_pattern
from tests.house.packages import MODULES, module_name

_CATEGORIES = {"DIGIT": "1", "SPACE": " \n", "WORD": "aA_1"}
_CALL_READERS = "agentkit_prompts.chat_templates.tool_calls."
"""Readers of tool calls, which match all their patterns at a given place."""
_LENGTH = 600
_MIN_SECONDS = 0.005
"""Seconds below which the noise of the clock is larger than the growth."""


@dataclass(frozen=True)
class Case:
    """A pattern as the packages use it."""

    pattern: re.Pattern[Any]
    place: str
    is_anchored: bool = False
    """True if the pattern is only matched at a given place of a text, and never searched."""

    def seconds(self, start: str, pump: str, length: int) -> float:
        """Return the CPU seconds to read a text: `start`, then `pump` until it has this length, then no match."""
        text: Any = start + pump * (length // len(pump)) + "\x01"
        if isinstance(self.pattern.pattern, bytes):
            text = text.encode("latin-1", "replace")
        before = time.process_time()
        if self.is_anchored:
            self.pattern.match(text)
            self.pattern.fullmatch(text)
        else:
            for _ in self.pattern.finditer(text):
                pass
        return time.process_time() - before

    def grows_too_fast(self, start: str, pump: str) -> bool:
        """True if a text of four times the length costs more than eight times the time, in three measurements."""
        if self.seconds(start, pump, 4 * _LENGTH) < _MIN_SECONDS:
            return False
        return all(
            self.seconds(start, pump, 4 * _LENGTH) > max(_MIN_SECONDS, 8 * self.seconds(start, pump, _LENGTH))
            for _ in range(3)
        )

    def attacks(self) -> Iterator[tuple[str, str]]:
        """Yield the start and the repeated text of hostile texts."""
        characters, words = {" "}, set[str]()
        collect(parser.parse(self.pattern.pattern, self.pattern.flags), characters, words)
        singles = sorted(characters)[:12]
        longest = sorted(filter(None, words), key=len, reverse=True)[:4]
        # Separators such as `://` are the shortest words.
        shortest = sorted(
            {word for word in words if len(word) > 1}.difference(longest), key=lambda word: (len(word), word)
        )
        pairs = ["".join(pair) for pair in permutations(singles[:6], 2)]
        for start in ("", *longest):
            for pump in (*singles, *longest, *shortest[:8], *(pairs if not start else ())):
                yield start, pump


def collect(nodes: Any, characters: set[str], words: set[str]) -> None:
    """Collect the characters and the literal words that a parsed pattern matches."""
    word = ""
    for code, value in nodes:
        if code is codes.LITERAL:
            word += chr(value)
            characters.add(chr(value))
            continue
        words.add(word)
        word = ""
        if code is codes.IN:
            for kind, item in value:
                if kind is codes.LITERAL:
                    characters.add(chr(item))
                elif kind is codes.RANGE:
                    characters.add(chr(item[0]))
                elif kind is codes.CATEGORY:
                    characters.update(_CATEGORIES.get(str(item).rsplit("_", 1)[-1], "a "))
        elif code in (codes.ANY, codes.NOT_LITERAL):
            characters.add("a")
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            collect(value[2], characters, words)
        elif code is codes.SUBPATTERN:
            collect(value[3], characters, words)
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            collect(value[1], characters, words)
        elif code is codes.ATOMIC_GROUP:
            collect(value, characters, words)
        elif code is codes.BRANCH:
            for branch in value[1]:
                collect(branch, characters, words)
    words.add(word)


def cases() -> Iterator[Case]:
    """Yield the patterns of the modules, also in their lists and tables."""
    for path in MODULES:
        name, source = module_name(path), path.read_text("utf-8")
        if path.stem.startswith("__"):
            continue  # a program runs when it is imported
        for attribute, value in vars(importlib.import_module(name)).items():
            # A pattern that another module defines is a case of the other module.
            if re.search(rf"^{attribute}\b", source, re.M):
                for item in items(value):
                    # Without a repetition that has no maximum, the time cannot grow too fast.
                    if isinstance(item, re.Pattern) and re.search(r"[*+]|,\}", str(item.pattern)):
                        anchored = name.startswith(_CALL_READERS) or is_anchored(attribute, source)
                        yield Case(item, f"{name}.{attribute}", anchored)


def items(value: Any) -> Iterator[Any]:
    """Yield a value, and the items of a table, a list and the tuples in them."""
    yield value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from item if isinstance(item, tuple) else (item,)


def is_anchored(attribute: str, source: str) -> bool:
    """True if a module uses a pattern only in calls that match at a given place."""
    uses = re.findall(rf"(?<![\w.]){attribute}\b(?!:| =)", source)
    anchored = re.findall(rf"(?<![\w.]){attribute}(?:\[[^]]+\]+)?\.(?:match|fullmatch)\b", source)
    return 0 < len(uses) == len(anchored)


def test_a_text_that_repeats_parts_of_a_pattern_takes_linear_time() -> None:
    slow = {case.place: attack for case in cases() for attack in case.attacks() if case.grows_too_fast(*attack)}
    assert slow == {}


def test_patterns_that_contain_a_text_of_a_model_take_linear_time() -> None:
    for end in ("", " ", "\t \t", "a", "a ", " a", "a b" * 9, "((", "\\"):
        case = Case(space_pattern(end, "<call>"), repr(end))
        pumps = (" ", "\t ", end or "\n", f" {end}", f"{end} ", "<call", f"{end}<")
        assert [pump for start in ("", end) for pump in pumps if case.grows_too_fast(start, pump)] == [], end


@pytest.mark.parametrize(
    ("source", "start", "pump"),
    [
        (r"\w+=", "", "a"),
        (r"answer\s*:?\s*b", "answer", " "),
        (r"first|second|third|fourth|\w:\w|://[^\s?#]*+[?#]\S", "", "://"),
    ],
)
def test_the_check_finds_patterns_of_quadratic_time(source: str, start: str, pump: str) -> None:
    case = Case(re.compile(source), "here")
    assert (start, pump) in case.attacks() and case.grows_too_fast(start, pump)
