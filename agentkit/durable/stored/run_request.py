"""What a run is started with, and what is stored of that: enough for any worker to begin it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from agentkit.runs.run_errors import DurableError

__all__ = ["PRIORITY", "RunRequest", "SessionName", "check_name"]

_FORMAT = 1
PRIORITY = 100
"""That of a run that was given none."""
_MAX_NAME = 255
_SAME = ("agent", "session", "tenant", "user")
"""What a run keeps that is started again with the same id."""


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


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Data that a worker needs to execute a run, in addition to its journal, as JSON data."""

    agent: str
    version: str
    session: SessionName | None = None
    tenant: str = ""
    is_mapped: bool = False
    """Whether it is one of many, see `Agent.map`."""
    user: str = ""
    """Whose it is within the tenant."""
    priority: int = PRIORITY
    schedule: str | None = None
    """Name of the schedule that starts it."""
    format: int = _FORMAT

    def data(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return asdict(self)

    @classmethod
    def of_data(cls, data: Any) -> RunRequest:
        """Read what `data` wrote.

        Raises:
            DurableError: It is of a newer agentkit, or something else.
        """
        version = data.get("format") if isinstance(data, Mapping) else None
        if isinstance(version, int) and version > _FORMAT:
            raise DurableError(
                f"the run was started by a newer agentkit: it has format {version}, this one reads up to {_FORMAT}",
                name="format",
                value=version,
            )
        try:
            session = data["session"]
            if session is not None:
                scope = session["scope"]
                session = SessionName(session["id"], None if scope is None else tuple(scope), session["branch"])
            return cls(**{**data, "session": session})
        except (KeyError, TypeError, AttributeError) as error:
            raise DurableError(
                f"what was stored of the run is no run of agentkit: {type(error).__name__}: {error}", name="request"
            ) from error

    @classmethod
    def loads(cls, text: str | None) -> RunRequest:
        """Read the JSON that `dumps` wrote.

        Raises:
            DurableError: It is of a newer agentkit, or something else.
        """
        try:
            data = json.loads(text or "")
        except (ValueError, RecursionError) as error:
            raise DurableError(f"what was stored of the run is no run of agentkit: {error}", name="request") from error
        return cls.of_data(data)

    def dumps(self) -> str:
        """Return it as JSON."""
        return json.dumps(self.data())

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
        """Return in what another request with the same id is another one: `agent`, `session`, `tenant` or `user`."""
        return next((name for name in _SAME if getattr(self, name) != getattr(other, name)), None)


def check_name(what: str, name: object, problems: list[str]) -> None:
    """Add what is wrong with a name that goes into the database."""
    if not isinstance(name, str) or not name:
        problems.append(f"{what}: expected a name, got {name!r:.40}")
    elif len(name) > _MAX_NAME:
        problems.append(f"{what}: {len(name):,} characters; at most {_MAX_NAME} can be stored")
    elif not name.isprintable():
        problems.append(f"{what}={name!r:.60}: it has characters that cannot be printed")
