"""`Search`: the steps of a recall: fetch hits from the index, confirm them in SQL, filter them, and score them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from sqlalchemy import Connection

from agentkit_memory.embedders.store_embedders import Embedders
from agentkit_memory.errors import StoreClosed, StoreError
from agentkit_memory.index.indexes import Indexes
from agentkit_memory.index.vector_index import Hit, VectorIndex, is_point_id
from agentkit_memory.recall.asked import Asked
from agentkit_memory.recall.candidates import Pool, ScoredItem
from agentkit_memory.recall.choice import ranked
from agentkit_memory.recall.question import MAX_CHARACTERS, Question
from agentkit_memory.recall.recall_policy import MAX_CANDIDATES
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

__all__ = ["Search", "Sources", "open_index"]


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of a store that a recall uses."""

    indexes: Indexes
    embedders: Embedders
    logs: RecallLogs
    permit: Permit
    """The permit to compute, which is released while the recall waits for a model or a server."""


class _Terms(NamedTuple):
    """The best items by BM25 at one depth."""

    items: Sequence[ConfirmedHit]
    is_full: bool
    """True if there may be more hits than were considered."""


@dataclass(slots=True)
class Search:
    """One search of the index and of SQL. Its rounds share all rows and vectors that were read."""

    sources: Sources
    asked: Asked
    question: Question
    rows: RecallRows
    index: VectorIndex | None
    """None if it cannot be searched: then the newest items are scored in SQL."""
    problems: list[str]
    """Messages for `Recall.degraded`."""
    retrievers: Collection[str]
    """Names of the retrievers of the policy."""
    _among: dict[str, Sequence[str]] = field(default_factory=dict)
    """Ids of the items that meet the filter, by retriever, if they are few and most of its best hits do not meet it."""
    _terms: dict[tuple[int, int], _Terms] = field(default_factory=dict)
    """Results of BM25 by the hits to consider and the hits to fetch, for rounds that only fetch more vectors."""
    _hashes: dict[str, str] = field(default_factory=dict)
    """Hashes of images by the ids of the items."""
    _vector: Sequence[float] | None = None
    """The vector of the question; None if it was not requested or the model failed."""
    _is_embedded: bool = False
    """True if the vector of the question was requested, even if the model failed."""

    @classmethod
    def begin(cls, connection: Connection, sources: Sources, asked: Asked, away: StoreError | None) -> Search:
        """Read the state of the store, and the items that wait for its index.

        Waiting items are read before the index is queried, so that an item that is indexed meanwhile is not missed.

        Args:
            connection: Connection to read with.
            sources: The parts of the store.
            asked: The arguments of the recall.
            away: The error if the active index could not be opened.
        """
        indexes = sources.indexes
        retrievers = {retriever.name for retriever in asked.policy.retrievers}
        view = read_view(connection, asked.scope)
        index = indexes.opened(view.space)
        # Another process changed the model.
        if index is None and indexes.is_open:
            away = open_index(indexes, view.space)
            index = indexes.opened(view.space)
        if index is not None:
            away = None
        question = Question.of(asked.query, asked.now)
        rows = RecallRows(view, asked.valid_at)
        search = cls(sources, asked, question, rows, index, [], retrievers)
        if len(asked.query) > MAX_CHARACTERS:
            search._report(f"the question is long: its first and last {MAX_CHARACTERS // 2} characters were used")
        if away is not None:
            search._report_without_index(away)
        # A question of stop words or signs has no terms to find waiting items by.
        if question.asked:
            search.problems += rows.read_waiting(
                connection, asked.where, has_index=index is not None, is_reported=away is not None
            )
        return search

    def by_terms(self, connection: Connection, depth: Depth) -> Candidates:
        """Start a round with the candidates by BM25. They are incomplete if they contain the depth of a next round."""
        candidates = Candidates(self.asked, depth, self.question)
        terms = self._best_by_terms(connection, candidates)
        if candidates.next is None:
            self._add_terms(candidates, terms)
            if not self._has_vectors():
                self._add_neighbours(connection, candidates)
        return candidates

    def add_similar(self, candidates: Candidates) -> None:
        """Add the candidates with similar vectors to a complete round, if vectors can be compared."""
        if candidates.next is not None or not self._has_vectors():
            return
        # The model may take long: no connection is open meanwhile.
        self._embed(candidates.question)
        with self.sources.indexes.database.read() as connection:
            similar = self._usable(connection, candidates, DENSE)
            if candidates.next is not None:
                return
            if similar:
                candidates.add(DENSE, similar)
            self._add_neighbours(connection, candidates)

    def _best_by_terms(self, connection: Connection, candidates: Candidates) -> Sequence[ConfirmedHit]:
        """Return the best items by BM25; a round that only fetches more vectors uses the items of the round before."""
        depth = (candidates.depth.wanted, candidates.depth.hits[SPARSE])
        terms = self._terms.get(depth)
        if terms is None:
            items = self._search_terms(connection, candidates)
            terms = _Terms(items, candidates.is_full)
            if candidates.next is None:
                self._terms[depth] = terms
        candidates.is_full = terms.is_full
        return terms.items

    def _search_terms(self, connection: Connection, candidates: Candidates) -> list[ConfirmedHit]:
        """Return the best items by BM25: from the index, and waiting items by the same weights."""
        # A question of stop words or signs has no terms; only its vector can be compared.
        if not self.question.asked:
            return []
        indexed = self._usable(connection, candidates, SPARSE)
        if candidates.next is not None:
            return []
        waiting = self.rows.waiting
        if candidates.is_rare:
            waiting = waiting + self._read_rare(connection)
        terms = [*indexed, *self._scored_waiting(waiting, indexed, candidates)]
        if self._are_copies(terms, candidates):
            candidates.next = candidates.depth.wider(self.asked)
        return terms

    def _add_terms(self, candidates: Candidates, terms: Sequence[ConfirmedHit]) -> None:
        candidates.question = self.question.among([item.speaker for item, _ in terms if item.kind == TURN])
        # Without BM25 in its policy, a recall finds by their terms the items that have no vector yet.
        if terms and (SPARSE in self.retrievers or self._lacks_vectors()):
            candidates.add(SPARSE, terms)

    def _add_neighbours(self, connection: Connection, candidates: Candidates) -> None:
        turns = candidates.best_turns()
        if turns:
            candidates.add_neighbours(self.rows.neighbours(connection, turns))

    def _fetch(self, connection: Connection, retriever: str, most: int) -> Sequence[Hit]:
        """Return the best hits of the index; none if it cannot be searched."""
        if self.index is None:
            return []
        if retriever == SPARSE:
            return self._fetch_terms(connection, self.index, most)
        return self._fetch_similar(self.index, most)

    def _fetch_terms(self, connection: Connection, index: VectorIndex, most: int) -> Sequence[Hit]:
        """Return the best hits of the index by BM25. If it fails, this search uses SQL instead."""
        asked = sorted(self.question.asked.items())
        vector = SparseVector([term for term, _ in asked], [times for _, times in asked])
        try:
            with self._waiting_for(index):
                return index.query_sparse(vector, self.rows.view.scope_ids, most, self._among.get(SPARSE))
        except StoreClosed:
            raise
        except StoreError as error:
            self.index = None
            self._report_without_index(error)
            for problem in self.rows.read_waiting(connection, self.asked.where, has_index=False, is_reported=True):
                self._report(problem)
            return []

    def _fetch_similar(self, index: VectorIndex, most: int) -> Sequence[Hit]:
        """Return the hits of the index whose vectors are nearest; none if it fails."""
        if self._vector is None:
            return []
        try:
            with self._waiting_for(index):
                return index.query_dense(self._vector, self.rows.view.scope_ids, most, self._among.get(DENSE))
        except StoreClosed:
            raise
        except Exception as error:
            # A server or a custom index may raise anything.
            self._report_only_terms(error)
            return []

    def _waiting_for(self, index: VectorIndex) -> AbstractContextManager[None]:
        """Release the permit while an index on a server is waited for."""
        if index.shared:
            return self.sources.permit.released()
        return nullcontext()

    def _usable(self, connection: Connection, candidates: Candidates, retriever: str) -> list[ConfirmedHit]:
        """Return the hits that SQL confirms and the filter allows; plan another round if they are too few."""
        depth = candidates.depth
        hits = self._fetch(connection, retriever, depth.hits[retriever])
        scores = dict(hits)
        confirmed = self.rows.confirm(connection, [*scores], self.asked.policy.around)
        items = self.asked.allowed(confirmed)
        usable = self.asked.count_of_roles(items)
        allowed = [ConfirmedHit(item, scores[item.id]) for item in items]
        is_cut = len(hits) >= depth.hits[retriever]
        if is_cut and 2 * usable < depth.wanted:
            self._look_deeper(connection, candidates, retriever, len(allowed))
            return allowed
        candidates.is_full = candidates.is_full or is_cut
        if self.asked.roles is not None:
            # Messages of other roles stay: usable messages may be their neighbours.
            return allowed
        return allowed[: depth.wanted]

    def _look_deeper(self, connection: Connection, candidates: Candidates, retriever: str, valid: int) -> None:
        """Plan a round with more hits, as most of them have expired, are not shown yet, or do not meet the filter.

        If few items meet a filter, the index is searched among their ids. If they are many, but far from the best hits,
        the newest of them are added, as the number of hits has a limit.
        """
        depth, most = candidates.depth, candidates.depth.hits[retriever]
        is_filtered = self.asked.where is not None and retriever not in self._among
        if is_filtered and most == depth.wanted and self._read_among(connection, retriever):
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

    def _read_among(self, connection: Connection, retriever: str) -> bool:
        """Read the ids of all items that meet the filter; return False if they are too many."""
        where, scopes = self.asked.where, self.rows.view.scope_ids
        assert where is not None
        ids = read_ids(connection, scopes, MAX_ROWS, where.rows(), by_scope=where.sources is None)
        if ids is None:
            return False
        named = [each for each in ids if is_point_id(each)]
        # If only the vectors found too few, the hits by BM25 do not change.
        self._among |= {retriever: named, DENSE: named}
        return True

    def _read_rare(self, connection: Connection) -> list[StoredItem]:
        """Return the newest items that meet the conditions of the filter in SQL."""
        assert self.asked.where is not None
        items = self.rows.read_newest(connection, MAX_CANDIDATES, self.asked.where.rows())
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
        # Rare items and waiting items may be the same.
        once = [*{item.id: item for item in waiting}.values()]
        weighted = [(item, self.question.weights_in(item)) for item in self.asked.allowed(once)]
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
        """Score items by their terms; an item without a term, or with a score of the index, is left out."""
        weights = self._weights_of(indexed, [terms for _, terms in weighted])
        in_index = {item.id for item, _ in indexed}
        scored = []
        for item, terms in weighted:
            # An item that was indexed meanwhile is in both: the score of the index counts.
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
        if self.asked.roles is None:
            return scored[:most]
        # Messages of other roles may have usable neighbours, but must not replace usable items.
        usable = [each for each in scored if self.asked.is_of_roles(each.item)]
        unusable = [each for each in scored if not self.asked.is_of_roles(each.item)]
        return usable[:most] + unusable[:most]

    def _are_copies(self, terms: Sequence[ConfirmedHit], candidates: Candidates) -> bool:
        """Return True if most hits of the first round are copies, so that they need not be scored."""
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
        policy, pool = self.asked.policy, Pool(candidates.items.values())
        pool.floors, pool.stored_weights = candidates.floors, self._stored_weights
        if pool.candidates:
            add_up(policy.name, policy.retrievers, policy.scorers, candidates.question, pool)
        return ranked(pool, policy.diversity)

    def hashes(self, images: Sequence[str]) -> Mapping[str, str]:
        """Return the hash of each image by its id. Candidates are chosen again after a reranker."""
        if not self._hashes.keys() >= {*images}:
            with self.sources.indexes.database.read() as connection:
                self._hashes |= read_hashes(connection, images)
        return self._hashes

    def _stored_weights(self, ids: Sequence[str]) -> Mapping[str, Mapping[int, float]]:
        """Return the weights of terms in items as the index has them; none if it may contain another version."""
        # Analysing a text again costs more than to read its weights, but an item that waits may have another text.
        if not self.rows.is_settled or not hasattr(self.index, "term_weights"):
            return {}
        try:
            return cast("KeepsTerms", self.index).term_weights(ids, self.question.asked.keys())
        except StoreError:
            # The texts are analysed instead.
            return {}

    def _report(self, problem: str) -> None:
        # Rounds repeat most problems.
        if problem not in self.problems:
            self.problems.append(problem)

    def _report_without_index(self, error: StoreError) -> None:
        self._report(f"searched the newest {MAX_ROWS} items with BM25 in SQL, without the index: {error}")

    def _report_only_terms(self, error: Exception) -> None:
        self._report(f"searched with BM25 only: {type(error).__name__}: {error}")


def open_index(indexes: Indexes, space: Space | None = None) -> StoreError | None:
    """Open the index of a space (the active space) if nothing has to be written first; return the error, if any."""
    try:
        indexes.ready(space)
    except StoreClosed:
        if indexes.closed:
            raise
    except StoreError as error:
        # A missing extra is an error: no later recall will differ.
        if isinstance(error.__cause__, ImportError):
            raise
        return error
    return None
