"""A space is one way to index what SQL holds: BM25 alone, or BM25 and one dense model. One of them is read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from sqlalchemy import Connection, bindparam, insert, select, update

from agentkit_memory.index.sparse import SPACE
from agentkit_memory.store.tables import vector_spaces

__all__ = [
    "FACTS",
    "Embed",
    "Keeper",
    "Space",
    "active_space",
    "claim_space",
    "find_space",
    "known_spaces",
    "space_name",
]

FACTS = "facts"
"""Name and state of the row that is no space but a queue: of turns that facts are to be taken from."""

Embed: TypeAlias = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Turns texts into dense vectors, one each, in order."""

_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]*")
_LONGEST = 64


@runtime_checkable
class Keeper(Protocol):
    """An `Embed` that keeps the vectors of what is indexed, and remembers for a while which texts it has none of."""

    def keep(self, connection: Connection, texts: Iterable[str]) -> None:
        """Write down the vectors of these texts, in the transaction that says they are indexed."""
        ...


@dataclass(frozen=True, slots=True)
class Space:
    """A row of `vector_spaces`."""

    name: str
    index_id: str = ""
    """Which index the outbox speaks of; empty while there is none."""
    model: str = ""
    dimensions: int = 0
    """Length of the dense vectors; 0 where the space has none."""
    state: str = "active"
    """`active`: it is read; `building`: it is written too; `retired`: neither."""


_ROW = select(
    vector_spaces.c.space,
    vector_spaces.c.index_id,
    vector_spaces.c.model,
    vector_spaces.c.dimensions,
    vector_spaces.c.state,
)
_FIND = _ROW.where(vector_spaces.c.space == bindparam("name"))
_KNOWN = _ROW.where(vector_spaces.c.state != FACTS).order_by(vector_spaces.c.space)
_ACTIVE = _ROW.where(vector_spaces.c.state == "active")


def space_name(model: str) -> str:
    """Return the name of the space of BM25 and a model (none: BM25 alone): short, and fit for a file name anywhere."""
    if not model:
        return SPACE
    name = f"{SPACE}+{model}"
    if _PLAIN.fullmatch(model) and len(name) <= _LONGEST:
        return name
    digest = hashlib.blake2b(model.encode(), digest_size=5).hexdigest()
    readable = re.sub(r"[^a-z0-9._-]+", "-", model.lower()).strip("-")
    return f"{SPACE}+{readable[: _LONGEST - len(SPACE) - len(digest) - 2]}~{digest}"


def find_space(connection: Connection, name: str) -> Space | None:
    """Return the space of that name, if it was ever indexed."""
    row = connection.execute(_FIND, {"name": name}).first()
    return None if row is None else Space(*row)


def known_spaces(connection: Connection) -> list[Space]:
    """Return every space that was ever indexed."""
    return [Space(*row) for row in connection.execute(_KNOWN)]


def active_space(connection: Connection) -> Space:
    """Return the space that is read: BM25 alone in a store that was never indexed."""
    row = connection.execute(_ACTIVE).first()
    return Space(SPACE) if row is None else Space(*row)


def claim_space(connection: Connection, space: Space, index_id: str) -> None:
    """Write down that the outbox speaks of this index of the space from now on."""
    known = update(vector_spaces).where(vector_spaces.c.space == space.name).values(index_id=index_id)
    if not connection.execute(known).rowcount:
        row = {"space": space.name, "index_id": index_id, "model": space.model}
        connection.execute(insert(vector_spaces).values(**row, dimensions=space.dimensions, state=space.state))
