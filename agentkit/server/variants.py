"""`Variant`: another version of a served agent, for a share of the sessions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.agent_files.loaded_agent import LoadedAgent


@dataclass(frozen=True, slots=True)
class Variant:
    """Another version of a served agent.

    The choice is the same in each run of a session; without a session, in each run of a user; without both, it is drawn
    for each run. It depends only on the names, so that all servers choose the same version.
    """

    agent: Agent[Any, Any] | LoadedAgent
    """An agent with the name of a served agent."""
    share: float
    """Share of the sessions, above 0 and below 1."""

    @property
    def loaded(self) -> LoadedAgent:
        """The agent, as a `LoadedAgent`."""
        if isinstance(self.agent, LoadedAgent):
            return self.agent
        return LoadedAgent(self.agent, "")


def variant_number(agent: str, key: str, shares: Sequence[float]) -> int:
    """Return the number of the variant of a session, from 1; 0 for the served agent.

    Args:
        agent: Name of the agent.
        key: Name of the session.
        shares: Shares of the variants.
    """
    digest = hashlib.blake2b(f"{agent}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    point = int.from_bytes(digest) / 2**64
    for number, _ in enumerate(shares, 1):
        if point < math.fsum(shares[:number]):
            return number
    return 0


def variant_problems(variant: object, agents: Sequence[LoadedAgent]) -> list[str]:
    """Return the reasons why a variant cannot be served next to agents."""
    if not isinstance(variant, Variant) or not isinstance(variant.agent, Agent | LoadedAgent):
        return [f"expected Variant(agent, share), got {variant!r:.60}"]
    problems: list[str] = []
    name, share = variant.loaded.name, variant.share
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share < 1:
        problems.append(f"{name}: share: expected a number above 0 and below 1, got {share!r:.40}")
    served = next((agent for agent in agents if agent.name == name), None)
    if served is None:
        names = ", ".join([agent.name for agent in agents])
        problems.append(f"{name}: no served agent has this name; names: {names}")
    # Clients send the kwargs before a version is chosen.
    elif served.agent.additional_kwargs_schema != variant.loaded.agent.additional_kwargs_schema:
        problems.append(f"{name}: the variant requires other kwargs than the served agent: use the same kwargs")
    return problems
