"""A recall: rounds of fetching, confirming, filtering and scoring until enough candidates can be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import NamedTuple

from agentkit_memory.database.engine import Database
from agentkit_memory.errors import StoreError
from agentkit_memory.recall.candidates import ScoredItem
from agentkit_memory.recall.choice import choose
from agentkit_memory.recall.near_duplicates import count_copies
from agentkit_memory.recall.recall_request import RecallRequest
from agentkit_memory.recall.recall_result import Recall, candidate, to_log
from agentkit_memory.recall.recall_round import Candidates, Depth
from agentkit_memory.recall.recall_steps import Search, Sources, open_index
from agentkit_memory.recall.rerankers import reranked
from agentkit_memory.store.image_rows import read_images
from agentkit_memory.store.records import IMAGE, RecallLog
from agentkit_prompts.context.parts import Image

__all__ = ["Sources", "search"]


class Ranked(NamedTuple):
    """The candidates of a search, scored and chosen."""

    search: Search
    last: Candidates
    """The last round."""
    order: list[ScoredItem]
    """All candidates, the best first."""
    used: list[ScoredItem]
    """The chosen candidates, the best first."""


def search(sources: Sources, request: RecallRequest) -> tuple[Recall, bool]:
    """Return the result of a recall, and True if items or messages wait for the index.

    Every item is read from SQL under the scope of the reader, so that the result contains no deleted or superseded item
    and no item of another scope, whatever the index returns. A part that fails is left out and reported in
    `Recall.degraded`; only SQL is required. Nothing is written; the log is queued.

    Raises:
        StoreError: The database cannot be read.
    """
    started = perf_counter_ns()
    ranked = _search_active_space(sources, request)
    order, used = ranked.order, ranked.used
    last_search, database = ranked.search, sources.indexes.database
    problems = last_search.problems
    if last_search.rows.unreadable:
        example, problem = min(last_search.rows.unreadable.items())
        problems.append(
            f"{len(last_search.rows.unreadable)} corrupt items were left out, such as {example} ({problem}): remove "
            "them and store them again"
        )
    if request.policy.reranker is not None and order:
        with sources.permit.released():
            order, problem = reranked(request.policy.reranker, request.query, order)
        if problem:
            problems.append(problem)
        used = choose(ranked.last.question, order, request, last_search.hashes)
    if sources.logs.keep != 0 and (log_error := database.deferred.problem) is not None:
        problems.append(f"recalls cannot be logged now: {log_error}")
    recall = Recall(request.query, order, used, problems, _images(database, used))
    took_us = (perf_counter_ns() - started) // 1000
    # The log keeps only these values in memory until it is written, not the items.
    policy, logged, degraded = request.policy, to_log(order), recall.degraded

    def log() -> RecallLog:
        candidates = tuple(map(candidate, logged))
        description = policy.describe()
        return RecallLog(
            request.query, description, candidates, took_us, request.conversation, degraded, at=request.valid_at
        )

    sources.logs.write(request.scope, last_search.rows.view.own, log)
    leaves_work = last_search.index is None or not last_search.rows.is_settled or last_search.rows.view.crowded
    return recall, leaves_work


def _search_active_space(sources: Sources, request: RecallRequest) -> Ranked:
    """Search the active space; repeat the search if another space became active or its index was emptied meanwhile."""
    indexes = sources.indexes
    was_repeated = False
    while True:
        index_error, current = None, None
        if not indexes.is_open:
            index_error = open_index(indexes)
        try:
            # One connection serves the state and the first round: another connection takes 1 % of the time of a recall.
            with indexes.database.read() as connection:
                current = Search.begin(connection, sources, request, index_error)
                first = current.by_terms(connection, Depth.of(request, request.policy.candidates))
            ranked = _search_in_rounds(current, first)
        except StoreError:
            # If the space is no longer active, its index may have been closed or emptied: the search is repeated.
            if current is None or indexes.closed or not _is_outdated(current):
                raise
            continue
        if _is_outdated(current):
            continue
        if was_repeated or not _was_emptied(current):
            return ranked
        # The items were waiting before the index was emptied: the next state of the store contains them.
        was_repeated = True


def _is_outdated(current: Search) -> bool:
    """Return True if another space became active, so that the index of this search may have been emptied."""
    index, space, indexes = current.index, current.rows.view.space, current.sources.indexes
    if index is None:
        return False
    if indexes.opened(space) is not index:
        return True
    # With an index on a server, another process may change the active space.
    return index.shared and indexes.active().name != space.name


def _was_emptied(current: Search) -> bool:
    """Return True if a rebuild emptied the index of this process, and no item was waiting when the state was read."""
    index, rows = current.index, current.rows
    if index is None or index.shared or not rows.is_settled:
        return False
    return index.id != rows.view.space.index_id


def _search_in_rounds(current: Search, candidates: Candidates) -> Ranked:
    """Search for candidates in rounds of growing depth, until enough candidates can be used.

    Args:
        current: The search.
        candidates: The candidates by BM25 of the first round.
    """
    while True:
        current.add_similar(candidates)
        depth = candidates.next
        if depth is None:
            order = current.ranked(candidates)
            used = choose(candidates.question, order, current.request, current.hashes)
            depth = _after_copies(current, candidates, order, used)
            if depth is None:
                return Ranked(current, candidates, order, used)
        with current.sources.indexes.database.read() as connection:
            candidates = current.by_terms(connection, depth)


def _after_copies(
    current: Search, candidates: Candidates, order: Sequence[ScoredItem], used: Sequence[ScoredItem]
) -> Depth | None:
    """Return the depth of the next round if copies replaced other candidates, else None."""
    if not candidates.is_full:
        return None
    copies = count_copies(order) + candidates.copies
    if not copies:
        return None
    without_facts = [each for each in used if each.slot != "knowledge"]
    if 2 * copies <= len(order) + candidates.copies and len(without_facts) >= current.request.limit:
        return None
    if candidates.depth.is_widest:
        current.problems.append(
            f"among the best {candidates.depth.candidates} hits are many copies, so other items may be missing"
        )
        return None
    return candidates.depth.wider(current.request)


def _images(database: Database, used: Sequence[ScoredItem]) -> Mapping[str, Image]:
    """Return the images among the used items, by the ids of their documents."""
    document_ids = [each.item.document_id for each in used if each.item.kind == IMAGE]
    if not document_ids:
        return {}
    with database.read() as connection:
        return read_images(connection, document_ids)
