"""Names of the documents, facts, recalled messages, skills and examples of a context."""

from __future__ import annotations

from itertools import islice

from agentkit_prompts.context.items import Document, Example, Fact, RecalledMessage
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.context.skill import Skill

ITEM_FIELDS = ("documents", "knowledge", "recalled", "skills", "loaded_skills", "examples")
"""Fields of a context with items."""
_MAX_NAMES = 500
"""Maximum number of named items of each field."""
_MAX_NAME = 200
"""Maximum characters of a name."""


def item_names(ctx: PromptContext) -> dict[str, str]:
    """Return the names of items by their pointer, such as `documents[4]`; items without a name are omitted."""
    names: dict[str, str] = {}
    for field in ITEM_FIELDS:
        for index, item in enumerate(islice(getattr(ctx, field), _MAX_NAMES)):
            name = _name(item)
            if name:
                names[f"{field}[{index}]"] = name[:_MAX_NAME]
    return names


def _name(item: Document | Fact | RecalledMessage | Skill | Example) -> str:
    """Return the name under which a person finds an item: its source, its author and conversation, or its id."""
    if isinstance(item, Document):
        return item.label
    if isinstance(item, RecalledMessage):
        return _message_name(item)
    if isinstance(item, Fact) and item.source:
        return item.source
    if isinstance(item, Skill):
        return item.source or item.name
    return item.id


def _message_name(item: RecalledMessage) -> str:
    parts = [item.name or item.role]
    if item.session:
        place = f"session {item.session}"
        if item.position is not None:
            place += f"#{item.position}"
        parts.append(place)
    if item.when is not None:
        parts.append(f"{item.when:%Y-%m-%d %H:%M}")
    return ", ".join(parts)
