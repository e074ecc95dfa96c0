"""`LocalSource`: agents, sessions and runs of this process, for one person: `agentkit inspect`, notebooks and tests."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, TypeVar

from agentkit.agent.agent import Agent
from agentkit.errors import AgentDefinitionError, AgentError, ApprovalError, Paused
from agentkit.inspector.journal_view import waiting_calls
from agentkit.inspector.source import InspectedRun, RunStatus, RunSummary
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.recaller import RecallSource
from agentkit.run.parts.session import InMemorySession, Session
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import UserInput
from agentkit_prompts.names import nearest

__all__ = ["LocalSource"]

Named = TypeVar("Named")
_MAX_RUNS = 1_000
_MAX_INPUT = 160


@dataclass(slots=True)
class _Kept:
    """A run of this process, while it goes on and afterwards."""

    summary: RunSummary
    lines: list[str] = field(default_factory=list)
    journal: Journal | None = None
    error: str = ""
    waiting: tuple[ToolCall, ...] = ()


class LocalSource:
    """What one person sees of the objects of a program.

    Args:
        agents: The agents that runs name, and that can be run; each by its `name`.
        sessions: Sessions that can be looked at.
        runs: Journals of runs, such as `error.journal` or `Journal.read(file)`.
        new_session: Makes a session of a new name; one in memory when not given.

    Raises:
        AgentDefinitionError: Two agents or sessions have the same name.
    """

    def __init__(
        self,
        agents: Iterable[Agent[Any, Any]] = (),
        *,
        sessions: Iterable[Session] = (),
        runs: Iterable[Journal] = (),
        new_session: Callable[[str], Session] = lambda name: InMemorySession(id=name),
    ) -> None:
        self._agents: dict[str, Agent[Any, Any]] = _by_name("agent", [(agent.name, agent) for agent in agents])
        self._sessions: dict[str, Session] = _by_name("session", [(session.id, session) for session in sessions])
        self._new_session = new_session
        self._runs: dict[str, _Kept] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = Lock()
        for journal in runs:
            self.add(journal)

    def add(self, journal: Journal, error: BaseException | str | None = None) -> None:
        """Show a run that was made elsewhere; `error` is what ended it, where it did not end well."""
        status, waiting = _status(journal, self._agents.get(journal.agent), error)
        asked = journal.context.user_input.text[:_MAX_INPUT]
        summary = RunSummary(journal.run_id, journal.agent, journal.session, status, asked)
        problem = "" if error is None or isinstance(error, Paused) else _words(error)
        self._keep(_Kept(summary, journal=journal, error=problem, waiting=waiting))

    async def agents(self) -> Mapping[str, Agent[Any, Any]]:
        return self._agents

    async def runs(
        self, *, limit: int, session: str | None = None, ids: Collection[str] | None = None
    ) -> Sequence[RunSummary]:
        newest = [kept.summary for kept in reversed(self._runs.values()) if ids is None or kept.summary.id in ids]
        return [one for one in newest if session is None or one.session == session][:limit]

    async def run(self, run_id: str) -> InspectedRun | None:
        kept = self._runs.get(run_id)
        if kept is None:
            return None
        journal = kept.journal
        if journal is None:
            with self._lock:
                text = "".join(kept.lines)
            if not text:
                return InspectedRun.unbegun(kept.summary, UserInput(kept.summary.input), kept.error)
            journal = Journal.loads(text)
        return InspectedRun(kept.summary, journal, kept.error, kept.waiting)

    async def sessions(self, *, limit: int) -> Sequence[str]:
        return list(reversed(self._sessions))[:limit]

    async def session(self, name: str) -> Session | None:
        return self._sessions.get(name)

    async def memory(self, agent: str) -> RecallSource | None:
        found = self._agents.get(agent)
        return None if found is None else found.memory

    async def start(self, agent: str, user_input: UserInput, session: str | None) -> str:
        chosen = self._agent(agent)
        chosen.chain.preflight(user_input)
        opened = None
        if session is not None:
            opened = self._sessions.get(session) or self._new_session(session)
            self._sessions[session] = opened
        run_id = os.urandom(8).hex()
        summary = RunSummary(run_id, agent, session, "running", user_input.text[:_MAX_INPUT], time.time())
        kept = self._keep(_Kept(summary))

        def keep(line: str) -> None:
            with self._lock:
                kept.lines.append(line)

        self._begin(kept, chosen.run(user_input, run_id=run_id, session=opened, journal=keep))
        return run_id

    async def decide(self, run_id: str, decisions: Mapping[str, Decision]) -> None:
        kept = self._runs.get(run_id)
        if kept is None or kept.journal is None or kept.summary.status != "waiting":
            raise ApprovalError(f"run {run_id[:80]!r} does not wait for a decision", name=run_id[:80])
        ids = {call.id for call in kept.waiting}
        if wrong := [id[:80] for id in decisions if id not in ids]:
            raise ApprovalError(
                f"run {run_id!r}: no call waits with the id {', '.join(map(repr, wrong))}",
                name=run_id,
                value=", ".join(wrong),
            )
        name = kept.summary.session
        session = None if name is None else self._sessions.get(name)
        resuming = self._agent(kept.summary.agent).resume(kept.journal, approve=dict(decisions), session=session)
        kept.summary, kept.waiting = replace(kept.summary, status="running"), ()
        self._begin(kept, resuming)

    async def close(self) -> None:
        """Cancel the runs that go on, and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _agent(self, name: str) -> Agent[Any, Any]:
        if name not in self._agents:
            raise AgentError(f"there is no agent {name[:80]!r}{nearest(name[:80], self._agents)}")
        return self._agents[name]

    def _keep(self, kept: _Kept) -> _Kept:
        self._runs.pop(kept.summary.id, None)
        self._runs[kept.summary.id] = kept
        while len(self._runs) > _MAX_RUNS:
            oldest = next((id for id, one in self._runs.items() if one.summary.status != "running"), None)
            if oldest is None:
                break
            del self._runs[oldest]
        return kept

    def _begin(self, kept: _Kept, running: Any) -> None:
        task = asyncio.create_task(self._ended(kept, running))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ended(self, kept: _Kept, running: Any) -> None:
        """Wait for a run and note how it ended."""
        status: RunStatus = "finished"
        error = ""
        try:
            result = await running
            journal = result.journal
            if result.limit is not None:
                status, error = "failed", str(result.limit)
        except asyncio.CancelledError as stopped:
            status, journal = "cancelled", getattr(stopped, "journal", None)
        except Paused as paused:
            status, journal, kept.waiting = "waiting", paused.journal, paused.calls
        except Exception as failure:
            status, journal, error = "failed", getattr(failure, "journal", None), _words(failure)
        kept.journal = journal if journal is not None else kept.journal
        kept.error, kept.summary = error, replace(kept.summary, status=status)


