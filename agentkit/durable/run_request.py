"""What is stored of a run when it is started: enough for any worker to begin it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias, cast

from agentkit.chain import Chain
from agentkit.durable.durable_errors import DurableError
from agentkit.errors import AgentDefinitionError
from agentkit.session import Session
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_tools.tool import Tool

__all__ = ["AddedAgent", "DurableAgent", "OpenSession", "RunRequest", "SessionName", "check_name", "version_of"]

_FORMAT = 1
_MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class SessionName:
    """Which conversation a run goes on with."""

    id: str
    scope: tuple[str, ...] | None = None
    """The names of its scope; None where sessions have none."""
    branch: str | None = None
    """Which fork of it; None where sessions have none."""

    @property
    def key(self) -> str:
        """The same for every session on the conversation: runs of one key are done one after the other."""
        return json.dumps([self.id, self.scope, self.branch])


OpenSession: TypeAlias = Callable[[SessionName], Session]


class DurableAgent(Protocol):
    """What is needed of an agent."""

    name: str
    chain: Chain[Any]
    tools: Mapping[str, Tool]
    specs: tuple[ToolSpec, ...]
    runs: Any

    @property
    def memory(self) -> Any: ...
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

    def session(self, name: SessionName) -> Session:
        """Open a conversation.

        Raises:
            AgentDefinitionError: Nobody says how.
        """
        if self.sessions is not None:
            return self.sessions(name)
        memory = self.agent.memory
        within, base = getattr(memory, "within", None), getattr(memory, "scope", None)
        if within is None or base is None:
            raise AgentDefinitionError(
                f"agent {self.agent.name!r}: nobody says how another process opens session {name.id!r}: "
                "runs.add(agent, sessions=lambda name: memory.session(name.id))"
            )
        scoped = memory if name.scope is None else within(type(base)(*name.scope))
        return cast(Session, scoped.session(name.id, branch=name.branch or "main"))


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run that was started, as JSON data."""

    agent: str
    version: str
    head: str
    """The first line of its journal: what it was asked."""
    session: SessionName | None = None
    tenant: str = ""
    is_mapped: bool = False
    """Whether it is one of many, see `Agent.map`."""
    user: str = ""
    """Whose it is within the tenant."""

    def data(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def of_data(cls, data: Any) -> RunRequest:
        """Read what `data` wrote.

        Raises:
            DurableError: It is of a newer agentkit, or something else.
        """
        version = data.get("format") if isinstance(data, Mapping) else None
        if isinstance(version, int) and version > _FORMAT:
            raise DurableError(
                f"the run was started by a newer agentkit: it has format {version}, this one reads up to {_FORMAT}"
            )
        try:
            session = data["session"]
            return cls(
                data["agent"],
                data["version"],
                data["head"],
                None
                if session is None
                else SessionName(
                    session["id"], None if session["scope"] is None else tuple(session["scope"]), session["branch"]
                ),
                data["tenant"],
                data["is_mapped"],
                data.get("user", ""),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise DurableError(
                f"what was stored of the run is no run of agentkit: {type(error).__name__}: {error}"
            ) from error

    @property
    def queue(self) -> str:
        """The queue it waits in."""
        queue = f"{self.agent}@{self.version}"
        if self.is_mapped:
            return f"{queue}/map"
        if self.session is not None:
            return f"{queue}/session"
        return f"{queue}/tenant" if self.tenant else queue

    @property
    def partition(self) -> str | None:
        """What shares a limit with it in that queue: a session has one run at a time, a tenant its own limit."""
        if self.session is not None:
            return self.session.key
        return self.tenant or ("-" if self.is_mapped else None)

    def differs(self, other: RunRequest) -> str | None:
        """Return in what another request with the same id is another one: `agent`, `session` or `input`."""
        for name in ("agent", "session", "tenant", "user"):
            if getattr(self, name) != getattr(other, name):
                return name
        return None if self.head == other.head else "input"


def version_of(agent: DurableAgent) -> str:
    """Return a version that changes with what the model is sent: prompts, tools, output type, model and settings."""
    chain = agent.chain
    parts = [
        repr(chain.layers),
        repr([_plain(spec) for spec in agent.specs]),
        repr(chain.output_schema),
        type(chain.model).__name__,
        chain.model.name,
        repr(getattr(chain.model, "settings", None)),
    ]
    return hashlib.blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=6).hexdigest()


def _plain(spec: ToolSpec) -> tuple[object, ...]:
    return spec.name, spec.description, json.dumps(dict(spec.parameters), sort_keys=True, default=repr)


def check_name(what: str, name: object, problems: list[str]) -> None:
    """Add what is wrong with a name that goes into the database."""
    if not isinstance(name, str) or not name:
        problems.append(f"{what}: expected a name, got {name!r:.40}")
    elif len(name) > _MAX_NAME:
        problems.append(f"{what}: {len(name):,} characters; at most {_MAX_NAME} can be stored")
    elif not name.isprintable():
        problems.append(f"{what}={name!r:.60}: it has characters that cannot be printed")
