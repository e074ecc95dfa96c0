"""Removal of documents, and of chunks that are not published (any more), in batches."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sqlalchemy import BindParameter, Connection, bindparam, delete, literal_column, or_, select, update

from agentkit_memory.checks import is_whole
from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import decode_rows, is_decoded_text, raw_rows
from agentkit_memory.database.tables import document_chunks, documents, items
from agentkit_memory.errors import StoreCorrupt
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.item_removal import forget_items

_LOG = logging.getLogger("agentkit.memory")

BATCH = 512
"""Maximum chunks in one transaction."""

_PAGE = 1000
"""Maximum documents that are read at once."""
_HIDDEN = -1
"""Generation of a document that is being removed."""

_this = documents.c.id == bindparam("this")
_of_document = document_chunks.c.document_id == bindparam("this")
_other = document_chunks.alias("other")
_published: BindParameter[int] = bindparam("published")
_stays = select(_other.c.item_id).where(_other.c.item_id == document_chunks.c.item_id)
_OLDER = (
    select(document_chunks.c.item_id, _stays.where(_other.c.generation >= _published).exists().label("stays"))
    .where(_of_document, document_chunks.c.generation < _published)
    .limit(bindparam("most"))
)
_STAGED = (
    select(document_chunks.c.item_id, _stays.where(_other.c.generation <= _published).exists().label("stays"))
    .where(_of_document, document_chunks.c.generation > _published)
    .limit(bindparam("most"))
)
_is_listed = document_chunks.c.item_id.in_(bindparam("ids", expanding=True))
_DROP = delete(document_chunks).where(_of_document, document_chunks.c.generation < _published, _is_listed)
_DROP_STAGED = delete(document_chunks).where(_of_document, document_chunks.c.generation > _published, _is_listed)
_LOCK = select(documents.c.generation).where(_this).with_for_update()
_is_staged = select(document_chunks.c.item_id).where(_of_document, document_chunks.c.generation > _published)
_SETTLED = update(documents).where(_this, ~_is_staged.exists()).values(stage="")
_HIDE = update(documents).where(_this).values(generation=_HIDDEN, content_hash="", stamp="", stage="removal")
_ITEMS = select(items.c.id).where(items.c.document_id == bindparam("this")).limit(bindparam("most"))
_FORGET = delete(documents).where(_this)
_UNSETTLED = select(documents.c.id, documents.c.generation).where(
    documents.c.scope_id == bindparam("scope"),
    # A literal, not a parameter: SQLite uses the partial index only for a condition that is equal to its condition.
    documents.c.stage != literal_column("''"),
)


def forget_generations(connection: Connection, document: str, published: int, *, staged: bool = False) -> bool:
    """Delete a batch of the chunks of a document that are older than a generation; return True after the last batch.

    Items that no other generation contains are deleted too.

    Args:
        connection: Connection in a transaction that has locked the document.
        document: Id of the document.
        published: The generation that stays.
        staged: Delete the chunks of newer generations instead of older generations.
    """
    query, drop = _OLDER, _DROP
    if staged:
        query, drop = _STAGED, _DROP_STAGED
    bound = {"this": document, "published": published}
    rows = raw_rows(connection, query, bound | {"most": BATCH})
    sound = [row for row in rows if is_decoded_text(row.item_id)]
    if sound:
        forget_items(connection, {row.item_id for row in sound if not row.stays})
        connection.execute(drop, bound | {"ids": [row.item_id for row in sound]})
    return len(rows) < BATCH or not sound


def settle(database: Database, document: str) -> None:
    """Delete the chunks of a document that are older than its published generation."""

    def step(connection: Connection) -> bool:
        generation = connection.scalar(_LOCK, {"this": document})
        if not is_whole(generation, 1):
            # The document was removed meanwhile, or nothing was published yet.
            return True
        is_done = forget_generations(connection, document, generation)
        if is_done:
            connection.execute(_SETTLED, {"this": document, "published": generation})
        return is_done

    while not database.change(step):
        failpoint("document.swept")


def forget_document(database: Database, document: str) -> None:
    """Delete a document with its items. A long document is hidden first, and then deleted in several transactions."""
    is_hidden = False

    def step(connection: Connection) -> bool:
        if not is_hidden:
            connection.execute(_HIDE, {"this": document})
        elif connection.scalar(_LOCK, {"this": document}) != _HIDDEN:
            # Another caller writes the document again.
            return True
        ids = [
            row.id for row in raw_rows(connection, _ITEMS, {"this": document, "most": BATCH}) if is_decoded_text(row.id)
        ]
        forget_items(connection, ids)
        if len(ids) == BATCH:
            return False
        # The foreign key deletes items with corrupt ids too.
        connection.execute(_FORGET, {"this": document})
        return True

    while not database.change(step):
        is_hidden = True
        failpoint("document.hidden")


def finish_removals(database: Database, scope_id: int) -> None:
    """Finish interrupted removals in a scope: delete hidden documents, and chunks of old generations."""
    with database.read() as connection:
        unsettled = decode_rows(connection, _UNSETTLED, {"scope": scope_id}, documents.c.id).sound
    for row in unsettled:
        try:
            if row.generation == _HIDDEN:
                forget_document(database, row.id)
            else:
                settle(database, row.id)
        except StoreCorrupt as error:
            # A corrupt document does not block the other documents.
            _LOG.warning("the removal of a document could not be finished: %s", error)


def remove_gone(
    database: Database,
    scope_id: int,
    address: str,
    is_gone: Callable[[str], bool],
    is_same_folder: Callable[[str, str], bool],
) -> list[str]:
    """Remove the documents whose files are gone, at an address or in the folder at it; return their sources.

    Args:
        database: Database of the store.
        scope_id: Scope of the documents.
        address: `file:` address of a file or a folder.
        is_gone: Function that returns True if the file of an address is gone.
        is_same_folder: Function that returns True if two addresses, which differ only in case, lead to one folder.
    """
    prefix = address.rstrip("/") + "/"
    is_below = or_(documents.c.uri == address, documents.c.uri.istartswith(prefix, autoescape=True))
    page = (
        select(documents.c.id, documents.c.uri, documents.c.source)
        .where(documents.c.scope_id == scope_id, is_below, documents.c.generation != _HIDDEN)
        .order_by(documents.c.uri)
        .limit(_PAGE)
    )
    # The results of `is_same_folder`, by the start of the address of a document.
    same = {address: True}
    removed: list[str] = []
    last = ""
    while True:
        with database.read() as connection:
            rows = raw_rows(connection, page.where(documents.c.uri > last), {})
        sound = [row for row in rows if is_decoded_text(row.uri)]
        for row in sound:
            folder = row.uri[: len(prefix)]
            if folder not in same:
                same[folder] = is_same_folder(folder, prefix)
            if is_decoded_text(row.id) and same[folder] and is_gone(row.uri):
                _remove(database, row.id)
                removed.append(row.source if is_decoded_text(row.source) else row.uri)
        if len(rows) < _PAGE or not sound:
            return removed
        last = sound[-1].uri


def _remove(database: Database, document: str) -> None:
    try:
        forget_document(database, document)
    except StoreCorrupt as error:
        # The corrupt document is hidden already, and does not block other documents.
        _LOG.warning("a document could not be removed: %s", error)
