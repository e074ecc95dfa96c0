"""Compounds: words in several parts that may also be written as one word, and the reverse.

A text has its words, and in addition the whole or the parts of each compound, so that a text is found by any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain

from agentkit_prompts.ranking.folded_text import MARKS, UNSPACED

_LETTER = rf"(?:[^\W\d_]|[{MARKS}])"
_NEXT_WORD = re.compile(rf"{_LETTER}*+")
_LAST_WORD = re.compile(rf"(?<!{_LETTER}){_LETTER}++\Z")
_ALPHANUMERIC = re.compile(r"[^\W_]++")
_PARTS = re.compile(r"[^\W_]++(?:-[^\W_]++)*+")
_LINE_ENDS = (b"-\n", b"- \n", b"?\n")
"""Shapes of the end of a line that can break a word."""
_UNIT_SHAPES = (b"0a", b"0A")
_NAME_SHAPES = (b"aA", b"AAaa")
"""Shapes of a place in a word that makes the word a name with parts; `PDFs` has no such place."""
_LOWER = "[a-zß-öø-ÿα-ωа-ё]"
_UPPER = "[A-ZÀ-ÖØ-ÞΑ-ΩЀ-Я]"
_NAME_PART = re.compile(rf"{_UPPER}++(?!{_LOWER})|{_UPPER}+(?={_UPPER}{_LOWER})|{_UPPER}?{_LOWER}++|\d++")
_NUMBER = re.compile(r"[0-9](?<![0-9][0-9])[0-9]*+(?:[-,.'’_٬٫][0-9]++)++")
"""A number with separators, such as `1,250,000`."""
_GROUPED = re.compile(r"[0-9]{1,3}(?:([-,.'’_ ])[0-9]{3})(?:\1[0-9]{3})*+(?![0-9])")
"""The groups of thousands of a number."""
_SPACED = re.compile(r"[0-9](?<![0-9][0-9])[0-9]{0,2}(?: [0-9]{3})++(?![0-9])")
# Each pattern starts with the characters that it starts with in a text, which the search looks for first.
_DIGIT_GROUPS = re.compile(
    r"[+A-Z0-9](?<![^\W_].)(?:(?<=\+)[0-9]++|(?<=[A-Z])[A-Z][0-9]{2}|(?<=[0-9])[0-9]{3})(?: [0-9]++){2,}+(?![^\W_])"
)
"""The number of a telephone, an account or a card in groups of digits."""
_UNIT = re.compile(r"([0-9]{1,60}+)([A-Za-z]{1,4})")
"""A number with its unit in one word, such as `5kg`."""
_INITIALS = re.compile(rf"[A-Z](?<![^\W_].)(?:\.(?:[A-Z]\.)++[A-Z]?|'[A-Z]{_LETTER}++)(?![^\W_])")
"""Letters with points, such as `U.S.A.`, and names such as `O'Brien` and `L'Oréal`."""
_HYPHENATED = re.compile(r"-(?<=[^\W_]-)(?=[^\W_])")
"""A hyphen in a word, such as `e-mail` and `AB-1234-XZ`."""
_NOT_DIGIT = re.compile(r"\D+")
_SIGNS = re.compile(r"[\W_]++")
_LINE_END = re.compile(r"[-‐¬](?<=\w.)[ \t]*+\r?\n[ \t]*+(?=\w)")
"""The end of a line that breaks a word."""
_WRAP = re.compile(rf"\n(?<=[{UNSPACED}]\n)[{UNSPACED}]")
"""The end of a line in a script without spaces, which may be inside a word."""
_JOINER = re.compile(r"['’״׳\"·\u200c](?<=[^\W\d_].)(?=[^\W\d_])(?:(?<=[^\x00-\x7f].)|(?=[^\x00-\x7f])|(?<=·))")
"""An apostrophe, gershayim, middle dot or zero-width non-joiner in a word. In ASCII, most apostrophes separate an
ending, such as `'s`."""
_RAISED = re.compile("[⁰¹²³⁴-⁹](?<=[^\\W⁰¹²³⁴-⁹].)")
"""A raised digit after a word, such as the number of a footnote."""
_MAX_LENGTH = 64
"""Maximum characters of a name or a part of a word. A longer name is a hash or base64."""


def _shape(byte: int) -> int:
    """Return the kind of an ASCII character, or of the question mark that replaces any other character."""
    character = chr(byte)
    if character.isascii() and character.isalpha():
        return ord("A") if character.isupper() else ord("a")
    if character in ",.'_":
        return ord(",")
    if character.isdigit():
        return ord("0")
    if character in " \t\r":
        return ord(" ")
    if character in "-\n?":
        return byte
    return 0


_SHAPES = bytes(map(_shape, range(128))).ljust(256)


def find_compounds(text: str) -> list[str]:
    """Return parts of names, and words without the signs, spaces and ends of lines that separate their parts.

    Args:
        text: A text in normal form, with its case.
    """
    # The shape of a text excludes most compounds in a tenth of the time of a regular expression.
    shape = text.encode("ascii", "replace").translate(_SHAPES)
    words: list[str] = []
    if b"aA" in shape or b"AAaa" in shape:
        words += chain.from_iterable(map(_name_parts, _words_at(_NAME_SHAPES, text, shape)))
    if b"0" in shape:
        words += _numbers(text, shape)
    if b"A,A" in shape:
        words += [_SIGNS.sub("", initials[0]) for initials in _matches_at(b"A,A", _INITIALS, text, shape)]
    if b"-" in shape:
        words += _hyphenated(text)
    if b"\n" in shape and (b"-" in shape or b"?" in shape):
        for place in _LINE_ENDS:
            words += [_word_around(text, end) for end in _matches_at(place, _LINE_END, text, shape)]
    return words


def find_signed_compounds(text: str, original: str) -> Iterator[str]:
    """Yield the compounds with signs that are not ASCII, and pairs of characters around the ends of lines.

    Args:
        text: The text in normal form, with its case.
        original: The text before it was normalised, which contains the raised digits.
    """
    for joiner in _JOINER.finditer(text):
        yield _word_around(text, joiner)
    for digit in _RAISED.finditer(original):
        yield _word_before(original, digit.start())
    if "\n" in text:
        for wrap in _WRAP.finditer(text):
            yield text[wrap.start() - 1] + text[wrap.end() - 1]


# A regular expression reads every character of a text, and most texts have few of these places.


def _words_at(places: Iterable[bytes], text: str, shape: bytes) -> Iterable[str]:
    """Return the words of letters and digits that contain a place with one of the shapes."""
    words: dict[int, str] = {}
    for place in places:
        at = shape.find(place)
        while at >= 0:
            start = _start_of_word(text, at + 1)
            words[start] = _ALPHANUMERIC.match(text, start)[0]  # type: ignore[index]
            at = shape.find(place, start + len(words[start]))
    return words.values()


def _matches_at(place: bytes, pattern: re.Pattern[str], text: str, shape: bytes) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern that start at a place with the shape."""
    at = shape.find(place)
    while at >= 0:
        match = pattern.match(text, at)
        end = at + 1
        if match is not None:
            yield match
            end = match.end()
        at = shape.find(place, end)


