"""`FactWorker`: reads turns with an extractor and stores the facts it finds, beside any number of others.

Facts and the acknowledgement of the turns they were taken from are one transaction: a crash before it repeats a call of
the model, and never stores a fact twice or loses a turn.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import inf

from sqlalchemy import Connection

from agentkit_memory.errors import ExtractionError, FactError
from agentkit_memory.facts.drafts import Extract, FactDraft, checked, misshapen, wrong_types
from agentkit_memory.facts.fact_queue import Queue, Task, Window, ask_for_facts
from agentkit_memory.facts.fact_rows import Facts, end_of, ends_of, newest_facts
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.engine import Database
from agentkit_memory.store.records import StoredFact
from agentkit_prompts.ranking.bm25 import BM25

__all__ = ["FactWorker"]

_LOG = logging.getLogger("agentkit.memory")

_TRIES = 3
"""Calls about one turn whose answers were of no use, before it is left alone."""
_SLOWEST_RETRY = 300.0
_LOOKED_AT = 500
"""Newest facts of a scope that are looked at to see what could be about the same."""
_SHOWN = 40
"""Facts that an extractor is shown: half of them for their words, the others for being new."""


class FactWorker:
    """Takes facts from what was said.

    Args:
        database: Where turns and facts are.
        extract: Finds the facts. Called from the thread that calls `run_once`.
        most: Turns to read together.
        lease: Seconds after which another worker may take what this one holds: longer than a call takes.
    """

    def __init__(self, database: Database, extract: Extract, *, most: int = 8, lease: float = 300.0) -> None:
        self._database = database
        self._extract = extract
        self._queue = Queue(database, most=most, lease=lease)
        self._asked = False

    def run_once(self) -> int:
        """Read the next turns of some conversation, store the facts in them, and return how many turns there were.

        Whatever the extractor raises, the turns stay in the queue, and are tried again later and later. An answer
        that is of no use, as one with drafts of wrong types, is asked for a few times, for each turn by itself; then
        the turn is left alone, with what could be kept of its last answer. That, and each draft that cannot be kept,
        is logged.
        """
        if not self._asked:
            ask_for_facts(self._database)
            self._asked = True
        window = self._queue.take()
        if window is None:
            return 0
        try:
            failpoint("facts.leased")
            known = self._known(window)
            try:
                drafts = list(self._extract(window.turns, known))
            except Exception as error:
                self._failed(window, error)
                return len(window.tasks)
            wrong = wrong_types(drafts)
            if wrong is not None and not _is_last(window):
                self._failed(window, wrong)
                return len(window.tasks)
            failpoint("facts.asked")
            with self._database.write() as connection:
                self._store(connection, window, known, [each for each in drafts if not misshapen(each)], wrong)
                failpoint("facts.written")
            failpoint("facts.committed")
        except BaseException:
            self._queue.release()
            raise
        return len(window.tasks)

    def _known(self, window: Window) -> list[StoredFact]:
        """Return the facts of the scope that are shown: those that share words with the turns, and the newest."""
        with self._database.read() as connection:
            newest = newest_facts(connection, window.scope_id, self._database.clock(), _LOOKED_AT)
        if len(newest) <= _SHOWN:
            return newest[::-1]
        scores = BM25(fact.text for fact in newest).scores(" ".join(turn.text for turn in window.turns))
        fitting = sorted(range(len(newest)), key=lambda place: (-scores[place], place))[: _SHOWN // 2]
        others = [place for place in range(len(newest)) if place not in fitting][: _SHOWN - len(fitting)]
        return [newest[place] for place in sorted((*fitting, *others), reverse=True)]

    def _store(
        self,
        connection: Connection,
        window: Window,
        known: Sequence[StoredFact],
        drafts: Sequence[FactDraft],
        wrong: ExtractionError | None,
    ) -> None:
        still, same = self._queue.settle(connection, window)
        facts = Facts(self._database, window.scope)
        turns = {turn.id: turn for turn in window.turns}
        now = self._database.clock()
        newest = newest_facts(connection, window.scope_id, now, _LOOKED_AT)
        said: dict[str, float] = {}  # until when at least it is known
        for fact, end in zip(newest, ends_of(connection, newest), strict=True):
            text = fact.text.strip().casefold()
            said[text] = max(end, said.get(text, end))
        for draft in drafts:
            try:
                checked(draft, turns, [fact.id for fact in known])
                if not same.issuperset(draft.sources):
                    continue  # redacted or erased while the model read it
                text, end = draft.text.strip().casefold(), end_of(connection, draft.valid_to, draft.sources)
                if said.get(text, -inf) >= end and not draft.supersedes:
                    continue  # known for as long, and not to be listed twice
                facts.write(
                    connection,
                    window.scope_id,
                    draft.text.strip(),
                    valid_from=draft.valid_from,
                    valid_to=draft.valid_to,
                    supersedes=draft.supersedes,
                    sources=draft.sources,
                    metadata=draft.metadata,
                )
                said[text] = end
            except FactError as error:
                _LOG.warning("%s: %s", self._database.where, error)
        if wrong is None:
            self._queue.done(connection, still)
        else:
            self._give_up(connection, window, still, wrong)

    def _give_up(self, connection: Connection, window: Window, tasks: Sequence[Task], error: ExtractionError) -> None:
        self._queue.done(connection, tasks, _kept(window, error))
        for task in tasks:
            _LOG.warning("%s: turn %s gives no facts: %s", self._database.where, task.turn.id, _told(error))

    def _failed(self, window: Window, error: Exception) -> None:
        with self._database.write() as connection:
            still, _ = self._queue.settle(connection, window)
            if isinstance(error, ExtractionError) and len(window.tasks) > 1:
                self._queue.again(connection, still, _kept(window, error), 0)  # one by one
            elif isinstance(error, ExtractionError) and _is_last(window):
                self._give_up(connection, window, still, error)
            else:
                tries = max(task.attempts for task in window.tasks)
                self._queue.again(connection, still, _kept(window, error), min(2.0 ** min(tries, 20), _SLOWEST_RETRY))
                _LOG.info("%s: facts are tried again later: %s", self._database.where, _told(error))


def _is_last(window: Window) -> bool:
    """Return whether an answer about this that is of no use is not asked for again."""
    return len(window.tasks) == 1 and window.tasks[0].attempts + 1 >= _TRIES


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _kept(window: Window, error: Exception) -> str:
    """Return what is kept of an error: it may quote the turn that it is kept with, and goes with it, but no other."""
    read = len(window.turns)
    return _told(error) if read == 1 else f"{type(error).__name__}, as {read} turns were read; the log says more"
