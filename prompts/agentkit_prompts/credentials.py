"""Removal of keys and passwords from addresses and other texts before they are logged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit


class BareAddress(NamedTuple):
    """An address without its credentials, and the credentials."""

    url: str
    auth: tuple[str, str] | None
    """User and password; None if the address has no credentials."""

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
    """Return the spellings that a key can have in a text: plain, escaped as in JSON or Python, encoded as in an
    address.

    An empty key has no spellings.
    """
    if not key:
        return ()
    return tuple({key, json.dumps(key)[1:-1], repr(key)[1:-1], quote(key, safe="")})


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text with stars instead of secrets, in all of their spellings."""
    for form in sorted({form for secret in secrets for form in spellings(secret)}, key=len, reverse=True):
        # Longest spelling first, because one spelling can be a prefix of another.
        text = text.replace(form, "***")
    return text
