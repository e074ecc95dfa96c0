"""The text of an item. The text of a turn that is a whole message is only stored in the message."""

from __future__ import annotations

import json
import re
from typing import Any

from sqlalchemy import Text, case, literal_column, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from agentkit_memory.database.tables import items, messages

_CONTENT = r"""^\{"role":"[a-z]+","content":("[^"\\\x01-\x1f]*(?:\\["\\/bfnrt][^"\\\x01-\x1f]*)*")"""
"""Pattern of the start of a stored message, with the content as a JSON string; valid in Python and PostgreSQL."""
_MESSAGE_START = re.compile(_CONTENT)


class _Content(FunctionElement[str]):
    """SQL function: the content of a stored message; NULL if the message is corrupt, so that other rows can be read."""

    name = "content"
    type = Text()
    inherit_cache = True


def _is_plain(body: str) -> str:
    """Return the condition that a stored message is only a text, after the letter of the role."""
    return f"substr({body}, 1, 2) IN ('u:', 'a:', 's:')"


@compiles(_Content, "sqlite")
def _of_sqlite(element: _Content, compiler: SQLCompiler, **options: Any) -> str:
    body = compiler.process(element.clauses, **options)
    json = f"json_valid({body}) THEN json_extract({body}, '$.content')"
    return f"CASE WHEN {_is_plain(body)} THEN substr({body}, 3) WHEN {json} END"


@compiles(_Content, "postgresql")
def _of_postgresql(element: _Content, compiler: SQLCompiler, **options: Any) -> str:
    # PostgreSQL raises an error for text that is not JSON, but the pattern matches only valid JSON.
    body = compiler.process(element.clauses, **options)
    json = f"CAST(substring({body} from '{_CONTENT}') AS json) #>> '{{}}'"
    return f"CASE WHEN {_is_plain(body)} THEN substr({body}, 3) ELSE {json} END"


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
"""Column with the text of an item; NULL if the text is in a corrupt message."""


def is_readable_from(body: str, text: str) -> bool:
    """Return True if `ITEM_TEXT` can read a text from the stored form of a message.

    False for a text whose JSON contains numeric escapes of characters: PostgreSQL cannot read such an escape of NUL.
    """
    if body[1:2] == ":":
        return body[2:] == text
    match = _MESSAGE_START.match(body)
    return match is not None and bool(json.loads(match[1]) == text)
