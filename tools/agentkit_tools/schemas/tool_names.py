"""Names every provider accepts, from names that only their author does."""

from __future__ import annotations

import re
from hashlib import blake2b

__all__ = ["wire_name"]

_ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REFUSED = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_CHARS = 64


def wire_name(name: str) -> str:
    """Return `name` in letters, digits, `_` and `-`, at most 64 of them.

    A name that needs no change stays. Any other ends in 8 hex digits of its hash: `geometry.area` and `geometry area`
    stay apart, in every process and whatever other tools there are. A name that somebody made to look like the changed
    form of another one meets it, and is refused with it where tools are put together.
    """
    if _ACCEPTED.fullmatch(name):
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    readable = _REFUSED.sub("_", name).strip("_")[: _MAX_CHARS - len(digest) - 1]
    return f"{readable}_{digest}" if readable else f"tool_{digest}"
