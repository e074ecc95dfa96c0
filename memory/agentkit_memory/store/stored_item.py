"""`StoredItem`: an item as recall reads it, and checks of its row: SQLite stores any type in any column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

from agentkit_memory.store.metadata import read_metadata
from agentkit_memory.store.records import TURN
from agentkit_prompts.context.items import Speaker

ROLES = frozenset(get_args(Speaker))
"""Valid roles of turns."""
_TEXT, _WHOLE, _NUMBER, _NONE = frozenset({str}), frozenset({int}), frozenset({int, float}), frozenset({type(None)})
_TYPES: tuple[tuple[str, frozenset[type]], ...] = (
    *(
        (name, _TEXT)
        for name in ("id", "text", "title", "document_id", "source", "uri", "conversation", "branch", "speaker", "role")
    ),
    *((name, _WHOLE) for name in ("position", "start", "end", "line")),
    ("branch_id", _WHOLE | _NONE),
    ("said_at", _NUMBER | _NONE),
    ("created_at", _NUMBER),
)


class StoredItem(NamedTuple):
    """An item as recall reads it. Fields that a kind of items does not have are empty."""

    id: str
    kind: str
    scope_id: int
    text: str
    title: str
    position: int
    """Position of the chunk in its document, number of the message, or number of the fact in its scope."""
    start: int
    end: int
    line: int
    document_id: str
    source: str
    uri: str
    branch_id: int | None
    conversation: str
    branch: str
    speaker: str
    role: str
    said_at: float | None
    created_at: float
    meta: str
    """JSON."""


def are_sound(stored_items: Sequence[StoredItem]) -> bool:
    """Return True if all items are certainly sound; False if each item has to be checked with `check_item`."""
    columns = dict(zip(StoredItem._fields, zip(*stored_items, strict=True), strict=False))
    return (
        all(kinds.issuperset(map(type, columns.get(name, ()))) for name, kinds in _TYPES)
        and {"{}"}.issuperset(columns.get("meta", ()))
        and all(kind != TURN or role in ROLES for kind, role in {(item.kind, item.role) for item in stored_items})
    )


def check_item(item: StoredItem) -> None:
    """Check the types and values of an item.

    Raises:
        ValueError: A column is corrupt; the message names the column.
    """
    for name, kinds in _TYPES:
        if type(value := getattr(item, name)) not in kinds:
            raise ValueError(f"its {name} is {type(value).__name__}")
    if item.kind == TURN and item.role not in ROLES:
        raise ValueError(f"its role is {item.role!r:.40}")
    if item.meta != "{}":
        try:
            read_metadata(item.meta)
        except ValueError as error:
            raise ValueError(f"its metadata {error}") from None
