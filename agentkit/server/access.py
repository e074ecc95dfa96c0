"""Bearer tokens of a server, hashed in an access file, with their tenants and permissions."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agentkit.agent_files.yaml_lines import Place, Problem, YamlFile, listed, read_yaml
from agentkit.errors import AgentDefinitionError
from agentkit.server.client_names import NAME_CHARACTERS, NAME_PATTERN, checked_name
from agentkit.server.server_errors import AccessDenied, AccessFileError, Unauthenticated
from agentkit_prompts.errors import check_types
from agentkit_prompts.hints import with_option_hints
from agentkit_prompts.system.file_locks import only_writer
from agentkit_prompts.system.flushed_files import whole_file
from agentkit_prompts.system.regular_files import read_regular_text

Permission: TypeAlias = Literal["run", "read", "approve", "play", "metrics"]
"""`run` agents and change sessions; `read` runs, sessions and journals; `approve` tool calls; `play`: send changed
prompts of the inspector to models; read the `metrics`, and tracebacks of tools."""
ALL_PERMISSIONS: frozenset[Permission] = frozenset(get_args(Permission))
_log = logging.getLogger("agentkit.server")
_PREFIX = "ak_"
_CHECK_SECONDS = 1.0
"""Minimum seconds between two checks of the file for changes."""
_MAX_TOKEN = 512
"""Maximum characters of a token."""


def _matching(pattern: re.Pattern[str], description: str) -> AfterValidator:
    """Return a validator of a text. Its message is the description, because a pattern is hard to read."""

    def check(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise ValueError(f"expected {description}")
        return text

    return AfterValidator(check)


_Name = Annotated[
    str,
    _matching(
        re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}"),
        "1 to 128 characters of A-Z a-z 0-9 . _ @ - with a letter or a digit at the start",
    ),
]
_User = Annotated[str, _matching(re.compile(NAME_PATTERN), NAME_CHARACTERS)]
_Hash = Annotated[str, _matching(re.compile(r"[0-9a-f]{64}"), "64 hex digits")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class TenantPart(_Part):
    """Limits of a tenant."""

    requests_per_minute: int | None = Field(default=None, ge=1)
    concurrent: int | None = Field(default=None, ge=1)
    tokens_per_day: int | None = Field(default=None, ge=1)
    money_per_day: float | None = Field(default=None, gt=0)


class TokenPart(_Part):
    """A token: its hash, owner, agents and permissions."""

    name: _Name
    sha256: _Hash = Field(repr=False)
    tenant: _Name
    user: _User | None = None
    agents: list[_Name] | None = None
    scopes: list[Permission] = Field(min_length=1)


class _AccessFile(_Part):
    tenants: dict[_Name, TenantPart] = {}
    tokens: list[TokenPart] = []


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    tenant: str
    user: str = ""
    """The user that the token is bound to; empty if requests may name any user of the tenant."""
    name: str = ""
    """Name of the token."""
    permissions: frozenset[Permission] = ALL_PERMISSIONS
    agents: frozenset[str] | None = None
    """Names of the permitted agents; None for all."""
    allowed: TenantPart = field(default_factory=TenantPart)

    @property
    def is_operator(self) -> bool:
        """True if the caller operates the server: only operators read tracebacks, which contain names of files."""
        return "metrics" in self.permissions

    def check(self, permission: Permission) -> None:
        """Check a permission of the token.

        Raises:
            AccessDenied: The token does not have this scope.
        """
        if permission not in self.permissions:
            raise AccessDenied(
                f"the token {self.name!r} does not have the required scope {permission!r}", code="missing_scope"
            )

    def as_user(self, named: str | None) -> str:
        """Return the user of a request.

        Raises:
            Unprocessable: The name of the user is invalid; see `checked_name`.
            AccessDenied: The request names a user, and the token is bound to another user.
        """
        if named is not None:
            checked_name(named, "user")
        if self.user and named not in (None, self.user):
            raise AccessDenied(
                f"the token {self.name!r} is bound to the user {self.user!r}: omit `user`, or use another token",
                param="user",
                code="wrong_user",
            )
        return named or self.user


class Access:
    """The tokens of a server.

    The file is read again when it changes, so that a removed token stops working within a second, also if the changed
    file is invalid: then the tokens that it still contains keep their previous rights, and `problem` has the reason,
    which is also logged.

    Args:
        path: The access file, which `add_token` and the command `agentkit token` write; None to accept requests
            without a token.
        tenant: The tenant of requests without a token.

    Raises:
        AccessFileError: The file is invalid or cannot be read.
    """

    @with_option_hints
    def __init__(self, path: Path | str | None = None, *, tenant: str = "local") -> None:
        check_types(
            AgentDefinitionError,
            "Access",
            path=(path, (Path, str, NoneType), "the path of a file, or None"),
            tenant=(tenant, str, "the name of a tenant"),
        )
        if path is not None:
            path = Path(path)
        self.path = path
        self.problem: str | None = None
        """Reason why the current file is not in use; None if it is."""
        self.tenant = tenant
        self._default_caller = Caller(tenant)
        self._callers: Mapping[str, Caller] = {}
        self._stamp: tuple[int, int, int] | None = None
        self._checked_at = time.monotonic()
        self._lock = threading.Lock()
        if path is not None:
            self._stamp = _stamp(path)
            self._callers = _callers(path)

    @property
    def is_open(self) -> bool:
        """True if requests need no token."""
        return self.path is None

    @property
    def callers(self) -> tuple[Caller, ...]:
        """The senders that can use the server: the owner of each token, or the sender of requests without tokens."""
        if self.path is None:
            return (self._default_caller,)
        return tuple(self._callers.values())

    def caller(self, header: str | None) -> Caller:
        """Return the sender of a request by its `Authorization` header.

        Raises:
            Unauthenticated: The token is missing, malformed or unknown.
        """
        if self.path is None:
            return self._default_caller
        self.refresh()
        if header is None:
            raise Unauthenticated("missing token: send `Authorization: Bearer TOKEN`", code="missing_token")
        kind, _, token = header.partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            raise Unauthenticated("expected `Authorization: Bearer TOKEN`", code="invalid_token")
        # The lookup compares hashes, so its time does not reveal a prefix of a valid token.
        caller = self._callers.get(token_hash(token))
        if caller is None:
            raise Unauthenticated("unknown token", code="invalid_token")
        return caller

    def refresh(self) -> None:
        """Read the file again if it has changed; at most once per second."""
        now = time.monotonic()
        # Requests do not wait for a reload in another thread: they use the previous tokens.
        if self.path is None or now - self._checked_at < _CHECK_SECONDS or not self._lock.acquire(blocking=False):
            return
        try:
            self._checked_at = now
            self._reload(self.path)
        finally:
            self._lock.release()

    def _reload(self, path: Path) -> None:
        stamp, problem = None, ""
        try:
            stamp = _stamp(path)
        except AccessFileError as error:
            problem = str(error)
        if stamp == self._stamp:
            return
        # Set before the file is read: an invalid file is read once, and not again with each request.
        self._stamp = stamp
        if stamp is not None:
            try:
                self._callers, self.problem = _callers(path), None
            except AccessFileError as error:
                problem = str(error)
            else:
                return
        self.problem = problem
        removed = self._remove_missing(path)
        _log.warning(
            "the access file is invalid: %s; number of removed tokens, which are refused: %d", problem, removed
        )

    def _remove_missing(self, path: Path) -> int:
        """Remove tokens whose hash is not in an invalid file, and return their number; none without a readable file.

        The edit that makes the file invalid can also remove a token, which must stop working at once.
        """
        try:
            text = read_regular_text(path)
        except (OSError, ValueError):
            return 0
        written = re.sub("#.*", "", text)
        callers = {hash: caller for hash, caller in self._callers.items() if hash in written}
        removed = len(self._callers) - len(callers)
        self._callers = callers
        return removed


def token_hash(token: str) -> str:
    """Return the hash of a token as the file contains it."""
    # Tokens are random and long, so the hash needs no salt.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def add_token(
    path: Path | str,
    name: str,
    tenant: str,
    *,
    scopes: tuple[Permission, ...] = ("run", "read"),
    user: str | None = None,
) -> str:
    """Add a new token to an access file, create the file if it is missing, and return the token.

    The file contains only the hash of the token.

    Raises:
        AccessFileError: The file is invalid or cannot be written, or has a token with this name.
        AgentDefinitionError: An argument has the wrong type.
    """
    check_types(
        AgentDefinitionError,
        "add_token",
        path=(path, (Path, str), "the path of a file"),
        name=(name, str, "the name of the token"),
        tenant=(tenant, str, "the name of a tenant"),
        scopes=(scopes, tuple, "a tuple of permissions"),
        user=(user, (str, NoneType), "the name of a user, or None"),
    )
    path = Path(path)
    token = _PREFIX + secrets.token_urlsafe(32)
    fields = {"name": name, "sha256": token_hash(token), "tenant": tenant, "user": user, "scopes": [*scopes]}
    _check_token(path, fields)
    # A file that cannot be read is refused before the lock is created.
    _stored_text(path)
    try:
        # Without the lock, two processes that add tokens would both read the same file, and one token would be lost.
        with only_writer(path):
            _add_fields(path, fields)
    except AccessFileError:
        raise
    except (OSError, ValueError) as error:
        raise AccessFileError(f"{path}: cannot be written: {error}", path=str(path)) from error
    return token


def _stored_text(path: Path) -> str:
    """Return the text of an access file; empty if the file is missing."""
    try:
        if os.path.lexists(path):
            return read_regular_text(path)
    except (OSError, ValueError) as error:
        raise AccessFileError(f"{path}: cannot be read: {error}", path=str(path)) from error
    return ""


def _add_fields(path: Path, fields: Mapping[str, Any]) -> None:
    """Add the fields of a token to an access file."""
    text = _stored_text(path)
    try:
        _replace_file(path, _with_token(path, text, fields))
    except AccessFileError:
        if text:
            _check_stored(path, fields["name"])
        raise


def _check_token(path: Path, fields: Mapping[str, Any]) -> None:
    """Check a new token.

    Raises:
        AccessFileError: The token is invalid. Its problems have no line, because the file does not contain it.
    """
    problems: list[Problem] = []
    places: dict[Place, int] = {(field,): 1 for field in fields}
    YamlFile(str(path), fields, places, "").validated(TokenPart, problems)
    if problems:
        raise _file_error(path, [replace(problem, line=None) for problem in problems])


def _check_stored(path: Path, name: str) -> None:
    """Check an access file to which a token cannot be added: its problems have the lines that its owner reads.

    Raises:
        AccessFileError: The file is invalid, or has a token with this name.
    """
    if any(caller.name == name for caller in _callers(path).values()):
        raise AccessFileError(
            f"{path}: the file has a token {name!r}: delete its entry, or choose another name",
            path=str(path),
            name=name,
        )


def _with_token(path: Path, text: str, fields: Mapping[str, Any]) -> str:
    """Return the text of an access file with one more token; comments and order of the file stay."""
    rows = [f"{field}: {json.dumps(value, ensure_ascii=False)}" for field, value in fields.items() if value is not None]
    entry = "  - " + "\n    ".join(rows) + "\n"
    # Text is inserted instead of a YAML dump, which would lose the comments of the file.
    if text and not text.endswith("\n"):
        text += "\n"
    keys = [line.rstrip() for line in text.splitlines()]
    if "tokens:" not in keys:
        for number, key in enumerate(keys, 1):
            if key.startswith("tokens:"):
                message = "expected `tokens:` alone in its line, and the tokens in the lines after it: "
                raise _file_error(
                    path, [Problem(str(path), number, f"{message}write them so, then add a token", "tokens")]
                )
        keys.append("tokens:")
        text += "tokens:\n"
    lines = text.splitlines(keepends=True)
    start = keys.index("tokens:") + 1
    return "".join([*lines[:start], entry, *lines[start:]])


def _replace_file(path: Path, text: str) -> None:
    """Replace an access file. Its draft is validated first."""
    with whole_file(path) as draft:
        draft.write_text(text, "utf-8")
        _callers(draft, reported_path=path)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise AccessFileError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}", path=str(path)
        ) from error
    # The inode changes if the file is replaced within the resolution of its time.
    return status.st_mtime_ns, status.st_size, status.st_ino


def _callers(path: Path, reported_path: Path | None = None) -> Mapping[str, Caller]:
    """Return the callers of an access file by the hashes of their tokens; errors name `reported_path`."""
    problems: list[Problem] = []
    callers: dict[str, Caller] = {}
    file = read_yaml(path, problems)
    if file is not None:
        spec = file.validated(_AccessFile, problems)
        if spec is not None:
            callers = _read_callers(file, spec, problems)
    if not problems:
        return callers
    if reported_path is None:
        reported_path = path
    else:
        # The lines of a draft are not the lines of the reported file.
        problems = [replace(problem, file=str(reported_path), line=None) for problem in problems]
    raise _file_error(reported_path, problems)


def _file_error(path: Path, problems: Sequence[Problem]) -> AccessFileError:
    first = problems[0]
    return AccessFileError(listed(problems), path=str(path), line=first.line, name=first.key or None)


def _read_callers(file: YamlFile, spec: _AccessFile, problems: list[Problem]) -> dict[str, Caller]:
    callers: dict[str, Caller] = {}
    names: set[str] = set()
    for index, token in enumerate(spec.tokens):
        if token.name in names:
            problems.append(file.problem(("tokens", index, "name"), f"duplicate token name {token.name!r}"))
        if token.sha256 in callers:
            problems.append(file.problem(("tokens", index, "sha256"), "duplicate token"))
        names.add(token.name)
        agents = None
        if token.agents is not None:
            agents = frozenset(token.agents)
        callers[token.sha256] = Caller(
            token.tenant,
            token.user or "",
            token.name,
            frozenset(token.scopes),
            agents,
            spec.tenants.get(token.tenant, TenantPart()),
        )
    return callers
