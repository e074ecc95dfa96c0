"""What of the rows and templates of an evaluation does not go together, or is probably meant in another way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextError, InContextWarning
from agentkit_prompts.evaluation.dataset_reader import DatasetReader, Row
from agentkit_prompts.evaluation.problems import Problem
from agentkit_prompts.evaluation.row_template import RowTemplate
from agentkit_prompts.names import similar
from agentkit_prompts.tree.examples import ExampleSelector, StaticSelector

__all__ = ["misfits", "no_place", "problems_of_rows", "warn_of_columns", "warn_of_own_answers"]

_NAME = re.compile(r"\{\s*+([^\W\d](?:[\w .-]*[\w.-])?)\s*+(?:[!:][^{}\n]*)?\}")
"""Braces that look like those of a column."""
_MAX_NAMED = 5


def problems_of_rows(reader: DatasetReader, retriever: ExampleSelector, train: Sequence[Row]) -> list[Problem]:
    """Return a problem for each missing training row or column."""
    problems: list[Problem] = []
    if type(retriever) is StaticSelector and retriever.ids is not None:
        odd = [name for name in retriever.ids if not name.isdecimal() or int(name) >= len(train)]
        if odd:
            there = f"of {len(train)} training rows, counted from 0" if len(train) else _and_no_rows(reader)
            problems.append(Problem("retriever.ids", f"the retriever shows row {', '.join(odd)}, {there}"))
    else:
        wanted = getattr(retriever, "k", None)
        if (least := wanted if type(wanted) is int else 1) > len(train):
            there = f"and there are {len(train)} training rows; ask for fewer" if len(train) else _and_no_rows(reader)
            text = f"the retriever ({type(retriever).__name__}) shows {least} worked examples, {there}"
            problems.append(Problem("retriever.k" if len(train) else "train", text))
    try:
        reader.check(train, ())
    except InContextError as error:
        problems += [Problem(place, f"dataset: {text}") for place, text in error.problems]
    return problems


def _and_no_rows(reader: DatasetReader) -> str:
    """Say that there are no training rows, and how they are given."""
    splits = ", ".join(f"{name!r}: [...]" for name in dict.fromkeys((reader.train_split, reader.test_split)))
    return (
        f"and there are no training rows: add --rows {reader.train_split}=FILE (Python: the rows as {{{splits}}}, or "
        "train=), or use ZeroRetriever"
    )


def misfits(asked: RowTemplate, ice_template: RowTemplate | None, name: str) -> list[Problem]:
    """Return the reasons why worked examples cannot be shown."""
    if ice_template is None:
        text = "the retriever chooses worked examples and there is no ice_template to show them with"
        return [Problem("ice_template", text)]
    if asked.ice_token is None:
        return [Problem(f"{name}.ice_token", no_place(name))]
    if ice_template.is_dialogue and any(asked.places(label) == "text" for label in asked.labels or (None,)):
        text = (
            f"{name} has its ice_token {asked.ice_token!r} inside text, and ice_template makes turns with roles; "
            "put the token among the items of `begin` or `round`, or make ice_template text"
        )
        return [Problem(name, text)]
    return []


def no_place(name: str) -> str:
    """Say that a template has no place for worked examples."""
    return f"{name} has no place for worked examples; give it an ice_token and put that where they go"


def warn_of_own_answers(
    rows: Sequence[Row], train: Sequence[Row], ids: Sequence[tuple[int, ...]], answer: str | None
) -> None:
    """Warn of rows that are asked with their own answer in front of them.

    Args:
        rows: What is asked.
        train: The worked examples there are.
        ids: Those in front of each row.
        answer: The column of the answer.
    """
    shown = [
        number
        for number, row in enumerate(rows)
        if answer is not None and answer in row and any(train[one] == row for one in ids[number])
    ]
    if not shown:
        return
    one = len(shown) == 1
    which = f"row {shown[0]}" if one else f"the first is row {shown[0]}"
    text = (
        f"{len(shown)} of {len(rows)} rows ({which}) {'stands' if one else 'stand'} among "
        f"{'its' if one else 'their'} own worked examples, answer included, so the score of "
        f"{'that row' if one else f'those {len(shown)}'} means nothing, and nothing can be learned from "
        f"{'it' if one else 'them'}: take {'it' if one else 'them'} out of the training rows, or name another "
        "train_split"
    )
    warn(InContextWarning(text, name=", ".join(map(str, shown))))


def warn_of_columns(
    rows: Sequence[Row], train: Sequence[Row], prompt_template: Any, ice_template: Any, asked: Sequence[str]
) -> None:
    """Warn of braces that name no column, where a column that they may mean is not in the text.

    Args:
        rows: What is asked.
        train: The worked examples there are.
        prompt_template: Shows a row; None without one.
        ice_template: Shows a worked example; None without one.
        asked: The columns of the input.
    """
    found: dict[str, str] = {}
    columns = set[str]().union(*rows)
    for where, template, known in (
        ("prompt_template", prompt_template, columns),
        ("ice_template", ice_template, columns.union(*train)),
    ):
        if template is None or (where == "ice_template" and template is prompt_template):
            continue
        for text in _prompts(template):
            for braces, problem in _misspelt(text, known, asked, getattr(template, "tokens", ())):
                found[f"{where}: {problem}"] = f"{where}.{braces}"
    if found:
        listed = [*found]
        more = f"; and {len(listed) - _MAX_NAMED} more" if len(listed) > _MAX_NAMED else ""
        text = "; ".join(listed[:_MAX_NAMED]) + more
        warn(InContextWarning(text, name=", ".join(found.values())))


def _misspelt(
    text: str, columns: set[str], asked: Sequence[str], tokens: Sequence[tuple[str, str]]
) -> Iterator[Problem]:
    """Yield the braces of one prompt that probably mean a column."""
    unused = {
        name
        for name in columns
        if f"{{{name}}}" not in text and not any(token in text for token, of in tokens if of == name)
    }
    missing = [name for name in asked if name in unused]
    for braces in dict.fromkeys(match[0] for match in _NAME.finditer(text)):
        match = _NAME.fullmatch(braces)
        if match is None or braces[1:-1] in columns or any(braces in token for token, _ in tokens):
            continue
        near = match[1] if match[1] in unused else similar(match[1], sorted(unused)) or _folded(match[1], unused)
        if near is None and not missing:
            continue  # braces that are meant as they are
        also = f", and the input column {', '.join(map(repr, missing))} is not in it" if missing else ""
        hint = f"; did you mean `{{{near}}}`?" if near is not None else ""
        yield Problem(braces, f"`{braces}` is no column and stays as it is{also}{hint}")


def _folded(name: str, names: set[str]) -> str | None:
    return next((other for other in sorted(names) if other.casefold() == name.casefold()), None)


def _prompts(template: Any) -> Iterator[str]:
    """Yield the text of each prompt of a template: of one with labels for each of them."""
    held: Any = getattr(template, "template", None) or getattr(template, "messages", ())
    for prompt in held.values() if template.labels else [held]:
        yield "\n".join(_texts(prompt))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
