"""A recall step by step: ask the index as it is, read SQL, score, choose. Nothing is written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from time import perf_counter_ns

from agentkit_memory.database.engine import Database
from agentkit_memory.embedders.store_embedders import Embedders
from agentkit_memory.errors import StoreError
from agentkit_memory.index.indexes import Indexes
from agentkit_memory.process.few_at_once import Turn
from agentkit_memory.recall.candidate_search import CandidateSearch, Place
from agentkit_memory.recall.candidates import ScoredItem
from agentkit_memory.recall.choice import choose, ranked
from agentkit_memory.recall.near_duplicates import count_copies
from agentkit_memory.recall.question import MAX_CHARACTERS, Question
from agentkit_memory.recall.recall_filter import RecallFilter
from agentkit_memory.recall.recall_policy import MAX_CANDIDATES, RecallPolicy
from agentkit_memory.recall.recall_result import Recall, candidate, to_log
from agentkit_memory.recall.rerankers import reranked
from agentkit_memory.scope import Scope
from agentkit_memory.store.image_rows import read_hashes, read_images
from agentkit_memory.store.recall_logs import RecallLogs
from agentkit_memory.store.records import IMAGE, RecallLog
from agentkit_prompts.context.parts import Image

__all__ = ["search"]

_WIDER = 16
"""How many times as many candidates are looked for, where copies took the places of others."""


def _is_crowded(order: Sequence[ScoredItem], used: Sequence[ScoredItem], limit: int, left_out: int) -> bool:
    """Return whether copies of what was used took the places of other candidates."""
    alike = count_copies(order) + left_out
    return alike > 0 and (2 * alike > len(order) + left_out or sum([each.slot != "knowledge" for each in used]) < limit)


def _wider(policy: RecallPolicy, limit: int) -> RecallPolicy:
    return replace(policy, candidates=min(_WIDER * max(policy.candidates, limit), MAX_CANDIDATES))


def _hashes(database: Database, order: Sequence[ScoredItem]) -> Mapping[str, str]:
    pictures = [each.id for each in order if each.item.kind == IMAGE]
    if not pictures:
        return {}
    with database.read() as connection:
        return read_hashes(connection, pictures)


def _images(database: Database, used: Sequence[ScoredItem]) -> Mapping[str, Image]:
    """Return the images among what is used, by the ids of their documents."""
    pictures = [each.item.document_id for each in used if each.item.kind == IMAGE]
    if not pictures:
        return {}
    with database.read() as connection:
        return read_images(connection, pictures)


def search(
    indexes: Indexes,
    embedders: Embedders,
    logs: RecallLogs,
    turn: Turn,
    scope: Scope,
    query: str,
    limit: int,
    policy: RecallPolicy,
    now: float,
    hidden: Sequence[Place] = (),
    conversation: str = "",
    roles: Collection[str] | None = None,
    where: RecallFilter | None = None,
) -> tuple[Recall, bool]:
    """Return what a reader in `scope` may know about a question, and whether something waits for the index.

    Every item is read from SQL under that scope: whatever the index proposes, nothing comes back that was deleted,
    superseded or belongs to another scope. What fails on the way is left out and reported in `Recall.degraded`; only
    SQL itself is needed. Nothing is written; the log is queued. `turn` is given up while a
    model or a server is waited for.

    `limit` is of documents and of facts each, `hidden` are messages that the model sees anyway, and `conversation` is
    logged. Of turns, only those of `roles` are used; of all items, only those that `where` allows are considered.

    Raises:
        StoreError: The database cannot be read.
    """
    began = perf_counter_ns()
    question = Question.of(query, now)
    wide, before = policy, None
    while True:
        one = CandidateSearch(
            indexes, embedders, turn, wide, question, indexes.database.clock(), hidden, limit, roles, where
        )
        one.may_widen = before is None and wide.candidates < MAX_CANDIDATES
        if before is not None:  # nothing is read twice
            one.view, one.waiting, one.about_waiting = before.view, before.waiting, before.about_waiting
            one.new_turns, one.near, one.seeds = before.new_turns, before.near, before.seeds
            one.vector, one.read, one.unreadable, one.texts = before.vector, before.read, before.unreadable, set()
        if len(query) > MAX_CHARACTERS:
            one.degraded.append(f"the question is long: its first and last {MAX_CHARACTERS // 2} characters were used")
        try:
            pool = one.run(scope)
        except StoreError:
            if indexes.closed or not one.is_outdated():
                raise
            before, wide = None, policy
            continue
        if one.is_outdated():
            before, wide = None, policy
            continue
        if one.is_crowded and one.may_widen:
            before, wide = one, _wider(wide, limit)
            continue
        order = ranked(pool, policy.diversity)
        hashes = _hashes(indexes.database, order)
        used = choose(one.question, order, policy, limit, roles, hashes)
        if not (one.is_full and _is_crowded(order, used, limit, one.copies)):
            break
        if wide.candidates >= MAX_CANDIDATES:
            one.degraded.append(f"among the best {MAX_CANDIDATES} hits are so many copies that others may be missing")
            break
        before, wide = one, _wider(wide, limit)
    if policy.reranker is not None and order:
        with turn.away():
            order, problem = reranked(policy.reranker, query, order)
        one.degraded += [problem] if problem else []
        used = choose(one.question, order, policy, limit, roles, hashes)
    if logs.keep != 0 and (trouble := indexes.database.deferred.problem) is not None:
        one.degraded.append(f"recalls are not logged at present: {trouble}")
    recall = Recall(query, order, used, one.degraded, _images(indexes.database, used))
    took = (perf_counter_ns() - began) // 1000
    kept, degraded = to_log(order), recall.degraded  # the rest need not wait for the log

    def log() -> RecallLog:
        return RecallLog(query, policy.describe(), tuple(map(candidate, kept)), took, conversation, degraded)

    logs.write(scope, one.view.own, log)
    return recall, one.index is None or one.view.pending or one.view.behind or one.view.crowded
