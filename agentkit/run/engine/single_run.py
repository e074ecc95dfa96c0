"""`Run`: one run from its first effect to its end: the session it has to itself, its time, its events, its journal."""

from __future__ import annotations

import os
from asyncio import get_running_loop
from collections.abc import Awaitable, Generator
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from agentkit.errors import LimitExceeded, RunBusy, SessionBusy
from agentkit.run.engine.asyncio_driver import AsyncDriver
from agentkit.run.engine.effects import Effect
from agentkit.run.engine.events import RunFinished
from agentkit.run.engine.listening import Listening
from agentkit.run.engine.loop import RunResult
from agentkit.run.engine.recording import recording
from agentkit.run.engine.replaying import replaying
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_file import Keep, keeping
from agentkit.run.parts.chain import Output
from agentkit.run.parts.decisions import inner_pause
from agentkit_tools.calling.deadline import DeadlineError, outcome
from agentkit_tools.calling.failures_in_a_row import counts_after

__all__ = ["Run"]

T = TypeVar("T")
_GRACE = 6.0
"""Seconds a run has to end after its time: more than tools have after they are cancelled."""
_MIN_SECONDS = 0.1
"""Seconds to hear the end of a run, which may be that its time was over."""


class Run(Generic[Output]):
    """One run.

    Args:
        driver: What performs its effects.
        journal: What it is recorded in; a copy of `known` where there is one.
        listening: Who listens.
        known: The journal it goes on from.
        keep: Where the journal is kept while the run goes on: a file, or a function that is given each line.
    """

    __slots__ = ("_conversation", "_driver", "_keep", "_known", "_listening", "journal")

    _conversation: object
    """What the conversation of its session is known by."""

    def __init__(
        self,
        driver: AsyncDriver,
        journal: Journal,
        listening: Listening | None = None,
        known: Journal | None = None,
        keep: Keep | None = None,
    ) -> None:
        self.journal = journal
        self._driver = driver
        self._known = known
        if known is not None:
            driver.resumes = True
            driver.calls = counts_after(known.tool_results)
        self._keep = keep
        self._listening = listening

    async def result(self, loop: Generator[Effect, Any, RunResult[Output]]) -> RunResult[Output]:
        """Perform the effects of the loop and return what it returns.

        Raises:
            SessionBusy: Another run is using the session.
            RunBusy: The run is going on already.
            LimitExceeded: It took longer than it may.
            BaseException: Whatever ended it; it has the attributes `messages`, `usage` and `journal`.
        """
        driver, journal, nesting = self._driver, self.journal, self._driver.nesting
        seconds = nesting.limits.seconds
        began = 0.0 if seconds is None else get_running_loop().time()
        loop = recording(loop, journal, nesting.price)
        if self._known is not None:
            loop = replaying(loop, self._known, driver.was_sent)
        try:
            self._begin()
            try:
                if self._keep is None:
                    nesting.record(journal, self._known)
                    work = driver.drive(loop)
                else:
                    work = self._kept(loop, self._keep)
                result = await (work if seconds is None else self._within(seconds, work))
            finally:
                self._end()
        except BaseException as raised:
            error = inner_pause(raised) or raised
            self._complete(error)
            if error is not raised:
                raise error from error.__cause__
            if not isinstance(error, LimitExceeded) or nesting.limits.on_limit == "raise" or driver.not_kept:
                raise
            if (cut := self._cut(error)) is None:
                raise
            result = cut
        if self._listening is not None:
            result.listener_errors = self._listening.errors
            left = None if seconds is None else max(began + seconds - get_running_loop().time(), _MIN_SECONDS)
            try:
                if (taken := self._listening.emit(RunFinished(result))) is not None:
                    await (taken if left is None else self._within(left, taken))
            except BaseException as error:
                self._complete(error)
                raise
        return result

    def _begin(self) -> None:
        """Have the run to itself, and the conversation of its session: others may have sessions of their own on it."""
        driver, session = self._driver, self._driver.session
        if session is not None:
            self._conversation = getattr(session, "address", None) or id(session)
            if _RUNNING.setdefault(self._conversation, self) is not self:
                raise SessionBusy(session.id)
        if _RUNNING.setdefault((self.journal.agent, driver.run_id), self) is not self:
            if session is not None:
                del _RUNNING[self._conversation]
            raise RunBusy(driver.run_id)
        driver.nesting.begin()

    def _end(self) -> None:
        driver = self._driver
        driver.nesting.end()
        _RUNNING.pop((self.journal.agent, driver.run_id), None)
        if driver.session is None:
            return
        if (writing := driver.writing) is None:
            _RUNNING.pop(self._conversation, None)
        else:  # a write that hangs was left behind: nobody may use the conversation before it has ended
            writing.add_done_callback(lambda _: _RUNNING.pop(self._conversation, None))

    def _complete(self, error: BaseException) -> None:
        """Give an error what there is of the run."""
        journal, not_kept = self.journal, self._driver.not_kept
        with suppress(Exception):  # an exception without attributes
            if not_kept and not_kept not in getattr(error, "__notes__", ()):
                error.add_note(not_kept)
            error.messages = (*journal.messages, *self._driver.unkept)  # type: ignore[attr-defined]
            error.usage, error.journal = journal.usage + self._driver.beside, journal  # type: ignore[attr-defined]

    def _cut(self, error: LimitExceeded) -> RunResult[Output] | None:
        """Return what there is of a run that reached a limit: where the answer is text, the last that there was.

        None where nothing was sent, and nothing could have been.
        """
        journal, sent = self.journal, self._driver.sent
        if sent is None:
            try:
                sent = self._driver.chain.compose(self._driver.ctx)
            except Exception:
                return None
        texts = [message.text for message in journal.messages if message.role == "assistant"]
        output: Any = None if sent.output is not None else next(filter(None, reversed(texts)), "")
        steps = sum([entry.effect == "CallModel" for entry in journal.entries])
        return RunResult(output, journal.messages, sent, journal.usage, steps, "limit", journal.run_id, journal, error)

    async def _within(self, seconds: float, work: Awaitable[T]) -> T:
        # What the driver awaits is cancelled first and closed soon; then it can still keep what was done.
        result, error = await outcome(_awaited(work), seconds, grace=_GRACE)
        if isinstance(error, DeadlineError):
            allowed = self._driver.nesting.limits.seconds or seconds
            raise LimitExceeded("seconds", allowed, "allow more time, or use faster tools and listeners") from None
        if error is not None:
            raise error
        return cast(T, result)

    async def _kept(self, loop: Generator[Effect, Any, RunResult[Output]], keep: Keep) -> RunResult[Output]:
        """Perform the effects of the loop, keeping the journal."""
        nesting = self._driver.nesting
        async with keeping(self.journal, keep, self._known) as nesting.keeper:
            nesting.record(self.journal, self._known)
            return await self._driver.drive(loop)


_RUNNING: dict[object, object] = {}
"""Which runs are going on, and which conversations have one. `setdefault` is atomic, also between threads."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RUNNING.clear)  # those runs go on in the parent only


async def _awaited(work: Awaitable[T]) -> T:
    return await work
