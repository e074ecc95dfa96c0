"""Text for comparisons: without differences of case, width, digits and compatible forms; and plain words."""

from __future__ import annotations

import re
import unicodedata

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters, each of which may be a word, for a character class of a regular expression."""
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    f"\ua980-\ua9ff\uaa60-\uaa7f{HAN}"
)
"""Characters of scripts without spaces (Thai, Lao, Burmese, Khmer, Javanese, kana, Han), for a character class of a
regular expression."""
MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1-\u05c2\u05c4-\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0711-\u074a\u07a6-\u07b0\u07eb-\u07f3\u07fd\u0816-\u082d\u0859-\u085b"
    "\u0898-\u089f\u08ca-\u08e1\u08e3-\u0963\u0966-\u0dff\u0f18-\u0f19\u0f35\u0f37\u0f39\u0f3e-\u0f3f\u0f71-\u0f84"
    "\u0f86-\u0fbc\u0fc6\u135d-\u135f\u1712-\u1734\u1752-\u1753\u1772-\u1773\u1885-\u18a9\u1920-\u193b\u1a17-\u1a1b"
    "\u1ab0-\u1ace\u1b00-\u1b04\u1b34-\u1b44\u1b6b-\u1b73\u1b80-\u1bad\u1be6-\u1bf3\u1c24-\u1c37\u1cd0-\u1cd2"
    "\u1cd4-\u1cf9\u1dc0-\u1dff\u20d0-\u20f0\u2cef-\u2cf1\u2d7f\u2de0-\u2dff\u302a-\u302f\ua66f-\ua672\ua674-\ua67d"
    "\ua69e-\ua69f\ua6f0-\ua6f1\ua802-\ua82c\ua880-\ua881\ua8b4-\ua8c5\ua8e0-\ua8f1\ua8ff-\ua92d\ua947-\ua953"
    "\uaa29-\uaa4d\uaab0-\uaac1\uaaeb-\uaaef\uaaf5-\uaaf6\uabe3-\uabea\uabec-\uabed\ufb1e\ufe20-\ufe2f"
    "\U00011100-\U00011134\U0001e944-\U0001e94a"
)
"""Marks and vowel signs inside words, for a character class of a regular expression."""
_MAX_MARKS = 30
"""Maximum number of marks on one character, which is the limit of the Unicode standard for streams."""
_VOICED = "\uff9e\uff9f"
"""Half-width kana signs, which are letters, but become marks in NFKC."""
_LONG = re.compile(rf"[^\x00-\x7f]{{{_MAX_MARKS + 1}}}")
_RUN = re.compile(rf"(?:[^\w\s\x00-\x7f]|[{_VOICED}]){{{_MAX_MARKS + 1},}}")

# Soft hyphens, with the end of a line that they break; zero-width characters, directions of text, and variants of a
# glyph; the Arabic tatweel, which only lengthens a word; Armenian marks of stress, which are inside words; trademark
# signs, which NFKC changes into letters.
_INVISIBLE = re.compile(
    "\u00ad\\s*+"
    "|[\u034f\u055b\u055c\u055e\u061c\u0640\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200d-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2120\u2122\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
# In Arabic script, a zero-width non-joiner separates the parts of a word; elsewhere, it only selects a glyph.
_NON_JOINER = re.compile("\u200c(?<![\u0600-\u06ff]\u200c)")
_ZEROS = (
    "\u0660\u06f0\u07c0\u0966\u09e6\u0a66\u0ae6\u0b66\u0be6\u0c66\u0ce6\u0d66\u0de6\u0e50\u0ed0\u0f20\u1040\u1090"
    "\u17e0\u1810\u1946\u19d0\u1a80\u1a90\u1b50\u1bb0\u1c40\u1c50\ua620\ua8d0\ua900\ua9d0\ua9f0\uaa50\uabf0"
    "\U00011136\U0001e950"
)
"""The digit zero of each script."""
_DIGITS = {ord(zero) + value: str(value) for zero in _ZEROS for value in range(10)}
_DIGIT = re.compile("[" + "".join(f"{chr(first)}-{chr(first + 9)}" for first in map(ord, _ZEROS)) + "]")

_VOWEL_BEFORE_TONE = re.compile("([\u0e4d\u0ecd])([\u0e48-\u0e4b\u0ec8-\u0ecb])")
"""The first half of the Thai or Lao vowel am before a tone, which is also written after the tone."""

_ACCENTS = re.compile(
    "[\u02b9-\u02bf\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0711"
    "\u0730-\u074a\u093c\u09bc\u0a3c\u0abc\u0b3c\u0cbc\u135d-\u135f\u1ab0-\u1ace\u1dc0-\u1dff\u20d0-\u20f0"
    "\ufe20-\ufe2f]"
)
"""Accents, points of Hebrew, Arabic and Syriac, nuktas, and letters for apostrophes, which many writers leave out."""
_HOMORGANIC = re.compile("[\u0919\u091e\u0923\u0928\u092e]\u094d(?=[\u0915-\u092d])")
"""A Hindi nasal before a consonant, which is also written as a dot."""
_PLAIN_LETTERS = (
    # Letters with a stroke or hook, and ligatures, have no decomposition in Unicode.
    "ł l ø o đ d ð d ħ h ı i æ ae œ oe þ th ŋ n ŧ t ĸ k ſ s ƀ b ɓ b ɖ d ɗ d ƒ f ǥ g ɣ g ɨ i ƙ k ɲ n ɔ o ɛ e ǝ e ə e "
    "ʉ u ʋ v ƴ y "
    # Ukrainian; digraphs of Yiddish; final forms of Hebrew.
    "ґ г װ וו ױ וי ײ יי ך כ ם מ ן נ ף פ ץ צ "
    # Forms of alef, yeh, kaf, heh and noon in Arabic, Persian and Urdu.
    "ٱ ا ى ي ی ي ے ي ې ي ک ك ڪ ك ة ه ہ ه ۃ ه ھ ه ە ه ں ن "
    # Indic nasals, and consonants without a vowel in Malayalam and Bengali.
    "\u0901 \u0902 \u0981 \u0982 \u0a70 \u0a02 \u0a81 \u0a82 \u0d7a \u0d23\u0d4d \u0d7b \u0d28\u0d4d "
    "\u0d7c \u0d30\u0d4d \u0d7d \u0d32\u0d4d \u0d7e \u0d33\u0d4d \u0d7f \u0d15\u0d4d \u09ce \u09a4\u09cd"
)
"""Pairs of a letter and its frequent replacement."""
_PLAIN_RANGES = (
    (0x30A1, 0x30F6, 0x3041),  # katakana
    (0x1210, 0x1217, 0x1200),  # Amharic letters with one sound
    (0x1280, 0x1286, 0x1200),
    (0x1220, 0x1227, 0x1230),
    (0x12D0, 0x12D6, 0x12A0),
    *((alike, alike, 0x1200) for alike in (0x1203, 0x1213, 0x1283)),
    *((alike, alike, 0x12A0) for alike in (0x12A3, 0x12D3)),
    (0x1340, 0x1346, 0x1338),
    (0x2D00, 0x2D25, 0x10D0),  # Georgian church script
)
"""First and last code point of letters, and the plain letter of the first."""
_LETTERS = _PLAIN_LETTERS.split()
_PLAIN = dict(zip(map(ord, _LETTERS[::2]), _LETTERS[1::2], strict=True)) | {
    code: chr(plain + code - first) for first, last, plain in _PLAIN_RANGES for code in range(first, last + 1)
}


def fold_text(text: str) -> str:
    """Return the text in NFKC and folded case, without invisible characters and with ASCII digits, in linear time."""
    if text.isascii():
        return text.lower()
    return normal_text(text).casefold()


def normal_text(text: str) -> str:
    """Return the text as `fold_text` does, but with its case.

    After 30 marks on a character, further marks are removed, because normalisation sorts marks in quadratic time.
    """
    if text.isascii():
        return text
    text = _NON_JOINER.sub("", _INVISIBLE.sub("", text))
    # Most texts have no long run of characters that are not ASCII, which is found faster than a run of marks.
    if _LONG.search(text):
        text = _RUN.sub(_cut, text)
    text = unicodedata.normalize("NFKC", text)
    if "\u0e4d" in text or "\u0ecd" in text:
        text = _VOWEL_BEFORE_TONE.sub(r"\2\1", text)
    # A lookup of every character takes longer than the search for a digit.
    if _DIGIT.search(text):
        text = text.translate(_DIGITS)
    return text


def plain_word(word: str) -> str:
    """Return a folded word as writers without a full keyboard write it: without accents, points and strokes.

    `Łódź` and `lodz` are the same word, as are katakana and hiragana, and the Arabic and Persian forms of a letter.
    """
    if word.isascii():
        return word
    plain = _ACCENTS.sub("", unicodedata.normalize("NFD", word)).translate(_PLAIN)
    return unicodedata.normalize("NFC", _HOMORGANIC.sub("\u0902", plain))


def _cut(found: re.Match[str]) -> str:
    characters: list[str] = []
    marks = 0
    for character in found[0]:
        is_mark = unicodedata.category(character)[0] == "M" or character in _VOICED
        marks = marks + 1 if is_mark else 0
        if marks <= _MAX_MARKS:
            characters.append(character)
    return "".join(characters)
