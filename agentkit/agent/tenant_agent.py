"""`TenantAgent`: an agent whose runs read the memory of their tenants."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkit.agent.agent import Agent

if TYPE_CHECKING:
    from agentkit.run.engine.run_result import RunResult
    from agentkit.run.journal.journal import Journal
    from agentkit.run.parts.agent_definition import AgentDefinition

_MAX_BOUND = 1000
"""Maximum number of cached agents that are bound to a tenant."""


def agent_of_tenant(agent: Agent[Any, Any], tenant: str) -> Agent[Any, Any]:
    """Return an agent with the memory of a tenant in the same store. A custom memory is not changed."""
    from agentkit_memory import Memory, Scope

    memory = agent.memory
    if not isinstance(memory, Memory) or memory.scope.tenant == tenant:
        return agent
    return agent.with_changes(memory=memory.within(Scope(tenant)))


class _BoundAgent(NamedTuple):
    """An agent that is bound to a tenant."""

    original: Agent[Any, Any]
    agent: Agent[Any, Any]


class BoundAgents:
    """Agents that are bound to a tenant, by the name of the agent and the tenant. Any thread can read them."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[str, str], _BoundAgent] = OrderedDict()
        """The bound agents; the least recently used agent is first."""
        self._lock = Lock()

    def get(self, agent: Agent[Any, Any], tenant: str) -> Agent[Any, Any]:
        """Return an agent with the memory of a tenant; see `agent_of_tenant`."""
        key = (agent.name, tenant)
        with self._lock:
            row = self._rows.get(key)
            if row is not None and row.original is agent:
                self._rows.move_to_end(key)
                return row.agent
        # Without the lock, because other tenants need not wait for the new agent.
        bound = agent_of_tenant(agent, tenant)
        if bound is agent:
            return agent
        with self._lock:
            self._rows[key] = _BoundAgent(agent, bound)
            self._rows.move_to_end(key)
            if len(self._rows) > _MAX_BOUND:
                self._rows.popitem(last=False)
        return bound


class TenantAgent:
    """An agent for workers: each run reads the memory of its tenant.

    Args:
        name: The name of the agent.
        current: Returns the agent, which can be replaced while the worker runs.
        bound: Cache of the bound agents.
    """

    def __init__(self, name: str, current: Callable[[], Agent[Any, Any]], bound: BoundAgents) -> None:
        self.name = name
        self.runs: Any = None
        self._current = current
        self._bound = bound

    @property
    def definition(self) -> AgentDefinition[Any]:
        return self._current().definition

    def resume(self, journal: Journal, /, **options: Any) -> Coroutine[Any, Any, RunResult[Any]]:
        """Resume a run; see `Agent.resume`."""
        agent = self._current()
        if journal.scope:
            agent = self._bound.get(agent, journal.scope[0])
        return agent.resume(journal, **options)
