"""Term numbers of texts: Unicode words, folded and stemmed, without stop words; CJK and Hangul as bigrams.

The terms of a word are its English stem (in another script: the word itself), and its stems in the languages of the
text or, if the languages are unknown, in all languages of its script. Therefore the forms of a word match even if the
language of only one of two texts, or of neither text, is known.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from itertools import chain, pairwise

from agentkit_memory.terms.languages import ENGLISH, STOP_WORDS, find_languages, script_of, stem
from agentkit_prompts.ranking.folded_text import MARKS, UNSPACED, fold_text

__all__ = ["count_terms", "find_terms", "split_words"]

# Particles follow Hangul words without a space. Therefore Hangul, like scripts without spaces, is split into pairs.
_HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3"
_PAIRED = _HANGUL + UNSPACED
_ASCII = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else ord(" ") for byte in range(256))
"""Maps each byte of an ASCII text to its lower case, or to a space."""
_WORD = re.compile(rf"[{_HANGUL}]+|[{UNSPACED}]+|(?:(?![{_PAIRED}])(?:[^\W_]|[{MARKS}]))+")
_RUN = re.compile(rf"[{_PAIRED}]")
_SYLLABLE = re.compile(rf"[{_HANGUL}]")
_ACCENTS = re.compile("[\u0300-\u036f]")
_MAX_CACHED = 1 << 16
"""Maximum cached words of a set of languages."""
_MAX_SETS = 64
"""Maximum cached sets of languages."""
_MAX_WORD = 64
"""Maximum characters of a word. Longer words are hashes or base64, whose start is sufficient."""


def count_terms(text: str, *, stored: bool = False) -> tuple[dict[int, int], int]:
    """Return the count of each term of a text, by its 32-bit number, and the number of words.

    Stop words are not terms, and not counted. With `stored`, the first syllable of a Korean word is a term too, because
    it may be a word with a particle.
    """
    words = split_words(text, heads=stored)
    cache = _terms_in(find_languages(words))
    terms = [*map(cache.__getitem__, words)]
    return Counter(chain.from_iterable(terms)), len(terms) - terms.count(())


def find_terms(text: str, numbers: frozenset[int]) -> tuple[dict[int, int], int]:
    """Return the count of some terms in a stored text, by their numbers, and the number of words.

    The counts are equal to `count_terms`, in half the time.
    """
    words = split_words(text, heads=True)
    cache = _terms_in(find_languages(words))
    terms = [*chain.from_iterable(map(cache.__getitem__, words))]
    matches = numbers.intersection(terms)
    if not matches:
        return {}, 0
    return {term: terms.count(term) for term in matches}, len(words) - sum(map(cache.stop_words.__contains__, words))


def split_words(text: str, *, heads: bool = False) -> list[str]:
    """Return the folded words of a text in order; in scripts without spaces, pairs of characters.

    With `heads`, the first syllable of each Korean word is included.
    """
    if text.isascii():
        # This takes half the time of a regular expression.
        return text.encode().translate(_ASCII).decode().split()
    words: list[str] = []
    for word in _WORD.findall(fold_text(text)):
        if len(word) > 1 and _RUN.match(word):
            if heads and _SYLLABLE.match(word):
                words.append(word[0])
            words.extend(map("".join, pairwise(word)))
        else:
            words.append(word)
    return words


class _Terms(dict[str, tuple[int, ...]]):
    """A cache of the numbers of words in a text of some languages; a stop word has no number."""

    def __init__(self, languages: frozenset[str]) -> None:
        super().__init__()
        self._languages = languages
        self.stop_words: frozenset[str] = frozenset()
        # Only English has stop words: a common word of another language may be a name elsewhere, such as Ada.
        if not languages or ENGLISH in languages:
            self.stop_words = STOP_WORDS

    def __missing__(self, word: str) -> tuple[int, ...]:
        numbers: tuple[int, ...] = ()
        if word not in self.stop_words:
            numbers = _numbers(word, self._languages)
        if len(self) >= _MAX_CACHED:
            self.clear()
        if len(word) <= _MAX_WORD:
            self[word] = numbers
        return numbers


_caches: dict[frozenset[str], _Terms] = {}
"""Caches by the languages of a text."""


def _terms_in(languages: frozenset[str]) -> _Terms:
    cache = _caches.get(languages)
    if cache is None:
        if len(_caches) >= _MAX_SETS:
            _caches.clear()
        cache = _caches.setdefault(languages, _Terms(languages))
    return cache


def _numbers(word: str, languages: frozenset[str]) -> tuple[int, ...]:
    """Return the number of each different stem of a word."""
    word = word[:_MAX_WORD]
    if not word.isascii():
        plain = _without_accents(word)
    elif not word.isalpha():
        return (zlib.crc32(word.encode()),)
    else:
        plain = word
    stems = [plain]
    if plain.isascii():
        stems = [stem(plain, ENGLISH)]
    if languages != {ENGLISH} and len(word) > 1 and not any(map(str.isdigit, word)):
        stems += _other_stems(word, languages)
    return tuple(dict.fromkeys([zlib.crc32(each.encode("utf-8", "surrogatepass")) for each in stems]))


def _other_stems(word: str, languages: frozenset[str]) -> list[str]:
    """Return the stems of a word in the languages of the text with its script; without any, in all of its script."""
    script = script_of(word)
    likely = [each for each in script if each in languages]
    return [_without_accents(stem(word, each)) for each in likely or script if each != ENGLISH]


def _without_accents(word: str) -> str:
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", word)))
