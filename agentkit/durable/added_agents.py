"""Registry of the agents of durable runs, by name and version."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from agentkit.durable.stored.run_request import RunRequest, SessionName
from agentkit.errors import AgentDefinitionError
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.deps_source import DepsSource
from agentkit.run.parts.session import SessionProtocol
from agentkit.runs.run_errors import DurableError
from agentkit_prompts.names import nearest

OpenSession: TypeAlias = Callable[[SessionName], SessionProtocol]
"""Opens the session with a name."""


class DurableAgent(Protocol):
    """The parts of an agent that durable runs use."""

    runs: Any

    @property
    def name(self) -> str: ...
    @property
    def definition(self) -> AgentDefinition[Any]: ...
    @property
    def resume(self) -> Callable[..., Any]: ...


@dataclass(frozen=True, slots=True)
class AddedAgent:
    """Registration of an agent, which workers find by name and version."""

    agent: DurableAgent
    version: str
    deps: DepsSource | None
    sessions: OpenSession | None
    approval_timeout: float | None

    @property
    def key(self) -> tuple[str, str]:
        return self.agent.name, self.version

    @property
    def queue(self) -> str:
        """Name of the queue of the runs of this agent and version."""
        return f"{self.agent.name}@{self.version}"

    def session(self, name: SessionName) -> SessionProtocol:
        """Open a session by name.

        Raises:
            AgentDefinitionError: The agent has neither `sessions` nor a memory with sessions.
        """
        if self.sessions is not None:
            return self.sessions(name)
        memory: Any = self.agent.definition.memory
        within, base = getattr(memory, "within", None), getattr(memory, "scope", None)
        if within is None or base is None:
            raise AgentDefinitionError(
                f"agent {self.agent.name!r}: a worker cannot open session {name.id!r}: pass a function, "
                "runs.add(agent, sessions=lambda name: memory.session(name.id))",
                name="session",
                value=name.id,
            )
        scoped = memory
        if name.scope is not None:
            scoped = within(type(base)(*name.scope))
        return cast(SessionProtocol, scoped.session(name.id, branch=name.branch or "main"))


class AddedAgents:
    """The registered agents of one process. Thread-safe."""

    def __init__(self) -> None:
        self._added: dict[tuple[str, str], AddedAgent] = {}
        self._lock = threading.Lock()

    def add(self, added: AddedAgent) -> None:
        """Add an agent, or replace its registration.

        Raises:
            AgentDefinitionError: Another agent has this name and version.
        """
        with self._lock:
            if added.key in self._added and self._added[added.key].agent is not added.agent:
                raise AgentDefinitionError(
                    f"runs.add: another agent {added.agent.name!r} has version {added.version!r}: change the name= or "
                    "version= of one agent",
                    name="version",
                    value=added.version,
                )
            self._added[added.key] = added

    @property
    def all(self) -> tuple[AddedAgent, ...]:
        """All agents, in the order of registration."""
        return tuple(self._added.values())

    def latest(self, agent: DurableAgent | str) -> AddedAgent:
        """Return the registration of an agent, or the latest registration with a name.

        Raises:
            DurableError: The agent was not added.
        """
        matches = [added for added in self.all if added.agent is agent or added.agent.name == agent]
        if matches:
            return matches[-1]
        name = agent
        if not isinstance(name, str):
            name = name.name
        raise self._unknown("start: ", name)

    def find(self, request: RunRequest) -> AddedAgent | None:
        """Return the agent of a run, or None if it was not added."""
        return self._added.get((request.agent, request.version))

    def of(self, request: RunRequest) -> AddedAgent:
        """Return the agent of a run.

        Raises:
            DurableError: The agent was not added, or only with other versions.
        """
        match = self.find(request)
        if match is not None:
            return match
        versions = [added.version for added in self.all if added.agent.name == request.agent]
        if versions:
            raise DurableError(
                f"the run started with version {request.version!r} of agent {request.agent!r}; added versions: "
                f"{', '.join(map(repr, versions))}: add the version of the run too, or cancel the run",
                name="version",
                value=request.version,
            )
        raise self._unknown("", request.agent)

    def _unknown(self, action: str, name: str) -> DurableError:
        names = sorted({added.agent.name for added in self.all})
        return DurableError(
            f"{action}unknown agent {name!r}{nearest(name, names)}; add it with runs.add(agent)",
            name="agent",
            value=name,
        )
