"""Which space is the active one: chosen for a new store, and changed in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from agentkit_memory.database.engine import Database
from agentkit_memory.database.tables import items, vector_spaces, vector_state
from agentkit_memory.errors import EmbedderError, InvalidArgument
from agentkit_memory.store.outbox import hold_spaces
from agentkit_memory.store.spaces import Space, active_space, find_space, known_spaces, space_name
from agentkit_memory.terms.bm25_vectors import SPACE

if TYPE_CHECKING:
    from agentkit_memory.embedders.encoder import Encoder

__all__ = ["abandon", "begin", "establish", "flip", "renew", "try_again"]

_ANY_ITEM = select(items.c.id).limit(1)
_SET = update(vector_spaces).where(vector_spaces.c.space == bindparam("its_name"))
_REVIVE = _SET.values(state=bindparam("to"), dimensions=bindparam("size"), index_id="")
_TURN = _SET.where(vector_spaces.c.state == bindparam("from")).values(state=bindparam("to"))
_failed = (
    vector_state.c.space == bindparam("this"),
    vector_state.c.want != vector_state.c.have,
    vector_state.c.leased_by.is_(None),
    vector_state.c.attempts > 0,
)
_FAILED = select(vector_state.c.item_id).where(*_failed).limit(1)
_TRY_AGAIN = update(vector_state).where(*_failed).values(leased_until=None, attempts=0)


def establish(database: Database, encoder: Encoder) -> None:
    """Choose the model of an empty store; of another store, check that its model is this one.

    Raises:
        EmbedderError: The store is read by another model or by BM25 alone, or the model of an empty store does not
            return a first vector, whose length is needed.
    """
    with database.read() as connection:
        fits, active = _fits(connection, database, encoder.model), active_space(connection)
        failed = connection.scalar(_FAILED, {"this": active.name})
    if fits:
        if failed is not None:
            # Items may have failed in a process without the embedder.
            try_again(database, active)
        return
    new = Space(space_name(encoder.model), model=encoder.model, dimensions=encoder.measure())
    with database.write() as connection:
        hold_spaces(connection, change=True)
        if not _fits(connection, database, encoder.model):
            for each in known_spaces(connection):
                connection.execute(_TURN, {"its_name": each.name, "from": each.state, "to": "retired"})
            # These are at most removals from indexes that are dropped.
            connection.execute(delete(vector_state))
            _write(connection, new, database.clock())


def renew(database: Database) -> None:
    """Give a store whose index was made by an older analysis of texts a new one, filled from SQL later."""
    with database.read() as connection:
        if all(each.name == space_name(each.model) for each in known_spaces(connection, "active", "building")):
            return
    with database.write() as connection:
        hold_spaces(connection, change=True)
        active = active_space(connection)
        for each in known_spaces(connection, "active", "building"):
            if each.name != space_name(each.model):
                connection.execute(_TURN, {"its_name": each.name, "from": each.state, "to": "retired"})
        if active.name != (name := space_name(active.model)):
            _write(connection, Space(name, model=active.model, dimensions=active.dimensions), database.clock())


def _fits(connection: Connection, database: Database, model: str) -> bool:
    """Return whether a store is read by the model; False if it is empty, so that its model can be chosen."""
    active = active_space(connection)
    if active.model == model:
        return True
    if connection.scalar(_ANY_ITEM) is None:
        return False
    now = f"by model {active.model!r}" if active.model else "by BM25 alone"
    building = known_spaces(connection, "building")
    begun = f" (it was begun with {_called(building[0].model)!r})" if building else ""
    raise EmbedderError(
        f"{database.where}: this store is read {now}, not by model {model!r}; vectors of two models are never mixed: "
        f"open it without that embedder and call `memory.admin.reembed(embedder)` to change the model{begun}, or give "
        "the embedder that it is read by",
        name="embedder",
        value=model,
    )


def try_again(database: Database, space: Space) -> None:
    """Clear the pauses of failed items of a space."""
    with database.write() as connection:
        connection.execute(_TRY_AGAIN, {"this": space.name})


def begin(database: Database, model: str, dimensions: int) -> Space:
    """Add the space of a model beside the active one, if it was not added before; return it.

    From then on, items are queued for both.

    Raises:
        InvalidArgument: Another change of the model was begun and is not finished.
    """
    new = Space(space_name(model), model=model, dimensions=dimensions, state="building")
    with database.write() as connection:
        hold_spaces(connection, change=True)
        known = find_space(connection, new.name)
        if known is not None and known.state != "retired":
            return known
        if others := known_spaces(connection, "building"):
            raise InvalidArgument(
                f"{database.where}: a change to {_called(others[0].model)!r} was begun and is not finished: finish it, "
                f"or abandon it with `memory.admin.abandon_reembed()`, before {_called(model)!r} is built",
                name="embedder",
                value=str(others[0].model),
            )
        active = active_space(connection)
        # It was never indexed, and is no longer the only space.
        if find_space(connection, active.name) is None:
            _write(connection, active, database.clock())
        _write(connection, new, database.clock())
    return new


def flip(database: Database, space: Space) -> bool:
    """Make a built space the active one; return whether it is active now."""
    with database.write() as connection:
        hold_spaces(connection, change=True)
        active = active_space(connection)
        if active.name == space.name:
            # Another process that built it was first.
            return True
        if not connection.execute(_TURN, {"its_name": space.name, "from": "building", "to": "active"}).rowcount:
            return False
        connection.execute(_TURN, {"its_name": active.name, "from": "active", "to": "retired"})
    return True


def abandon(database: Database) -> bool:
    """Stop building; return whether a space was being built."""
    with database.write() as connection:
        hold_spaces(connection, change=True)
        found = known_spaces(connection, "building")
        for each in found:
            connection.execute(_TURN, {"its_name": each.name, "from": "building", "to": "retired"})
    return bool(found)


def _write(connection: Connection, space: Space, now: float) -> None:
    """Insert a space; a retired one of that name begins anew, whatever its index still holds."""
    revived = {"its_name": space.name, "to": space.state, "size": space.dimensions}
    if not connection.execute(_REVIVE, revived).rowcount:
        row = {"space": space.name, "index_id": "", "model": space.model, "dimensions": space.dimensions}
        connection.execute(insert(vector_spaces).values(**row, state=space.state, created_at=now))


def _called(model: str) -> str:
    return model or SPACE
