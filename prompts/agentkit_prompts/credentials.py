"""Keys and passwords: addresses without them, because requests may be logged, and foreign texts without them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

__all__ = ["BareAddress", "masked", "spellings"]


class BareAddress(NamedTuple):
    """An address without user and password, and user and password."""

    url: str
    auth: tuple[str, str] | None

    @classmethod
    def of(cls, url: str) -> BareAddress:
        """Take an address apart.

        Raises:
            ValueError: It is not an address.
        """
        parts = urlsplit(url)
        userinfo, mark, host = parts.netloc.rpartition("@")
        if not mark:
            return cls(url, None)
        user, _, password = userinfo.partition(":")
        return cls(parts._replace(netloc=host).geturl(), (unquote(user), unquote(password)))


def spellings(key: str) -> tuple[str, ...]:
    """Return the forms in which a text can repeat a key: as it is, as JSON or Python write it, or as in an address."""
    if not key:
        return ()
    return tuple({key, json.dumps(key)[1:-1], repr(key)[1:-1], quote(key, safe="")})


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text with stars instead of secrets, in all of their spellings."""
    for form in sorted({form for secret in secrets for form in spellings(secret)}, key=len, reverse=True):
        # The longest first: one form can be the beginning of another.
        text = text.replace(form, "***")
    return text
