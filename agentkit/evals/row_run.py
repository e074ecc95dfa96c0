"""`RowRun`: the runs of one row of an evaluation, one per turn."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.evals.conversation_result import ConversationResult
from agentkit.evals.eval_row import EvalRow
from agentkit.evals.evaluation_errors import SimulatedUserError, usage_of
from agentkit.evals.simulated_user import ModelUser, ScriptedUser, SimulatedUser
from agentkit.evals.stored_run import StoredRun, run_or_resume
from agentkit.evals.worker_runs import WorkerRuns
from agentkit.model_evaluation.request_pace import RequestPace
from agentkit.models.model import NO_USAGE
from agentkit.run.engine.run_result import RunResult
from agentkit.run.journal.journal import Journal
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, UserInput


class RowRun:
    """The runs of one row: one run, or one run per turn of a conversation with a simulated user.

    Args:
        agent: The agent.
        row: The row.
        user: The simulated user of rows without a script; None for one turn.
        options: Options of each run.
        stored: Function that returns the id and the journal of a part of the row; None for runs that are not stored.
        pace: Limit of the runs that start per second.
        workers: Workers of a database that execute the runs; None to execute the runs in this process.

    Attributes:
        usage: Usage of all turns, also of a turn that failed.
        overhead: Usage of the simulated user.
        steps: Number of model calls of all turns that returned a reply, also of a turn that failed.
        seconds: Duration of the turns, without the time of the simulated user.
        run_id: Id of the last run.
    """

    def __init__(
        self,
        agent: Agent[Any, Any],
        row: EvalRow,
        user: SimulatedUser | None,
        options: Mapping[str, Any],
        stored: Callable[[str], StoredRun | None],
        pace: RequestPace,
        workers: WorkerRuns | None = None,
    ) -> None:
        self._workers = workers
        self._agent, self._row, self._stored, self._pace = agent, row, stored, pace
        self._user = user
        if row.script:
            self._user = ScriptedUser(row.script)
        self._options = dict(options)
        if row.user:
            self._options["user"] = row.user
        self.usage = self.overhead = NO_USAGE
        self.steps = 0
        self.seconds = 0.0
        self.run_id = ""

    async def result(self) -> RunResult[Any]:
        """Run the row, or continue its interrupted runs.

        Raises:
            SimulatedUserError: The simulated user failed.
            AgentError: See `Agent.run`.
        """
        row = self._row
        user_input: Any = row.input
        if row.history:
            user_input = PromptContext(user_input=row.user_input, conversation=Conversation(row.history))
        elif row.additional_kwargs:
            user_input = row.user_input
        first = await self._turn(user_input, "")
        if self._user is None:
            return first
        turns = [first]
        messages: list[Message] = [*row.history, *first.messages]
        while (text := await self._next_input(self._user, turns)) is not None:
            next_input = UserInput(text, additional_kwargs=row.additional_kwargs)
            context = PromptContext(user_input=next_input, conversation=Conversation(messages))
            turns.append(await self._turn(context, f"turn{len(turns) + 1}"))
            messages += turns[-1].messages
        return ConversationResult.of(tuple(turns))

    async def _turn(self, user_input: Any, part: str) -> RunResult[Any]:
        if self._pace.is_limited:
            await self._pace.wait()
        start = time.perf_counter()
        stored = self._stored(part)
        try:
            if self._workers is not None and stored is not None and not stored.has_journal:
                await self._workers.run(user_input, stored, self._options)
            # A run of workers is finished: only its journal is read.
            result = await run_or_resume(self._agent, user_input, stored, self._options)
        except Exception as error:
            self.usage += usage_of(error)
            journal = getattr(error, "journal", None)
            if isinstance(journal, Journal):
                self.run_id = journal.run_id
                self.steps += sum([step.kind == "model" for step in journal.steps()])
            if stored is not None:
                self.run_id = stored.run_id
            raise
        finally:
            self.seconds += time.perf_counter() - start
        self.usage += result.usage
        self.steps += result.steps
        self.run_id = result.run_id
        return result

    async def _next_input(self, user: SimulatedUser, turns: list[RunResult[Any]]) -> str | None:
        """Return the input of the next turn; None at the end of the conversation."""
        number = len(turns) + 1
        try:
            if isinstance(user, ModelUser):
                text, usage = await user.next_input(self._row, turns, self._stored(f"user{number}"))
                self.overhead += usage
                return text
            answer: Any = user(self._row, tuple(turns))
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:
            self.overhead += usage_of(error)
            raise SimulatedUserError(number, f"{type(error).__name__}: {error}") from error
        if answer is not None and not isinstance(answer, str):
            raise SimulatedUserError(number, f"expected text, or None at the end, got {answer!r:.60}")
        return answer
