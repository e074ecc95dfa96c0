"""Rows that are asked as dialogues by an inferencer for chats, whatever their template is."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from agentkit_prompts.errors import InContextError
from agentkit_prompts.evaluation.dataset_reader import DatasetReader, Row
from agentkit_prompts.evaluation.multi_turn import REPLY, InferMode, MultiTurnPromptTemplate, in_turns
from agentkit_prompts.evaluation.prompt_list import Item, PromptList, is_marker, section
from agentkit_prompts.evaluation.row_template import RowTemplate

__all__ = ["dialogue_requests"]

_ROLES = {"system": "SYSTEM", "user": "HUMAN", "assistant": REPLY}


def dialogue_requests(
    template: RowTemplate, reader: DatasetReader, row: Row, infer_mode: InferMode
) -> Generator[Any, str | None, list[str | None]]:
    """Return what yields the prompts of a dialogue and is sent the answers; see `MultiTurnPromptTemplate.requests`.

    Of other templates a row whose columns are texts is one turn, one whose columns are lists of texts has a turn for
    each entry, and a column that holds messages is the dialogue itself (OpenCompass, `ChatInferencer`).

    Raises:
        InContextError: The row makes no turns, or as the template.
    """
    if isinstance(template, MultiTurnPromptTemplate):
        return template.requests(row, infer_mode)
    chat = _chat(template, reader, row)
    return in_turns(chat, infer_mode, lambda items: PromptList(section("round", items)))


def _chat(template: RowTemplate, reader: DatasetReader, row: Row) -> list[Item]:
    columns = [name for name in (*reader.input_columns, reader.output_column) if name is not None]
    given = {name: row[name] for name in dict.fromkeys(columns) if name in row}
    for name in [*reader.input_columns] if len(reader.input_columns) == 1 else ["dialogue"]:
        if _is_messages(given.get(name)):
            return _of_messages(given[name], f"column {name!r}")
    if given and all(isinstance(value, str) for value in given.values()):
        return _turn(template, row, given.get(reader.output_column or "", ""))
    if given and all(_is_list_of_texts(value) for value in given.values()):
        sizes = {name: len(value) for name, value in given.items()}
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            text = f"dialogue: the columns must have an entry for each turn: {listed}"
            raise InContextError(text, problems=[(name, f"has {size} entries") for name, size in sizes.items()])
        found: list[Item] = []
        for number in range(min(sizes.values())):
            turn = {**row, **{name: value[number] for name, value in given.items()}}
            found += _turn(template, turn, turn.get(reader.output_column or "", ""))
        return found
    kinds = ", ".join(f"{name} is a {type(value).__name__}" for name, value in given.items()) or "no columns"
    raise InContextError(
        "dialogue: the columns of a row must be texts, or lists of texts with one for each turn, or one must hold "
        f"messages with role and content; {kinds}",
        problems=[(name, f"is a {type(value).__name__}") for name, value in given.items()],
    )


def _turn(template: RowTemplate, row: Mapping[str, Any], answer: Any) -> list[Item]:
    """Return one turn; a template that ends with a question is answered by the answer of the row."""
    made = template.item(row)
    found: list[Item]
    if isinstance(made, str):
        found = [{"role": "HUMAN", "prompt": made}]
    elif isinstance(made, PromptList):
        held = [item for item in made if not is_marker(item)]
        found = [{"role": "HUMAN", "prompt": item} if isinstance(item, str) else item for item in held if item != ""]
    else:
        found = _of_messages(made, "the template")
    if not found or found[-1]["role"] != REPLY:  # type: ignore[index]
        found.append({"role": REPLY, "prompt": answer})
    return found


def _of_messages(messages: Any, where: str) -> list[Item]:
    wrong = [repr(message.get("role"))[:40] for message in messages if message.get("role") not in _ROLES]
    if wrong:
        text = f"dialogue: {where} has messages of role {', '.join(wrong)}; expected {', '.join(_ROLES)}"
        raise InContextError(text, name="role", value=", ".join(wrong))
    return [{"role": _ROLES[message["role"]], "prompt": message.get("content") or ""} for message in messages]


def _is_messages(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) and "role" in one for one in value)


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
