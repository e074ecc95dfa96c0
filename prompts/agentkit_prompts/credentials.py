"""Removal of keys and passwords from addresses and foreign texts, which can be logged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

__all__ = ["BareAddress", "masked", "spellings"]


class BareAddress(NamedTuple):
    """An address without its credentials, and the credentials."""

    url: str
    auth: tuple[str, str] | None

    @classmethod
    def of(cls, url: str) -> BareAddress:
        """Split an address.

        Raises:
            ValueError: The text is not an address.
        """
        parts = urlsplit(url)
        userinfo, mark, host = parts.netloc.rpartition("@")
        if not mark:
            return cls(url, None)
        user, _, password = userinfo.partition(":")
        return cls(parts._replace(netloc=host).geturl(), (unquote(user), unquote(password)))


def spellings(key: str) -> tuple[str, ...]:
    """Return the spellings of a key in a text: plain, escaped in JSON or Python, or encoded in an address."""
    if not key:
        return ()
    return tuple({key, json.dumps(key)[1:-1], repr(key)[1:-1], quote(key, safe="")})


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text with stars instead of secrets, in all of their spellings."""
    for form in sorted({form for secret in secrets for form in spellings(secret)}, key=len, reverse=True):
        # Longest spelling first, because one spelling can be a prefix of another.
        text = text.replace(form, "***")
    return text
