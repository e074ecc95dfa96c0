"""The checks of what is given to a recall."""

from __future__ import annotations

from datetime import datetime
from typing import get_args

from agentkit_memory.checks import is_time, is_whole
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.recall.recall_filter import RecallFilter
from agentkit_memory.recall.recall_policy import MAX_CANDIDATES
from agentkit_prompts.context.items import Speaker
from agentkit_prompts.errors import brief

__all__ = ["check_question"]


def check_question(
    query: object,
    limit: object,
    visible: object = None,
    now: object = None,
    roles: object = None,
    where: object = None,
) -> None:
    """Refuse wrong arguments, naming all of them.

    Raises:
        InvalidArgument: The query is not text, a number is out of range, or the time is invalid.
    """
    problems = []
    if not isinstance(query, str):
        problems.append(f"query: expected the question as text, got {type(query).__name__}")
    if not is_whole(limit, 1, MAX_CANDIDATES):
        problems.append(f"limit: expected 1 to {MAX_CANDIDATES:,} documents, got {limit!r}")
    if visible is not None and not is_whole(visible, 0):
        problems.append(f"visible: expected how many messages are visible, 0 or more, or None for all, got {visible!r}")
    if now is not None and not (isinstance(now, datetime) or is_time(now)):
        problems.append(f"now: expected a datetime or seconds since 1970, got {now!r}")
    known = get_args(Speaker)
    if roles is not None and not (isinstance(roles, list | tuple | set | frozenset) and {*known} >= {*map(str, roles)}):
        problems.append(f"roles: expected some of {known}, such as ('user',), or None for all, got {roles!r:.80}")
    if not isinstance(where, RecallFilter | None):
        problems.append(f"where: expected RecallFilter(...), or None for everything, got {brief(where)}")
    if problems:
        raise InvalidArgument.listing("recall", problems)
