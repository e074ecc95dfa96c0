"""`ServedAgents`: the agents of a server, each bound to the memory of a tenant."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.agent.tenant_agent import BoundAgents
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.errors import AgentDefinitionError, DepsMismatch
from agentkit.run.engine.run_options import ScheduleOptions
from agentkit.run.parts.agent_tools import check_deps
from agentkit.run.parts.agent_version import AgentVersion
from agentkit.run.parts.deps_source import Deps
from agentkit.run.parts.run_scope import has_scopes
from agentkit.server.access import Caller
from agentkit.server.owner import Owner
from agentkit.server.server_errors import UnknownResource
from agentkit.server.variants import Variant, variant_number, variant_problems
from agentkit_memory import Memory, Scope
from agentkit_prompts.names import nearest


class ServedAgents:
    """Agents by name.

    Args:
        agents: The agents.
        deps: Deps of the runs of agents whose file has no `deps`; see `Deps`.
        variants: Other versions of these agents.

    Raises:
        AgentDefinitionError: The list is empty, an entry is not an agent, two agents have the same name, a variant does
            not fit its agent, memories have different stores, the scope of a memory is narrower than a tenant, or
            tools require other deps.
    """

    def __init__(
        self, agents: Iterable[Agent[Any, Any] | LoadedAgent], deps: Deps = None, variants: Sequence[Variant] = ()
    ) -> None:
        self._deps = deps
        self._agents = _by_name([self._with_deps(_loaded(agent)) for agent in agents])
        _check_variants(variants, list(self._agents.values()))
        self._variants: dict[str, list[LoadedAgent]] = {}
        """Other versions by the name of the agent."""
        self._shares: dict[str, list[float]] = {}
        for variant in variants:
            loaded = self._with_deps(variant.loaded)
            self._variants.setdefault(loaded.name, []).append(loaded)
            self._shares.setdefault(loaded.name, []).append(variant.share)
        every_version = [version for name in self._agents for version in self.versions(name)]
        _check_deps(every_version)
        memories = [
            (loaded.name, loaded.agent.memory) for loaded in every_version if isinstance(loaded.agent.memory, Memory)
        ]
        _check_memories(memories)
        self.memory: Memory | None = next((memory for _, memory in memories), None)
        """The memory of the first agent with a memory; all agents share its store."""
        self.tenants: frozenset[str] = frozenset([memory.scope.tenant for _, memory in memories])
        """The tenants of the agents' memories."""
        self.bound = [BoundAgents() for _ in range(1 + max(map(len, self._variants.values()), default=0))]
        """Cache of bound agents by the number of the version."""

    def __iter__(self) -> Iterator[LoadedAgent]:
        return iter(self._agents.values())

    def replace(self, loaded: LoadedAgent) -> LoadedAgent:
        """Replace the agent of the same name for runs that start later, and return the previous agent.

        Raises:
            AgentDefinitionError: The name is unknown, the memory differs from the memory of the previous agent, or
                tools require other deps.
        """
        previous = self._agents.get(loaded.name)
        if previous is None:
            raise AgentDefinitionError(
                f"the server has no agent {loaded.name!r}: restart the server to add an agent", name=loaded.name
            )
        if previous.memory is not loaded.memory:
            raise AgentDefinitionError("the memory was changed: restart the server to change it", name="memory")
        loaded = self._with_deps(loaded)
        _check_deps([loaded])
        self._agents[loaded.name] = loaded
        return previous

    def names(self, caller: Caller) -> list[str]:
        """Return the names of the agents that a caller may use."""
        return [name for name in self._agents if caller.agents is None or name in caller.agents]

    def get(self, name: str, caller: Caller, param: str = "model") -> LoadedAgent:
        """Return an agent with its original memory.

        Args:
            name: The name of the agent.
            caller: The sender of the request.
            param: The field of the request with the name, for errors.

        Raises:
            UnknownResource: The agent is unknown, or the caller may not use it.
        """
        names = self.names(caller)
        if name not in names:
            raise UnknownResource(
                f"unknown agent {name!r:.80}{nearest(name[:80], names)}", param=param, code="model_not_found"
            )
        return self._agents[name]

    def versions(self, name: str) -> list[LoadedAgent]:
        """Return the versions of an agent: the served agent, then its variants."""
        return [self._agents[name], *self._variants.get(name, ())]

    def shares(self, name: str) -> list[float]:
        """Return the shares of the versions of an agent, in the order of `versions`."""
        shares = self._shares.get(name, [])
        return [1 - math.fsum(shares), *shares]

    def number(self, name: str, owner: Owner, session: str | None, run_id: str, version: str = "") -> int:
        """Return the number of the version for a run, from 0; see `Variant`.

        Args:
            name: Name of the agent.
            owner: Tenant and user of the run.
            session: Name of the session of the run.
            run_id: Id of the run.
            version: Version with which the run started; empty for a new run.
        """
        if name not in self._variants:
            return 0
        if version:
            for number, loaded in enumerate(self.versions(name)):
                if loaded.agent.definition.version.id == version:
                    return number
        key = f"{owner.tenant}\0{owner.user}\0{session or ''}"
        if not session and not owner.user:
            key = run_id
        return variant_number(name, key, self._shares[name])

    def version(self, name: str, number: int) -> AgentVersion:
        """Return the versions of an agent and of its parts."""
        return self.current(name, number).definition.version

    def current(self, name: str, number: int = 0) -> Agent[Any, Any]:
        """Return a version of an agent by its number, with its original memory."""
        return self.versions(name)[number].agent

    def of_tenant(self, name: str, tenant: str, number: int = 0) -> Agent[Any, Any]:
        """Return a version of an agent by its number, with the memory of a tenant."""
        return self.bound[number].get(self.current(name, number), tenant)

    def _with_deps(self, loaded: LoadedAgent) -> LoadedAgent:
        """Return an agent with the deps of the server, if the agent has no deps."""
        if self._deps is None or loaded.agent.definition.deps is not None:
            return loaded
        try:
            return replace(loaded, agent=loaded.agent.with_deps(self._deps))
        except DepsMismatch as error:
            raise _missing_deps([f"{loaded.name}: {problem}" for problem in error.problems]) from None

    @staticmethod
    def owner(agent: Agent[Any, Any], owner: Owner, run_id: str) -> ScheduleOptions:
        """Return the options of a run without a stored session: the tenant and the user for whom the run acts.

        Args:
            agent: The agent.
            owner: The tenant and the user.
            run_id: The id of the run.
        """
        if has_scopes(agent.memory):
            return {"scope": owner.scope(run_id)}
        return {"tenant": owner.tenant, "user": owner.user}


