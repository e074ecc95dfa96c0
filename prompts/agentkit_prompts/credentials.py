"""The user and password of an address, apart from it: who sends a request may log where it goes."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

__all__ = ["BareAddress"]


class BareAddress(NamedTuple):
    """An address without user and password, and those."""

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
