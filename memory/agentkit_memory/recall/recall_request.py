"""`RecallRequest`: the arguments of one recall, and the check of these arguments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias, get_args

from agentkit_memory.checks import is_time, is_whole
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.recall.recall_filter import RecallFilter
from agentkit_memory.recall.recall_policy import MAX_CANDIDATES, RecallPolicy
from agentkit_memory.store.records import TURN
from agentkit_prompts.context.items import Speaker
from agentkit_prompts.errors import brief

if TYPE_CHECKING:
    from agentkit_memory.scope import Scope, SharedScope
    from agentkit_memory.store.stored_item import StoredItem

MessageRange: TypeAlias = tuple[int, int, int]
"""Range of messages of a branch: id of the branch, number before the first message, last number."""


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """The arguments of one recall."""

    scope: Scope
    """The scope of the reader."""
    query: str
    limit: int
    """Maximum number of documents and messages together, and maximum number of facts."""
    policy: RecallPolicy
    now: float
    """Time of the question in seconds since 1970; "last week" is relative to it."""
    valid_at: float
    """Time of the clock: items that are valid then are recalled."""
    conversation: str = ""
    """Name of the current conversation, for the log."""
    hidden: Sequence[MessageRange] = ()
    """Ranges of messages that the model receives without a recall."""
    roles: Collection[str] | None = None
    """Roles whose messages may be used; None for all."""
    where: RecallFilter | None = None
    """Conditions of every item; None for no conditions."""
    shared: tuple[SharedScope, ...] = ()
    """Shared documents that are read too."""

    def allows(self, item: StoredItem) -> bool:
        """Return True if the filter allows an item."""
        return self.where is None or self.where.allows(item)

    def allowed(self, items: Sequence[StoredItem]) -> Sequence[StoredItem]:
        """Return the items that the filter allows."""
        if self.where is None:
            return items
        return [item for item in items if self.where.allows(item)]

    def is_of_roles(self, item: StoredItem) -> bool:
        """Return True if an item is a message of one of the roles, or no message."""
        if self.roles is None or item.kind != TURN:
            return True
        return item.role in self.roles

    def count_of_roles(self, items: Sequence[StoredItem]) -> int:
        """Return the number of items that are a message of one of the roles, or no message."""
        if self.roles is None:
            return len(items)
        return sum([self.is_of_roles(item) for item in items])

    def hides(self, item: StoredItem) -> bool:
        """Return True if an item is a message that the model receives without a recall."""
        if item.kind != TURN:
            return False
        return any(item.branch_id == branch and after < item.position <= last for branch, after, last in self.hidden)


def check_question(
    query: object,
    limit: object,
    visible: object = None,
    now: object = None,
    roles: object = None,
    where: object = None,
) -> None:
    """Check the arguments of a recall; the error names every problem.

    Raises:
        InvalidArgument: The query is not text, a number is out of range, or the time is invalid.
    """
    problems = []
    if not isinstance(query, str):
        problems.append(f"query: expected the question as text, got {type(query).__name__}")
    if not is_whole(limit, 1, MAX_CANDIDATES):
        problems.append(f"limit: expected 1 to {MAX_CANDIDATES:,} documents, got {brief(limit)}")
    if visible is not None and not is_whole(visible, 0):
        problems.append(f"visible: expected a number of messages, 0 or more, or None for all, got {brief(visible)}")
    if now is not None and not (isinstance(now, datetime) or is_time(now)):
        problems.append(f"now: expected a datetime or seconds since 1970, got {brief(now)}")
    if roles is not None and not _are_roles(roles):
        problems.append(
            f"roles: expected some of {get_args(Speaker)}, such as ('user',), or None for all, got {brief(roles)}"
        )
    if not isinstance(where, RecallFilter | None):
        problems.append(f"where: expected RecallFilter(metadata={{...}}), or None for everything, got {brief(where)}")
    if problems:
        raise InvalidArgument.listing("recall", problems)


def _are_roles(roles: object) -> bool:
    return isinstance(roles, list | tuple | set | frozenset) and {*map(str, roles)} <= {*get_args(Speaker)}
