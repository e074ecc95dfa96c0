"""Term numbers of texts: Unicode words, folded and stemmed, without stop words; CJK and Hangul as bigrams.

The terms of a word are its English stem (in another script: the word itself), and its stems in the languages of the
text or, if the languages are unknown, in all languages of its script. Therefore the forms of a word match even if the
language of only one of two texts, or of neither text, is known.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from itertools import chain
from operator import add

from agentkit_memory.terms.compounds import find_compounds, find_signed_compounds
from agentkit_memory.terms.languages import ENGLISH, STOP_WORDS, find_languages, script_of, stem
from agentkit_prompts.ranking.folded_text import HAN, MARKS, UNSPACED, fold_text, normal_text, plain_word

# Particles follow Hangul words without a space. Therefore Hangul, like scripts without spaces, is split into pairs.
_HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3"
_PAIRED = _HANGUL + UNSPACED
_FOLDED = bytes(byte if chr(byte).isalnum() else ord(" ") for byte in range(128)).lower().ljust(256)
"""Maps each byte of an ASCII text to its lower case, or to a space."""
_EMOJI = (
    "[\U0001f1e6-\U0001f1ff]{2}"
    "|[\u231a-\u23ff\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff]"
)
"""A flag, or a picture without the colour of its skin."""
# Most words of most texts with a character outside of ASCII are ASCII words: the first pattern is the fastest.
_WORD = re.compile(
    rf"[a-z0-9]++(?![^\x00-\x7f])|[{_HANGUL}]+|[{UNSPACED}]+|(?:[^\W_{_PAIRED}]++|[{MARKS}]++)++|{_EMOJI}"
)
_RUN = re.compile(rf"[{_PAIRED}]")
_FIRST_PAIRED = UNSPACED[0]
"""The first character that is split into pairs."""
_SYLLABLE = re.compile(rf"[{_HANGUL}]")
_NOT_HAN = re.compile(rf"[^{HAN}]+")
_SHORT = 3
"""Maximum syllables of a Korean word in a question that may be one syllable with a particle."""
STOP_TERMS = {word: zlib.crc32(f" {word}".encode()) for word in sorted(STOP_WORDS)}
"""Terms of stop words, for questions of stop words only. No stored vector contains these terms."""
_STOP_NUMBERS = frozenset(STOP_TERMS.values())
_MAX_CACHED = 1 << 16
"""Maximum cached words of a set of languages."""
_MAX_SETS = 64
"""Maximum cached sets of languages."""
_MAX_WORD = 64
"""Maximum characters of a word. Longer words are hashes or base64, whose start is sufficient."""
_STEM = 4
"""Length of the stem of a word in a script without a stemmer."""
_AFFIXES = re.compile("^(?:[وبكف]?ال|لل|و)(?=.{3})|^(?:ו?[הבלמשכ]|ו)(?=.{3})|(?<=[א-ת]{3})(?:ימ|ות)$|^[የበለከ](?=.{2})")
"""Articles, prepositions and conjunctions that are written as one word with the next, in Arabic, Hebrew and Amharic;
plurals of Hebrew."""


def count_terms(text: str, *, stored: bool = False) -> tuple[dict[int, int], int]:
    """Return the count of each term of a text, by its 32-bit number, and the number of words.

    Stop words are not terms, and not counted, but the terms of a question of stop words are its stop words, which the
    index does not contain. With `stored`, the first syllable of each Korean word is a term too, because it may be a
    word with a particle.
    """
    words, additions = _analyse(text, stored=stored)
    cache = _terms_in(find_languages(words))
    terms = [*map(cache.__getitem__, words)]
    length = len(terms) - terms.count(())
    terms += map(cache.__getitem__, additions)
    counts = Counter(chain.from_iterable(terms))
    if not counts and not stored:
        counts = Counter([STOP_TERMS[word] for word in split_words(text) if word in STOP_TERMS])
    return counts, length


def find_terms(text: str, numbers: frozenset[int]) -> tuple[dict[int, int], int]:
    """Return the count of some terms in a stored text, by their numbers, and the number of words.

    The counts are equal to `count_terms`, in half the time. Stop words are counted too.
    """
    words, additions = _analyse(text, stored=True)
    cache = _terms_in(find_languages(words))
    terms_of_words = [*map(cache.__getitem__, words)]
    terms = [*chain.from_iterable(terms_of_words), *chain.from_iterable(map(cache.__getitem__, additions))]
    if not numbers.isdisjoint(_STOP_NUMBERS):
        terms += [STOP_TERMS[word] for word in split_words(text) if word in STOP_TERMS]
    matches = numbers.intersection(terms)
    if not matches:
        return {}, 0
    return {term: terms.count(term) for term in matches}, len(words) - terms_of_words.count(())


def split_words(text: str) -> list[str]:
    """Return the folded words of a text in order; in scripts without spaces, pairs of characters."""
    if text.isascii():
        # This takes half the time of a regular expression.
        return text.encode().translate(_FOLDED).decode().split()
    return [word for run in _WORD.findall(fold_text(text)) for word in _words_in(run)]


def _analyse(text: str, *, stored: bool) -> tuple[list[str], list[str]]:
    """Return the folded words of a text, and the words to add: of compounds, and single characters that are words."""
    if text.isascii():
        return split_words(text), [word.lower() for word in find_compounds(text)]
    # Hyphens that do not break a line, and printed apostrophes, are parts of compounds as in ASCII.
    normal = normal_text(text).replace("\u2010", "-").replace("\u2019", "'")
    runs = _WORD.findall(normal.casefold())
    additions: list[str] = []
    for compound in chain(find_compounds(normal), find_signed_compounds(normal, text)):
        additions += split_words(compound)
    if not runs or max(runs) < _FIRST_PAIRED:
        return runs, additions
    words: list[str] = []
    for run in runs:
        parts = _words_in(run)
        words += parts
        if parts[0] is run:
            continue
        additions += _NOT_HAN.sub("", run)
        if (stored or len(run) <= _SHORT) and _SYLLABLE.match(run):
            additions.append(run[0])
    return words, additions


def _words_in(run: str) -> list[str]:
    """Return the pairs of characters of a run in a script without spaces; any other run is one word."""
    if len(run) > 1 and _RUN.match(run):
        return [*map(add, run, run[1:])]
    return [run]


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
    if word.isascii() and not word.isalpha():
        return (zlib.crc32(word.encode()),)
    plain = plain_word(word)
    stems = [plain]
    if plain.isascii():
        stems = [stem(plain, ENGLISH)]
    if languages != {ENGLISH} and len(word) > 1 and not any(map(str.isdigit, word)):
        stems += _other_stems(word, plain, languages)
    # A word of marks has no plain word.
    return tuple(dict.fromkeys([zlib.crc32(each.encode("utf-8", "surrogatepass")) for each in stems if each]))


def _other_stems(word: str, plain: str, languages: frozenset[str]) -> list[str]:
    """Return the stems of a word in the languages of the text with its script; without any, in all of its script."""
    script = script_of(word)
    likely = [each for each in script if each in languages]
    stems = [plain_word(stem(word, each)) for each in likely or script if each != ENGLISH]
    if plain.isascii():
        return stems
    stems.append(_AFFIXES.sub("", plain))
    if not script:
        stems.append(stems[0][:_STEM])
    return stems
