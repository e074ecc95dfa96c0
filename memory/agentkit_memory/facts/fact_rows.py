"""`Facts`: facts in SQL, each with a time of validity, sources, and facts that it supersedes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import EllipsisType

from sqlalchemy import Connection, bindparam, func, insert, select, update

from agentkit_memory.checks import check_limit, is_time, is_whole
from agentkit_memory.conversations.turns import itemise_all
from agentkit_memory.database.engine import Database
from agentkit_memory.database.tables import item_sources, items
from agentkit_memory.errors import InvalidArgument, NotFound
from agentkit_memory.facts.drafts import FactDraft, text_error
from agentkit_memory.facts.fact_reading import ANY_FACT, FACT_SOURCES, FIND_OWN, IS_FACT, OWN_FACT, read_facts, read_own
from agentkit_memory.scope import LOCAL_USER, Scope
from agentkit_memory.store.item_removal import forget_embeddings, forget_items
from agentkit_memory.store.item_rows import (
    CHANGE,
    FACT,
    NAMESPACE,
    in_batches,
    storable,
    text_columns,
)
from agentkit_memory.store.metadata import written_metadata
from agentkit_memory.store.outbox import enqueue, hold_spaces, withdraw
from agentkit_memory.store.records import StoredFact
from agentkit_memory.store.scope_rows import (
    find_number,
    hold_scope,
    is_readable,
    known_ids,
    number_of,
    readable_ids,
    required,
)
from agentkit_prompts.errors import brief
from agentkit_prompts.hints import Hinted, with_option_hints

_ID = FIND_OWN.with_only_columns(items.c.id)
_FIND_READABLE = ANY_FACT.where(items.c.id.in_(bindparam("ids", expanding=True)), is_readable(items.c.scope_id))
_LISTED = OWN_FACT.where(items.c.position > bindparam("after")).order_by(items.c.position).limit(bindparam("most"))
_CURRENT = _LISTED.where(items.c.superseded_by.is_(None))
_IN_SCOPES = select(items.c.id).where(
    items.c.id.in_(bindparam("ids", expanding=True)), items.c.scope_id.in_(bindparam("scopes", expanding=True))
)
# Locked until the fact is stored, so a concurrent removal or redaction of a source waits, and then sees the fact.
_LOCKED_SOURCES = _IN_SCOPES.order_by(items.c.id).with_for_update(read=True)
_LAST_POSITION = select(func.coalesce(func.max(items.c.position), 0)).where(
    items.c.scope_id == bindparam("scope"), IS_FACT
)
_SUCCESSORS = select(items.c.superseded_by).where(
    items.c.id.in_(bindparam("ids", expanding=True)), items.c.superseded_by.is_not(None)
)
_SUPERSEDE = (
    update(items)
    .where(items.c.id.in_(bindparam("ids", expanding=True)), items.c.superseded_by.is_(None))
    .values(superseded_by=bindparam("new"))
)
_CHANGE = CHANGE.values(
    valid_from=bindparam("since"),
    valid_to=bindparam("until"),
    meta=bindparam("new_meta"),
    created_at=bindparam("now"),
    version=items.c.version + 1,
)
_RENEW = _CHANGE.values(superseded_by=None)
_CHANGE_TEXT = CHANGE.values({name: bindparam(f"new_{name}") for name in text_columns("")})


def _with_successors(connection: Connection, facts: Iterable[str]) -> list[str]:
    """Return facts and their successors, because a new fact replaces a fact together with its successors.

    If two writers replace the same fact, the last writer wins.
    """
    ids = list(dict.fromkeys(facts))
    frontier = ids
    while frontier:
        frontier = [each for each in connection.scalars(_SUCCESSORS, {"ids": frontier}) if each not in ids]
        ids += dict.fromkeys(frontier)
    return ids


class Facts(metaclass=Hinted):
    """The facts of one scope.

    Without a user, a new fact is shared by the users of the tenant. Facts from conversations without a user belong to
    the user `local`: they are listed and changed here too, but no other user recalls them.
    """

    def __init__(
        self, database: Database, scope: Scope, search_ids: Callable[[str, int], Sequence[str]] | None = None
    ) -> None:
        """`search_ids` returns the ids of at most `limit` facts for a question; without it, `search` finds nothing."""
        self._database = database
        self._scope = scope
        self._reader = scope.with_default_user()
        self._search_ids = search_ids

    @with_option_hints
    def add(
        self,
        text: str,
        *,
        valid_from: float | None = None,
        valid_to: float | None = None,
        supersedes: str | Iterable[str] = (),
        sources: str | Iterable[str] = (),
        metadata: Mapping[str, object] | None = None,
    ) -> StoredFact:
        """Store a fact and return it.

        The same text from the same sources is the same fact. With sources, adding the fact again changes nothing.
        Without sources, the fact becomes valid again with the new times and, if any, the new metadata, even if it was
        superseded.

        Args:
            text: One sentence.
            valid_from: Time from which the fact is recalled, in seconds since 1970; None for now.
            valid_to: Time until which the fact is recalled; None for ever.
            supersedes: Ids of facts of this scope that the fact replaces. Replaced facts stay stored, but are no longer
                recalled.
            sources: Ids of items that the fact was taken from; if a source is a fact, its sources are included. The
                fact is deleted with any source, and expires with the first source. A fact from a conversation belongs
                to the scope of the conversation.
            metadata: JSON values, up to 32 levels deep and 8,192 characters long.

        Raises:
            InvalidArgument: The text or the metadata cannot be stored, or a time is invalid.
            NotFound: A fact to replace, or a source, is not in this scope.
        """
        taken_from, replaced = _ids("sources", sources), _ids("supersedes", supersedes)
        stored = {} if metadata is None else metadata
        draft = FactDraft(text, taken_from, replaced, valid_from, valid_to, stored)
        # A source may be a message whose item is not written yet: its item is written first.
        if taken_from:
            for scope_number in known_ids(self._database, self._reader):
                itemise_all(self._database, scope_number)
        return self._database.change(lambda connection: self.write(connection, draft))

    def write(self, connection: Connection, draft: FactDraft) -> StoredFact:
        """Store a draft in a transaction. All errors are raised before anything is written."""
        text, valid_from, valid_to = draft.text, draft.valid_from, draft.valid_to
        replaced, taken_from = _ids("supersedes", draft.supersedes), _ids("sources", draft.sources)
        meta = self._checked_metadata(text, valid_from, valid_to, draft.metadata)
        numbers = self._hold(connection)
        self._check_known(connection, self._own(numbers), replaced, taken_from)
        scope = self._scope_of(connection, [*taken_from, *replaced], numbers)
        scope_number = numbers[scope]
        fact_id, stored_fact = self._identify(connection, scope, scope_number, text, taken_from)
        if stored_fact is None:
            times = {"valid_from": valid_from, "valid_to": valid_to, "created_at": self._database.clock()}
            row = {"id": fact_id, "scope_id": scope_number, "kind": FACT, "meta": meta, **times, **text_columns(text)}
            self._insert(connection, row, numbers.values(), taken_from)
            enqueue(connection, [fact_id], scope_number)
        elif taken_from:
            # The fact is stored already, with the same sources.
            return stored_fact
        else:
            self._renew(connection, scope_number, stored_fact, draft, meta)
        superseded_ids = [each for each in _with_successors(connection, replaced) if each != fact_id]
        if superseded_ids:
            connection.execute(_SUPERSEDE, {"ids": superseded_ids, "new": fact_id})
            withdraw(connection, superseded_ids)
        return read_own(connection, [fact_id], [scope_number])[0]

    @staticmethod
    def _insert(
        connection: Connection, row: dict[str, object], scope_ids: Iterable[int], taken_from: Sequence[str]
    ) -> None:
        """Insert a fact with the next number of its scopes, and its sources."""
        # One query per scope: SQLite finds the maximum of one scope in the index, and reads all facts of several.
        last_numbers = [int(connection.scalar(_LAST_POSITION, {"scope": each}) or 0) for each in scope_ids]
        connection.execute(insert(items), row | {"position": max(last_numbers) + 1})
        # A source that is a fact contributes its sources too.
        ids = set(taken_from)
        for batch in in_batches(sorted(ids)):
            ids.update(source for _, source in connection.execute(FACT_SOURCES, {"ids": batch}))
        sources = sorted(ids)
        if sources:
            connection.execute(insert(item_sources), [{"item_id": row["id"], "source_id": each} for each in sources])

    @staticmethod
    def _identify(
        connection: Connection, scope: Scope, scope_number: int, text: str, sources: Sequence[str]
    ) -> tuple[str, StoredFact | None]:
        """Return the id of a fact with a text and sources, and the stored fact, or None if it is not stored yet."""
        fact = str(uuid.uuid5(NAMESPACE, "\0".join((FACT, scope.key, text, *sources))))
        while stored := read_own(connection, [fact], [scope_number]):
            if stored[0].text == text:
                return fact, stored[0]
            # The fact was updated, so that its id belongs to another text now.
            fact = str(uuid.uuid5(uuid.UUID(fact), text))
        return fact, None

    def _renew(
        self, connection: Connection, scope_number: int, stored: StoredFact, draft: FactDraft, meta: str
    ) -> None:
        """Make a stored fact valid again, with the times of a draft and, if it has metadata, with its metadata."""
        stored_meta = written_metadata(stored.metadata, sort_keys=True)
        if not draft.metadata:
            meta = stored_meta
        before = (stored.superseded_by, stored.valid_from, stored.valid_to, stored_meta)
        if before == (None, draft.valid_from, draft.valid_to, meta):
            return
        values = {"since": draft.valid_from, "until": draft.valid_to, "new_meta": meta, "now": self._database.clock()}
        connection.execute(_RENEW, {"item": stored.id} | values)
        enqueue(connection, [stored.id], scope_number)

    def update(
        self,
        fact: str,
        text: str | None = None,
        *,
        valid_from: float | EllipsisType | None = ...,
        valid_to: float | EllipsisType | None = ...,
        metadata: Mapping[str, object] | None = None,
    ) -> StoredFact:
        """Change a fact of this scope by its id, and return it. Fields without an argument do not change.

        The id, the sources and the superseded facts of the fact do not change. To keep the old text too, add
        a fact that supersedes this fact.

        Args:
            fact: Id of the fact.
            text: The new text.
            valid_from: Time from which the fact is recalled, in seconds since 1970; None for now.
            valid_to: Time until which the fact is recalled; None for ever.
            metadata: The new metadata, which replaces all old metadata.

        Raises:
            InvalidArgument: The text or the metadata cannot be stored, or a time is invalid.
            NotFound: The fact is not in this scope.
        """

        def write(connection: Connection) -> StoredFact:
            hold_spaces(connection)
            numbers = self._hold(connection)
            own = self._own(numbers)
            stored = read_own(connection, [fact], own)
            if not stored:
                raise NotFound(f"not in this scope: fact {fact!r:.80}; nothing was changed", value=str(fact))
            new = old = stored[0]
            if text is not None:
                new = replace(new, text=text)
            if not isinstance(valid_from, EllipsisType):
                new = replace(new, valid_from=valid_from)
            if not isinstance(valid_to, EllipsisType):
                new = replace(new, valid_to=valid_to)
            if metadata is not None:
                new = replace(new, metadata=metadata)
            meta = self._checked_metadata(new.text, new.valid_from, new.valid_to, new.metadata)
            self._change(connection, numbers[self._scope_of(connection, [old.id], numbers)], old, new, meta)
            return read_own(connection, [old.id], own)[0]

        return self._database.change(write)

    def _change(self, connection: Connection, scope_number: int, old: StoredFact, new: StoredFact, meta: str) -> None:
        """Write a changed fact, with its metadata as JSON."""
        this_item = {"item": old.id}
        if new.text != old.text:
            # The fact is withdrawn first: otherwise a worker could still store the vector of the old text.
            withdraw(connection, [old.id])
            forget_embeddings(connection, [old.id])
            columns = {f"new_{name}": value for name, value in text_columns(new.text).items()}
            connection.execute(_CHANGE_TEXT, this_item | columns)
        values = {"since": new.valid_from, "until": new.valid_to, "new_meta": meta, "now": self._database.clock()}
        connection.execute(_CHANGE, this_item | values)
        if old.superseded_by is None:
            enqueue(connection, [old.id], scope_number)

    def search(self, query: str, *, limit: int = 10) -> tuple[StoredFact, ...]:
        """Return the valid facts for a question that this scope may read, best first.

        Raises:
            InvalidArgument: The query is not text, or the limit is invalid.
        """
        if self._search_ids is None:
            return ()
        ids = self._search_ids(query, limit)
        facts = {each.id: each for each in self._readable(ids)}
        return tuple(facts[each] for each in ids if each in facts)

    def _readable(self, ids: Sequence[str]) -> Sequence[StoredFact]:
        """Return the facts with these ids that the scope may read."""
        bound = {"ids": ids, **self._reader.readable_names()}
        with self._database.read() as connection:
            return read_facts(connection, _FIND_READABLE, bound)

    def get(self, fact: str) -> StoredFact | None:
        """Return a fact that this scope may read, even if expired or superseded; None for an unknown id."""
        return next(iter(self._readable([storable(str(fact))])), None)

    def list(self, *, after: int = 0, limit: int = 100, superseded: bool = False) -> tuple[StoredFact, ...]:
        """Return facts of this scope, without facts that it shares, in the order in which they were first added.

        Args:
            after: Number of the last fact of the previous page.
            limit: Maximum number of facts.
            superseded: True to include superseded facts.

        Raises:
            InvalidArgument: An argument is invalid.
        """
        check_limit("facts", limit)
        if not is_whole(after):
            raise InvalidArgument(f"facts: expected the number of a fact as 'after', got {brief(after)}", name="after")
        statement = _CURRENT
        if superseded:
            statement = _LISTED
        scope_ids = [number for scope in {self._reader, self._scope} for number in known_ids(self._database, scope)]
        bound = {"scopes": scope_ids, "after": after, "most": limit}
        with self._database.read() as connection:
            return tuple(read_facts(connection, statement, bound))

    def __iter__(self) -> Iterator[StoredFact]:
        """Yield all facts that `list` returns page by page, except superseded facts."""
        after = 0
        while page := self.list(after=after):
            after = page[-1].number
            yield from page

    def remove(self, fact: str) -> bool:
        """Delete a fact of this scope; return True if it was stored. Facts that it superseded stay superseded."""
        # `write` is called again after a lost connection, and the first call may have deleted the fact.
        deleted: set[str] = set()

        def write(connection: Connection) -> None:
            bound = {"ids": [storable(str(fact))], "scopes": required(self._own(self._hold(connection)))}
            ids = connection.scalars(_ID, bound).all()
            forget_items(connection, ids)
            deleted.update(ids)

        self._database.change(write)
        return bool(deleted)

    def _hold(self, connection: Connection) -> dict[Scope, int]:
        """Lock the stored scopes whose facts are numbered together; return their numbers."""
        numbers: dict[Scope, int] = {}
        for scope in _numbered_together(self._scope):
            number = find_number(connection, scope)
            if number is None and scope == self._scope:
                number = number_of(connection, scope)
            if number is not None:
                hold_scope(connection, number)
                numbers[scope] = number
        return numbers

    def _own(self, numbers: Mapping[Scope, int]) -> Sequence[int]:
        """Return the numbers of the scopes whose facts can be changed."""
        return [number for scope, number in numbers.items() if scope in (self._reader, self._scope)]

    def _scope_of(self, connection: Connection, ids: Sequence[str], numbers: Mapping[Scope, int]) -> Scope:
        """Return the scope of conversations if it has any of these items, otherwise the scope of new facts."""
        reader = numbers.get(self._reader)
        if reader is None or self._reader == self._scope:
            return self._scope
        for batch in in_batches(ids):
            if connection.scalars(_IN_SCOPES, {"ids": batch, "scopes": [reader]}).first() is not None:
                return self._reader
        return self._scope

    @staticmethod
    def _checked_metadata(
        text: str, valid_from: float | None, valid_to: float | None, metadata: Mapping[str, object]
    ) -> str:
        """Check the fields of a fact; return its metadata as JSON."""
        if not isinstance(text, str) or not text.strip():
            raise text_error(text)
        problems = []
        if storable(text) != text:
            problems.append("text: it contains NUL or an unpaired surrogate")
        for name, value in (("valid_from", valid_from), ("valid_to", valid_to)):
            if value is not None and not is_time(value):
                problems.append(f"{name}: expected seconds since 1970, got {brief(value)}")
        if not problems and valid_from is not None and valid_to is not None and valid_to <= valid_from:
            problems.append(f"valid_to: expected a time after valid_from ({valid_from}), got {valid_to}")
        meta = "{}"
        try:
            meta = written_metadata(metadata, sort_keys=True)
        except ValueError as error:
            problems.append(f"metadata: it {error}")
        if problems:
            raise InvalidArgument.listing(f"fact {text[:80]!r}", problems)
        return meta

    def _check_known(
        self, connection: Connection, own: Sequence[int], facts: Sequence[str], sources: Sequence[str]
    ) -> None:
        """Check that facts are stored in the scope, and that the scope may read the sources; lock the sources."""
        unknown = [f"fact {each}" for each in facts if not read_own(connection, [each], own)]
        readable = readable_ids(connection, self._reader)
        known_ids: set[str] = set()
        for batch in in_batches(sources):
            known_ids.update(connection.scalars(_LOCKED_SOURCES, {"ids": batch, "scopes": required(readable)}))
        unknown += [f"item {each}" for each in sources if each not in known_ids]
        if unknown:
            raise NotFound(f"not in this scope: {', '.join(unknown)}; nothing was stored", value=", ".join(unknown))


def _numbered_together(scope: Scope) -> tuple[Scope, ...]:
    """Return the scopes whose facts have different numbers: `Facts.list` without a user lists two scopes."""
    reader = scope.with_default_user()
    if reader.session or reader.user != LOCAL_USER:
        return (scope,)
    # In this order, because a worker has locked the scope of a conversation before.
    return reader, replace(reader, user="")


def _ids(name: str, argument: object) -> list[str]:
    """Return the sorted ids of an argument that is one id or several ids.

    Raises:
        InvalidArgument: The argument has another type.
    """
    iterable = argument
    if isinstance(argument, str):
        iterable = [argument]
    if not isinstance(iterable, Iterable) or isinstance(iterable, bytes | Mapping):
        raise InvalidArgument(f"a fact: expected an id or ids as {name!r}, got {brief(argument)}", name=name)
    ids = list(iterable)
    if not all(isinstance(each, str) for each in ids):
        raise InvalidArgument(f"a fact: expected text ids as {name!r}, got {brief(ids)}", name=name)
    return sorted({storable(each) for each in ids})
