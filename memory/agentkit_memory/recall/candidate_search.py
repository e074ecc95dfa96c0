"""`CandidateSearch`: finds what may answer a question, in the index as it is and in SQL, and scores it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING, cast

from sqlalchemy import Connection

from agentkit_memory.conversations.turns import read_new_turns
from agentkit_memory.embedders.store_embedders import Embedders
from agentkit_memory.errors import StoreClosed, StoreError
from agentkit_memory.index.indexes import Indexes
from agentkit_memory.index.vector_index import Hit, VectorIndex, is_point_id
from agentkit_memory.process.few_at_once import Turn
from agentkit_memory.recall.candidates import Pool, ScoredItem
from agentkit_memory.recall.question import Question
from agentkit_memory.recall.recall_filter import RecallFilter
from agentkit_memory.recall.recall_policy import MAX_CANDIDATES, RecallPolicy
from agentkit_memory.recall.retrievers import DENSE, SPARSE
from agentkit_memory.recall.term_weights import MAX_SAMPLE, weights_outside_of_index
from agentkit_memory.scope import Scope
from agentkit_memory.store.item_rows import IMAGE, TURN, read_around, read_ids, read_items, read_newest, read_pending
from agentkit_memory.store.read_view import MAX_BEHIND, ReadView, read_view
from agentkit_memory.store.spaces import Space
from agentkit_memory.store.stored_item import StoredItem
from agentkit_memory.terms.bm25_vectors import SPACE, SparseVector

if TYPE_CHECKING:
    from agentkit_memory.index.vector_index import KeepsTerms

__all__ = ["MAX_ROWS", "CandidateSearch", "Place"]

Place = tuple[int, int, int]
"""Messages of a branch: its number, the message before the first, and the last."""

_REACH = 2
_STEPS = range(-_REACH, _REACH + 1)
_UNASKED: Sequence[float] = ()
"""In the place of the vector of a question that no model was asked for yet."""
_NOTHING = ReadView(None, (), Space(SPACE), pending=False, behind=False)

MAX_ROWS = 2_000
"""How many of the newest items are scored that the index does not hold, or where it cannot be asked."""


@dataclass(slots=True)
class CandidateSearch:
    """The state of one recall while its candidates are found and scored."""

    indexes: Indexes
    embedders: Embedders
    turn: Turn
    """Given up while a model or a server is waited for."""
    policy: RecallPolicy
    question: Question
    valid_at: float
    hidden: Sequence[Place]
    limit: int
    roles: Collection[str] | None = None
    where: RecallFilter | None = None
    degraded: list[str] = field(default_factory=list)
    found: dict[str, ScoredItem] = field(default_factory=dict)
    floors: dict[str, float] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)
    """Names of the retrievers that the index could serve."""
    read: dict[str, StoredItem | None] = field(default_factory=dict)
    """Proposed items by their ids; None for those that SQL does not confirm."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Why items were left out whose rows are damaged, by id."""
    is_away: bool = False
    """Whether the index failed, or belongs to another process."""
    new_turns: Sequence[StoredItem] = ()
    """Turns of the scope that are no items yet."""
    near: list[StoredItem] = field(default_factory=list)
    """Turns around those of `seeds`, and perhaps others."""
    seeds: set[str] = field(default_factory=set)
    """Ids of items around which the turns were read."""
    view: ReadView = _NOTHING
    vector: Sequence[float] | None = _UNASKED
    """Of the question; None where there is no model, or it failed."""
    texts: set[str] | None = None
    """Texts of the candidates, where copies of one are left out."""
    copies: int = 0
    """Hits that were left out as copies."""
    among: Sequence[str] | None = None
    """Ids of the items that meet the filter, where they are few and the best hits of the index mostly do not."""
    is_rare: bool = False
    """Whether what may be recalled is rare among the best hits of the index, and not few."""
    is_full: bool = False
    """Whether there may be more hits than were considered."""
    may_widen: bool = False
    """Whether more candidates can be looked for, so that these need not be scored where most are copies."""
    is_crowded: bool = False
    """Whether most hits are copies of others."""
    waiting: list[StoredItem] | None = None
    """What the index does not hold; None until it was read."""
    about_waiting: list[str] = field(default_factory=list)
    index: VectorIndex | None = None
    """None where it cannot be searched: then the newest items are scored in SQL."""

    def run(self, scope: Scope) -> Pool:
        database = self.indexes.database
        wanted = {retriever.name for retriever in self.policy.retrievers}
        away = None if self.indexes.is_open else self._open()
        with database.read() as connection:
            if self.waiting is None:
                self.view = read_view(connection, scope)
            self.index = self.indexes.opened(self.view.space)
            if self.index is None and self.indexes.is_open:  # the model was changed, by another process
                away = self._open(self.view.space)
                self.index = self.indexes.opened(self.view.space)
            if self.index is None:
                self.waiting, self.about_waiting = None, []
                if away is not None:
                    self._without_index(away)
            terms = self._find_terms(connection) if self.question.asked else []
            self.is_crowded = self.is_full and 2 * len({item.text for _, item in terms}) <= len(terms)
            if self.is_crowded and self.may_widen:
                return Pool(())
            self.question = self.question.among([item.speaker for _, item in terms if item.kind == TURN])
            without_vectors = self.view.space.model if self.view.pending or self.view.behind else self.index is None
            if terms and (SPARSE in wanted or without_vectors):
                self._add(SPARSE, terms)
            is_dense = DENSE in wanted and self._has_vectors()
            if not is_dense:
                self._add_neighbours(connection)
        if is_dense:  # no connection is held while a model is waited for
            if self.vector is _UNASKED:
                self.vector = self._vector()
            with database.read() as connection:
                similar = self._similar(connection, self.vector) if self.vector is not None else []
                if similar:
                    self._add(DENSE, similar)
                self._add_neighbours(connection)
        if self.unreadable:
            example, why = min(self.unreadable.items())
            self.degraded.append(
                f"{len(self.unreadable)} damaged items were left out, such as {example} ({why}): remove them and store "
                "them again"
            )
        pool = Pool(self.found.values())
        pool.floors = self.floors
        pool.stored_weights = self._stored_weights
        if len(pool):
            self.policy.score(self.question, pool, frozenset(self.served))
        return pool

    def is_outdated(self) -> bool:
        """Whether another space became the active one, and its index may have been emptied meanwhile."""
        index, space = self.index, self.view.space
        if index is None:
            return False
        return self.indexes.opened(space) is not index or (index.shared and self.indexes.active().name != space.name)

    def _open(self, space: Space | None = None) -> StoreError | None:
        """Open the index of a space (the active one) if nothing has to be written first; return what is in the way."""
        try:
            self.indexes.ready(space)
        except StoreClosed:
            if self.indexes.closed:
                raise
        except StoreError as error:
            if isinstance(error.__cause__, ImportError):  # and no later recall will differ
                raise
            return error
        return None

    def _without_index(self, error: StoreError) -> None:
        self.is_away = True
        self.degraded.append(f"searched the newest {MAX_ROWS} items with BM25 in SQL, without the index: {error}")

    def _find_terms(self, connection: Connection) -> list[tuple[Hit, StoredItem]]:
        """Return the best by BM25: from the index, and what waits for it by the same weights."""
        asked = self.question.asked
        if self.waiting is None:
            self.waiting = self._waiting(connection)  # first: what is indexed meanwhile is in the index or in here
        self.degraded += self.about_waiting
        waiting = self.waiting
        found: list[tuple[Hit, StoredItem]] = []
        if self.index is not None:
            sparse = SparseVector(sorted(asked), [times for _, times in sorted(asked.items())])
            try:
                found = self._confirmed(connection, partial(self._by_terms, self.index, sparse))
            except StoreClosed:
                raise
            except StoreError as error:
                self._without_index(error)
                self.index = None
                self.about_waiting = []
                waiting = self._waiting(connection)
                self.degraded += self.about_waiting
        known = {item.id for _, item in found}
        if self.is_rare:
            waiting = waiting + self._rare(connection)
        waiting = list({item.id: item for item in waiting if self._is_allowed(item)}.values())
        held = [(item, self.question.held_by(item)) for item in waiting]
        best = found[:MAX_SAMPLE] if any(terms for _, terms in held) else []
        weights = weights_outside_of_index(
            [hit.score for hit, _ in best],
            [self.question.held_by(item) for _, item in best],
            [terms for _, terms in held],
        )
        more = [
            (Hit(item.id, sum([weights[term] * value for term, value in terms.items()])), item)
            for item, terms in held
            if terms and item.id not in known
        ]
        self.read |= {item.id: item for _, item in more}
        more.sort(key=lambda pair: (-pair[0].score, pair[0].id))
        usable = [ScoredItem(item).is_of(self.roles) for _, item in more]
        most = self._most()
        self.is_full = self.is_full or len(more) > most
        return found + [*compress(more, usable)][:most] + [*compress(more, map(not_, usable))][:most]

    def _waiting(self, connection: Connection) -> list[StoredItem]:
        """Return what the index does not hold, newest first: all items where there is no index."""
        view, waiting, problem = self.view, list[StoredItem](), ""
        if view.behind and (self.where is None or self.where.kinds is None or TURN in self.where.kinds):
            self.new_turns, problem = read_new_turns(connection, view.scope_ids, self.valid_at, MAX_ROWS)
            waiting += self.new_turns
        if view.crowded:
            self.about_waiting.append(
                f"more than {MAX_BEHIND:,} conversations of all tenants have new messages: those of the newest were "
                "searched; a thread of this memory indexes them"
            )
        if self.index is None and view.scope_ids:
            waiting += read_newest(
                connection,
                view.scope_ids,
                self.valid_at,
                MAX_ROWS,
                self.unreadable,
                self.where.rows() if self.where is not None else (),
            )
        elif view.pending or view.behind:  # turns may have become items, which wait, since then
            waiting += read_pending(
                connection, view.space.name, view.scope_ids, self.valid_at, MAX_ROWS, self.unreadable
            )
        waiting = list({item.id: item for item in waiting}.values())  # a turn may have become an item in between
        if len(waiting) >= MAX_ROWS and not self.is_away:
            problem = f"more than {MAX_ROWS} items are not indexed yet: of these the newest were searched, with BM25"
        if problem:
            self.about_waiting.append(f"{problem}; a thread of this memory indexes them")
        elif waiting and view.space.model and self.index is not None:
            self.about_waiting.append(f"{len(waiting)} new items have no vector yet: they were searched with BM25")
        return waiting

    def _rare(self, connection: Connection) -> list[StoredItem]:
        """Return what the filter allows, read from SQL."""
        rows = [] if self.where is None else self.where.rows()
        found = read_newest(connection, self.view.scope_ids, self.valid_at, MAX_CANDIDATES, self.unreadable, rows)
        if len(found) >= MAX_CANDIDATES:
            self.degraded.append(
                "`where` allows few of the best hits: it was tried on these and on the newest "
                f"{MAX_CANDIDATES:,} items of its kinds, sources and times; narrow these"
            )
        return found

    def _confirmed(self, connection: Connection, propose: Callable[[int], list[Hit]]) -> list[tuple[Hit, StoredItem]]:
        """Return the best hits that SQL confirms, at most as many as are to be considered.

        The index also holds items that have ended, have not begun, are not shown yet, or wait for it in another
        version: if these are most of the hits, more are asked for. What waited when SQL was read is left out, although
        it may be indexed by now: the index may have been asked before that.
        """
        wanted = most = self._most()
        waited = {item.id for item in self.waiting or ()} - {turn.id for turn in self.new_turns}
        scope_ids, settled_in = (
            self.view.scope_ids,
            self.view.space.name if self.view.pending or self.view.behind else None,
        )
        while True:
            hits = propose(most)
            unknown = [hit.id for hit in hits if hit.id not in self.read]
            if unknown:
                # With the neighbours of the best, which mostly are those that will be asked for.
                may_be_asked = not self.read or not self.may_widen
                seeds = unknown[: self.policy.around] if settled_in is None and may_be_asked else []
                confirmed = read_items(
                    connection,
                    unknown,
                    scope_ids,
                    self.valid_at,
                    self.unreadable,
                    settled_in=settled_in,
                    seeds=seeds,
                    reach=_REACH,
                )
                if seeds:
                    self.seeds.update(seeds)
                    self.near += confirmed
                by_id = {item.id: item for item in confirmed}
                self.read |= {each: by_id.get(each) for each in unknown}
            found = [(hit, item) for hit in hits if hit.id not in waited and (item := self.read[hit.id]) is not None]
            if self.where is not None:
                found = [(hit, item) for hit, item in found if self.where.allows(item)]
            usable = (
                len(found) if self.roles is None else sum([ScoredItem(item).is_of(self.roles) for _, item in found])
            )
            if len(hits) < most or 2 * usable >= wanted:
                self.is_full = self.is_full or len(hits) >= most
                return found if self.roles is not None else found[:wanted]
            if self.where is not None and self.among is None:
                if most == wanted:
                    rows, by_scope = self.where.rows(), self.where.sources is None
                    few = read_ids(connection, scope_ids, MAX_ROWS, rows, by_scope=by_scope)
                    if few is not None:
                        self.among = [*filter(is_point_id, few)]
                        continue
                if most >= MAX_ROWS:
                    self.is_rare = True
                    return found
            if most >= MAX_CANDIDATES:
                self.degraded.append(
                    f"of the best {most} hits {len(found)} are valid, the others have ended or are not shown yet, and "
                    "there may be more: `admin.expire` deletes what has ended"
                )
                return found
            most = min(4 * most, max(MAX_CANDIDATES, wanted))

    def _by_terms(self, index: VectorIndex, sparse: SparseVector, most: int) -> list[Hit]:
        with self.turn.away() if index.shared else nullcontext():
            return index.query_sparse(sparse, self.view.scope_ids, most, self.among)

    def _stored_weights(self, ids: Sequence[str]) -> Mapping[str, Mapping[int, float]]:
        """Return the weights of the terms in items as the index has them; none where it may hold another version."""
        if self.view.pending or self.view.behind or not hasattr(self.index, "term_weights"):
            return {}
        try:
            return cast("KeepsTerms", self.index).term_weights(ids, self.question.asked.keys())
        except StoreError:  # then the texts are analysed
            return {}

    def _has_vectors(self) -> bool:
        """Whether there are vectors to compare with that of the question."""
        has_some = bool(self.view.scope_ids) and self.index is not None and self.index.dimensions > 0
        return has_some and bool(self.question.text.strip())

    def _vector(self) -> Sequence[float] | None:
        """Return the vector of the question; None where the model fails."""
        try:
            with self.turn.away():
                return self.embedders.get(self.view.space.model).question(self.question.text)
        except StoreClosed:
            raise
        except Exception as error:
            self._only_bm25(error)
            return None

    def _similar(self, connection: Connection, vector: Sequence[float]) -> list[tuple[Hit, StoredItem]]:
        return self._confirmed(connection, partial(self._by_vector, vector))

    def _by_vector(self, vector: Sequence[float], most: int) -> list[Hit]:
        try:
            if self.index is None:
                return []
            with self.turn.away() if self.index.shared else nullcontext():
                return self.index.query_dense(vector, self.view.scope_ids, most, self.among)
        except StoreClosed:
            raise
        except Exception as error:
            self._only_bm25(error)
            return []

    def _add_neighbours(self, connection: Connection) -> None:
        seeds = self._best_turns() if self.policy.around else []
        if not seeds:
            return
        more = [each for each in seeds if each.id not in self.seeds]
        if more:
            new = {item.id for item in self.new_turns}
            stored = new.isdisjoint([each.id for each in more])
            scopes = self.view.scope_ids
            self.near += read_around(connection, more, scopes, self.valid_at, _REACH, self.unreadable, stored=stored)
        places = {(each.branch_id, each.position + step) for each in seeds for step in _STEPS}
        found = self.found
        for item in (*self.near, *self.new_turns):
            if item.id in found or (item.branch_id, item.position) not in places or item.start:
                continue
            if not self._is_hidden(item) and self._is_allowed(item):
                found[item.id] = ScoredItem(item)

    def _only_bm25(self, error: Exception) -> None:
        self.degraded.append(f"searched with BM25 only: {type(error).__name__}: {error}")

    def _most(self) -> int:
        hidden = sum(last - after for _, after, last in self.hidden)
        return max(self.policy.candidates, 2 * self.limit) + min(hidden, 4 * self.policy.candidates)

    def _add(self, retriever: str, found: Sequence[tuple[Hit, StoredItem]]) -> None:
        self.served.add(retriever)
        for hit, item in found:
            if (self.hidden and self._is_hidden(item)) or (self.texts is not None and self._is_copy(item, self.texts)):
                continue
            known = self.found.get(item.id)
            if known is None:
                self.found[item.id] = ScoredItem(item, {retriever: hit.score})
            else:
                known.retrieved[retriever] = hit.score
        full = len(found) >= self._most() or retriever == DENSE
        self.floors[retriever] = min((hit.score for hit, _ in found), default=0.0) if full else 0.0

    def _is_allowed(self, item: StoredItem) -> bool:
        return self.where is None or self.where.allows(item)

    def _is_copy(self, item: StoredItem, texts: set[str]) -> bool:
        if item.kind == IMAGE or item.id in self.found:
            return False
        text = " ".join(item.text.casefold().split())
        known = text in texts
        texts.add(text)
        self.copies += known
        return known

    def _is_hidden(self, item: StoredItem) -> bool:
        return (
            bool(self.hidden)
            and item.kind == TURN
            and any(item.branch_id == branch and after < item.position <= last for branch, after, last in self.hidden)
        )

    def _best_turns(self) -> list[StoredItem]:
        """Return the turns among the best hits: only turns are understood from their neighbours."""
        found = self.found.values()
        tops = {
            name: max([abs(each.retrieved.get(name, 0.0)) for each in found], default=0.0) or 1.0
            for name in self.served
        }
        order = [
            (-sum([score / tops[name] for name, score in each.retrieved.items()]), each.item.id, each.item)
            for each in found
        ]
        return [item for _, _, item in sorted(order)[: self.policy.around] if item.kind == TURN]
