"""`Scope`: the owner of stored items; and `SharedScope`: documents that several tenants may read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from agentkit_memory.checks import MAX_BYTES
from agentkit_memory.errors import InvalidArgument
from agentkit_prompts.errors import brief
from agentkit_prompts.options import options

NAMES = ("tenant", "user", "session", "agent")
"""The names of a scope, in order."""

LOCAL_USER = "local"
"""User of the conversations of a program that names no user."""

MAX_NAME = 255
"""Maximum characters of the name of a tenant, user, session or agent."""

SHARED = "shared:"
"""Start of the stored names of shared documents, with which no tenant may start: so that no `Scope`, and therefore no
session, fact, run or token, can belong to shared documents."""


def _stored_name(name: str) -> str:
    """Return a name that a database can store."""
    if len(name) > MAX_NAME:
        raise InvalidArgument(f"{len(name)} characters, at most {MAX_NAME} can be stored", value=len(name))
    if "\0" in name or (not name.isascii() and any("\ud800" <= char <= "\udfff" for char in name)):
        raise InvalidArgument(f"{name!r} contains NUL or an unpaired surrogate, which no database can store")
    return name


def _tenant_name(name: str) -> str:
    """Return the name of a tenant that a database can store."""
    if name.startswith(SHARED):
        raise InvalidArgument(
            f"{name!r:.80}: names that start with {SHARED!r} belong to shared documents, not to tenants; to read "
            f"shared documents, pass shared=[{name.removeprefix(SHARED)!r:.80}] to Memory",
            value=name,
        )
    return _stored_name(name)


_Name: TypeAlias = Annotated[str, AfterValidator(_stored_name)]


@options(InvalidArgument)
class Scope:
    """An owner of memory: a tenant, and within it a user, a session, an agent.

    Programs without tenants omit the tenant: `Scope(user="ada")` is a user of the tenant `local`, like the scope of
    `Memory(path)`.

    Every item belongs to exactly one scope. A reader reads an item if each name of the item's scope is either empty
    (shared) or equal to the reader's name: a user reads documents of the tenant and of this user, but not of another
    user; a reader without a user reads no documents of users.

    Raises:
        InvalidArgument: The tenant is empty, a name is too long or contains NUL or an unpaired surrogate, or the
            names are too long together.
    """

    tenant: Annotated[str, Field(min_length=1), AfterValidator(_tenant_name)] = "local"
    user: _Name = ""
    session: _Name = ""
    agent: _Name = ""

    @model_validator(mode="after")
    def _fits_an_index(self) -> Self:
        size = sum(len(name.encode()) for name in self.names)
        # Only names with characters of three or four bytes exceed this limit.
        if size > MAX_BYTES:
            problem = f"take {size:,} bytes together, at most {MAX_BYTES:,} can be stored"
            raise InvalidArgument(problem, name="names", value=size, problems=[("names", problem)])
        return self

    @classmethod
    def of(cls, scope: Scope | str) -> Scope:
        """Return `scope`, or the scope of a tenant if `scope` is a string."""
        if isinstance(scope, Scope):
            return scope
        if isinstance(scope, str):
            return cls(scope)
        raise InvalidArgument(
            f"expected a Scope or the name of a tenant, got {type(scope).__name__}",
            name="scope",
            value=type(scope).__name__,
        )

    def narrow(self, *, user: str = "", session: str = "", agent: str = "") -> Scope:
        """Return this scope with further names; an empty argument keeps the present name."""
        return replace(self, user=user or self.user, session=session or self.session, agent=agent or self.agent)

    def with_default_user(self) -> Scope:
        """Return the scope of conversations: without a user and a session, the scope of the user `local`.

        Documents and facts of a tenant are shared by its users, but a conversation belongs to one user.
        """
        if self.user or self.session:
            return self
        return replace(self, user=LOCAL_USER)

    def covers(self, other: Scope) -> bool:
        """Return True if `other` is this scope, or a scope inside of it."""
        return all(own in ("", name) for own, name in zip(self.names, other.names, strict=True))

    @property
    def names(self) -> tuple[str, str, str, str]:
        """All four names, in order."""
        return self.tenant, self.user, self.session, self.agent

    @property
    def key(self) -> str:
        """The names, joined with NUL, which no name contains."""
        return "\0".join(self.names)

    def readable(self) -> tuple[Scope, ...]:
        """Return the scopes that a reader in this scope reads: this scope and every wider scope of its tenant."""
        return tuple([Scope(*names) for names in product(*self.readable_names().values())])

    def readable_names(self, shared: Sequence[SharedScope] = ()) -> dict[str, list[str]]:
        """Return, for each field of a scope, the names in the scopes that a reader in this scope reads.

        `shared` adds scopes of shared documents; these have no users, sessions or agents.
        """
        names = {name: list(dict.fromkeys(["", own])) for name, own in zip(NAMES, self.names, strict=True)}
        return names | {NAMES[0]: [self.tenant, *[each.names[0] for each in shared]]}


@dataclass(frozen=True, slots=True)
class SharedScope:
    """The scope of shared documents, which belong to no tenant."""

    name: str

    @classmethod
    def of(cls, name: object) -> SharedScope:
        """Return the scope of shared documents with a name.

        Raises:
            InvalidArgument: The name is not text, is empty or too long, or cannot be stored.
        """
        check_name("shared", name)
        named = cls(str(name))
        if not name:
            raise InvalidArgument("shared: expected the name of shared documents, got an empty text", name="shared")
        check_name("shared", named.names[0])
        return named

    @classmethod
    def all_of(cls, names: object) -> tuple[SharedScope, ...]:
        """Return the scopes of several shared documents, each once.

        Raises:
            InvalidArgument: The names are not a list of names.
        """
        if isinstance(names, str | bytes) or not isinstance(names, Iterable):
            raise InvalidArgument(
                f"shared: expected a list of names of shared documents, such as ['manuals'], got {brief(names)}",
                name="shared",
            )
        return tuple(dict.fromkeys([cls.of(name) for name in names]))

    @property
    def names(self) -> tuple[str, str, str, str]:
        """The names of its row, as `Scope.names`."""
        return SHARED + self.name, "", "", ""

    @property
    def key(self) -> str:
        """The names, joined as `Scope.key`."""
        return "\0".join(self.names)


def check_name(label: str, name: object) -> None:
    """Check that a name can be stored; `label` describes the name in errors, such as `branch`.

    Raises:
        InvalidArgument: The name is not text, is too long, or contains NUL or an unpaired surrogate.
    """
    if not isinstance(name, str):
        raise InvalidArgument(
            f"{label}: expected text, got {type(name).__name__}", name=label, value=type(name).__name__
        )
    try:
        _stored_name(name)
    except InvalidArgument as error:
        raise InvalidArgument(f"{label}: {error}", name=label, value=error.value) from None
