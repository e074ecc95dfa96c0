"""A recall step by step: itemise, ask the index, read SQL, score, choose. The index only proposes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from time import perf_counter_ns
from typing import get_args

from sqlalchemy import Connection

from agentkit_memory.checks import is_time, is_whole
from agentkit_memory.conversations.turns import itemise
from agentkit_memory.embedders.store_embedders import Embedders
from agentkit_memory.errors import (
    IndexBroken,
    IndexBusy,
    IndexUnavailable,
    RecallError,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from agentkit_memory.index.indexes import Indexes
from agentkit_memory.index.vector_index import Hit, VectorIndex
from agentkit_memory.recall.candidates import Pool, ScoredItem
from agentkit_memory.recall.choice import choose, ranked
from agentkit_memory.recall.question import MAX_CHARACTERS, Question
from agentkit_memory.recall.recall_policy import MAX_CANDIDATES, RecallPolicy
from agentkit_memory.recall.recall_result import Recall
from agentkit_memory.recall.retrievers import DENSE, SPARSE
from agentkit_memory.scope import Scope
from agentkit_memory.store.item_rows import TURN, StoredItem, read_around, read_items, recallable
from agentkit_memory.store.recall_logs import RecallLogs
from agentkit_memory.store.records import RecallLog
from agentkit_memory.store.scope_rows import own_and_readable, required, scope_id
from agentkit_memory.store.spaces import Space
from agentkit_memory.store.tables import items
from agentkit_memory.terms.sparse import SparseVector, held_terms, indexed_text
from agentkit_prompts.context.items import Speaker

__all__ = ["MAX_ROWS", "Place", "check_question", "search", "search_rows", "seconds"]

Place = tuple[int, int, int]
"""Messages of a branch: its number, the message before the first, and the last."""

_BATCH = 512
_BATCHES = 8
_REACH = 2

MAX_ROWS = 2_000
"""How many of the newest items are scored where the index cannot be asked."""
_NEWEST = recallable().order_by(items.c.created_at.desc(), items.c.id).limit(MAX_ROWS)


def check_question(
    query: object, limit: object, visible: object = None, now: object = None, roles: object = None
) -> None:
    """Refuse wrong arguments, naming all of them.

    Raises:
        RecallError: The query is not text, a number is out of range, or the time is invalid.
    """
    problems = []
    if not isinstance(query, str):
        problems.append(f"expected the question as text, got {type(query).__name__}")
    if not is_whole(limit, 1, MAX_CANDIDATES):
        problems.append(f"expected a limit of 1 to {MAX_CANDIDATES:,} documents, got {limit!r}")
    if visible is not None and not is_whole(visible, 0):
        problems.append(f"expected how many messages are visible, 0 or more, or None for all, got {visible!r}")
    if now is not None and not (isinstance(now, datetime) or is_time(now)):
        problems.append(f"expected `now` as a datetime or seconds since 1970, got {now!r}")
    known = get_args(Speaker)
    if roles is not None and not (isinstance(roles, list | tuple | set | frozenset) and {*known} >= {*map(str, roles)}):
        problems.append(f"expected roles out of {known}, such as ('user',), or None for all, got {roles!r:.80}")
    if problems:
        raise RecallError("recall: " + "; ".join(problems))


def seconds(now: datetime | float) -> float:
    """Return a time as seconds since 1970; one without a zone is UTC."""
    if isinstance(now, datetime):
        return (now if now.tzinfo is not None else now.replace(tzinfo=UTC)).timestamp()
    return float(now)


@dataclass(slots=True)
class _Search:
    """The state of one recall."""

    indexes: Indexes
    embedders: Embedders
    space: Space
    policy: RecallPolicy
    question: Question
    valid_at: float
    hidden: Sequence[Place]
    limit: int
    roles: Collection[str] | None = None
    degraded: list[str] = field(default_factory=list)
    found: dict[str, ScoredItem] = field(default_factory=dict)
    floors: dict[str, float] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)
    """Names of the retrievers that the index could serve."""
    read: dict[str, StoredItem | None] = field(default_factory=dict)
    """Proposed items by their ids; None for those that SQL does not confirm."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Why items were left out whose rows are damaged, by id."""
    behind: bool = False
    """Whether the index does not hold the newest items."""
    own: int | None = None
    """Number of the reader's scope, if it had one when this began."""

    def run(self, scope: Scope) -> Pool:
        database = self.indexes.database
        wanted = {retriever.name for retriever in self.policy.retrievers}
        with database.read() as connection:
            self.own, scope_ids = own_and_readable(connection, scope)
        self._itemise(scope_ids)
        index = self._index()
        sparse = SparseVector(sorted(self.question.asked), [times for _, times in sorted(self.question.asked.items())])
        with database.read() as connection:
            speakers: list[str] = []
            if sparse.indices:
                ask = partial(self._by_terms, connection, index, sparse, scope_ids)
                found = self._confirmed(connection, scope_ids, ask)
                speakers = [item.speaker for _, item in found if item.kind == TURN]
                if SPARSE in wanted or index is None or self.behind:
                    self._add(SPARSE, found)
        self.question = self.question.among(speakers)
        vector = self._vector(index) if DENSE in wanted and index is not None else None
        with database.read() as connection:
            if vector is not None and index is not None:
                ask = partial(self._by_vector, index, vector, scope_ids)
                found = self._confirmed(connection, scope_ids, ask)
                if found:
                    self._add(DENSE, found)
            if self.policy.around and self.found:
                seeds = self._best_turns()
                if seeds:
                    for item in read_around(connection, seeds, scope_ids, self.valid_at, _REACH, self.unreadable):
                        if item.id not in self.found and not self._is_hidden(item):
                            self.found[item.id] = ScoredItem(item)
        if self.unreadable:
            example, why = min(self.unreadable.items())
            self.degraded.append(
                f"{len(self.unreadable)} damaged items were left out, such as {example} ({why}): remove them and store "
                "them again"
            )
        pool = Pool(self.found.values())
        pool.floors = self.floors
        if len(pool):
            self.policy.score(self.question, pool, frozenset(self.served))
        return pool

    def _itemise(self, scope_ids: Sequence[int]) -> None:
        try:
            for _ in range(_BATCHES):
                if itemise(self.indexes.database, scope_ids, _BATCH) < _BATCH:
                    return
            self.degraded.append("many messages are new: the newest cannot be recalled yet, the next recall goes on")
        except StoreClosed:
            raise
        except StoreError as error:
            self.degraded.append(f"the newest messages cannot be recalled yet: {error}")

    def _index(self) -> VectorIndex | None:
        try:
            return self.indexes.catch_up(self.space)
        except (StoreClosed, StoreUnavailable):  # what it needs is not installed, and no later recall will differ
            raise
        except (IndexBusy, IndexBroken, IndexUnavailable) as error:
            self._without_index(error)
            return None
        except StoreError as error:  # the outbox or the index cannot be written: it is only out of date
            self.behind = True
            self.degraded.append(
                f"the index does not hold the newest items, they were searched with BM25 in SQL: {error}"
            )
        try:
            return self.indexes.get(self.space)
        except (StoreClosed, StoreUnavailable):
            raise
        except StoreError as error:  # it is not open yet, and to open it something has to be written
            self._without_index(error)
            return None

    def _without_index(self, error: Exception) -> None:
        self.degraded.append(f"searched the newest {MAX_ROWS} items with BM25 in SQL, without the index: {error}")

    def _confirmed(
        self, connection: Connection, scope_ids: Sequence[int], propose: Callable[[int], list[Hit]]
    ) -> list[tuple[Hit, StoredItem]]:
        """Return the best hits that SQL confirms, at most as many as are to be considered.

        The index also holds items that have ended, have not begun or are not shown yet: if these are most of the hits,
        more are asked for.
        """
        wanted = most = self._most()
        while True:
            hits = propose(most)
            unknown = [hit.id for hit in hits if hit.id not in self.read]
            self.read |= dict.fromkeys(unknown)
            confirmed = read_items(connection, unknown, scope_ids, self.valid_at, self.unreadable)
            self.read |= {item.id: item for item in confirmed}
            found = [(hit, item) for hit in hits if (item := self.read[hit.id]) is not None]
            usable = (
                len(found) if self.roles is None else sum([ScoredItem(item).is_of(self.roles) for _, item in found])
            )
            if len(hits) < most or 2 * usable >= wanted:
                return found if self.behind or self.roles is not None else found[:wanted]  # the newest are at the end
            if most >= MAX_CANDIDATES:
                self.degraded.append(
                    f"of the best {most} hits {len(found)} are valid, the others have ended or are not shown yet, and "
                    "there may be more: `expire` deletes what has ended"
                )
                return found
            most = min(4 * most, max(MAX_CANDIDATES, wanted))

    def _by_terms(
        self,
        connection: Connection,
        index: VectorIndex | None,
        sparse: SparseVector,
        scope_ids: Sequence[int],
        most: int,
    ) -> list[Hit]:
        """Return the best by BM25: from the index, and from SQL what the index does not hold."""
        hits: list[Hit] = []
        if index is not None:
            try:
                hits = index.query_sparse(sparse, scope_ids, most)
                if not self.behind:
                    return hits
            except StoreClosed:
                raise
            except StoreError as error:
                self._without_index(error)
        known = {hit.id for hit in hits}
        newest = search_rows(connection, sparse, scope_ids, self.valid_at, most)
        return hits + [hit for hit in newest if hit.id not in known]

    def _vector(self, index: VectorIndex) -> Sequence[float] | None:
        """Return the vector of the question; None where there is no model or it fails."""
        if not index.dimensions or not self.question.text.strip():
            return None
        try:
            return self.embedders.get(self.space.model).questions([self.question.text])[0]
        except StoreClosed:
            raise
        except Exception as error:
            self._only_bm25(error)
            return None

    def _by_vector(self, index: VectorIndex, vector: Sequence[float], scope_ids: Sequence[int], most: int) -> list[Hit]:
        try:
            return index.query_dense(vector, scope_ids, most)
        except StoreClosed:
            raise
        except Exception as error:
            self._only_bm25(error)
            return []

    def _only_bm25(self, error: Exception) -> None:
        self.degraded.append(f"searched with BM25 only: {type(error).__name__}: {error}")

    def _most(self) -> int:
        hidden = sum(last - after for _, after, last in self.hidden)
        return max(self.policy.candidates, 2 * self.limit) + min(hidden, 4 * self.policy.candidates)

    def _add(self, retriever: str, found: Sequence[tuple[Hit, StoredItem]]) -> None:
        self.served.add(retriever)
        for hit, item in found:
            if not self._is_hidden(item):
                self.found.setdefault(item.id, ScoredItem(item)).retrieved[retriever] = hit.score
        full = len(found) >= self._most() or retriever == DENSE
        self.floors[retriever] = min((hit.score for hit, _ in found), default=0.0) if full else 0.0

    def _is_hidden(self, item: StoredItem) -> bool:
        return (
            bool(self.hidden)
            and item.kind == TURN
            and any(item.branch_id == branch and after < item.position <= last for branch, after, last in self.hidden)
        )

    def _best_turns(self) -> list[StoredItem]:
        """Return the turns among the best hits: only turns are understood from their neighbours."""
        found = self.found.values()
        tops = {name: max((abs(each.retrieved.get(name, 0.0)) for each in found), default=0.0) for name in self.served}

        def share(each: ScoredItem) -> float:
            return sum(score / (tops[name] or 1.0) for name, score in each.retrieved.items())

        first = sorted(found, key=lambda each: (-share(each), each.id))
        return [each.item for each in first[: self.policy.around] if each.item.kind == TURN]


