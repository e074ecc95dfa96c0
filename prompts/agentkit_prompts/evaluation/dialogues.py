"""Dialogues of the inferencers for chats, whose turns come from a row and any kind of template."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from types import UnionType
from typing import Any

from agentkit_prompts.errors import InContextError, Problem
from agentkit_prompts.evaluation.dataset_reader import DatasetReader, Row
from agentkit_prompts.evaluation.multi_turn import REPLY, InferMode, MultiTurnPromptTemplate, in_turns
from agentkit_prompts.evaluation.prompt_list import Item, PromptList, is_marker, section
from agentkit_prompts.evaluation.raw_template import is_messages
from agentkit_prompts.evaluation.row_template import RowTemplate

_ROLES = {"system": "SYSTEM", "user": "HUMAN", "assistant": REPLY}


def dialogue_requests(
    template: RowTemplate, reader: DatasetReader, row: Row, infer_mode: InferMode
) -> Generator[Any, str | None, list[str | None]]:
    """Return a generator that yields the prompts of a dialogue and receives the answers.

    The generator of a `MultiTurnPromptTemplate` is its `requests`. With other templates, a row with text columns is one
    turn, a row whose columns are lists of texts has a turn per entry, and a column of messages is the whole dialogue
    (OpenCompass, `ChatInferencer`).

    Raises:
        InContextError: The row has no turns, or the template cannot be filled.
    """
    if isinstance(template, MultiTurnPromptTemplate):
        return template.requests(row, infer_mode)
    chat = _chat(template, reader, row)
    return in_turns(chat, infer_mode, lambda items: PromptList(section("round", items)))


def _chat(template: RowTemplate, reader: DatasetReader, row: Row) -> list[Item]:
    columns = {name: row[name] for name in reader.columns if name in row}
    column = "dialogue"
    if len(reader.input_columns) == 1:
        column = reader.input_columns[0]
    messages = columns.get(column)
    # An empty list is not read as messages but as a list of texts, because other columns can contain turns.
    if messages and is_messages(messages):
        return [*_of_messages(messages, f"column {column!r}")]
    if _are(str, columns.values()):
        return _turn(template, row, reader)
    if _are_lists_of_texts(columns.values()):
        return _turns(template, row, reader, columns)
    raise _no_turns(columns)


def _are_lists_of_texts(values: Collection[Any]) -> bool:
    return _are(list | tuple, values) and all(_are(str, value) for value in values if value)


def _are(kind: type | UnionType, values: Collection[object]) -> bool:
    """True if at least one value exists and all values have the type."""
    return bool(values) and all(isinstance(value, kind) for value in values)


def _no_turns(columns: Mapping[str, Any]) -> InContextError:
    problems = [Problem(name, f"is a {type(value).__name__}") for name, value in columns.items()]
    kinds = ", ".join([f"{name} {text}" for name, text in problems]) or "no columns"
    return InContextError(
        "dialogue: the columns of a row must be texts, or lists of texts with one for each turn, or one must contain "
        f"messages with role and content; {kinds}",
        problems=problems,
    )


def _turns(template: RowTemplate, row: Row, reader: DatasetReader, columns: Mapping[str, Any]) -> list[Item]:
    """Return a turn for each entry of the columns."""
    sizes = {name: len(value) for name, value in columns.items()}
    if len(set(sizes.values())) > 1:
        problems = [Problem(name, f"has {size} entries") for name, size in sizes.items()]
        sizes_as_text = ", ".join([f"{name} {text}" for name, text in problems])
        text = f"dialogue: the columns must have an entry for each turn: {sizes_as_text}"
        raise InContextError(text, problems=problems)
    items: list[Item] = []
    for number in range(min(sizes.values())):
        entries = {name: value[number] for name, value in columns.items()}
        items += _turn(template, {**row, **entries}, reader)
    return items


def _turn(template: RowTemplate, row: Row, reader: DatasetReader) -> list[Item]:
    """Return one turn; if the template does not end with an answer, the answer of the row is added."""
    items = _role_items(template.item(row))
    if not items or items[-1]["role"] != REPLY:
        items.append({"role": REPLY, "prompt": row.get(reader.output_column or "", "")})
    return [*items]


def _role_items(prompt: Any) -> list[dict[str, Any]]:
    if isinstance(prompt, str):
        return [_with_role(prompt)]
    if isinstance(prompt, PromptList):
        # The markers of sections are omitted, because all turns become one section `round`.
        return [_with_role(item) for item in prompt if item and not is_marker(item)]
    return _of_messages(prompt, "the template")


def _with_role(item: Item) -> dict[str, Any]:
    """Return an item with a role; a text becomes a question of the user."""
    if isinstance(item, str):
        return {"role": "HUMAN", "prompt": item}
    return item


def _of_messages(messages: Any, place: str) -> list[dict[str, Any]]:
    invalid = [repr(message.get("role"))[:40] for message in messages if message.get("role") not in _ROLES]
    if invalid:
        text = f"dialogue: {place} has messages of role {', '.join(invalid)}; expected {', '.join(_ROLES)}"
        raise InContextError(text, name="role", value=", ".join(invalid))
    return [{"role": _ROLES[message["role"]], "prompt": message.get("content") or ""} for message in messages]