def _loaded(agent: object) -> LoadedAgent:
    if isinstance(agent, LoadedAgent):
        return agent
    if isinstance(agent, Agent):
        return LoadedAgent(agent, "")
    raise AgentDefinitionError(f"server: expected agents, got {agent!r:.60}", name="agents", value=type(agent).__name__)


def _by_name(agents: list[LoadedAgent]) -> dict[str, LoadedAgent]:
    if not agents:
        raise AgentDefinitionError("server: expected at least one agent", name="agents", value=0)
    counts = Counter([agent.name for agent in agents])
    duplicates = ", ".join(sorted([name for name, count in counts.items() if count > 1]))
    if duplicates:
        raise AgentDefinitionError(
            f"server: several agents have the name {duplicates}: give each agent a unique name",
            name="agents",
            value=duplicates,
        )
    return {agent.name: agent for agent in agents}


def _check_deps(agents: Iterable[LoadedAgent]) -> None:
    """Refuse agents whose tools require deps that the server does not have."""
    problems: list[str] = []
    for loaded in agents:
        definition = loaded.agent.definition
        if definition.deps is not None:
            continue
        try:
            check_deps(definition.tools.tools.values(), None)
        except DepsMismatch as error:
            problems += [f"{loaded.name}: {problem}" for problem in error.problems]
    if problems:
        raise _missing_deps(problems)


def _missing_deps(problems: Sequence[str]) -> AgentDefinitionError:
    return AgentDefinitionError(
        f"server: {'; '.join(problems)}: pass Server(agents, deps=function), or write `deps: module:function` in "
        "the agent file; the function receives the RunCaller of each run and returns its deps",
        name="deps",
    )


def _check_variants(variants: Sequence[Variant], agents: Sequence[LoadedAgent]) -> None:
    """Refuse variants that do not fit the served agents."""
    problems = [problem for variant in variants for problem in variant_problems(variant, agents)]
    if not problems:
        for loaded in agents:
            total = math.fsum([variant.share for variant in variants if variant.loaded.name == loaded.name])
            if total >= 1:
                problems.append(f"{loaded.name}: the shares of its variants are {total:g}: leave a rest for the agent")
    if problems:
        raise AgentDefinitionError(f"server: variants: {'; '.join(problems)}", name="variants")


def _check_memories(memories: Sequence[tuple[str, Memory]]) -> None:
    # Any agent may continue a session of another agent, so all agents must read the same store.
    if len({id(memory._store) for _, memory in memories}) > 1:
        raise AgentDefinitionError(
            "server: all agents of a server must share one store, because any agent can continue a session: give "
            "them the same memory",
            name="memory",
        )
    scopes = {name: memory.scope for name, memory in memories}
    too_narrow = ", ".join([f"{name} has {scope}" for name, scope in scopes.items() if scope != Scope(scope.tenant)])
    if too_narrow:
        raise AgentDefinitionError(
            f"server: the memory of an agent must cover a whole tenant, because each request names its user; "
            f"{too_narrow}",
            name="memory",
            value=too_narrow,
        )
