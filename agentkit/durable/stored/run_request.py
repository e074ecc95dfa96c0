"""`RunRequest`: stored data with which any worker can start a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from agentkit.runs.run_errors import DurableError

if TYPE_CHECKING:
    from agentkit.run.parts.session import SessionProtocol

_FORMAT = 1
PRIORITY = 100
"""Default priority of a run."""
_MAX_NAME = 255
"""Maximum characters of a name."""
_IDENTITY = ("agent", "session", "tenant", "user")
"""Fields that must be equal if a run is started again with the same id."""


@dataclass(frozen=True, slots=True)
class SessionName:
    """Name of the conversation of a run."""

    id: str
    scope: tuple[str, ...] | None = None
    """Names of the scope; None if sessions have no scope."""
    branch: str | None = None
    """Branch of the conversation; None if sessions have no branches."""

    @classmethod
    def of(cls, session: SessionProtocol) -> SessionName:
        """Return the name of a session."""
        scope = getattr(session, "scope", None)
        if scope is not None:
            scope = tuple(scope.names)
        return cls(session.id, scope, getattr(session, "branch", None))

    @property
    def key(self) -> str:
        """Key of the conversation: runs with the same key are executed in order."""
        return json.dumps([self.id, self.scope, self.branch])


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Data that a worker needs to execute a run, in addition to its journal, as JSON data."""

    agent: str
    version: str
    session: SessionName | None = None
    tenant: str = ""
    is_mapped: bool = False
    """True if the run is part of a map; see `Agent.map`."""
    user: str = ""
    """User of the tenant."""
    priority: int = PRIORITY
    schedule: str | None = None
    """Name of the schedule that starts the run; None without a schedule."""
    format: int = _FORMAT

    def data(self) -> dict[str, Any]:
        """Return the request as JSON data."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Any) -> RunRequest:
        """Read the JSON data of a request.

        Raises:
            DurableError: The data is from a newer agentkit, or is not a request.
        """
        version = None
        if isinstance(data, Mapping):
            version = data.get("format")
        if isinstance(version, int) and version > _FORMAT:
            raise DurableError(
                f"the run was started by a newer agentkit: format {version}; supported up to format {_FORMAT}",
                name="format",
                value=version,
            )
        try:
            session = data["session"]
            if session is not None:
                scope = session["scope"]
                if scope is not None:
                    scope = tuple(scope)
                session = SessionName(session["id"], scope, session["branch"])
            return cls(**{**data, "session": session})
        except (KeyError, TypeError, AttributeError) as error:
            raise DurableError(
                f"the stored request of the run is corrupt: {type(error).__name__}: {error}", name="request"
            ) from error

    @classmethod
    def loads(cls, text: str | None) -> RunRequest:
        """Read the JSON text of a request.

        Raises:
            DurableError: The text is from a newer agentkit, or is not a request.
        """
        try:
            data = json.loads(text or "")
        except (ValueError, RecursionError) as error:
            raise DurableError(f"the stored request of the run is corrupt: {error}", name="request") from error
        return cls.from_data(data)

    def dumps(self) -> str:
        """Return the request as JSON text."""
        return json.dumps(self.data())

    @property
    def queue(self) -> str:
        """Name of the queue of the run."""
        queue = f"{self.agent}@{self.version}"
        if self.is_mapped:
            return f"{queue}/map"
        if self.session is not None:
            return f"{queue}/session"
        if self.tenant:
            return f"{queue}/tenant"
        return queue

    @property
    def partition(self) -> str | None:
        """Partition of the queue, so that a session has one run at a time, and a tenant has a separate limit."""
        if self.session is not None:
            return self.session.key
        if self.tenant:
            return self.tenant
        if self.is_mapped:
            return "-"
        return None

    def differs(self, other: RunRequest) -> str | None:
        """Return the first field that differs: `agent`, `session`, `tenant` or `user`; None for an equal request."""
        return next((name for name in _IDENTITY if getattr(self, name) != getattr(other, name)), None)


def check_name(option: str, name: object, problems: list[str]) -> None:
    """Append a problem to `problems` if the database cannot store the name in an option."""
    if not isinstance(name, str) or not name:
        problems.append(f"{option}: expected a name, got {name!r:.40}")
    elif len(name) > _MAX_NAME:
        problems.append(f"{option}: {len(name):,} characters; at most {_MAX_NAME} can be stored")
    elif not name.isprintable():
        problems.append(f"{option}={name!r:.60}: it contains characters that cannot be printed")
