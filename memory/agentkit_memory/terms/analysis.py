"""Text to term numbers: Unicode words, folded, without stop words, English ones stemmed; CJK as bigrams."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from itertools import pairwise
from typing import Any

from agentkit_memory.terms.stemmer import stem

__all__ = ["count_terms", "list_terms", "split_words"]

# Scripts written without spaces: Thai, Lao, Khmer, Japanese and Chinese. Their neighbouring pairs stand for words.
_UNSPACED = (
    "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
_ASCII = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else ord(" ") for byte in range(256))
"""Maps each byte of an ASCII text to its lower case, or to a space."""
_WORD = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])(?:[^\W_]|[{_MARKS}]))+")
_RUN = re.compile(rf"[{_UNSPACED}]")
_ACCENTS = re.compile("[\u0300-\u036f]")
_MAX_CACHED = 1 << 17  # words
_MAX_WORD = 64  # characters: longer ones are hashes and base64, and their head is enough

_STOP_LIST = """a about above after again all also am an and any are as at be because been before being below between
    both but by can could did do does doing down during each few for from further had has have having he her here hers
    herself him himself his how i if in into is it its itself just me more most my myself no nor not now of off on once
    only or other our ours ourselves out over own s same she should so some such t than that the their theirs them
    themselves then there these they this those through to too under until up us very was we were what when where
    which while who whom why will with would you your yours yourself yourselves don didn doesn isn wasn aren weren won
    wouldn couldn shouldn ll ve re d m"""
_STOP_WORDS = frozenset(_STOP_LIST.split())


def count_terms(text: str) -> dict[int, int]:
    """Return how often each term of `text` occurs, terms being 32-bit numbers."""
    counts: Counter[Any] = Counter(list_terms(text))
    counts.pop(None, None)
    return counts


def list_terms(text: str) -> list[int | None]:
    """Return the terms of `text` in order, each as often as it occurs; a stop word is None."""
    return list(map(_known, split_words(text)))


def split_words(text: str) -> list[str]:
    """Return the words of `text` in order, folded; pairs of characters where a script has no spaces."""
    if text.isascii():
        return text.encode().translate(_ASCII).decode().split()  # in half the time of an expression
    words: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        if len(word) > 1 and _RUN.match(word):
            words.extend(map("".join, pairwise(word)))
        else:
            words.append(word)
    return words


class _Numbers(dict[str, "int | None"]):
    """A cache of the numbers of words, None for stop words."""

    def __missing__(self, word: str) -> int | None:
        number = _number(word)
        if len(self) >= _MAX_CACHED:
            self.clear()
        if len(word) <= _MAX_WORD:
            self[word] = number
        return number


def _number(word: str) -> int | None:
    if word in _STOP_WORDS:
        return None
    if not word.isascii():
        word = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", word)))
    return zlib.crc32(stem(word[:_MAX_WORD]).encode("utf-8", "surrogatepass"))


_known = _Numbers().__getitem__  # a third of the time of an LRU cache
