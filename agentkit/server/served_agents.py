"""`ServedAgents`: the agents of a server, each as a tenant sees it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.errors import AgentDefinitionError
from agentkit.server.access import Caller
from agentkit.server.server_errors import UnknownResource
from agentkit_memory import Memory, Scope
from agentkit_prompts.names import nearest

__all__ = ["ServedAgents"]

_MAX_BOUND = 1000
"""Agents that are kept bound to a tenant."""


class ServedAgents:
    """Agents by name.

    Args:
        agents: The agents.

    Raises:
        AgentDefinitionError: No agent was given, two have one name, or their memories are not of one store.
    """

    def __init__(self, agents: Iterable[Agent[Any, Any] | LoadedAgent]) -> None:
        agents = list(agents)
        if wrong := [one for one in agents if not isinstance(one, Agent | LoadedAgent)]:
            raise AgentDefinitionError(
                f"server: expected agents, got {wrong[0]!r:.60}", name="agents", value=type(wrong[0]).__name__
            )
        loaded = [one if isinstance(one, LoadedAgent) else LoadedAgent(one, "") for one in agents]
        self._agents = {one.name: one for one in loaded}
        if not loaded:
            raise AgentDefinitionError("server: expected at least one agent", name="agents", value=0)
        if len(self._agents) < len(loaded):
            names = sorted({one.name for one in loaded if [each.name for each in loaded].count(one.name) > 1})
            raise AgentDefinitionError(
                f"server: two agents are called {', '.join(names)}: give each a unique name",
                name="agents",
                value=", ".join(names),
            )
        stores = {id(memory._store): memory for one in loaded if isinstance(memory := one.agent.memory, Memory)}
        if len(stores) > 1:
            raise AgentDefinitionError(
                "server: agents of one server share one store, so that a session may be gone on with by any of them: "
                "give them the same memory",
                name="memory",
            )
        self.memory: Memory | None = next(iter(stores.values()), None)
        """The store of the agents that have one."""
        scopes = {one.name: one.agent.memory.scope for one in loaded if isinstance(one.agent.memory, Memory)}
        if narrow := [f"{name} has that of {scope}" for name, scope in scopes.items() if scope != Scope(scope.tenant)]:
            raise AgentDefinitionError(
                f"server: {', '.join(narrow)}: each request says whose memory is read, so give agents the memory of a "
                "whole tenant",
                name="memory",
                value=", ".join(narrow),
            )
        self.tenants: frozenset[str] = frozenset([scope.tenant for scope in scopes.values()])
        """The tenants whose memory the agents were given."""
        self._bound: OrderedDict[tuple[str, str], Agent[Any, Any]] = OrderedDict()

    def __iter__(self) -> Iterator[LoadedAgent]:
        return iter(self._agents.values())

    def replace(self, loaded: LoadedAgent) -> LoadedAgent:
        """Take an agent in the place of the one of its name, for what begins from now on; return the one before.

        Raises:
            AgentDefinitionError: No agent has that name, or its memory is of another store.
        """
        before = self._agents.get(loaded.name)
        if before is None:
            raise AgentDefinitionError(
                f"the server has no agent {loaded.name!r}: start it anew to serve another one", name=loaded.name
            )
        if before.memory is not loaded.memory:
            raise AgentDefinitionError("the memory is another one: start the server anew to change it", name="memory")
        self._agents[loaded.name] = loaded
        for key in [key for key in self._bound if key[0] == loaded.name]:
            del self._bound[key]
        return before

    def names(self, caller: Caller) -> list[str]:
        """Return the names of the agents that a caller may use."""
        return [name for name in self._agents if caller.agents is None or name in caller.agents]

    def get(self, name: str, caller: Caller) -> LoadedAgent:
        """Return an agent, as it was given.

        Raises:
            UnknownResource: The caller may use no agent of that name.
        """
        names = self.names(caller)
        if name not in names:
            raise UnknownResource(
                f"there is no agent {name!r:.80}{nearest(name[:80], names)}", param="model", code="model_not_found"
            )
        return self._agents[name]

    def of_tenant(self, name: str, tenant: str) -> Agent[Any, Any]:
        """Return an agent that reads the memory of a tenant."""
        agent = self._agents[name].agent
        memory = agent.memory
        if not isinstance(memory, Memory) or memory.scope == Scope(tenant):
            return agent
        bound = self._bound.get((name, tenant))
        if bound is None:
            bound = self._bound[name, tenant] = agent.with_changes(memory=memory.within(Scope(tenant)))
            if len(self._bound) > _MAX_BOUND:
                self._bound.popitem(last=False)
        else:
            self._bound.move_to_end((name, tenant))
        return bound

    @staticmethod
    def scope(agent: Agent[Any, Any], tenant: str, user: str) -> Scope | None:
        """Return whose memory a run without a session reads; None where the memory of the agent has no scopes."""
        return Scope(tenant, user=user) if isinstance(agent.memory, Memory) else None
