"""`Recall`: the documents, messages and facts for a question, their scores, and the problems of the recall."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast, overload

from agentkit_memory.recall.candidates import ScoredItem
from agentkit_memory.store.metadata import read_metadata
from agentkit_memory.store.records import TURN, Candidate
from agentkit_prompts.context.frozen import FrozenDict
from agentkit_prompts.context.parts import Image
from agentkit_prompts.context.prompt_context import Document, Fact, RecalledMessage
from agentkit_prompts.hints import hinted

if TYPE_CHECKING:
    from agentkit_memory.store.stored_item import StoredItem
    from agentkit_prompts.context.items import Speaker

LoggedCandidate: TypeAlias = tuple[str, str, float, bool, str, str, Mapping[str, float], Mapping[str, float]]
"""A candidate without its text: id, kind, score, used or not, reason, slot, parts and raw scores."""
NEAR_MISSES = 10
"""Maximum number of unused candidates in a log."""


@dataclass(frozen=True, slots=True)
class Explained:
    """One candidate of a recall: its score, the parts of the score, and the reason why it was used or not."""

    rank: int
    id: str
    kind: str
    score: float
    parts: Mapping[str, float]
    used: bool
    why: str
    text: str
    """Start of the text of the item."""

    def __str__(self) -> str:
        use = "-"
        if self.used:
            use = "used"
        return f"{self.rank:>3} {use:<5}{self.kind:<6}{self.why}  | {self.text}"


@hinted
class Recall(Sequence[Document | RecalledMessage]):
    """The result of a recall: a sequence of documents and messages, best first.

    Documents are chunks of ingested files, and images; messages are turns; facts are in `knowledge`.
    """

    def __init__(
        self,
        query: str,
        considered: Sequence[ScoredItem],
        used: Sequence[ScoredItem],
        degraded: Sequence[str],
        images: Mapping[str, Image] = MappingProxyType({}),
    ) -> None:
        self.query = query
        results = [_result(each, images) for each in used if each.slot != "knowledge"]
        self._results = tuple(results)
        self.documents = tuple([result for result in results if isinstance(result, Document)])
        """Chunks of documents, best first."""
        self.recalled = tuple([result for result in results if isinstance(result, RecalledMessage)])
        """Messages of users and assistants, best first; each has its role."""
        self.knowledge = tuple([_fact(each) for each in used if each.slot == "knowledge"])
        """Facts, best first."""
        self.degraded = tuple(degraded)
        """Problems of the recall, such as a failed model; empty without problems."""
        self._considered = considered

    def explain(self) -> tuple[Explained, ...]:
        """Return every candidate with its score and the parts of it, best first. Each row prints as one line."""
        return tuple(
            [
                Explained(
                    rank,
                    each.id,
                    each.item.kind,
                    each.score,
                    each.parts,
                    each.used,
                    each.explanation(),
                    " ".join(each.item.text[:200].split())[:80],
                )
                for rank, each in enumerate(self._considered, 1)
            ]
        )

    @overload
    def __getitem__(self, index: int) -> Document | RecalledMessage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Document | RecalledMessage, ...]: ...
    def __getitem__(self, index: int | slice) -> Document | RecalledMessage | tuple[Document | RecalledMessage, ...]:
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __eq__(self, other: object) -> bool:
        """Return True for a tuple or list of the same documents and messages, or a recall with the same results."""
        if isinstance(other, Recall):
            return (self._results, self.knowledge) == (other._results, other.knowledge)
        if isinstance(other, tuple | list):
            return self._results == tuple(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        counts = f"{len(self.documents)} documents, {len(self.recalled)} messages, {len(self.knowledge)} facts"
        return f"Recall({self.query[:40]!r}: {counts})"


def relevance(score: float) -> float:
    """Return a score as a number between 0 and 1; 0.5 is the average candidate."""
    return 1.0 / (1.0 + math.exp(-max(-700.0, score)))


def to_log(considered: Sequence[ScoredItem]) -> list[LoggedCandidate]:
    """Return the used candidates and the `NEAR_MISSES` next best candidates, best first.

    The candidates are plain tuples, because hundreds of recalls may wait to be logged, and the garbage collector would
    visit other objects again and again.
    """
    remaining = NEAR_MISSES
    logged = []
    for each in considered:
        # The best unused candidates explain why an expected item was not recalled.
        if each.used or remaining:
            remaining -= not each.used
            logged.append(_logged(each))
    return logged


def candidate(logged: LoggedCandidate) -> Candidate:
    """Return the `Candidate` of a log for a plain tuple."""
    item, kind, score, used, why, slot, parts, retrieved = logged
    scores = {name: round(value, 4) for name, value in parts.items()}
    scores |= {f"{name} raw": round(value, 4) for name, value in retrieved.items()}
    return Candidate(item, kind, round(score, 4), used, why, slot, scores)


def _logged(each: ScoredItem) -> LoggedCandidate:
    slot = ""
    if each.used:
        slot = each.slot
    return each.item.id, each.item.kind, each.score, each.used, each.reason, slot, each.parts, each.retrieved


def _result(each: ScoredItem, images: Mapping[str, Image]) -> Document | RecalledMessage:
    if each.item.kind == TURN:
        return _message(each)
    return _document(each, images.get(each.item.document_id))


def _document(each: ScoredItem, image: Image | None) -> Document:
    item = each.item
    metadata: dict[str, object] = {"document": item.document_id, "start": item.start, "end": item.end}
    metadata |= {"line": item.line, "why": each.reason}
    return Document(
        item.text,
        id=item.id,
        title=item.title,
        source=item.source,
        score=relevance(each.score),
        position=item.position,
        image=image,
        metadata=_metadata(item, metadata),
    )


def _message(each: ScoredItem) -> RecalledMessage:
    item = each.item
    name = ""
    if item.speaker != item.role:
        name = item.speaker
    return RecalledMessage(
        item.text,
        cast("Speaker", item.role),
        name=name,
        when=_time(item),
        session=item.conversation,
        id=item.id,
        score=relevance(each.score),
        position=item.position,
        metadata=_metadata(item, {"branch": item.branch, "start": item.start, "end": item.end, "why": each.reason}),
    )


def _fact(each: ScoredItem) -> Fact:
    item = each.item
    metadata = _metadata(item, {"written_at": item.created_at, "why": each.reason})
    return Fact(item.text, id=item.id, score=relevance(each.score), metadata=metadata)


def _metadata(item: StoredItem, more: dict[str, object]) -> Mapping[str, object]:
    """Return the metadata of an item and the metadata of the recall, which contains numbers and texts."""
    if item.meta == "{}":
        return FrozenDict(more)
    return {**read_metadata(item.meta), **more}


def _time(item: StoredItem) -> datetime | None:
    if item.said_at is None:
        return None
    try:
        return datetime.fromtimestamp(item.said_at, UTC)
    except (ValueError, OverflowError, OSError):
        # The time is outside of the calendar.
        return None
