"""`personal_data`: a simple detector of e-mail addresses, phone numbers, IBANs, card numbers and IP addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import accumulate
from typing import NamedTuple


class PersonalText(NamedTuple):
    """Personal data in a text."""

    start: int
    """Index of the first character."""
    end: int
    """Index after the last character."""
    kind: str
    """Kind in the placeholder: at most 20 capital letters, digits and underscores, such as `EMAIL`."""


_EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]++@(?:[\w-]{1,63}\.){1,8}(?:xn--[a-z0-9-]{1,59}|[^\W\d_]{2,63})")
_DIGITS = re.compile(r"\d(?:[ \u00a0-]?\d){12,}")
"""Digits with separators, in which card numbers can start and end."""
_IBAN = re.compile(r"(?<![A-Za-z0-9])(?=([A-Za-z]{2}\d{2}(?:[ \u00a0-]?[A-Za-z0-9]){11,30}))")
_PHONES = (
    re.compile(r"(?<![\w+])(?:\+|00)[1-9](?:[ \u00a0()./-]{0,2}\d){6,14}(?!\d)"),
    re.compile(r"(?<![\w.,/-])(?:\(0[1-9]\d{0,4}\)|0[1-9]\d{0,4})[ \u00a0/.-]?\d(?:[ \u00a0/.-]?\d){4,9}(?!\d)"),
    re.compile(r"(?<![\w.,/-])(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\w-])"),
)
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f:.]{3,45}(?![\w:])")
_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 "
    "ES24 FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 "
    "LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 "
    "QA29 RO24 RS22 SA24 SC31 SD18 SE24 SI19 SK24 SM27 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 "
)
"""Lengths of IBANs by country, from the registry of SWIFT (https://www.swift.com/standards/data-standards/iban)."""
_IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _LENGTHS.split()}


def personal_data(text: str) -> Iterator[PersonalText]:
    """Yield the e-mail addresses, IBANs, card numbers, phone numbers and IP addresses of a text, in linear time.

    IBANs and card numbers have valid check digits. Names and postal addresses need another detector.
    """
    if "@" in text:
        for match in _EMAIL.finditer(text):
            yield PersonalText(match.start(), match.end(), "EMAIL")
    for match in _IBAN.finditer(text):
        end = _iban_end(match[1], text, match.start())
        if end is not None:
            yield PersonalText(match.start(), end, "IBAN")
    for match in _DIGITS.finditer(text):
        yield from _cards(match[0], text, match.start())
    for pattern in _PHONES:
        for match in pattern.finditer(text):
            yield PersonalText(match.start(), match.end(), "PHONE")
    for pattern in (_IPV4, _IPV6):
        for match in pattern.finditer(text):
            address = match[0].rstrip(".")
            if _is_address(address):
                yield PersonalText(match.start(), match.start() + len(address), "IP")


def _end_of(candidate: str, count: int, text: str, start: int) -> int | None:
    """Return the end of the first `count` letters and digits; None if a letter or digit follows, or they are fewer."""
    for at, character in enumerate(candidate):
        count -= character.isalnum()
        if count == 0:
            end = start + at + 1
            if end < len(text) and text[end].isalnum():
                return None
            return end
    return None


def _iban_end(candidate: str, text: str, start: int) -> int | None:
    count = _IBAN_LENGTHS.get(candidate[:2].upper())
    if count is None:
        return None
    end = _end_of(candidate, count, text, start)
    if end is None:
        return None
    digits = "".join(filter(str.isalnum, text[start:end])).upper()
    number = "".join(str(int(character, 36)) for character in digits[4:] + digits[:4])
    if int(number) % 97 == 1:
        return end
    return None


def _cards(run: str, text: str, start: int) -> Iterator[PersonalText]:
    """Yield the longest card number with a valid check digit (Luhn) from each digit that can be the first digit.

    Args:
        run: Digits with separators.
        text: The text that contains the run.
        start: Index of the run in the text.
    """
    places = [at for at, character in enumerate(run) if character.isdigit()]
    digits = [int(run[at]) for at in places]
    plain = [0, *accumulate(digits)]
    # Sums for numbers that end at an even place, and at an odd place: every second digit before the end is doubled.
    pairs = [(digit, sum(divmod(2 * digit, 10))) for digit in digits]
    sums = [[0, *accumulate([pair[(at + odd) % 2] for at, pair in enumerate(pairs)])] for odd in (0, 1)]
    for first, place in enumerate(places):
        if first and places[first - 1] == place - 1:
            continue
        for last in range(min(first + 18, len(digits) - 1), first + 11, -1):
            total = sums[last % 2]
            end = start + places[last] + 1
            if (total[last + 1] - total[first]) % 10 or plain[last + 1] == plain[first]:
                continue
            if end == len(text) or not text[end].isalnum():
                yield PersonalText(start + place, end, "CARD")
                break


def _is_address(text: str) -> bool:
    if text.count(".") != 3 and text.count(":") < 2:
        return False
    try:
        ip_address(text)
    except ValueError:
        return False
    return len(text) > 2
