"""`Search`: the steps of a recall: fetch hits from the index, confirm them in SQL, filter them, and score them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from sqlalchemy import ColumnElement, Connection

from agentkit_memory.embedders.store_embedders import Embedders
from agentkit_memory.errors import StoreClosed, StoreError
from agentkit_memory.index.indexes import Indexes
from agentkit_memory.index.vector_index import Hit, VectorIndex, is_point_id
from agentkit_memory.recall.candidates import Pool, ScoredItem
from agentkit_memory.recall.choice import ranked
from agentkit_memory.recall.question import MAX_CHARACTERS, Question
from agentkit_memory.recall.recall_policy import MAX_CANDIDATES
from agentkit_memory.recall.recall_request import RecallRequest
from agentkit_memory.recall.recall_round import Candidates, ConfirmedHit, Depth
from agentkit_memory.recall.recall_rows import MAX_ROWS, RecallRows
from agentkit_memory.recall.retrievers import DENSE, SPARSE
from agentkit_memory.recall.scorers import add_up
from agentkit_memory.recall.term_weights import MAX_SAMPLE, weights_outside_of_index
from agentkit_memory.store.image_rows import read_hashes
from agentkit_memory.store.item_rows import read_ids
from agentkit_memory.store.read_view import read_view
from agentkit_memory.store.recall_logs import RecallLogs
from agentkit_memory.store.records import TURN
from agentkit_memory.store.spaces import Space
from agentkit_memory.store.stored_item import StoredItem
from agentkit_memory.terms.bm25_vectors import SparseVector
from agentkit_prompts.system.concurrency_limit import Permit

if TYPE_CHECKING:
    from agentkit_memory.index.vector_index import KeepsTerms


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of a store that a recall uses."""

    indexes: Indexes
    embedders: Embedders
    logs: RecallLogs
    permit: Permit
    """The permit to compute, which is released while the recall waits for a model or a server."""


class _TermHits(NamedTuple):
    """The best items by BM25 at one depth."""

    items: Sequence[ConfirmedHit]
    is_full: bool
    """True if there may be more hits than were considered."""


