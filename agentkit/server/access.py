"""Who may do what: bearer tokens, hashed in a file, and the tenants they belong to."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from agentkit.agent_files.yaml_lines import Problem, listed, read_yaml
from agentkit.errors import AgentDefinitionError
from agentkit.server.server_errors import AccessDenied, AccessFileError, Unauthenticated
from agentkit_prompts.errors import check_types
from agentkit_prompts.system.private_files import private_file
from agentkit_prompts.system.regular_files import read_regular_text

__all__ = ["ALL_PERMISSIONS", "Access", "Caller", "Permission", "add_token", "token_hash"]

Permission: TypeAlias = Literal["run", "read", "approve", "metrics"]
"""`run` agents and keep sessions; `read` runs, sessions and journals; `approve` tool calls; read the `metrics`."""
ALL_PERMISSIONS: frozenset[Permission] = frozenset(get_args(Permission))
_PREFIX = "ak_"
_LOOK_SECONDS = 1.0
"""How often the file is looked at for changes."""
_MAX_TOKEN = 512
"""Longest token that is looked up, in characters."""

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class TenantPart(_Part):
    """What a tenant may use."""

    requests_per_minute: int | None = Field(default=None, ge=1)
    concurrent: int | None = Field(default=None, ge=1)
    tokens_per_day: int | None = Field(default=None, ge=1)
    money_per_day: float | None = Field(default=None, gt=0)


class TokenPart(_Part):
    """A token: its hash, whose it is, and what it may do."""

    name: _Name
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] = Field(repr=False)
    tenant: _Name
    user: _Name | None = None
    agents: list[_Name] | None = None
    scopes: list[Permission] = Field(min_length=1)


class _AccessFile(_Part):
    tenants: dict[_Name, TenantPart] = {}
    tokens: list[TokenPart] = []


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request."""

    tenant: str
    user: str = ""
    """The user that the token is bound to; empty where it may name any user of its tenant."""
    name: str = ""
    """Name of the token."""
    permissions: frozenset[Permission] = ALL_PERMISSIONS
    agents: frozenset[str] | None = None
    """The agents it may use; None for all."""
    allowed: TenantPart = field(default_factory=TenantPart)

    def check(self, permission: Permission) -> None:
        """Refuse what the token may not do.

        Raises:
            AccessDenied: It has not that scope.
        """
        if permission not in self.permissions:
            raise AccessDenied(
                f"the token {self.name!r} may not do this: it needs the scope {permission!r}", code="missing_scope"
            )

    def as_user(self, named: str | None) -> str:
        """Return the user of a request, which may name one.

        Raises:
            AccessDenied: The token is bound to another one.
        """
        if self.user and named not in (None, self.user):
            raise AccessDenied(f"the token {self.name!r} is bound to the user {self.user!r}", param="user")
        return named or self.user


class Access:
    """The tokens of a server.

    Args:
        path: The access file; None where everyone who reaches the server is the tenant `tenant`.
        tenant: That tenant.

    The file is read again when it changes, so that a token that is taken out stops working within a second. One that
    is broken then changes nothing, and is reported by `problem`.

    Raises:
        AccessFileError: The file cannot be used.
    """

    def __init__(self, path: Path | None = None, *, tenant: str = "local") -> None:
        check_types(
            AgentDefinitionError,
            "Access",
            path=(path, (Path, NoneType), "a Path, or None"),
            tenant=(tenant, str, "the name of a tenant"),
        )
        self.path = path
        self.problem: str | None = None
        """Why the file that is there now is not the one in use."""
        self.tenant = tenant
        self._anyone = Caller(tenant)
        self._callers: Mapping[str, Caller] = {}
        self._stamp: tuple[int, int, int] | None = None
        self._looked = time.monotonic()
        self._lock = threading.Lock()
        if path is not None:
            self._stamp = _stamp(path)
            self._callers = _callers(path)

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return self.path is None

    def caller(self, header: str | None) -> Caller:
        """Return who sent a request, by its `Authorization` header.

        Raises:
            Unauthenticated: There is no token, or no such token.
        """
        if self.path is None:
            return self._anyone
        self._look(self.path)
        if header is None:
            raise Unauthenticated("a token is missing: send `Authorization: Bearer TOKEN`", code="missing_token")
        kind, _, token = header.partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            raise Unauthenticated("expected `Authorization: Bearer TOKEN`", code="invalid_token")
        caller = self._callers.get(token_hash(token))  # a hash of the token: its time says nothing of those we have
        if caller is None:
            raise Unauthenticated("there is no such token", code="invalid_token")
        return caller

    def _look(self, path: Path) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS or not self._lock.acquire(blocking=False):
            return
        try:
            self._looked = now
            if (stamp := _stamp(path)) != self._stamp:
                self._stamp = stamp
                self._callers, self.problem = _callers(path), None
        except (AccessFileError, OSError) as error:
            self.problem = str(error)
        finally:
            self._lock.release()


