"""The agents that durable runs are found to be of, by their names and versions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from agentkit.durable.stored.run_request import RunRequest, SessionName
from agentkit.errors import AgentDefinitionError
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.session import SessionProtocol
from agentkit.runs.run_errors import DurableError
from agentkit_prompts.names import nearest

__all__ = ["AddedAgent", "AddedAgents", "DurableAgent", "OpenSession"]

OpenSession: TypeAlias = Callable[[SessionName], SessionProtocol]


class DurableAgent(Protocol):
    """What is needed of an agent."""

    runs: Any

    @property
    def name(self) -> str: ...
    @property
    def definition(self) -> AgentDefinition[Any]: ...
    @property
    def resume(self) -> Callable[..., Any]: ...


@dataclass(frozen=True, slots=True)
class AddedAgent:
    """An agent that workers find by its name and version."""

    agent: DurableAgent
    version: str
    deps: Any
    sessions: OpenSession | None
    approval_timeout: float | None

    @property
    def key(self) -> tuple[str, str]:
        return self.agent.name, self.version

    @property
    def queue(self) -> str:
        """The queue of its runs."""
        return f"{self.agent.name}@{self.version}"

    def session(self, name: SessionName) -> SessionProtocol:
        """Open a conversation.

        Raises:
            AgentDefinitionError: Nobody says how.
        """
        if self.sessions is not None:
            return self.sessions(name)
        memory: Any = self.agent.definition.memory
        within, base = getattr(memory, "within", None), getattr(memory, "scope", None)
        if within is None or base is None:
            raise AgentDefinitionError(
                f"agent {self.agent.name!r}: nobody says how another process opens session {name.id!r}: "
                "runs.add(agent, sessions=lambda name: memory.session(name.id))",
                name="session",
                value=name.id,
            )
        scoped = memory if name.scope is None else within(type(base)(*name.scope))
        return cast(SessionProtocol, scoped.session(name.id, branch=name.branch or "main"))


class AddedAgents:
    """Those of one process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._added: dict[tuple[str, str], AddedAgent] = {}
        self._lock = threading.Lock()

    def add(self, added: AddedAgent) -> None:
        """Add one, or replace it.

        Raises:
            AgentDefinitionError: There is another one of this name and version.
        """
        with self._lock:
            if added.key in self._added and self._added[added.key].agent is not added.agent:
                raise AgentDefinitionError(
                    f"runs.add: there is an agent {added.agent.name!r} of version {added.version!r}: give one of them "
                    "another name=, or version=",
                    name="version",
                    value=added.version,
                )
            self._added[added.key] = added

    @property
    def all(self) -> tuple[AddedAgent, ...]:
        """All of them, in the order in which they were added."""
        return tuple(self._added.values())

    def latest(self, agent: DurableAgent | str) -> AddedAgent:
        """Return an agent as it was added; of several of a name the last one.

        Raises:
            DurableError: It was not added.
        """
        fitting = [one for one in self.all if one.agent is agent or one.agent.name == agent]
        if not fitting:
            raise self._unknown("start: ", agent if isinstance(agent, str) else agent.name)
        return fitting[-1]

    def find(self, request: RunRequest) -> AddedAgent | None:
        """Return the agent of a run, where it was added."""
        return self._added.get((request.agent, request.version))

    def of(self, request: RunRequest) -> AddedAgent:
        """Return the agent of a run.

        Raises:
            DurableError: It was not added, or has another version.
        """
        found = self.find(request)
        if found is not None:
            return found
        versions = [one.version for one in self.all if one.agent.name == request.agent]
        if versions:
            raise DurableError(
                f"the run began with version {request.version!r} of agent {request.agent!r}; added are "
                f"{', '.join(map(repr, versions))}: add that version too, or cancel the run",
                name="version",
                value=request.version,
            )
        raise self._unknown("", request.agent)

    def _unknown(self, doing: str, name: str) -> DurableError:
        known = sorted({one.agent.name for one in self.all})
        return DurableError(
            f"{doing}there is no agent {name!r}{nearest(name, known)}; runs.add(agent) adds one",
            name="agent",
            value=name,
        )