@dataclass(slots=True)
class Search:
    """One search of the index and of SQL. Its rounds share all rows and vectors that were read."""

    sources: Sources
    request: RecallRequest
    question: Question
    rows: RecallRows
    index: VectorIndex | None
    """None if the index cannot be searched: then the newest items of SQL are scored."""
    problems: list[str]
    """Messages for `Recall.degraded`."""
    retrievers: Collection[str]
    """Names of the retrievers of the policy."""
    _filtered_ids: dict[str, Sequence[str]] = field(default_factory=dict)
    """Ids of the items that meet the filter, by retriever, if they are few and most of the best hits do not meet it."""
    _terms: dict[tuple[int, int], _TermHits] = field(default_factory=dict)
    """Results of BM25, by the numbers of hits to consider and to fetch, for rounds that only fetch more vectors."""
    _hashes: dict[str, str] = field(default_factory=dict)
    """Hashes of images by the ids of the items."""
    _vector: Sequence[float] | None = None
    """The vector of the question; None if it was not requested or the model failed."""
    _is_embedded: bool = False
    """True if the vector of the question was requested, even if the model failed."""

    @classmethod
    def begin(
        cls, connection: Connection, sources: Sources, request: RecallRequest, index_error: StoreError | None
    ) -> Search:
        """Read the state of the store and the items that wait for the index, and return the search.

        Waiting items are read before the index is queried, so that an item that is indexed meanwhile is not missed.

        Args:
            connection: Connection to read with.
            sources: The parts of the store.
            request: The arguments of the recall.
            index_error: The error of opening the active index; None if the index is open.
        """
        indexes = sources.indexes
        retrievers = {retriever.name for retriever in request.policy.retrievers}
        view = read_view(connection, request.scope, request.shared)
        index = indexes.opened(view.space)
        # Another process has changed the model: the index of the new space is opened.
        if index is None and indexes.is_open:
            index_error = open_index(indexes, view.space)
            index = indexes.opened(view.space)
        if index is not None:
            index_error = None
        question = Question.of(request.query, request.now)
        rows = RecallRows(view, request.valid_at)
        search = cls(sources, request, question, rows, index, [], retrievers)
        if len(request.query) > MAX_CHARACTERS:
            search._report(f"the question is long: its first and last {MAX_CHARACTERS // 2} characters were used")
        if index_error is not None:
            search._report_without_index(index_error)
        # A question of signs has no terms, so that no waiting item can be found.
        if question.all_terms:
            search.problems += rows.read_waiting(
                connection, request.where, has_index=index is not None, is_reported=index_error is not None
            )
        return search

    def by_terms(self, connection: Connection, depth: Depth) -> Candidates:
        """Return a round with the candidates by BM25. If its `next` is a depth, the round is incomplete."""
        candidates = Candidates(self.request, depth, self.question)
        terms = self._best_by_terms(connection, candidates)
        if candidates.next is None:
            candidates.question = self.question.among([item.speaker for item, _ in terms if item.kind == TURN])
            # A policy without BM25 also needs terms to find items that have no vector yet.
            if terms and (SPARSE in self.retrievers or self._lacks_vectors()):
                candidates.add(SPARSE, terms)
            if not self._has_vectors():
                self._add_neighbours(connection, candidates)
        return candidates

    def add_similar(self, candidates: Candidates) -> None:
        """Add the candidates with similar vectors to a round, unless it is incomplete or vectors cannot be compared."""
        if candidates.next is not None or not self._has_vectors():
            return
        # No connection is open while the model computes, which may take long.
        self._embed(candidates.question)
        with self.sources.indexes.database.read() as connection:
            similar = self._usable_hits(connection, candidates, DENSE)
            if candidates.next is not None:
                return
            if similar:
                candidates.add(DENSE, similar)
            self._add_neighbours(connection, candidates)

    def _best_by_terms(self, connection: Connection, candidates: Candidates) -> Sequence[ConfirmedHit]:
        """Return the best items by BM25. A round that only fetches more vectors uses the previous items."""
        depth = (candidates.depth.wanted, candidates.depth.hits[SPARSE])
        terms = self._terms.get(depth)
        if terms is None:
            items = self._search_terms(connection, candidates)
            terms = _TermHits(items, candidates.is_full)
            if candidates.next is None:
                self._terms[depth] = terms
        candidates.is_full = terms.is_full
        return terms.items

    def _search_terms(self, connection: Connection, candidates: Candidates) -> list[ConfirmedHit]:
        """Return the best items by BM25: from the index, and waiting items by the same weights."""
        # A question of signs has no terms; only its vector can be compared.
        if not self.question.all_terms:
            return []
        indexed = self._usable_hits(connection, candidates, SPARSE)
        if candidates.next is not None:
            return []
        waiting = self.rows.waiting
        if candidates.is_rare:
            waiting = waiting + self._read_rare(connection)
        elif self.question.has_only_stop_words and not self._has_vectors():
            waiting = waiting + self._read_newest(connection)
        terms = [*indexed, *self._scored_waiting(waiting, indexed, candidates)]
        if self._are_copies(terms, candidates):
            candidates.next = candidates.depth.wider(self.request)
        return terms

    def _add_neighbours(self, connection: Connection, candidates: Candidates) -> None:
        turns = candidates.best_turns()
        if turns:
            candidates.add_neighbours(self.rows.neighbours(connection, turns))

    def _fetch(self, connection: Connection, retriever: str, most: int) -> Sequence[Hit]:
        """Return the best hits of the index for a retriever; none if the index cannot be searched."""
        if self.index is None:
            return []
        if retriever == SPARSE:
            return self._fetch_terms(connection, self.index, most)
        return self._fetch_similar(self.index, most)

    def _fetch_terms(self, connection: Connection, index: VectorIndex, most: int) -> Sequence[Hit]:
        """Return the best hits of the index by BM25. If the index fails, the search continues with SQL only."""
        counts = sorted(self.question.all_terms.items())
        vector = SparseVector([term for term, _ in counts], [count for _, count in counts])
        try:
            with self._waiting_for(index):
                return index.query_sparse(vector, self.rows.view.scope_ids, most, self._filtered_ids.get(SPARSE))
        except StoreClosed:
            raise
        except StoreError as error:
            self.index = None
            self._report_without_index(error)
            for problem in self.rows.read_waiting(connection, self.request.where, has_index=False, is_reported=True):
                self._report(problem)
            return []

    def _fetch_similar(self, index: VectorIndex, most: int) -> Sequence[Hit]:
        """Return the hits of the index with the nearest vectors; none if the index fails."""
        if self._vector is None:
            return []
        try:
            with self._waiting_for(index):
                return index.query_dense(self._vector, self.rows.view.scope_ids, most, self._filtered_ids.get(DENSE))
        except StoreClosed:
            raise
        except Exception as error:
            # A server or a custom index may raise anything.
            self._report_only_terms(error)
            return []

    def _waiting_for(self, index: VectorIndex) -> AbstractContextManager[None]:
        """Return a context that releases the permit while the recall waits for an index on a server.

        With PostgreSQL, a recall keeps its permit: it has one of few connections, and the recalls with the released
        permits would wait for a connection while this recall waits for a permit.
        """
        if index.shared and self.sources.indexes.database.is_sqlite:
            return self.sources.permit.released()
        return nullcontext()

    def _usable_hits(self, connection: Connection, candidates: Candidates, retriever: str) -> list[ConfirmedHit]:
        """Return the hits that SQL confirms and the filter allows; plan another round if they are too few."""
        depth = candidates.depth
        hits = self._fetch(connection, retriever, depth.hits[retriever])
        scores = dict(hits)
        confirmed = self.rows.confirm(connection, [*scores], self.request.policy.around)
        items = self.request.allowed(confirmed)
        usable = self.request.count_of_roles(items)
        allowed = [ConfirmedHit(item, scores[item.id]) for item in items]
        is_cut = len(hits) >= depth.hits[retriever]
        if is_cut and 2 * usable < depth.wanted:
            self._look_deeper(connection, candidates, retriever, len(allowed))
            return allowed
        candidates.is_full = candidates.is_full or is_cut
        if self.request.roles is not None:
            # Messages of other roles stay: usable messages may be their neighbours.
            return allowed
        return allowed[: depth.wanted]

    def _look_deeper(self, connection: Connection, candidates: Candidates, retriever: str, valid: int) -> None:
        """Plan a round with more hits, because most hits have expired, are not published, or do not meet the filter.

        If few items meet the filter, the next round searches the index among their ids. If many items meet the filter,
        but most are far from the best hits, the newest of these items are added, since the number of hits is limited.
        """
        depth, most = candidates.depth, candidates.depth.hits[retriever]
        is_filtered = self.request.where is not None and retriever not in self._filtered_ids
        if is_filtered and most == depth.wanted and self._read_filtered_ids(connection, retriever):
            candidates.next = depth
        elif is_filtered and most >= MAX_ROWS:
            candidates.is_rare = True
        elif not depth.is_deepest(retriever):
            candidates.next = depth.deeper(retriever)
        else:
            self._report(
                f"of the best {most} hits {valid} are valid, the others have expired or are not shown yet, so valid "
                "items may be missing: `admin.expire` deletes expired items"
            )

    def _read_filtered_ids(self, connection: Connection, retriever: str) -> bool:
        """Read the ids of all items that meet the filter; return False if there are more than `MAX_ROWS`."""
        where, scopes = self.request.where, self.rows.view.scope_ids
        assert where is not None
        ids = read_ids(connection, scopes, MAX_ROWS, where.rows(), by_scope=where.sources is None)
        if ids is None:
            return False
        valid_ids = [each for each in ids if is_point_id(each)]
        # If BM25 found enough hits, its hits do not change.
        self._filtered_ids |= {retriever: valid_ids, DENSE: valid_ids}
        return True

    def _read_newest(self, connection: Connection) -> list[StoredItem]:
        """Return the newest items that the filter allows, for a question whose terms the index does not contain."""
        conditions: Sequence[ColumnElement[bool]] = ()
        if self.request.where is not None:
            conditions = self.request.where.rows()
        items = self.rows.read_newest(connection, MAX_ROWS, conditions)
        if len(items) >= MAX_ROWS:
            self._report(f"the question has only common words: only the newest {MAX_ROWS} items were searched")
        return items

    def _read_rare(self, connection: Connection) -> list[StoredItem]:
        """Return the newest items that meet the conditions of the filter in SQL."""
        assert self.request.where is not None
        items = self.rows.read_newest(connection, MAX_CANDIDATES, self.request.where.rows())
        if len(items) >= MAX_CANDIDATES:
            self._report(
                "`where` allows few of the best hits: it was applied to these and to the newest "
                f"{MAX_CANDIDATES:,} items of its kinds, sources and times; narrow the kinds, sources or times"
            )
        return items

    def _scored_waiting(
        self, waiting: Sequence[StoredItem], indexed: Sequence[ConfirmedHit], candidates: Candidates
    ) -> Sequence[ConfirmedHit]:
        """Return waiting items with terms of the question, scored as the index would score them."""
        if not waiting:
            return []
        # An item may be among the waiting items and among the rare items.
        unique_items = [*{item.id: item for item in waiting}.values()]
        weighted = [(item, self.question.weights_in(item)) for item in self.request.allowed(unique_items)]
        if not any(terms for _, terms in weighted):
            return []
        scored = self._scored(weighted, indexed)
        scored.sort(key=lambda each: (-each.score, each.item.id))
        self.rows.keep([item for item, _ in scored])
        candidates.is_full = candidates.is_full or len(scored) > candidates.depth.wanted
        return self._cut(scored, candidates.depth.wanted)

    def _scored(
        self, weighted: Sequence[tuple[StoredItem, Mapping[int, float]]], indexed: Sequence[ConfirmedHit]
    ) -> list[ConfirmedHit]:
        """Return the scores of items by their terms, without items that have no term or a score of the index."""
        weights = self._weights_of(indexed, [terms for _, terms in weighted])
        in_index = {item.id for item, _ in indexed}
        scored = []
        for item, terms in weighted:
            # For an item that was indexed meanwhile, the score of the index counts.
            if terms and item.id not in in_index:
                scored.append(ConfirmedHit(item, sum([weights[term] * value for term, value in terms.items()])))
        return scored

    def _weights_of(self, indexed: Sequence[ConfirmedHit], weighted: Sequence[Mapping[int, float]]) -> dict[int, float]:
        """Return the weights of terms outside of the index, estimated from the best hits of the index."""
        best = indexed[:MAX_SAMPLE]
        return weights_outside_of_index(
            [score for _, score in best], [self.question.weights_in(item) for item, _ in best], weighted
        )

    def _cut(self, scored: Sequence[ConfirmedHit], most: int) -> Sequence[ConfirmedHit]:
        if self.request.roles is None:
            return scored[:most]
        # Messages of other roles may have usable neighbours, but must not replace usable items: both are cut.
        usable = [each for each in scored if self.request.is_of_roles(each.item)]
        unusable = [each for each in scored if not self.request.is_of_roles(each.item)]
        return usable[:most] + unusable[:most]

    def _are_copies(self, terms: Sequence[ConfirmedHit], candidates: Candidates) -> bool:
        """Return True if at least half of the hits are copies and a wider round is possible."""
        if not candidates.is_full or candidates.depth.is_wider or candidates.depth.is_widest:
            return False
        return 2 * len({item.text for item, _ in terms}) <= len(terms)

    def _has_vectors(self) -> bool:
        """Return True if the policy compares vectors, and the index has vectors."""
        if self.index is None or DENSE not in self.retrievers or not self.rows.view.scope_ids:
            return False
        return self.index.dimensions > 0 and bool(self.question.text.strip())

    def _lacks_vectors(self) -> bool:
        """Return True if items of the scopes may lack a vector."""
        if self.rows.is_settled:
            return self.index is None
        return bool(self.rows.view.space.model)

    def _embed(self, question: Question) -> None:
        """Request the vector of the question from the model, once; without it, only terms are compared."""
        if self._is_embedded:
            return
        self._is_embedded = True
        try:
            with self.sources.permit.released():
                self._vector = self.sources.embedders.get(self.rows.view.space.model).question(question.text)
        except StoreClosed:
            raise
        except Exception as error:
            # A custom embedder may raise anything.
            self._report_only_terms(error)

    def ranked(self, candidates: Candidates) -> list[ScoredItem]:
        """Score the candidates and return them, the best first."""
        policy, pool = self.request.policy, Pool(candidates.items.values())
        pool.floors, pool.stored_weights = candidates.floors, self._stored_weights
        if pool.candidates:
            add_up(policy.name, policy.retrievers, policy.scorers, candidates.question, pool)
        return ranked(pool, policy.diversity)

    def hashes(self, images: Sequence[str]) -> Mapping[str, str]:
        """Return the hash of each image, by its id. The hashes are cached for the choice after a reranker."""
        if not self._hashes.keys() >= {*images}:
            with self.sources.indexes.database.read() as connection:
                self._hashes |= read_hashes(connection, images)
        return self._hashes

    def _stored_weights(self, ids: Sequence[str]) -> Mapping[str, Mapping[int, float]]:
        """Return the weights of terms in items from the index; none if it may contain other versions."""
        # Reading weights is faster than analysing texts, but the index may contain an older text of a waiting item.
        if not self.rows.is_settled or not hasattr(self.index, "term_weights"):
            return {}
        try:
            return cast("KeepsTerms", self.index).term_weights(ids, self.question.all_terms.keys())
        # Without weights of the index, the texts are analysed.
        except StoreError:
            return {}

    def _report(self, problem: str) -> None:
        # Several rounds may have the same problem.
        if problem not in self.problems:
            self.problems.append(problem)

    def _report_without_index(self, error: StoreError) -> None:
        self._report(f"searched the newest {MAX_ROWS} items with BM25 in SQL, without the index: {error}")

    def _report_only_terms(self, error: Exception) -> None:
        self._report(f"searched with BM25 only: {type(error).__name__}: {error}")


def open_index(indexes: Indexes, space: Space | None = None) -> StoreError | None:
    """Open the index of a space (by default the active space), without writing; return the error, or None."""
    try:
        indexes.ready(space)
    except StoreClosed:
        if indexes.closed:
            raise
    except StoreError as error:
        # A missing extra is raised, since every later recall would fail too.
        if isinstance(error.__cause__, ImportError):
            raise
        return error
    return None
