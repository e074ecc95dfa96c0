"""Dates in a question, to compare with the time of a turn: "in May 2023", "on 4 July", "last week", "3 days ago".

English, and ISO dates. Relative dates are relative to `now`; times are UTC.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_DAY = 86_400.0
_MAX_DATES = 32
"""Maximum number of dates of a question: the time of each candidate is compared with each date."""
_DECAY = 7 * _DAY
"""Seconds after which the nearness is 1/e: an event is mentioned in the days around it."""


@dataclass(frozen=True, slots=True)
class Period:
    """The time from `start` to `end` (exclusive), in seconds since 1970."""

    start: float
    end: float

    def nearness(self, at: float) -> float:
        """Return 1.0 for a time in the period; the nearness falls with the distance."""
        gap = max(self.start - at, at - self.end, 0.0)
        return math.exp(-gap / _DECAY)


@dataclass(frozen=True, slots=True)
class EveryYear:
    """A month, or a day of a month, in any year."""

    month: int
    day: int | None = None

    def nearness(self, at: float) -> float:
        """Return 1.0 for a time in the month or on the day; the nearness falls with the distance."""
        year = _date(at).year
        near = [_period(each, self.month, self.day) for each in (year - 1, year, year + 1)]
        return max((period.nearness(at) for period in near if period is not None), default=0.0)


@dataclass(frozen=True, slots=True)
class SameWeekday:
    """Any Monday (0) to Sunday (6)."""

    weekday: int

    def nearness(self, at: float) -> float:
        """Return 1.0 for a time on that weekday, else 0.0."""
        return float(_date(at).weekday() == self.weekday)


When = Period | EveryYear | SameWeekday
"""A date that a question names."""

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_NUMBERS |= {"nine": 9, "ten": 10, "a couple of": 2, "a few": 3}
_LENGTHS = {"day": 1, "week": 7, "month": 30, "year": 365}

# Earlier patterns win: later patterns do not read a text that an earlier pattern matched.
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_NTH = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_YEAR = r"(?:,?\s+(?P<year>(?:19|20)\d\d)\b)?"
_PATTERNS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?P<year>(?:19|20)\d\d)-(?P<number>\d\d)(?:-(?P<day>\d\d))?\b",
        rf"\b{_NTH}(?:\s+of)?\s+{_MONTH}{_YEAR}",
        rf"\b{_MONTH}\s+(?:the\s+)?{_NTH}{_YEAR}",
        rf"\b(?P<lead>(?:in|of|since|during|until|by|last|this|next|early|mid|late)\s+)?{_MONTH}{_YEAR}",
        r"\b(?P<year>(?:19|20)\d\d)\b",
        rf"\b(?P<ago>{'|'.join(_NUMBERS)}|\d{{1,3}})\s+(?P<unit>day|week|month|year)s?\s+ago\b",
        r"\b(?P<which>last|past|previous|this|next)\s+(?P<span>week|weekend|month|year)\b",
        r"\b(?P<near>day before yesterday|yesterday|today|tonight|last night)\b",
        rf"\b(?:(?P<which>last|this|next)\s+)?(?P<weekday>{'|'.join(_WEEKDAYS)})\b",
    )
]
_DATE_HINT = re.compile(rf"\d|ago|day|week|month|year|night|{'|'.join(_MONTHS)}", re.IGNORECASE)
"""Digits and words of which every date contains one. Most questions contain none."""


def find_dates(text: str, now: float) -> tuple[When, ...]:
    """Return the dates that `text` names, each once, without days that do not exist; at most `_MAX_DATES`."""
    if _DATE_HINT.search(text) is None:
        return ()
    dates: dict[When, None] = {}
    for match in _matches(text):
        when = _read(match, now)
        if when is not None:
            dates[when] = None
        # Pasted text can contain hundreds of dates.
        if len(dates) == _MAX_DATES:
            break
    return tuple(dates)


def _matches(text: str) -> Iterator[re.Match[str]]:
    is_taken = bytearray(len(text))
    for pattern in _PATTERNS:
        for match in pattern.finditer(text):
            start, end = match.span()
            if not any(is_taken[start:end]):
                is_taken[start:end] = b"\1" * (end - start)
                yield match


def _read(date_match: re.Match[str], now: float) -> When | None:
    parts = {name: text.lower() for name, text in date_match.groupdict().items() if text}
    today = _date(now)
    try:
        match parts:
            case {"ago": number, "unit": unit}:
                width = _LENGTHS[unit]
                days = (_NUMBERS.get(number) or int(number)) * width + width // 2
                return _days(today - timedelta(days=days), width)
            case {"span": span, "which": which}:
                return _span(span, {"this": 0, "next": 1}.get(which, -1), today)
            case {"near": near}:
                back = {"day before yesterday": 2, "yesterday": 1, "last night": 1}.get(near, 0)
                return _days(today - timedelta(days=back))
            case {"weekday": name}:
                return _weekday(_WEEKDAYS.index(name), parts.get("which"), today)
            case {"number": month, "year": year}:
                return _period(int(year), int(month), _day_of(parts))
            case {"month": name}:
                return _named_month(date_match, _MONTHS.index(name[:3]) + 1, parts)
        return _period(int(parts["year"]))
    except (ValueError, OverflowError):
        # The date is outside of the calendar.
        return None


def _day_of(parts: dict[str, str]) -> int | None:
    if "day" not in parts:
        return None
    return int(parts["day"])


def _named_month(date_match: re.Match[str], month: int, parts: dict[str, str]) -> When | None:
    year, day = parts.get("year"), _day_of(parts)
    if year:
        return _period(int(year), month, day)
    if day is not None and not 1 <= day <= 31:
        return None
    if day is not None:
        return EveryYear(month, day)
    # "may" and "march" are words too: a month has a capital letter inside a sentence, or a word before it.
    name = date_match["month"]
    is_alone = name[0].islower() or (not date_match.string[: date_match.start()].strip() and len(name) < 6)
    if is_alone and "lead" not in parts:
        return None
    return EveryYear(month)


def _span(span: str, step: int, today: datetime) -> When | None:
    if span == "year":
        return _period(today.year + step)
    if span == "month":
        months = today.year * 12 + today.month - 1 + step
        return _period(months // 12, months % 12 + 1)
    monday = today - timedelta(days=today.weekday()) + timedelta(weeks=step)
    if span == "weekend":
        return _days(monday + timedelta(days=5), 2)
    return _days(monday, 7)


def _weekday(weekday: int, which: str | None, today: datetime) -> When:
    if which is None:
        return SameWeekday(weekday)
    if which == "last":
        return _days(today - timedelta(days=(today.weekday() - weekday - 1) % 7 + 1))
    # "next" does not include today.
    first_day = int(which == "next")
    return _days(today + timedelta(days=(weekday - today.weekday() - first_day) % 7 + first_day))


def _date(at: float) -> datetime:
    """Return the start of the day of a time, in UTC; 1 January 1970 for a time outside of the calendar."""
    try:
        return datetime.fromtimestamp(at, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    except (ValueError, OverflowError, OSError):
        return datetime(1970, 1, 1, tzinfo=UTC)


def _days(start: datetime, count: int = 1) -> Period:
    return Period(start.timestamp(), (start + timedelta(days=count)).timestamp())


def _period(year: int, month: int | None = None, day: int | None = None) -> Period | None:
    """Return the period of a year, month or day; None if the day does not exist, such as 31 February."""
    try:
        if month is None:
            start, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
        elif day is None:
            start = datetime(year, month, 1, tzinfo=UTC)
            # December is followed by month 1 of the next year.
            end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
        else:
            return _days(datetime(year, month, day, tzinfo=UTC))
        return Period(start.timestamp(), end.timestamp())
    except (ValueError, OverflowError):
        return None
