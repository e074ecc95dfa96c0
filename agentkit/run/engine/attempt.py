"""`Attempt`: one attempt at a run, with its claims, its time limit, its journal and its errors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from agentkit.errors import LimitExceeded, RunBusy, SessionBusy
from agentkit.run.engine.current_run import CurrentRun
from agentkit.run.engine.event_sink import EventSink
from agentkit.run.engine.events import RunFinished
from agentkit.run.engine.journalled import Journalled
from agentkit.run.engine.loop import run_loop
from agentkit.run.engine.run_result import RunResult
from agentkit.run.engine.run_setup import RunSetup
from agentkit.run.engine.run_steps import RunSteps
from agentkit.run.engine.steps import Steps
from agentkit.run.journal.journal_file import journal_writer
from agentkit.run.parts.chain import Output
from agentkit.run.parts.decisions import inner_pause
from agentkit_tools.calling.deadline import DeadlineError, outcome

T = TypeVar("T")
_GRACE = 6.0
"""Seconds of grace after the time limit of a run; longer than the grace of tools after their cancellation."""
_MIN_SECONDS = 0.1
"""Minimum seconds for the delivery of the last event, even if the run has no time left."""


class Attempt(Generic[Output]):
    """One attempt at a run, from the first step, or from the last step of its journal, to the end.

    Args:
        setup: The run.
        run: State of the run, shared with inner runs.
        steps: Performs the steps.
        sink: Receives the events.
    """

    __slots__ = ("_began", "_conversation", "_journalled_steps", "_run", "_setup", "_sink", "_steps")

    _conversation: object
    """Key of the conversation in `_RUNNING`."""

    def __init__(self, setup: RunSetup[Output], run: CurrentRun, steps: RunSteps, sink: EventSink | None) -> None:
        self._setup = setup
        self._run = run
        self._steps = steps
        self._journalled_steps = Journalled(steps, setup.journal, setup.earlier, run.spending.price)
        self._sink = sink
        self._began = 0.0

    async def result(self) -> RunResult[Output]:
        """Perform the run to its end.

        Raises:
            SessionBusy: Another run uses the session.
            RunBusy: A run with this id is in progress.
            LimitExceeded: The run exceeded a limit.
            BaseException: The error that ended the run, with the attributes `messages`, `usage` and `journal`.
        """
        limits = self._setup.definition.limits
        try:
            self._claim()
            try:
                if limits.seconds is None:
                    result = await self._perform()
                else:
                    self._began = asyncio.get_running_loop().time()
                    result = await self._within(limits.seconds, self._perform())
            finally:
                self._release()
        except BaseException as raised:
            # If the code of a tool ran an agent that paused, this run cannot pause: the new error names an alternative.
            error = inner_pause(raised) or raised
            self._attach_state(error)
            if error is not raised:
                raise error from error.__cause__
            partial_result = None
            # If results of tools could not be stored, the caller must receive the error.
            if isinstance(error, LimitExceeded) and limits.on_limit == "return" and not self._steps.round_problem:
                partial_result = self._partial_result(error)
            if partial_result is None:
                raise
            result = partial_result
        if self._sink is not None:
            await self._emit_end(result, self._sink)
        return result

    async def _perform(self) -> RunResult[Output]:
        """Run the loop, and write the journal if the run has a file or function for it."""
        setup = self._setup
        if setup.target is None:
            return await self._loop_result()
        async with journal_writer(setup.journal, setup.target, setup.earlier) as writer:
            self._run.set_writer(writer)
            return await self._loop_result()

    async def _loop_result(self) -> RunResult[Output]:
        setup, writer = self._setup, self._run.writer
        self._journalled_steps.writer = writer
        steps: Steps = self._journalled_steps
        if setup.definition.guards is not None:
            from agentkit.run.engine.guarded import guarded

            steps = guarded(setup, steps, self._sink)
        result = await run_loop(setup, steps)
        # Written before the caller receives the result: after a crash, the journal contains every returned result.
        if writer is not None:
            await writer.written()
        if setup.earlier is not None:
            self._steps.check_decisions()
        return result

    async def _within(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        """Await a part of the run; cancel it after `seconds`.

        Raises:
            LimitExceeded: The run exceeded its time limit.
        """
        # Cancelled steps get a few seconds, so that they can store results of tools.
        result, error = await outcome(work, seconds, grace=_GRACE)
        if isinstance(error, DeadlineError):
            allowed = self._setup.definition.limits.seconds or seconds
            raise LimitExceeded("seconds", allowed, "allow more time, or use faster tools and listeners") from None
        if error is not None:
            raise error
        return cast(T, result)

    async def _emit_end(self, result: RunResult[Output], sink: EventSink) -> None:
        """Emit `RunFinished` within the remaining time."""
        result.listener_errors = sink.errors
        seconds = self._setup.definition.limits.seconds
        try:
            if seconds is None:
                await sink.emit(RunFinished(result))
            else:
                remaining = self._began + seconds - asyncio.get_running_loop().time()
                await self._within(max(remaining, _MIN_SECONDS), sink.emit(RunFinished(result)))
        except BaseException as error:
            self._attach_state(error)
            raise

    def _claim(self) -> None:
        """Claim the run and its conversation.

        Raises:
            SessionBusy: Another run uses the conversation.
            RunBusy: The run is in progress.
        """
        journal, session = self._setup.journal, self._setup.session
        if session is not None:
            # Two session objects of a store can have the same conversation, and then have the same address.
            self._conversation = getattr(session, "address", None) or id(session)
            if _RUNNING.setdefault(self._conversation, self) is not self:
                raise SessionBusy(session.id)
        if _RUNNING.setdefault((journal.agent, journal.run_id), self) is not self:
            # The claim of the conversation is released here: `_release` is called only if both claims succeeded.
            if session is not None:
                del _RUNNING[self._conversation]
            raise RunBusy(journal.run_id)
        self._run.begin(journal, self._setup.earlier)

    def _release(self) -> None:
        """Release the run and its conversation."""
        journal, writing = self._setup.journal, self._steps.writing
        self._run.end()
        _RUNNING.pop((journal.agent, journal.run_id), None)
        if self._setup.session is None:
            return
        if writing is None:
            _RUNNING.pop(self._conversation, None)
        else:
            # The run abandoned a hanging write: other runs can use the conversation after the end of the write.
            writing.add_done_callback(lambda _: _RUNNING.pop(self._conversation, None))

    def _attach_state(self, error: BaseException) -> None:
        """Add the messages, the usage and the journal of the run to an error."""
        journal, steps, problem = self._setup.journal, self._steps, self._steps.round_problem
        with suppress(Exception):  # an exception without attributes
            if problem and problem not in getattr(error, "__notes__", ()):
                error.add_note(problem)
            target: Any = error  # errors of every class get these attributes
            target.messages = (*journal.messages, *steps.unstored)
            target.usage = journal.usage + steps.usage_outside
            target.journal = journal

    def _partial_result(self, error: LimitExceeded) -> RunResult[Output] | None:
        """Return the result of a run that reached a limit: its last text, or None if the output type is not text.

        Returns None instead of a result if no prompt was sent, and no prompt can be composed.
        """
        journal, sent = self._setup.journal, self._journalled_steps.sent
        # A result contains a prompt, but the limit can be reached before the first prompt.
        if sent is None:
            try:
                sent = self._setup.definition.chain.compose(self._setup.ctx)
            except Exception:
                return None
        output: Any = None
        if sent.output is None:
            texts = [message.text for message in journal.messages if message.role == "assistant" and message.text]
            output = ""
            if texts:
                output = texts[-1]
        steps = sum([step.kind == "model" for step in journal.steps()])
        return RunResult(
            output=output,
            messages=journal.messages,
            composition=sent,
            usage=journal.usage,
            steps=steps,
            finish_reason="limit",
            run_id=journal.run_id,
            journal=journal,
            limit=error,
        )


_RUNNING: dict[object, object] = {}
"""Attempt by claimed run or conversation. Claimed with `setdefault`, which is atomic between threads."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RUNNING.clear)  # the runs continue in the parent process only
