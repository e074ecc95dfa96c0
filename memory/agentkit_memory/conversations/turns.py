"""Turns: items of messages, written after the append. A watermark of each branch counts the processed messages."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, cast

from sqlalchemy import Connection, Integer, and_, bindparam, case, func, literal_column, or_, select, update

from agentkit_memory.conversations.message_rows import MAIN, load
from agentkit_memory.database.engine import Database, upserts
from agentkit_memory.database.prepared import PreparedWrite
from agentkit_memory.database.rows import decode_rows, raw_texts
from agentkit_memory.database.tables import branches, conversations, items, messages, scopes
from agentkit_memory.errors import StoreCorrupt, StoreVersion
from agentkit_memory.scope import NAMES
from agentkit_memory.store.item_rows import NAMESPACE, TURN, storable, text_columns
from agentkit_memory.store.item_text import is_readable_from
from agentkit_memory.store.outbox import enqueue
from agentkit_memory.store.read_view import QUEUE
from agentkit_memory.store.scope_rows import required
from agentkit_memory.store.stored_item import StoredItem
from agentkit_memory.terms.cuts import PIECE_BYTES, SENTENCE_END, SPACE, cut_text
from agentkit_prompts.context.messages import Message

REDACTED = "[redacted]"
"""Default text of a redacted message; a message with this text is not recalled."""

MAX_SEARCHED = 250_000
"""Maximum characters of new messages that a recall searches, the newest first."""

_BATCH = 512
"""Maximum number of messages whose items are written at once."""
_PARAGRAPH = re.compile(r"\n[ \t\r]*\n")
_RECALLED_ROLES = ("user", "assistant")
_MAX_WHOLE = 3 * PIECE_BYTES
"""Maximum bytes of a message that becomes one item; a longer message is cut into several items."""

_PART_BITS = 17
"""Bits of the number of a part in the id of a turn; the number of the message takes 31 bits."""
_MAX_PART = (1 << _PART_BITS) - 1
_MAX_PLACE = (1 << 48) - 1

_MAX_BRANCHES = 200
"""Maximum number of conversations and forks whose new messages a recall searches."""

_BEHIND = (
    select(
        *branches.c["id", "name", "head_seq", "itemised_seq"],
        conversations.c.scope_id,
        conversations.c.name.label("conversation"),
        conversations.c.id.label("conversation_id"),
        *scopes.c[NAMES],
    )
    .join(conversations, conversations.c.id == branches.c.conversation_id)
    .join(scopes, scopes.c.id == conversations.c.scope_id)
    .where(branches.c.itemised_seq < branches.c.head_seq)
    # In this order SQLite reads the index of these branches; in the order of the ids it would read every branch.
    .order_by(branches.c.conversation_id, branches.c.id)
    .limit(bindparam("most"))
)
_BEHIND_IN = _BEHIND.where(conversations.c.scope_id.in_(bindparam("scopes", expanding=True)))
_ADVANCE = (
    update(branches)
    .where(branches.c.id == bindparam("branch"), branches.c.itemised_seq == bindparam("seen"))
    .values(itemised_seq=bindparam("done"))
)
# With a shared lock, a new expiry is either set before the items are written, or set on the items afterwards.
_EXPIRES = (
    select(conversations.c.expires_at).where(conversations.c.id == bindparam("conversation")).with_for_update(read=True)
)
_MESSAGES = (
    select(*messages.c["seq", "format", "body", "created_at", "said_at"])
    .where(
        messages.c.branch_id == bindparam("branch"),
        messages.c.seq > bindparam("after"),
        messages.c.seq <= bindparam("until"),
    )
    .order_by(messages.c.seq)
)
_ADD_ITEMS = PreparedWrite(upserts(items))
_NEXT = select(func.min(messages.c.seq)).where(
    messages.c.branch_id == bindparam("branch"), messages.c.seq > bindparam("after")
)
_queued = (
    select(
        *QUEUE.c["id", "name", "head_seq", "itemised_seq"],
        conversations.c.scope_id,
        conversations.c.name.label("conversation"),
        *scopes.c[NAMES],
    )
    .select_from(QUEUE)
    .join(conversations, conversations.c.id == QUEUE.c.conversation_id)
    .join(scopes, scopes.c.id == conversations.c.scope_id)
    .where(
        (conversations.c.scope_id + 0).in_(bindparam("scopes", expanding=True)),
        or_(conversations.c.expires_at.is_(None), conversations.c.expires_at > bindparam("now")),
    )
    .order_by(QUEUE.c.conversation_id.desc())
    .limit(literal_column(str(_MAX_BRANCHES)))
    .cte("queued")
)
# Each conversation has the same share, so that only the searched messages are read and sorted, not all new messages.
_share = bindparam("most", type_=Integer) // select(func.count()).select_from(_queued).scalar_subquery()
_is_cut = _queued.c.head_seq - _queued.c.itemised_seq > _share
_NEW = (
    select(
        *messages.c["seq", "format", "body", "created_at", "said_at"],
        *_queued.c["id", "name", "scope_id", "conversation"],
        *_queued.c[NAMES],
        _is_cut.label("is_cut"),
    )
    .select_from(_queued)
    .join(
        messages,
        and_(
            messages.c.branch_id == _queued.c.id,
            messages.c.seq > case((_is_cut, _queued.c.head_seq - _share), else_=_queued.c.itemised_seq),
            messages.c.seq <= _queued.c.head_seq,
        ),
    )
    .order_by(messages.c.created_at.desc(), messages.c.seq.desc())
    .limit(bindparam("most"))
)


def itemise(database: Database, scope_ids: Sequence[int] | None, limit: int) -> int:
    """Write the items of new messages, each branch in a separate transaction; return the number of messages read.

    Call the function until it returns 0. Several callers may run at once: the caller that advances the watermark of a
    branch writes the items. Only messages of users and assistants become items, not tool calls and results. `scope_ids`
    are the scopes of the conversations; None, for workers only, means all scopes.
    """
    query, bound = _BEHIND, dict[str, object](most=limit)
    if scope_ids is not None:
        query, bound = _BEHIND_IN, {"most": limit, "scopes": required(scope_ids)}
    with database.read() as connection:
        # Corrupt rows are left out here; `admin.verify` names them.
        behind = decode_rows(connection, query, bound, branches.c.id).sound
    read = 0
    for branch in behind:
        read += _itemise(database, branch, limit - read)
        if read >= limit:
            break
    return read


def itemise_all(database: Database, scope_id: int) -> None:
    """Write the items of all new messages of a scope."""
    while itemise(database, [scope_id], _BATCH):
        pass


def _itemise(database: Database, branch: Any, limit: int) -> int:
    """Write the items of the next messages of one branch; return the number of messages read."""
    after: int = branch.itemised_seq

    def write(connection: Connection) -> int:
        until: int = min(branch.head_seq, after + limit)
        # The watermark is advanced first: its lock orders a redaction before the reading or after the writing.
        if connection.execute(_ADVANCE, {"branch": branch.id, "seen": after, "done": until}).rowcount != 1:
            # Another caller writes the items.
            return until - after
        now = database.clock()
        with raw_texts(connection):
            expires_at = connection.scalar(_EXPIRES, {"conversation": branch.conversation_id})
        # A corrupt expiry counts as past: a conversation that should expire must not be recalled for ever.
        if not isinstance(expires_at, int | float | None):
            expires_at = now
        bound = {"branch": branch.id, "after": after, "until": until}
        stored = decode_rows(connection, _MESSAGES, bound, messages.c.seq).sound
        if not stored and until < branch.head_seq:
            _skip_missing(connection, branch, until)
        place = _names_of(branch)
        owner = {"scope_id": branch.scope_id, "branch_id": branch.id}
        rows: list[dict[str, object]] = []
        for row in stored:
            try:
                message = load(branch.conversation, row.seq, row.format, row.body)
            except StoreVersion:
                # The watermark returns to the message before, so that a newer version of agentkit writes the item.
                connection.execute(_ADVANCE, {"branch": branch.id, "seen": until, "done": row.seq - 1})
                until = row.seq - 1
                break
            except StoreCorrupt:
                # A corrupt message is reported when the conversation is opened.
                continue
            rows += _item_rows(place, row, message, {**owner, "created_at": now, "valid_to": expires_at})
        if rows:
            # If a corrupt watermark was reset, items of these messages may exist already.
            _ADD_ITEMS.execute(connection, rows)
            enqueue(connection, [str(each["id"]) for each in rows], branch.scope_id, turns=True)
        return until - after

    return database.change(write)


def _skip_missing(connection: Connection, branch: Any, until: int) -> None:
    """Advance the watermark of a corrupt branch, whose next messages are missing, to the next stored message."""
    done = branch.head_seq
    next_seq = connection.scalar(_NEXT, {"branch": branch.id, "after": until})
    if next_seq is not None:
        done = min(done, next_seq - 1)
    connection.execute(_ADVANCE, {"branch": branch.id, "seen": until, "done": done})


def _item_rows(
    place: tuple[str, ...], row: Any, message: Message, columns: Mapping[str, object]
) -> list[dict[str, object]]:
    """Return the rows of the items of one stored message, with the columns that all items of a branch have."""
    parts = [*_parts(message)]
    # The text of a single item is usually read from the stored message. Parts of a long message have separate texts.
    if len(parts) == 1:
        parts = [stored_fields(parts[0], row.body)]
    columns = {**columns, "position": row.seq, "said_at": _said_at(row)}
    return [{**fields, **columns, "id": _turn_id(place, row.seq, part)} for part, fields in enumerate(parts)]


def _said_at(row: Any) -> float:
    """Return the time of a stored message; by default the time when it was stored."""
    if row.said_at is None:
        return float(row.created_at)
    return float(row.said_at)


def read_new_turns(
    connection: Connection, scope_ids: Sequence[int], now: float, most: int
) -> tuple[list[StoredItem], str]:
    """Return items of the newest messages that have no stored items yet, newest first, and the problem of the search.

    Nothing is written. At most `most` messages and `MAX_SEARCHED` characters are read, an equal number of messages from
    each conversation. The problem reports these limits; it is empty if all new messages were read. Corrupt messages are
    left out.
    """
    turns: list[StoredItem] = []
    seen: set[int] = set()
    problem = ""
    bound = {"scopes": required(scope_ids), "now": now, "most": most}
    remaining = MAX_SEARCHED
    for row in decode_rows(connection, _NEW, bound, messages.c.seq).sound:
        seen.add(row.id)
        if row.is_cut or len(seen) == _MAX_BRANCHES:
            problem = "too many new messages: only the newest of each conversation were searched"
        try:
            message = load(row.conversation, row.seq, row.format, row.body)
        except StoreCorrupt:
            continue
        for part, fields in enumerate(_parts(message)):
            text = str(fields["text"])
            remaining -= len(text)
            if remaining < 0:
                return turns, f"new messages are long: only {MAX_SEARCHED:,} characters of the newest were searched"
            turns.append(
                StoredItem(
                    id=_turn_id(_names_of(row), row.seq, part),
                    kind=TURN,
                    scope_id=row.scope_id,
                    text=text,
                    title="",
                    position=row.seq,
                    start=cast("int", fields["start"]),
                    end=cast("int", fields["end"]),
                    line=0,
                    document_id="",
                    source="",
                    uri="",
                    branch_id=row.id,
                    conversation=row.conversation,
                    branch=row.name,
                    speaker=str(fields["speaker"]),
                    role=str(fields["role"]),
                    said_at=_said_at(row),
                    created_at=row.created_at,
                    meta="{}",
                )
            )
    return turns, problem


def _names_of(branch: Any) -> tuple[str, ...]:
    """Return the names of a branch and its owners, which are the same in every store."""
    names = branch.tenant, branch.user, branch.session, branch.agent, branch.conversation
    return (*names, branch.name or MAIN)


def _turn_id(place: tuple[str, ...], seq: int, part: int) -> str:
    """Return the id of an item of a message, which is the same in every store."""
    prefix = _id_prefix(place, part >> _PART_BITS)
    return f"{prefix}{(seq << _PART_BITS | part & _MAX_PART) & _MAX_PLACE:012x}"


@lru_cache(maxsize=1024)
def _id_prefix(place: tuple[str, ...], part: int) -> str:
    """Return the first 80 bits of the ids of the turns of a branch, which keep these turns together in every table."""
    digest = blake2b("\0".join((*place, str(part))).encode(), key=NAMESPACE.bytes, digest_size=16).digest()
    return str(uuid.UUID(bytes=digest))[: len("01234567-0123-0123-0123-")]


def _parts(message: Message) -> Iterator[dict[str, object]]:
    """Yield the columns of the items of a message: several for a long message, none for a message without recall."""
    whole = turn_fields(message)
    if whole is None:
        return
    text = str(whole["text"])
    # A character takes at most four bytes, so that most texts are measured without encoding.
    if len(text) * 4 <= _MAX_WHOLE or len(text.encode()) <= _MAX_WHOLE:
        yield whole
        return
    start = 0
    for piece in cut_text(text.strip(), (_PARAGRAPH, SENTENCE_END, SPACE)):
        if body := piece.strip():
            yield whole | text_columns(body, start + len(piece) - len(piece.lstrip()))
        start += len(piece)


def stored_fields(fields: dict[str, object], body: str) -> dict[str, object]:
    """Return the columns of the only item of a message, with an empty text if it can be read from the message."""
    if is_readable_from(body, str(fields["text"])):
        return fields | {"text": ""}
    return fields


def turn_fields(message: Message) -> dict[str, object] | None:
    """Return the columns of a message as one item; None if the message is not recalled."""
    text = storable(message.text)
    if message.role not in _RECALLED_ROLES or not text.strip() or text == REDACTED:
        return None
    speaker = storable(message.name or message.role)
    return {"kind": TURN, **text_columns(text), "speaker": speaker, "role": message.role}
