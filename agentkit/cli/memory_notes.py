"""Notes of `agentkit serve` about the memory of its callers."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from agentkit_memory import Memory, StoreError

if TYPE_CHECKING:
    from agentkit.server.access import Access

_MAX_CHECKED = 100
"""Maximum number of tenants whose documents are checked at the start."""
_MAX_NOTES = 3
"""Maximum number of notes about tenants without documents."""


def memory_notes(sources: Iterable[object], access: Access) -> list[str]:
    """Return notes about messages without a user, and about tenants without documents.

    Args:
        sources: The memories of the agents; None, or a custom memory, is left out.
        access: The tokens of the server.
    """
    memories = [source for source in sources if isinstance(source, Memory)]
    if not memories:
        return []
    callers, notes = access.callers, list[str]()
    if not any(caller.user for caller in callers):
        notes.append(
            "a message of a request without a user is recalled in its session only; name the user in the field `user` "
            "of each request, or bind a token to a user: `agentkit token NAME --user USER`"
        )
    tenants = sorted({caller.tenant for caller in callers})
    problems: dict[str, None] = {}
    # The server starts without these notes too: the first recall of a tenant logs its problems.
    with suppress(StoreError):
        for tenant in tenants[:_MAX_CHECKED]:
            for memory in memories:
                problems |= dict.fromkeys(memory.within(tenant).missing_documents())
    notes += [*problems][:_MAX_NOTES]
    if len(problems) > _MAX_NOTES:
        more = len(problems) - _MAX_NOTES
        notes.append(f"more tenants without documents: {more}; `agentkit memory usage` lists the documents of tenants")
    return notes
