"""A space is one way to index items: BM25 alone, or BM25 and one dense model. Recalls read the active space."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, tuple_, update

from agentkit_memory.checks import MAX_DIMENSIONS, is_whole
from agentkit_memory.database.engine import Database
from agentkit_memory.database.tables import embeddings, vector_spaces, vector_state
from agentkit_memory.errors import StoreClosed, StoreCorrupt
from agentkit_memory.terms.bm25_vectors import SPACE

FACTS = "facts"
"""Name and state of a row of `vector_spaces` for the queue of turns for the extraction of facts."""

_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]*")
_MAX_NAME = 64
"""Maximum characters of the name of a space."""
_BATCH = 2000
"""Maximum outbox rows that are deleted in one transaction."""


@dataclass(frozen=True, slots=True)
class Space:
    """A row of `vector_spaces`."""

    name: str
    index_id: str = ""
    """Id of the index that the outbox is bound to, else empty."""
    model: str = ""
    dimensions: int = 0
    """Length of the dense vectors; 0 without dense vectors."""
    state: str = "active"
    """`active`: read and written; `building`: written only; `retired`: neither."""


_ROW = select(*vector_spaces.c["space", "index_id", "model", "dimensions", "state"])
_FIND = _ROW.where(vector_spaces.c.space == bindparam("name"))
_KNOWN = _ROW.where(vector_spaces.c.state != FACTS).order_by(vector_spaces.c.space)
_WRITES = select(vector_spaces.c.writes).where(vector_spaces.c.space == bindparam("this"))
_ACTIVE = _ROW.where(vector_spaces.c.state == "active")
_state = vector_state.c
_NEXT_ROWS = (
    select(_state.item_id, _state.space).where(_state.space == bindparam("this")).order_by(_state.item_id).limit(_BATCH)
)
_FORGET_ROWS = delete(vector_state).where(tuple_(_state.item_id, _state.space).in_(_NEXT_ROWS))
_FORGET_VECTORS = delete(embeddings).where(embeddings.c.model == bindparam("its_model"))
_FORGET_SPACE = delete(vector_spaces).where(
    vector_spaces.c.space == bindparam("this"), vector_spaces.c.state == "retired"
)


def space_name(model: str) -> str:
    """Return the name of the space of a model, or of BM25 alone for empty text: short, and valid as a file name."""
    if not model:
        return SPACE
    name = f"{SPACE}+{model}"
    if _PLAIN.fullmatch(model) and len(name) <= _MAX_NAME:
        return name
    digest = hashlib.blake2b(model.encode(), digest_size=5).hexdigest()
    readable = re.sub(r"[^a-z0-9._-]+", "-", model.lower()).strip("-")
    return f"{SPACE}+{readable[: _MAX_NAME - len(SPACE) - len(digest) - 2]}~{digest}"


def _space(row: Row[Any]) -> Space:
    space = Space(*row)
    texts = (space.name, space.index_id, space.model, space.state)
    is_sized = type(space.dimensions) is int and 0 <= space.dimensions <= MAX_DIMENSIONS
    if not is_sized or not all(isinstance(text, str) for text in texts):
        raise _corrupt(space.name)
    return space


def _corrupt(name: object) -> StoreCorrupt:
    return StoreCorrupt(
        f"the row of the space {name!r:.80} is corrupt; restore a backup",
        table="vector_spaces",
        row=str(name),
        name=str(name),
    )


def no_longer_read(where: str, name: str) -> StoreClosed:
    """Return the error of a caller that uses the index of a space that was retired meanwhile."""
    return StoreClosed(
        f"{where}: space {name!r} is no longer read: the model was changed; try again", name=str(name), path=where
    )


def index_writes(connection: Connection, name: str) -> int:
    """Return the number of batches that were written to the index of a space.

    Raises:
        StoreCorrupt: The number is corrupt.
    """
    writes = connection.scalar(_WRITES, {"this": name}) or 0
    if not is_whole(writes, 0):
        raise _corrupt(name)
    return writes


def find_space(connection: Connection, name: str) -> Space | None:
    """Return the space with a name; None if the space was never indexed."""
    row = connection.execute(_FIND, {"name": name}).first()
    if row is None:
        return None
    return _space(row)


def known_spaces(connection: Connection, *states: str) -> list[Space]:
    """Return all spaces with a row; with states, only spaces in these states."""
    spaces = [_space(row) for row in connection.execute(_KNOWN)]
    if not states:
        return spaces
    return [each for each in spaces if each.state in states]


def active_space(connection: Connection) -> Space:
    """Return the space that is read: BM25 alone in a store that was never indexed."""
    row = connection.execute(_ACTIVE).first()
    if row is None:
        return Space(SPACE)
    return _space(row)


def claim_space(connection: Connection, space: Space, index_id: str) -> None:
    """Bind the outbox of a space to an index."""
    bind = update(vector_spaces).where(vector_spaces.c.space == space.name).values(index_id=index_id, writes=0)
    if not connection.execute(bind).rowcount:
        row = {"space": space.name, "index_id": index_id, "model": space.model}
        connection.execute(insert(vector_spaces).values(**row, dimensions=space.dimensions, state=space.state))


_IN_USE = ("active", "building")


def forget_space(database: Database, space: Space) -> None:
    """Remove the rows of a space whose index is dropped: its outbox, and the stored vectors of its model."""
    while True:
        with database.write() as connection:
            stored = find_space(connection, space.name)
            # If the space is not retired any more, another process builds it again.
            if stored is None or stored.state != "retired":
                return
            if not connection.execute(_FORGET_ROWS, {"this": space.name}).rowcount:
                if space.model and not any(each.model == space.model for each in known_spaces(connection, *_IN_USE)):
                    connection.execute(_FORGET_VECTORS, {"its_model": space.model})
                connection.execute(_FORGET_SPACE, {"this": space.name})
                return