def token_hash(token: str) -> str:
    """Return the hash of a token as the file holds it. Tokens are random, so that no salt is needed."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def add_token(
    path: Path,
    name: str,
    tenant: str,
    *,
    scopes: tuple[Permission, ...] = ("run", "read"),
    user: str | None = None,
) -> str:
    """Add a new token to an access file, made if missing, and return it: it is shown this once only.

    Raises:
        AccessFileError: The file cannot be used, or has a token of that name.
        AgentDefinitionError: An argument is of another type.
    """
    check_types(
        AgentDefinitionError,
        "add_token",
        path=(path, Path, "a Path"),
        name=(name, str, "the name of the token"),
        tenant=(tenant, str, "the name of a tenant"),
        scopes=(scopes, tuple, "a tuple of what it may do"),
        user=(user, (str, NoneType), "the name of a user, or None"),
    )
    try:
        text = read_regular_text(path) if os.path.lexists(path) else ""
    except (OSError, ValueError) as error:
        raise AccessFileError(f"{path}: cannot be read: {error}", path=str(path)) from error
    token = _PREFIX + secrets.token_urlsafe(32)
    fields = {"name": name, "sha256": token_hash(token), "tenant": tenant, "user": user, "scopes": scopes}
    shown = [f"{field}: {json.dumps(value, ensure_ascii=False)}" for field, value in fields.items() if value]
    entry = "  - " + "\n    ".join(shown) + "\n"
    if text and not text.endswith("\n"):
        text += "\n"
    if "tokens:" not in [line.rstrip() for line in text.splitlines()]:
        text += "tokens:\n"
    lines = text.splitlines(keepends=True)
    at = [line.rstrip() for line in lines].index("tokens:") + 1
    made = "".join([*lines[:at], entry, *lines[at:]])
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        private_file(fresh)
        fresh.write_text(made, "utf-8")
        _callers(fresh, shown=path)
        fresh.replace(path)
    except (OSError, ValueError) as error:
        if isinstance(error, AccessFileError):
            raise
        raise AccessFileError(f"{path}: cannot be written: {error}", path=str(path)) from error
    finally:
        with suppress(OSError, ValueError):
            fresh.unlink(missing_ok=True)
    return token


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise AccessFileError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}", path=str(path)
        ) from error
    return found.st_mtime_ns, found.st_size, found.st_ino


def _callers(path: Path, shown: Path | None = None) -> Mapping[str, Caller]:
    problems: list[Problem] = []
    file = read_yaml(path, problems)
    spec = None if file is None else file.validated(_AccessFile, problems)
    found: dict[str, Caller] = {}
    names: set[str] = set()
    for at, token in enumerate(spec.tokens if spec is not None else ()):
        assert file is not None and spec is not None
        if token.name in names:
            problems.append(file.problem(("tokens", at, "name"), f"there are two tokens {token.name!r}"))
        if token.sha256 in found:
            problems.append(file.problem(("tokens", at, "sha256"), "this token is here twice"))
        names.add(token.name)
        found[token.sha256] = Caller(
            token.tenant,
            token.user or "",
            token.name,
            frozenset(token.scopes),
            None if token.agents is None else frozenset(token.agents),
            spec.tenants.get(token.tenant, TenantPart()),
        )
    if problems:
        text = listed(problems)
        first = problems[0]
        raise AccessFileError(
            text if shown is None else text.replace(path.as_posix(), shown.as_posix()),
            path=str(path if shown is None else shown),
            line=first.line,
            name=first.key or None,
        )
    return found