@lru_cache(maxsize=1 << 12)
def _name_parts(name: str) -> tuple[str, ...]:
    if len(name) > _MAX_LENGTH:
        return ()
    return tuple(_NAME_PART.findall(name))


def _numbers(text: str, shape: bytes) -> Iterator[str]:
    """Yield the digits of numbers, with their decimals and without; and numbers and their units."""
    if b"0,0" in shape or b"0-0" in shape or b"0?0" in shape:
        for number in _NUMBER.findall(text):
            yield _NOT_DIGIT.sub("", number)
            grouped = _GROUPED.match(number)
            if grouped and grouped.end() < len(number):
                yield _NOT_DIGIT.sub("", grouped[0])
    if b"0 0" in shape:
        start = max(0, shape.find(b"0 0") - _MAX_LENGTH)
        for number in _SPACED.findall(text, start):
            yield _NOT_DIGIT.sub("", number)
        for number in _DIGIT_GROUPS.findall(text, start):
            yield _SIGNS.sub("", number)
    if b"0a" in shape or b"0A" in shape:
        for word in _words_at(_UNIT_SHAPES, text, shape):
            unit = _UNIT.fullmatch(word)
            if unit is not None:
                yield from unit.groups()


def _hyphenated(text: str) -> Iterator[str]:
    """Yield the words with hyphens as one word each."""
    end = 0
    for hyphen in _HYPHENATED.finditer(text):
        if hyphen.start() < end:
            continue
        start = _start_of_word(text, hyphen.start())
        word = _PARTS.match(text, start)[0]  # type: ignore[index]
        end = start + len(word)
        if len(word) <= _MAX_LENGTH and not _NUMBER.fullmatch(word):
            yield word.replace("-", "")


def _start_of_word(text: str, end: int) -> int:
    """Return the start of the word of letters and digits before a place; at most `_MAX_LENGTH` characters are read."""
    return end - len(_ALPHANUMERIC.match(text[max(0, end - _MAX_LENGTH - 1) : end][::-1])[0])  # type: ignore[index]


def _word_around(text: str, sign: re.Match[str]) -> str:
    """Return the word before and the word after a sign as one word."""
    return _word_before(text, sign.start()) + _NEXT_WORD.match(text, sign.end())[0]  # type: ignore[index]


def _word_before(text: str, end: int) -> str:
    last = _LAST_WORD.search(text[max(0, end - _MAX_LENGTH) : end])
    if last is None:
        return ""
    return last[0]
