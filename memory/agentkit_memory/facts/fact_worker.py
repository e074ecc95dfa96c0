"""`FactWorker`: reads turns with an extractor and stores the facts it finds; any number of them may run at once.

Facts are stored in the transaction that acknowledges their turns: a crash before it repeats a call of the model, and
never stores a fact twice or loses a turn.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from sqlalchemy import Connection

from agentkit_memory.errors import ExtractionError, FactError
from agentkit_memory.facts.drafts import Extract, FactDraft, checked, misshapen, wrong_types
from agentkit_memory.facts.fact_queue import Queue, Task, Window, ask_for_facts
from agentkit_memory.facts.fact_rows import Facts, end_of, ends_of, newest_facts
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.engine import Database
from agentkit_memory.store.outbox import retry_pause
from agentkit_memory.store.records import StoredFact
from agentkit_prompts.ranking.bm25 import BM25

__all__ = ["FactWorker"]

_LOG = logging.getLogger("agentkit.memory")

_MAX_TRIES = 3
"""Invalid answers about one turn before it is given up."""
_MAX_READ = 500
"""Newest facts of a scope among which related ones are looked for."""
_MAX_GIVEN = 40
"""Known facts that an extractor is given: half of them by BM25, the others the newest."""


class FactWorker:
    """Extracts facts from turns: from at most `most` together, which others may take after `lease` seconds.

    `extract` is called from the thread that calls `run_once`, and takes less time than a lease.
    """

    def __init__(self, database: Database, extract: Extract, *, most: int = 8, lease: float = 300.0) -> None:
        self._database = database
        self._extract = extract
        self._queue = Queue(database, most=most, lease=lease)
        self._asked = False

    def run_once(self) -> int:
        """Read the next turns of some conversation, store the facts in them, and return how many turns there were.

        Whatever the extractor raises, the turns stay in the queue and are tried again after growing pauses. After an
        invalid answer, each turn is read by itself a few times and then given up, with the valid drafts of the last
        answer stored. That, and each invalid draft, is logged.
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
        """Return the facts of the scope to give as context: those that share terms with the turns, and the newest."""
        with self._database.read() as connection:
            newest = newest_facts(connection, window.scope_id, self._database.clock(), _MAX_READ)
        if len(newest) <= _MAX_GIVEN:
            return newest[::-1]
        scores = BM25(fact.text for fact in newest).scores(" ".join(turn.text for turn in window.turns))
        fitting = sorted(range(len(newest)), key=lambda place: (-scores[place], place))[: _MAX_GIVEN // 2]
        others = [place for place in range(len(newest)) if place not in fitting][: _MAX_GIVEN - len(fitting)]
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
        newest = newest_facts(connection, window.scope_id, now, _MAX_READ)
        known_until: dict[str, float] = {}  # by text
        for fact, end in zip(newest, ends_of(connection, newest), strict=True):
            text = fact.text.strip().casefold()
            known_until[text] = max(end, known_until.get(text, end))
        for given in drafts:
            draft = replace(given, text=given.text.strip())
            try:
                checked(given, turns, [fact.id for fact in known])
                if not same.issuperset(draft.sources):
                    continue  # redacted or erased while the model read it
                text, end = draft.text.casefold(), end_of(connection, draft.valid_to, draft.sources)
                if known_until.get(text, -inf) >= end and not draft.supersedes:
                    continue  # known for as long
                facts.write(connection, window.scope_id, draft)
                known_until[text] = end
            except FactError as error:
                _LOG.warning("%s: %s", self._database.where, error)
        if wrong is None:
            self._queue.done(connection, still)
        else:
            self._give_up(connection, window, still, wrong)

    def _give_up(self, connection: Connection, window: Window, tasks: Sequence[Task], error: ExtractionError) -> None:
        self._queue.done(connection, tasks, _kept(window, error))
        for task in tasks:
            _LOG.warning("%s: turn %s gives no facts: %s", self._database.where, task.turn.id, _described(error))

    def _failed(self, window: Window, error: Exception) -> None:
        with self._database.write() as connection:
            still, _ = self._queue.settle(connection, window)
            if isinstance(error, ExtractionError) and len(window.tasks) > 1:
                self._queue.again(connection, still, _kept(window, error), 0)  # one by one
            elif isinstance(error, ExtractionError) and _is_last(window):
                self._give_up(connection, window, still, error)
            else:
                tries = max(task.attempts for task in window.tasks)
                self._queue.again(connection, still, _kept(window, error), retry_pause(tries))
                _LOG.info("%s: facts are tried again later: %s", self._database.where, _described(error))


def _is_last(window: Window) -> bool:
    """Return whether an invalid answer about these turns is the last."""
    return len(window.tasks) == 1 and window.tasks[0].attempts + 1 >= _MAX_TRIES


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _kept(window: Window, error: Exception) -> str:
    """Return the text to store of an error: it may quote the turn it is stored with, but no other."""
    read = len(window.turns)
    return _described(error) if read == 1 else f"{type(error).__name__}, as {read} turns were read; see the log"