def search(
    indexes: Indexes,
    embedders: Embedders,
    logs: RecallLogs,
    scope: Scope,
    query: str,
    limit: int,
    policy: RecallPolicy,
    now: float,
    space: Space,
    hidden: Sequence[Place] = (),
    conversation: str = "",
    roles: Collection[str] | None = None,
) -> Recall:
    """Return what a reader in `scope` may know about a question.

    Every item is read from SQL under that scope: whatever the index proposes, nothing comes back that was deleted,
    superseded or belongs to another scope. What fails on the way is left out and reported in `Recall.degraded`; only
    SQL itself is needed. All of it is read in one `space`, whichever becomes the active one meanwhile.

    `limit` is of documents and of facts each, `hidden` are messages that the model sees anyway, and `conversation` is
    logged. Of turns, only those of `roles` are used.

    Raises:
        StoreError: The database cannot be read.
    """
    began = perf_counter_ns()
    question = Question.of(query, now)
    one = _Search(indexes, embedders, space, policy, question, indexes.database.clock(), hidden, limit, roles)
    if len(query) > MAX_CHARACTERS:
        one.degraded.append(f"the question is long: its first and last {MAX_CHARACTERS // 2} characters were used")
    pool = one.run(scope)
    order = ranked(pool)
    used = choose(one.question, order, policy, limit, roles)
    recall = Recall(query, order, used, one.degraded)
    log = RecallLog(
        query, policy.describe(), recall.candidates, (perf_counter_ns() - began) // 1000, conversation, recall.degraded
    )
    try:
        logs.write(scope_id(indexes.database, scope) if one.own is None else one.own, log)
    except StoreError as error:  # an answer is worth more than its log
        recall.degraded += (f"this recall was not logged: {error}",)
    return recall


def search_rows(
    connection: Connection, query: SparseVector, scope_ids: Sequence[int], now: float, limit: int
) -> list[Hit]:
    """Return the best of the newest items by BM25 as an index would, with term weights from their rows in SQL.

    Raises:
        ScopeError: No scope was given.
    """
    asked = dict(zip(query.indices, query.values, strict=True))
    rows = connection.execute(_NEWEST, {"scopes": required(scope_ids), "now": now}).all()
    held: list[tuple[str, dict[int, float]]] = []
    spread: dict[int, int] = {}
    for item, title, text in rows:
        terms = held_terms(indexed_text(title, text), asked)
        if terms:
            held.append((item, terms))
        for term in terms:
            spread[term] = spread.get(term, 0) + 1
    weight = {term: math.log1p((len(rows) - texts + 0.5) / (texts + 0.5)) for term, texts in spread.items()}
    hits = [Hit(item, sum(weight[term] * value for term, value in terms.items())) for item, terms in held]
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))[:limit]
