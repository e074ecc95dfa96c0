"""Text to term numbers: Unicode words, folded and stemmed, without stop words; CJK and Hangul as bigrams.

A word has its English stem (another script's word: itself), and its stems in the languages of the text; if these are
unknown, in all that share its script. So a form of it is found if either side's language is known, or none.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise

from agentkit_memory.terms.languages import ENGLISH, STOP_WORDS, find_languages, script_of, stem
from agentkit_prompts.ranking.folded_text import MARKS, UNSPACED, folded

__all__ = ["count_terms", "find_terms", "split_words"]

# Hangul, whose particles are written without a space, is as scripts without any: neighbouring pairs stand for words.
_HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3"
_PAIRED = _HANGUL + UNSPACED
_ASCII = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else ord(" ") for byte in range(256))
"""Maps each byte of an ASCII text to its lower case, or to a space."""
_WORD = re.compile(rf"[{_HANGUL}]+|[{UNSPACED}]+|(?:(?![{_PAIRED}])(?:[^\W_]|[{MARKS}]))+")
_RUN = re.compile(rf"[{_PAIRED}]")
_SYLLABLE = re.compile(rf"[{_HANGUL}]")
_ACCENTS = re.compile("[\u0300-\u036f]")
_MAX_CACHED = 1 << 16  # words of a set of languages
_MAX_SETS = 64  # of languages
_MAX_WORD = 64  # characters: longer ones are hashes and base64, and their head is enough


def count_terms(text: str, *, stored: bool = False) -> tuple[dict[int, int], int]:
    """Return how often each term of a text occurs, terms being 32-bit numbers, and how many words it has.

    Stop words are no terms, and not counted. With `stored`, a text is also found by single syllables of Korean that
    begin a word, as particles follow them.
    """
    words = split_words(text, heads=stored)
    known = _known_in(find_languages(words))
    terms = [*map(known.__getitem__, words)]
    return Counter(chain.from_iterable(terms)), len(terms) - terms.count(())


def find_terms(text: str, wanted: frozenset[int]) -> tuple[dict[int, int], int]:
    """Return how often each wanted term occurs in a stored text, and how many words that has.

    That is what `count_terms` returns, in half the time.
    """
    words = split_words(text, heads=True)
    known = _known_in(find_languages(words))
    terms = [*chain.from_iterable(map(known.__getitem__, words))]
    found = wanted.intersection(terms)
    if not found:
        return {}, 0
    return {term: terms.count(term) for term in found}, len(words) - sum(map(known.stop_words.__contains__, words))


def split_words(text: str, *, heads: bool = False) -> list[str]:
    """Return the words of `text` in order, folded; pairs of characters where words are not separated.

    With `heads`, also the first syllable of each Korean word.
    """
    if text.isascii():
        # This takes half the time of an expression.
        return text.encode().translate(_ASCII).decode().split()
    words: list[str] = []
    for word in _WORD.findall(folded(text)):
        if len(word) > 1 and _RUN.match(word):
            if heads and _SYLLABLE.match(word):
                words.append(word[0])
            words.extend(map("".join, pairwise(word)))
        else:
            words.append(word)
    return words


class _Terms(dict[str, tuple[int, ...]]):
    """A cache of the numbers of words in a text of some languages; a stop word has no number."""

    def __init__(self, spoken: frozenset[str]) -> None:
        super().__init__()
        self._spoken = spoken
        # Of other languages none: their commonest words are names in others, such as Ada.
        self.stop_words = STOP_WORDS if not spoken or ENGLISH in spoken else frozenset[str]()

    def __missing__(self, word: str) -> tuple[int, ...]:
        numbers = () if word in self.stop_words else _numbers(word, self._spoken)
        if len(self) >= _MAX_CACHED:
            self.clear()
        if len(word) <= _MAX_WORD:
            self[word] = numbers
        return numbers


_known: dict[frozenset[str], _Terms] = {}
"""By the languages of a text."""


def _known_in(spoken: frozenset[str]) -> _Terms:
    known = _known.get(spoken)
    if known is None:
        if len(_known) >= _MAX_SETS:
            _known.clear()
        known = _known.setdefault(spoken, _Terms(spoken))
    return known


def _numbers(word: str, spoken: frozenset[str]) -> tuple[int, ...]:
    """Return the number of each different stem of a word."""
    word = word[:_MAX_WORD]
    if not word.isascii():
        plain = _without_accents(word)
    elif not word.isalpha():
        return (zlib.crc32(word.encode()),)
    else:
        plain = word
    stems = [stem(plain, ENGLISH) if plain.isascii() else plain]
    if spoken != {ENGLISH} and len(word) > 1 and not any(map(str.isdigit, word)):
        script = script_of(word)
        likely: Sequence[str] = [each for each in script if each in spoken] if spoken else script
        stems += [_without_accents(stem(word, each)) for each in likely or script if each != ENGLISH]
    return tuple(dict.fromkeys([zlib.crc32(each.encode("utf-8", "surrogatepass")) for each in stems]))


def _without_accents(word: str) -> str:
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", word)))
