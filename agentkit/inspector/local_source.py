"""`LocalSource`: agents, sessions and runs of this process, for `agentkit inspect`, notebooks and tests."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from agentkit.agent.agent import Agent
from agentkit.errors import AgentDefinitionError, AgentError, ApprovalError, Paused
from agentkit.ground.contained import contained
from agentkit.ground.threads import in_thread
from agentkit.inspector.evaluation_view import StoredEvaluation
from agentkit.inspector.journal_view import waiting_calls
from agentkit.inspector.played_prompt import PlayedPrompt, asked
from agentkit.inspector.source import MAX_FIGURES, OutlinedRun, beginning, empty_journal
from agentkit.models.model import Reply
from agentkit.observing.redaction import Redact, process_redact
from agentkit.run.journal.journal import Journal, tool_error_count
from agentkit.run.journal.journal_outline import JournalOutline
from agentkit.run.parts.decisions import Approved, Decision, invalid_arguments
from agentkit.run.parts.recaller import RecallSource
from agentkit.run.parts.session import Session, SessionProtocol
from agentkit.run.parts.verdicts import Ask
from agentkit.runs.run_matching import matches, sort_value
from agentkit.runs.run_record import (
    RunError,
    RunFigures,
    RunList,
    RunRecord,
    RunState,
    RunsWanted,
    WaitingCall,
    tokens_of,
)
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import UserInput
from agentkit_prompts.names import nearest
from agentkit_tools.errors import ToolArgumentError

Named = TypeVar("Named")
_MAX_RUNS = 1_000
"""Maximum number of stored runs; the oldest ended run is removed first."""


class LocalSource:
    """The agents, sessions and runs of one process.

    Args:
        agents: Agents of the runs, and for new runs.
        sessions: Sessions to show.
        runs: Journals of runs to show, such as `error.journal` or `Journal.read(file)`.
        evaluations: Files of `evaluate`, whose rows and runs are shown.
        new_session: Creates a session with a new name; by default a session in memory.
        cases: File to which Play adds test cases, a line of JSON each; None to download them.
        redact: Returns each text of a test case without secrets and personal data; by default the function of the
            observation of this process, see `observe`.

    Raises:
        AgentDefinitionError: Two agents or sessions have the same name.
        EvaluationError: A file of an evaluation cannot be read.
    """

    def __init__(
        self,
        agents: Iterable[Agent[Any, Any]] = (),
        *,
        sessions: Iterable[SessionProtocol] = (),
        runs: Iterable[Journal] = (),
        evaluations: Iterable[Path | str] = (),
        new_session: Callable[[str], SessionProtocol] = lambda name: Session(name),
        cases: Path | str | None = None,
        redact: Redact | None = None,
    ) -> None:
        self._redact = redact
        stored = [StoredEvaluation.read(Path(path)) for path in evaluations]
        self._evaluations = {evaluation.name: evaluation for evaluation in stored}
        self._cases = None
        if cases is not None:
            self._cases = Path(cases)
        self._agents: dict[str, Agent[Any, Any]] = _by_name("agent", [(agent.name, agent) for agent in agents])
        self._sessions: dict[str, SessionProtocol] = _by_name(
            "session", [(session.id, session) for session in sessions]
        )
        self._new_session = new_session
        self._runs: dict[str, RunRecord] = {}
        """Runs by id, the oldest first; a run with a journal has ended, or is paused."""
        self._lines: dict[str, list[str]] = {}
        """Lines of the journals of runs that this object started, by the id of the run."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = Lock()
        for journal in runs:
            self.add(journal)

    def add(self, journal: Journal, error: BaseException | str | None = None) -> None:
        """Add a run of another program; `error` is the error that ended the run, or None."""
        state, waiting, failure = _state(journal, self._agents.get(journal.agent), error)
        # A journal has the times of results only. 0 is an unknown time.
        times = [entry.at for entry in journal.entries if entry.at is not None] or [0.0]
        self._store(
            RunRecord(
                run_id=journal.run_id,
                agent=journal.agent,
                state=state,
                created_at=times[0],
                updated_at=times[-1],
                session=journal.session,
                tags=journal.tags,
                input=journal.context.user_input,
                usage=journal.usage,
                waiting=waiting,
                error=failure,
                tool_errors=len(journal.tool_errors),
                journal=journal,
            )
        )

    async def agents(self) -> Mapping[str, Agent[Any, Any]]:
        return self._agents

    async def runs(self, wanted: RunsWanted) -> RunList:
        runs = [run for run in reversed(self._runs.values()) if matches(run, wanted)]
        runs.sort(key=lambda run: sort_value(run, wanted.order), reverse=True)
        ids = [run.run_id for run in runs]
        if wanted.before in ids:
            runs = runs[ids.index(wanted.before) + 1 :]
        older = None
        if len(runs) > wanted.limit:
            older = runs[wanted.limit - 1].run_id
        return RunList(runs[: wanted.limit], older)

    async def figures(self, agent: str) -> Sequence[RunFigures]:
        runs = [run for run in reversed(self._runs.values()) if run.agent == agent][:MAX_FIGURES]
        return [
            RunFigures(run.created_at, sort_value(run, "longest"), run.state, tokens_of(run.usage), run.cost or 0.0)
            for run in runs
        ]

    async def evaluations(self) -> Mapping[str, StoredEvaluation]:
        return self._evaluations

    async def run(self, run_id: str, *, lines: int | None = None) -> RunRecord | None:
        run = await self._run(run_id)
        if run is None or run.journal is None or lines is None:
            return run
        return replace(run, journal=beginning(run.journal, lines))

    async def _run(self, run_id: str) -> RunRecord | None:
        if run_id not in self._runs:
            # The runs of an evaluation are many: a journal is read when its run is opened.
            for evaluation in self._evaluations.values():
                if run_id in evaluation.journals:
                    path, error = evaluation.journals[run_id]
                    self.add(await in_thread(Journal.read, path), error or None)
                    break
        run = self._runs.get(run_id)
        if run is None or run.journal is not None:
            return run
        with self._lock:
            text = "".join(self._lines.get(run_id, ()))
        if not text:
            return replace(run, journal=empty_journal(run))
        return replace(run, journal=Journal.loads(text))

    async def outlined(self, run_id: str, *, lines: int | None = None) -> OutlinedRun | None:
        run = await self._run(run_id)
        if run is None:
            return None
        journal = run.journal or empty_journal(run)
        if lines is None or len(journal.entries) < lines:
            return OutlinedRun(run, JournalOutline.of(journal))
        return OutlinedRun(run, JournalOutline.of(beginning(journal, lines), is_whole=False))

    async def sessions(self, *, limit: int) -> Sequence[str]:
        return list(reversed(self._sessions))[:limit]

    async def session(self, name: str) -> SessionProtocol | None:
        return self._sessions.get(name)

    async def memory(self, agent: str, user: str | None) -> RecallSource | None:
        _check_no_user(user)
        if agent not in self._agents:
            return None
        return self._agents[agent].memory

    async def start(
        self, agent: str, user_input: UserInput, session: str | None, user: str | None, tags: Sequence[str]
    ) -> str:
        _check_no_user(user)
        run_agent = self._agent(agent)
        run_agent.chain.preflight(user_input)
        opened = None
        if session is not None:
            opened = self._sessions.get(session) or self._new_session(session)
            self._sessions[session] = opened
        run_id = os.urandom(8).hex()
        now = time.time()
        run = RunRecord(
            run_id=run_id,
            agent=agent,
            state="running",
            created_at=now,
            updated_at=now,
            session=session,
            tags=tuple(tags),
            input=user_input,
        )
        lines = self._lines[run_id] = []
        self._store(run)

        # Called in a thread of the journal writer, while the page reads the lines.
        def add_line(line: str) -> None:
            with self._lock:
                lines.append(line)

        self._begin(run, run_agent.run(user_input, run_id=run_id, session=opened, tags=tags, journal=add_line))
        return run_id

    @property
    def names_users(self) -> bool:
        return False

    @property
    def can_play(self) -> bool:
        return True

    @property
    def cases_file(self) -> str | None:
        if self._cases is None:
            return None
        return self._cases.name

    @property
    def redact(self) -> Redact | None:
        return self._redact or process_redact()

    async def ask(self, agent: Agent[Any, Any], prompt: PlayedPrompt) -> Reply:
        return await asked(agent, prompt)

    async def save_case(self, line: str) -> str:
        if self._cases is None:
            raise AgentError("the inspector has no file of test cases: start it with `agentkit inspect --cases FILE`")
        await in_thread(_append_line, self._cases, line)
        return self._cases.name

    async def decide(self, run_id: str, decisions: Mapping[str, Decision]) -> None:
        run, _ = self._waiting_run(run_id)
        ids = {call.call_id for call in run.waiting}
        if wrong := [id[:80] for id in decisions if id not in ids]:
            raise ApprovalError(
                f"run {run_id!r}: no call waits with the id {', '.join(map(repr, wrong))}",
                name=run_id,
                value=", ".join(wrong),
            )
        agent = self._agent(run.agent)
        await in_thread(_check_arguments, agent, run, decisions)
        # Another request can have decided in the meantime.
        run, journal = self._waiting_run(run_id)
        session = None
        if run.session is not None:
            session = self._sessions.get(run.session)
        resuming = agent.resume(journal, approve=dict(decisions), session=session)
        self._runs[run_id] = run = replace(run, state="running", waiting=(), updated_at=time.time())
        self._begin(run, resuming)

    def _waiting_run(self, run_id: str) -> tuple[RunRecord, Journal]:
        """Return a run that waits for decisions, and its journal.

        Raises:
            ApprovalError: The run is unknown, or does not wait.
        """
        run = self._runs.get(run_id)
        if run is None or run.journal is None or run.state != "waiting":
            raise ApprovalError(f"run {run_id[:80]!r} does not wait for a decision", name=run_id[:80])
        return run, run.journal

    async def close(self) -> None:
        """Cancel the active runs, and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _agent(self, name: str) -> Agent[Any, Any]:
        if name not in self._agents:
            raise AgentError(f"unknown agent {name[:80]!r}{nearest(name[:80], self._agents)}")
        return self._agents[name]

    def _store(self, run: RunRecord) -> None:
        self._runs.pop(run.run_id, None)
        self._runs[run.run_id] = run
        while len(self._runs) > _MAX_RUNS:
            ended = [id for id, record in self._runs.items() if record.state != "running"]
            if not ended:
                break
            oldest = ended[0]
            del self._runs[oldest]
            self._lines.pop(oldest, None)

    def _begin(self, run: RunRecord, running: Any) -> None:
        # Stored in a set, because the event loop has only weak references to tasks.
        task = asyncio.create_task(self._store_end(run, running))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _store_end(self, run: RunRecord, running: Any) -> None:
        """Wait for a run, and store its end."""
        state: RunState = "finished"
        waiting: tuple[WaitingCall, ...] = ()
        error: RunError | None = None
        try:
            result = await contained(running)
            journal = result.journal
            if result.limit is not None:
                state, error = "failed", RunError(type(result.limit).__name__, str(result.limit))
        except asyncio.CancelledError as stopped:
            state, journal = "cancelled", getattr(stopped, "journal", None)
        except Paused as paused:
            state, journal, waiting = "waiting", paused.journal, _waiting(paused)
        except Exception as failure:
            journal, state, error = getattr(failure, "journal", None), "failed", _error(failure)
        if journal is None:
            journal = run.journal
        usage = run.usage
        if journal is not None:
            usage = journal.usage
        run = replace(run, journal=journal, usage=usage, tool_errors=tool_error_count(journal), updated_at=time.time())
        ended = replace(run, state=state, waiting=waiting, error=error)
        # The run can have been removed, because too many runs are stored.
        if run.run_id in self._runs:
            self._runs[run.run_id] = ended


def _check_no_user(user: str | None) -> None:
    if user is not None:
        raise AgentError("user: the inspector of a program acts for no user: remove it")


def _append_line(path: Path, line: str) -> None:
    """Append a line to a file, after a line break if the file does not end with one.

    Raises:
        AgentError: The file cannot be written.
    """
    try:
        with path.open("a+b") as file:
            start = ""
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    start = "\n"
            # One write: another process may append to the file too.
            file.write(f"{start}{line}\n".encode())
    except OSError as error:
        raise AgentError(f"{path}: the test case cannot be written: {error.strerror or error}") from error


def _by_name(kind: str, named: list[tuple[str, Named]]) -> dict[str, Named]:
    """Return named agents or sessions as a dictionary; refuse duplicate names."""
    objects = dict(named)
    if len(objects) < len(named):
        names = [name for name, _ in named]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        raise AgentDefinitionError(
            f"inspector: more than one {kind} has the name {', '.join(map(repr, duplicates))}",
            name=kind,
            value=", ".join(duplicates),
        )
    return objects


def _state(
    journal: Journal, agent: Agent[Any, Any] | None, error: BaseException | str | None
) -> tuple[RunState, tuple[WaitingCall, ...], RunError | None]:
    """Return the state of a run of another program, its waiting calls, and its error."""
    if isinstance(error, Paused):
        return "waiting", _waiting(error), None
    if error is not None:
        return "failed", (), _error(error)
    messages = journal.messages
    if messages and messages[-1].role == "assistant" and not messages[-1].tool_calls:
        return "finished", (), None
    calls = [replace(call, id=id) for id, call in waiting_calls(journal).items()]
    asked = _asked_by_guards(journal)
    waiting = [
        call
        for call in calls
        if agent is not None and ("/" in call.id or call.id in asked or _may_need_approval(agent, call.name))
    ]
    if agent is not None and waiting:
        return "waiting", tuple([WaitingCall.of(_as_received(agent, call)) for call in waiting]), None
    return "failed", (), RunError("Interrupted", "the journal ends before the run: resume the run")


def _waiting(paused: Paused) -> tuple[WaitingCall, ...]:
    return tuple([WaitingCall.of(call, paused.agents.get(call.id, "")) for call in paused.calls])


def _asked_by_guards(journal: Journal) -> set[str]:
    """Return the ids of the calls and texts about which guards ask a person."""
    asked: set[str] = set()
    for step in journal.steps():
        if step.kind == "guard" and isinstance(step.answer.verdict, Ask):
            waiting = step.answer.waiting_call
            asked.add(step.answer.subject if waiting is None else waiting.id)
    return asked


def _may_need_approval(agent: Agent[Any, Any], tool: str) -> bool:
    return tool in agent.tools and agent.tools[tool].policy.approval != "never"


def _as_received(agent: Agent[Any, Any], call: ToolCall) -> ToolCall:
    """Return a call with the arguments that its function receives; calls of inner agents and guards are unchanged."""
    if "/" in call.id or call.name not in agent.tools:
        return call
    return agent.tools[call.name].as_received(call)


def _check_arguments(agent: Agent[Any, Any], run: RunRecord, decisions: Mapping[str, Decision]) -> None:
    """Refuse changed arguments that the tool of a waiting call refuses, before the run continues.

    Raises:
        ApprovalError: Arguments are invalid; the error lists all problems.
    """
    problems: list[str] = []
    for call in run.waiting:
        decision = decisions.get(call.call_id)
        if not isinstance(decision, Approved) or decision.arguments is None:
            continue
        if "/" in call.call_id or call.tool not in agent.tools:
            continue
        try:
            agent.tools[call.tool].validate(decision.arguments)
        except ToolArgumentError as error:
            problems += [f"{call.tool} ({call.call_id}): {problem}" for problem in error.problems]
    if problems:
        raise invalid_arguments(run.run_id, problems)


def _error(error: BaseException | str) -> RunError:
    if isinstance(error, str):
        return RunError("Error", error)
    return RunError(type(error).__name__, str(error))
