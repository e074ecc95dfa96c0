"""`MissingDocuments`: warnings about readers that find no documents, while the store has documents of other owners."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sqlalchemy import bindparam, select

from agentkit_memory.database.engine import Database
from agentkit_memory.database.tables import documents, scopes
from agentkit_memory.errors import StoreError
from agentkit_memory.scope import SHARED, Scope, SharedScope

_LOG = logging.getLogger("agentkit.memory")
_MAX_CHECKED = 10_000
"""Maximum number of readers that are checked in the life of a store."""

# Only the first document is read: a tenant can have millions of scopes.
_documents = scopes.join(documents, documents.c.scope_id == scopes.c.id)
_is_complete = documents.c.content_hash != ""
_OWN = (
    select(documents.c.id).select_from(_documents).where(scopes.c.tenant == bindparam("owner"), _is_complete).limit(1)
)
_OTHER = (
    select(scopes.c.tenant)
    .select_from(_documents)
    .where(scopes.c.tenant.not_in(bindparam("owners", expanding=True)), _is_complete)
    .limit(1)
)


class MissingDocuments:
    """Reports readers that find no documents in a store with documents."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._checked: set[tuple[str, tuple[SharedScope, ...]]] = set()
        """Tenants and their shared documents that were checked."""

    def problems(self, tenant: str, shared: Sequence[SharedScope]) -> list[str]:
        """Return the problems of a tenant that reads shared documents; none if the store has no documents at all.

        Raises:
            StoreError: The database cannot be read.
        """
        names = {each.name: each.names[0] for each in shared}
        owners = [tenant, *names.values()]
        with self._database.read() as connection:
            served = {owner for owner in owners if connection.scalar(_OWN, {"owner": owner}) is not None}
            other = connection.scalar(_OTHER, {"owners": owners})
        problems = []
        if served or other is not None:
            problems = [
                f"no shared documents have the name {name!r}: store documents with "
                f"`agentkit ingest FILES --shared {name}`"
                for name, owner in names.items()
                if owner not in served
            ]
        if served or other is None:
            return problems
        if other.startswith(SHARED):
            name = other.removeprefix(SHARED)
            problems.append(
                f"the tenant {tenant!r} has no documents, but the store has the shared documents {name!r}, which are "
                f"read by name only: Memory(..., shared=[{name!r}]), or `memory: {{shared: [{name}]}}` in an agent file"
            )
        else:
            problems.append(
                f"the tenant {tenant!r} has no documents, but the tenant {other!r} has: store documents with "
                f"`agentkit ingest FILES --tenant {tenant}`, or documents of several tenants with --shared NAME"
            )
        return problems

    def warn(self, scope: Scope, shared: tuple[SharedScope, ...]) -> None:
        """Log the problems of a reader, once for each tenant."""
        reader = (scope.tenant, shared)
        if reader in self._checked or len(self._checked) >= _MAX_CHECKED:
            return
        self._checked.add(reader)
        try:
            problems = self.problems(scope.tenant, shared)
        # A recall reports an unreadable database itself.
        except StoreError:
            return
        for problem in problems:
            _LOG.warning("%s", problem)
