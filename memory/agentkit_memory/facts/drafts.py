"""The types of an extractor: turns in, drafts of facts out, and the checks of these drafts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from agentkit_memory.errors import InvalidArgument
from agentkit_memory.store.records import StoredFact
from agentkit_prompts.names import reject_unknown_fields

__all__ = ["Extract", "FactDraft", "Turn", "checked", "misshapen", "wrong_types"]

MAX_TEXT = 1000
"""Characters of a fact."""
_MAX_REPORTED = 3
"""Invalid drafts of one answer that an error lists."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of a conversation, as an extractor sees it."""

    id: str
    speaker: str
    text: str
    said_at: float
    """Seconds since 1970."""
    new: bool = True
    """False for a turn that was read before, and is given again as context."""
    role: str = "user"
    """`user` or `assistant`, whatever the speaker is called."""


@reject_unknown_fields(InvalidArgument)
@dataclass(frozen=True, slots=True)
class FactDraft:
    """A fact that an extractor found.

    Raises:
        InvalidArgument: There is no such field.
    """

    text: str
    """One sentence that can be understood by itself."""
    sources: Sequence[str]
    """Ids of its turns, at least one of them new. The fact is deleted with any of them."""
    supersedes: Sequence[str] = ()
    """Ids of known facts that this one replaces."""
    valid_from: float | None = None
    """From when it is recalled, in seconds since 1970; None for at once."""
    valid_to: float | None = None
    """Until when it is recalled; None for ever."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    """Anything JSON can hold, up to 32 levels deep and 8,192 characters long."""


Extract: TypeAlias = Callable[[Sequence[Turn], Sequence[StoredFact]], Iterable[FactDraft]]
"""Reads turns of one conversation, in order, and returns drafts of the facts in them.

The second argument holds known facts of the scope that may be related. It is called from a thread of a worker; the same
turns may be read again after a crash. It raises `InvalidArgument` for an invalid answer; any other exception means that
the model is not available now.
"""


def misshapen(draft: object) -> str:
    """Return the fields of a draft that have a wrong type; or empty text.

    Values are left out: the text is stored and logged, and may outlive an erasure of the turns.
    """
    if not isinstance(draft, FactDraft):
        return f"expected a FactDraft, got {type(draft).__name__}"
    problems: list[str] = []

    def expect(right: bool, name: str, what: str, got: object) -> None:
        if not right:
            problems.append(f"{name}: expected {what}, got {type(got).__name__}")

    expect(isinstance(draft.text, str), "text", "text", draft.text)
    for name, ids in (("sources", draft.sources), ("supersedes", draft.supersedes)):
        if isinstance(ids, str | bytes) or not isinstance(ids, Sequence):
            expect(False, name, "a sequence of ids", ids)
        elif wrong := [each for each in ids if not isinstance(each, str)]:
            expect(False, name, "ids, which are text", wrong[0])
    for name, at in (("valid_from", draft.valid_from), ("valid_to", draft.valid_to)):
        seconds = at is None or (isinstance(at, int | float) and not isinstance(at, bool))
        expect(seconds, name, "seconds since 1970, or None", at)
    expect(isinstance(draft.metadata, Mapping), "metadata", "a mapping", draft.metadata)
    return "; ".join(problems)


def wrong_types(drafts: Sequence[object]) -> InvalidArgument | None:
    """Return an error for the drafts of an answer that have fields of wrong types, if any."""
    problems = [f"draft {number}: {wrong}" for number, draft in enumerate(drafts, 1) if (wrong := misshapen(draft))]
    if not problems:
        return None
    more = f"; and {len(problems) - _MAX_REPORTED} more" if len(problems) > _MAX_REPORTED else ""
    return InvalidArgument(f"the extractor returned invalid drafts: {'; '.join(problems[:_MAX_REPORTED])}{more}")


def checked(draft: FactDraft, turns: Mapping[str, Turn], known: Collection[str]) -> None:
    """Refuse a draft that refers to turns or facts that were not given. The store checks its text and times.

    Raises:
        InvalidArgument: Lists every problem.
    """
    problems = _unknown("turn", draft.sources, turns) + _unknown("known fact", draft.supersedes, known)
    if not problems and not any(turns[source].new for source in draft.sources):
        problems.append("its sources hold no new turn")
    if len(draft.text) > MAX_TEXT:
        problems.append(f"it has {len(draft.text)} characters, at most {MAX_TEXT} are allowed")
    if problems:
        raise InvalidArgument(f"invalid draft of a fact: {'; '.join(problems)}")


def _unknown(what: str, ids: Sequence[str], given: Collection[str]) -> list[str]:
    return [f"unknown id of a {what}: {each[:40]!r}" for each in ids if each not in given]
