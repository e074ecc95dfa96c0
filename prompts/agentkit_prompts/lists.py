"""Recognition of lists of items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard


def is_list(value: object) -> TypeGuard[Iterable[Any]]:
    """True if a value is an iterable of items: no text, no mapping, and no record of pydantic, which yields its fields.

    Messages, documents, tools and toolkits of other libraries are such records.
    """
    if isinstance(value, list | tuple):
        return True
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        return False
    # The class of a record can define another iteration.
    return not getattr(type(value).__iter__, "__module__", "").startswith("pydantic.")
