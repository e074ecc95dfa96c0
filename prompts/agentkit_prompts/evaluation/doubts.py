"""What of an evaluation is probably meant in another way: misspelt columns, rows among their own worked examples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentkit_prompts.errors import InContextWarning, similar, warn
from agentkit_prompts.evaluation.dataset_reader import Row

if TYPE_CHECKING:
    from agentkit_prompts.evaluation.in_context import InContext

__all__ = ["warn_of_columns", "warn_of_own_answers"]

_NAME = re.compile(r"\{\s*+([^\W\d](?:[\w .-]*[\w.-])?)\s*+(?:[!:][^{}\n]*)?\}")
"""Braces that look like those of a column."""
_MAX_NAMED = 5


def warn_of_own_answers(icl: InContext, rows: Sequence[Row], ids: Sequence[tuple[int, ...]]) -> None:
    """Warn of rows that are asked with their own answer in front of them."""
    answer = icl.reader.output_column
    shown = [
        number
        for number, row in enumerate(rows)
        if answer is not None and answer in row and any(icl.train[one] == row for one in ids[number])
    ]
    if not shown:
        return
    one = len(shown) == 1
    which = f"row {shown[0]}" if one else f"the first is row {shown[0]}"
    warn(
        f"{len(shown)} of {len(rows)} rows ({which}) {'stands' if one else 'stand'} among "
        f"{'its' if one else 'their'} own worked examples, answer included, so the score of "
        f"{'that row' if one else f'those {len(shown)}'} means nothing, and nothing can be learned from "
        f"{'it' if one else 'them'}: take {'it' if one else 'them'} out of the training rows, or name another "
        "train_split",
        InContextWarning,
    )


def warn_of_columns(icl: InContext, rows: Sequence[Row]) -> None:
    """Warn of braces that name no column, where a column that they may mean is not in the text."""
    found: dict[str, None] = {}
    columns = set[str]().union(*rows)
    for where, template, known in (
        ("prompt_template", icl.prompt_template, columns),
        ("ice_template", icl.ice_template, columns.union(*icl.train)),
    ):
        if template is None or (where == "ice_template" and template is icl.prompt_template):
            continue
        for text in _prompts(template):
            found |= dict.fromkeys(
                f"{where}: {problem}" for problem in _misspelt(text, known, icl.reader.input_columns, _tokens(template))
            )
    if found:
        listed = [*found]
        more = f"; and {len(listed) - _MAX_NAMED} more" if len(listed) > _MAX_NAMED else ""
        warn("; ".join(listed[:_MAX_NAMED]) + more, InContextWarning)


def _misspelt(text: str, columns: set[str], asked: Sequence[str], tokens: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield what is wrong with the braces of one prompt."""
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
        yield f"`{braces}` is no column and stays as it is{also}{hint}"


def _folded(name: str, names: set[str]) -> str | None:
    return next((other for other in sorted(names) if other.casefold() == name.casefold()), None)


def _tokens(template: Any) -> Sequence[tuple[str, str]]:
    """Return the other spellings of columns: (token, column)."""
    return getattr(template, "tokens", ())


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
