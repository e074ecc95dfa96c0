"""Subjects of erasures, and the check if data outside of the memory belong to an erased subject."""

from __future__ import annotations

from sqlalchemy import select

from agentkit_memory.checks import is_time
from agentkit_memory.database.engine import Database
from agentkit_memory.database.tables import erasures
from agentkit_memory.erasure.erase import digest_of
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.scope import NAMES, Scope
from agentkit_prompts.errors import brief


def checked_subject(subject: Scope | str, scope: Scope) -> Scope:
    """Return the subject of an erasure by a memory of `scope`.

    Raises:
        InvalidArgument: The subject belongs to another tenant.
    """
    subject = Scope.of(subject)
    if subject.tenant != scope.tenant:
        raise InvalidArgument(
            f"erase: {subject.tenant!r} is not the tenant of this memory ({scope.tenant!r}); to delete a "
            f"document, call memory.documents.forget(source); to erase another tenant, "
            f"call memory.within({subject.tenant!r}).erase({subject.tenant!r})",
            name="tenant",
            value=subject.tenant,
        )
    return subject


def was_erased(database: Database, owner: Scope, since: float) -> bool:
    """True if the owner, or a subject that contains the owner, was erased at a time or later.

    Args:
        database: The database of the store.
        owner: The scope of the data.
        since: Time at which the data were created, in seconds since 1970.

    Raises:
        InvalidArgument: The time is invalid.
    """
    if not is_time(since):
        raise InvalidArgument(f"was_erased: since: expected seconds since 1970, got {brief(since)}", name="since")
    conditions = [erasures.c.requested_at >= float(since)]
    for name in NAMES:
        # A subject contains the owners that have all its names; a finished erasure has digests instead of the names.
        values = {"", getattr(owner, name), digest_of(owner, name)}
        conditions.append(erasures.c[name].in_(sorted(values)))
    with database.read() as connection:
        return connection.execute(select(erasures.c.id).where(*conditions).limit(1)).first() is not None
