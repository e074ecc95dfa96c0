"""Short representations of dataclasses, fast also for long texts and lists."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from agentkit_prompts.errors import ends_of
from agentkit_prompts.limits import MAX_MESSAGE_CHARS

_MAX_INNER_TEXT = 100
"""Maximum characters of a text in a list or a mapping."""
_MAX_ITEMS = 6
_MAX_LEVELS = 3


class _Short(reprlib.Repr):
    """A `reprlib.Repr` that also shortens bytes and any class of mappings, and does not sort the keys of mappings."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlong = self.maxother = MAX_MESSAGE_CHARS
        self.maxlevel = _MAX_LEVELS
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = _MAX_ITEMS

    def repr1(self, x: Any, level: int) -> str:
        """Return the representation of a value; its class and id if `repr` fails, as it does for a very long number."""
        try:
            return self._shown(x, level)
        # A class of the caller can raise any exception, and error messages, which contain this text, must not fail.
        except Exception:
            return f"<{type(x).__name__} instance at {id(x):#x}>"

    def _shown(self, x: Any, level: int) -> str:
        if isinstance(x, str):
            return short_text(x, MAX_MESSAGE_CHARS if level == _MAX_LEVELS else _MAX_INNER_TEXT)
        if isinstance(x, bytes) and len(x) > MAX_MESSAGE_CHARS:
            return f"<{len(x):,} bytes>"
        if isinstance(x, Mapping):
            return self.repr_dict(x, level)
        if isinstance(x, list):
            return self.repr_list(x, level)
        return super().repr1(x, level)

    def repr_dict(self, x: Mapping[Any, Any], level: int) -> str:
        if not x:
            return "{}"
        if level <= 0:
            return "{...}"
        # `reprlib` sorts the keys, which calls comparisons of any type.
        pairs: list[str] = []
        for key, value in x.items():
            if len(pairs) == self.maxdict:
                pairs.append("...")
                break
            pairs.append(f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}")
        return f"{{{', '.join(pairs)}}}"

    def repr_instance(self, x: Any, level: int) -> str:
        text = repr(x)
        if len(text) <= 2 * self.maxother:
            return text
        return f"{text[: self.maxother]}..."


_short = _Short()


def short_repr(self: Any) -> str:
    """Return the representation of a dataclass, with long texts cut in the middle and long lists cut at the end.

    Classes use this function as their `__repr__`.
    """
    fields_text = [f"{each.name}={_short.repr(getattr(self, each.name))}" for each in fields(self) if each.repr]
    return f"{type(self).__qualname__}({', '.join(fields_text)})"


def short_text(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    """Return the representation of a text, cut in the middle if it is longer than `limit` characters."""
    return repr(ends_of(text, limit))