def _by_name(what: str, named: list[tuple[str, Named]]) -> dict[str, Named]:
    found = dict(named)
    if len(found) < len(named):
        names = [name for name, _ in named]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise AgentDefinitionError(
            f"inspector: more than one {what} is called {', '.join(map(repr, twice))}",
            name=what,
            value=", ".join(twice),
        )
    return found


def _status(
    journal: Journal, agent: Agent[Any, Any] | None, error: BaseException | str | None
) -> tuple[RunStatus, tuple[ToolCall, ...]]:
    if isinstance(error, Paused):
        return "waiting", error.calls
    if error is not None:
        return "failed", ()
    messages = journal.messages
    if messages and messages[-1].role == "assistant" and not messages[-1].tool_calls:
        return "finished", ()
    waiting = tuple([replace(call, id=id) for id, call in waiting_calls(journal).items()])
    if agent is None:
        return "unfinished", ()
    asked = tuple([call for call in waiting if "/" in call.id or _asks(agent, call.name)])
    return ("waiting", asked) if asked else ("unfinished", ())


def _asks(agent: Agent[Any, Any], tool: str) -> bool:
    return tool in agent.tools and agent.tools[tool].policy.approval != "never"


def _words(error: BaseException | str) -> str:
    return error if isinstance(error, str) else f"{type(error).__name__}: {error}"
