"""The active space: its choice for a new store, and its change in one transaction."""

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

_ANY_ITEM = select(items.c.id).limit(1)
_SET = update(vector_spaces).where(vector_spaces.c.space == bindparam("its_name"))
_REVIVE = _SET.values(state=bindparam("to"), dimensions=bindparam("size"), index_id="")
_CHANGE = _SET.where(vector_spaces.c.state == bindparam("from")).values(state=bindparam("to"))
_failed = (
    vector_state.c.space == bindparam("this"),
    vector_state.c.want != vector_state.c.have,
    vector_state.c.leased_by.is_(None),
    vector_state.c.attempts > 0,
)
_FAILED = select(vector_state.c.item_id).where(*_failed).limit(1)
_TRY_AGAIN = update(vector_state).where(*_failed).values(leased_until=None, attempts=0)


def establish(database: Database, encoder: Encoder) -> None:
    """Choose the model of an empty store, or check that a store with items uses the model.

    Raises:
        EmbedderError: A store with items uses another model or BM25 alone; or the model of an empty store does not
            return a first vector, which determines the dimensions.
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
                connection.execute(_CHANGE, {"its_name": each.name, "from": each.state, "to": "retired"})
            # The outbox of an empty store contains only removals from indexes that are dropped.
            connection.execute(delete(vector_state))
            _write(connection, new, database.clock())


def renew(database: Database) -> None:
    """Replace spaces with an older analysis of texts by new spaces, whose indexes are filled from SQL later."""
    with database.read() as connection:
        if all(each.name == space_name(each.model) for each in known_spaces(connection, "active", "building")):
            return
    with database.write() as connection:
        hold_spaces(connection, change=True)
        active = active_space(connection)
        for each in known_spaces(connection, "active", "building"):
            if each.name != space_name(each.model):
                connection.execute(_CHANGE, {"its_name": each.name, "from": each.state, "to": "retired"})
        if active.name != (name := space_name(active.model)):
            _write(connection, Space(name, model=active.model, dimensions=active.dimensions), database.clock())


def _fits(connection: Connection, database: Database, model: str) -> bool:
    """Return True if a store uses the model; False if the store is empty, so that a model can be chosen.

    Raises:
        EmbedderError: The store has items and another model.
    """
    active = active_space(connection)
    if active.model == model:
        return True
    if connection.scalar(_ANY_ITEM) is None:
        return False
    current = "BM25 alone"
    if active.model:
        current = f"model {active.model!r}"
    change = "to change the model"
    if building := known_spaces(connection, "building"):
        change += f" (a change to {_model_name(building[0].model)!r} was started)"
    raise EmbedderError(
        f"{database.where}: this store uses {current}, not model {model!r}; vectors of two models are never mixed: "
        f"open it without that embedder and call `memory.admin.reembed(embedder)` {change}, or pass the embedder of "
        "the store",
        name="embedder",
        value=model,
    )


def try_again(database: Database, space: Space) -> None:
    """Clear the pauses of failed items of a space."""
    with database.write() as connection:
        connection.execute(_TRY_AGAIN, {"this": space.name})


def begin(database: Database, model: str, dimensions: int) -> Space:
    """Return the space of a model, which is added next to the active space unless it exists.

    From then on, items are queued for both spaces.

    Raises:
        InvalidArgument: Another change of the model was started and is not finished.
    """
    new = Space(space_name(model), model=model, dimensions=dimensions, state="building")
    with database.write() as connection:
        hold_spaces(connection, change=True)
        stored = find_space(connection, new.name)
        if stored is not None and stored.state != "retired":
            return stored
        if building := known_spaces(connection, "building"):
            other = building[0].model
            raise InvalidArgument(
                f"{database.where}: a change to {_model_name(other)!r} was started and is not finished: finish it, or "
                f"abandon it with `memory.admin.abandon_reembed()`, before {_model_name(model)!r} is built",
                name="embedder",
                value=str(other),
            )
        active = active_space(connection)
        # The active space of a store that was never indexed has no row. It needs a row once there is a second space.
        if find_space(connection, active.name) is None:
            _write(connection, active, database.clock())
        _write(connection, new, database.clock())
    return new


def flip(database: Database, space: Space) -> bool:
    """Activate a built space; return True if it is active now."""
    with database.write() as connection:
        hold_spaces(connection, change=True)
        active = active_space(connection)
        if active.name == space.name:
            # Another process has activated the space.
            return True
        if not connection.execute(_CHANGE, {"its_name": space.name, "from": "building", "to": "active"}).rowcount:
            return False
        connection.execute(_CHANGE, {"its_name": active.name, "from": "active", "to": "retired"})
    return True


def abandon(database: Database) -> bool:
    """Abandon a change of the model; return True if a space was being built."""
    with database.write() as connection:
        hold_spaces(connection, change=True)
        building = known_spaces(connection, "building")
        for each in building:
            connection.execute(_CHANGE, {"its_name": each.name, "from": "building", "to": "retired"})
    return bool(building)


def _write(connection: Connection, space: Space, now: float) -> None:
    """Insert a space; a retired space with the same name is used again, with a new index."""
    changes = {"its_name": space.name, "to": space.state, "size": space.dimensions}
    if not connection.execute(_REVIVE, changes).rowcount:
        row = {"space": space.name, "index_id": "", "model": space.model, "dimensions": space.dimensions}
        connection.execute(insert(vector_spaces).values(**row, state=space.state, created_at=now))


def _model_name(model: str) -> str:
    return model or SPACE
