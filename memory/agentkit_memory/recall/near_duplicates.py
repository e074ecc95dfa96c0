"""Near-duplicates: texts with nearly the same words in the same order. A recall uses only one of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Set

from agentkit_memory.recall.candidates import ScoredItem
from agentkit_memory.recall.question import Question, asks
from agentkit_memory.store.records import IMAGE, TURN
from agentkit_memory.terms.analysis import split_words

SAME_TEXT = "same text as"
"""Prefix of the reason of a duplicate."""
_MIN_SHARED = 0.9
"""Minimum share of common words at which two texts are near-duplicates."""
# By language, from English to Vietnamese, Japanese, Korean and Thai. `don't` is split into "don" and "t".
_NEGATIONS = frozenset(
    split_words(
        """no not never nor none without cannot t
        nicht kein keine keinem keinen keiner keines nie niemals nichts ohne weder
        ne n pas jamais sans aucun aucune rien ni
        nunca jamás sin ningún ninguno ninguna nada tampoco
        não jamais sem nenhum nenhuma nem
        non mai senza nessun nessuno nessuna né niente
        niet geen nooit zonder noch
        inte icke aldrig utan ej ingen inget inga ingenting ikke ikkje aldri uten uden ingenting
        ei eivät älä ilman
        nie nigdy bez żaden żadna żadne ani nic
        není nejsou nikdy žádný žádná nikoli
        nem nincs soha sem nélkül
        nu niciodată fără nici
        nije nisu nikad nikada
        değil yok hiç asla
        tidak bukan jangan belum tanpa
        không chưa chẳng đừng
        δεν μη μην ποτέ όχι χωρίς
        не нет ни никогда без нельзя ничего ні немає нема няма није
        لا ليس ليست لم لن غير بدون نه نیست هرگز
        לא אין אל בלי ללא
        नहीं न मत बिना छैन होइन
        ない なく なか せん 아니 ไม่"""
    )
)
"""Words that reverse the meaning of a text."""
_NEGATING = frozenset("不没沒無无未非勿莫否안않못없")
"""Characters that reverse the meaning of a text in a script without spaces, and in Hangul."""
_SIGNS = re.compile(
    r"(?<=\w)[#%+]+|(?<!\w)-(?=\d)|(?<=\d)\s?[-*/]\s?(?=\d)|!=|(?<!^)[<>+]|[$=]|[^\x00-\x7f\w\s]", re.MULTILINE
)
"""Signs that are part of a statement; `#`, `-`, `+` and `>` at the start of a line are Markdown."""
# Unicode categories of mathematical signs, currencies, and other symbols, such as emoji.
_SYMBOLS = frozenset({"Sm", "Sc", "So"})
_DASHES = {ord("−"): "-", ord("–"): "-"}


class Wording:
    """Words of a text."""

    __slots__ = ("_all", "text", "words")

    def __init__(self, words: Sequence[str], text: str = "") -> None:
        self._all = words
        self.words = frozenset(words)
        self.text = text

    @property
    def ordered(self) -> list[str]:
        """Each word once, in the order of the text."""
        return [*dict.fromkeys(self._all)]

    def order_of(self, words: Set[str]) -> list[str]:
        """Return the given words, each once, in the order of the text."""
        return [word for word in self.ordered if word in words]

    def signs(self) -> list[str]:
        """Return the signs that are part of a statement, in order: `++`, `-` and `€` of `C++ costs -5 €`."""
        signs = _SIGNS.findall(unicodedata.normalize("NFKC", self.text).translate(_DASHES))
        return [each.strip() for each in signs if each.isascii() or unicodedata.category(each) in _SYMBOLS]


def alike(one: Wording, other: Wording) -> bool:
    """Return True if two texts have nearly the same words in the same order."""
    one_size, other_size = len(one.words), len(other.words)
    if min(one_size, other_size) < _MIN_SHARED * max(one_size, other_size):
        return False
    shared = one.words & other.words
    if len(shared) < _MIN_SHARED * (one_size + other_size - len(shared)):
        return False
    # "C#" and "C++" are the same word without their signs.
    if one.text != other.text and one.signs() != other.signs():
        return False
    if len(shared) == one_size == other_size:
        return one.ordered == other.ordered
    # One different negation or number changes the meaning.
    differing_words = one.words ^ other.words
    if not differing_words.isdisjoint(_NEGATIONS):
        return False
    if any(char.isdigit() or char in _NEGATING for word in differing_words for char in word):
        return False
    # "Alice lent Bob" and "Bob lent Alice" differ only in the order.
    return one.order_of(shared) == other.order_of(shared)


class Copies:
    """Record of the used candidates of a recall, and the search for their duplicates."""

    def __init__(self, question: Question, image_hashes: Mapping[str, str]) -> None:
        self._question = Wording(question.words, question.text)
        self._image_hashes = image_hashes
        self._used_images: dict[str, str] = {}
        """Ids of the used candidates by the hash of their image."""
        self._used: list[tuple[Wording, str]] = []
        self._words: set[str] = set()
        """Words of all used texts: a text with many other words is not a copy of a used text."""

    def reason(self, candidate: ScoredItem, *, keep: bool) -> str:
        """Return a reason if a candidate repeats a used candidate or the question; otherwise empty text.

        With `keep`, a candidate without a reason is recorded as used.
        """
        item = candidate.item
        if item.kind == IMAGE:
            # Images are compared by hash: different images can have the same alt text.
            image_hash = self._image_hashes.get(item.id, item.id)
            first_id = self._used_images.get(image_hash, item.id)
            if first_id != item.id:
                return f"{SAME_TEXT} {first_id}"
            if keep:
                self._used_images[image_hash] = item.id
            return ""
        wording = Wording(split_words(item.text), item.text)
        # A statement that equals the question answers it; a question that was asked before does not.
        if item.kind == TURN and alike(wording, self._question) and asks(item.text, self._question.text):
            return "repeats the question"
        duplicate_id = self._duplicate_of(wording)
        if duplicate_id:
            return f"{SAME_TEXT} {duplicate_id}"
        if keep:
            self._used.append((wording, item.id))
            self._words |= wording.words
        return ""

    def _duplicate_of(self, wording: Wording) -> str:
        """Return the id of the first used candidate with nearly the same text, or empty text."""
        if len(self._words & wording.words) < _MIN_SHARED * len(wording.words):
            return ""
        return next((used_id for used_wording, used_id in self._used if alike(wording, used_wording)), "")


def count_copies(candidates: Iterable[ScoredItem]) -> int:
    """Return the number of candidates that were not used because a better candidate has the same text."""
    return sum(each.reason.startswith(SAME_TEXT) for each in candidates)
