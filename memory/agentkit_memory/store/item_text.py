"""The text of an item: in its row or, for a turn that is a whole message, in the message, so that it is stored once."""

from __future__ import annotations

import json
import re
from typing import Any

from sqlalchemy import Text, case, literal_column, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from agentkit_memory.database.tables import items, messages

__all__ = ["ITEM_TEXT", "stands_in"]

_CONTENT = r"""^\{"role":"[a-z]+","content":("(?:[^"\\\x01-\x1f]|\\["\\/bfnrt])*")"""
"""Start of the stored form of a message, with its content as JSON; also a regular expression of PostgreSQL."""
_MESSAGE_START = re.compile(_CONTENT)


class _Content(FunctionElement[str]):
    """The content in the stored form of a message; NULL if it is corrupt, so that other rows can be read."""

    name = "content"
    type = Text()
    inherit_cache = True


@compiles(_Content, "sqlite")
def _of_sqlite(element: _Content, compiler: SQLCompiler, **options: Any) -> str:
    body = compiler.process(element.clauses, **options)
    return f"CASE WHEN json_valid({body}) THEN json_extract({body}, '$.content') END"


@compiles(_Content, "postgresql")
def _of_postgresql(element: _Content, compiler: SQLCompiler, **options: Any) -> str:
    # PostgreSQL raises an error for text that is not JSON: the expression matches only valid JSON.
    body = compiler.process(element.clauses, **options)
    return f"CAST(substring({body} from '{_CONTENT}') AS json) #>> '{{}}'"


ITEM_TEXT = case(
    (
        (items.c.text == literal_column("''")) & items.c.branch_id.is_not(None),
        select(_Content(messages.c.body))
        .where(messages.c.branch_id == items.c.branch_id, messages.c.seq == items.c.position)
        .correlate(items)
        .scalar_subquery(),
    ),
    else_=items.c.text,
).label("text")
"""The text of an item, for every statement that reads it; NULL if the message with it is corrupt."""


def stands_in(body: str, text: str) -> bool:
    """Return True if `ITEM_TEXT` can read a text from the stored form of a message.

    False for a text whose JSON contains escapes of characters by number: PostgreSQL cannot read JSON with NUL.
    """
    match = _MESSAGE_START.match(body)
    return match is not None and bool(json.loads(match[1]) == text)
