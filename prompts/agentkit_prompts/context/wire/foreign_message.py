"""`ForeignMessage`: a message of another library with the keys of the chat form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ForeignMessage(dict[str, Any]):
    """A message of another library with the keys of the chat form.

    Attributes:
        where: Place of the message in the input.
        opaque: Data without a counterpart in a `Message`, such as ids and metadata, by the name of the library. They
            are stored with the message and never sent.
    """

    __slots__ = ("opaque", "where")

    def __init__(self, where: str, library: str, keys: Mapping[str, Any], rest: Mapping[str, Any]) -> None:
        super().__init__(keys)
        self.where = where
        self.opaque: dict[str, Any] = {library: dict(rest)} if rest else {}
