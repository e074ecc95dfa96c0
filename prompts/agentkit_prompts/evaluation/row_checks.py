"""Checks of rows and templates of an evaluation. They report contradictions, and warn of probable mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.errors import InContextError, InContextWarning, Problem, Problems
from agentkit_prompts.evaluation.dataset_reader import DatasetReader, Row
from agentkit_prompts.evaluation.inferencer import Inferencer
from agentkit_prompts.evaluation.problems import inside, some
from agentkit_prompts.evaluation.row_template import RowTemplate
from agentkit_prompts.names import similar
from agentkit_prompts.tree.examples import ExampleSelector, StaticSelector

_NAME = re.compile(r"\{\s*+([^\W\d](?:[\w .-]*[\w.-])?)\s*+(?:[!:][^{}\n]*)?\}")
"""Braces around a name that can be a column."""


def problems_of_rows(
    reader: DatasetReader, retriever: ExampleSelector, fixed_ids: Sequence[str] | None, train: Sequence[Row]
) -> Problems:
    """Return a problem if there are too few training rows, and a problem for each missing column.

    Args:
        reader: Reader with the column names.
        retriever: Selector of worked examples.
        fixed_ids: Numbers of the rows that the retriever always shows; None if they depend on the query.
        train: Rows from which examples are selected.
    """
    if isinstance(retriever, StaticSelector) and retriever.ids is not None:
        problems = _missing_ids(reader, fixed_ids or (), len(train))
    else:
        problems = _missing_rows(reader, retriever, len(train))
    try:
        reader.check(train, ())
    except InContextError as error:
        problems += error.problems
    return problems


def _missing_rows(reader: DatasetReader, retriever: ExampleSelector, row_count: int) -> Problems:
    count = getattr(retriever, "k", None)
    # A custom selector can have no `k`; it shows at least one example.
    if type(count) is not int:
        count = 1
    if count <= row_count:
        return []
    text = f"{type(retriever).__name__} shows {count} worked examples"
    if not row_count:
        return [Problem("train", f"{text}, {_advice_without_rows(reader)}")]
    return [Problem("retriever.k", f"{text}, but only {row_count} training rows exist; request fewer")]


def _missing_ids(reader: DatasetReader, ids: Sequence[str], row_count: int) -> Problems:
    missing = [name for name in ids if not name.isdecimal() or int(name) >= row_count]
    if not missing:
        return []
    advice = f"but only {row_count} training rows exist, counted from 0"
    if not row_count:
        advice = _advice_without_rows(reader)
    return [Problem("retriever.ids", f"shows row {', '.join(missing)}, {advice}")]


def _advice_without_rows(reader: DatasetReader) -> str:
    # Both splits can have the same name.
    names = dict.fromkeys((reader.train_split, reader.test_split))
    splits = ", ".join(f"{name!r}: [...]" for name in names)
    return (
        f"but the training split is empty: add --rows {reader.train_split}=FILE (Python: the rows as {{{splits}}}, "
        "or train=), or use ZeroRetriever"
    )


def problems_of_templates(prompt_template: RowTemplate, ice_template: RowTemplate | None, name: str) -> Problems:
    """Return the reasons why worked examples cannot be shown."""
    if ice_template is None:
        return [
            Problem("ice_template", "missing; the retriever chooses worked examples, and this template renders them")
        ]
    if prompt_template.ice_token is None:
        return [Problem(f"{name}.ice_token", "missing; the template has no place for worked examples without it")]
    places = [prompt_template.places(label) for label in prompt_template.labels or (None,)]
    if not ice_template.is_dialogue or "text" not in places:
        return []
    text = (
        f"its ice_token {prompt_template.ice_token!r} is inside text, and ice_template makes turns with roles; "
        "put the token among the items of `begin` or `round`, or make ice_template text"
    )
    return [Problem(name, text)]


def no_place_message(name: str) -> str:
    """Return the message that a template has no place for worked examples."""
    return f"{name} has no place for worked examples; set ice_token and add the token to the text"


def answer_column(reader: DatasetReader, inferencer: Inferencer, rows: Any) -> str:
    """Return the answer column, which every row must have to become a fine-tuning row.

    Raises:
        InContextError: The inferencer has no single reply, the rows are not one split, or an answer is missing.
    """
    answer = reader.output_column
    if inferencer.asks != "gen":
        text = f"samples: {inferencer.name} has no single reply to learn; use GenInferencer"
        raise InContextError(text, name="inferencer", value=inferencer.name)
    if isinstance(rows, Mapping):
        text = f"samples: expected rows, got a mapping of {', '.join(rows)}: pass one split"
        raise InContextError(text, name="rows")
    if answer is None:
        raise InContextError("samples: the reader has no output_column, so no row has an answer", name="output_column")
    _check_answers(rows, answer)
    return answer


def _check_answers(rows: Sequence[Row], answer: str) -> None:
    row_numbers = [str(number) for number, row in enumerate(rows) if answer not in row]
    if row_numbers:
        text = f"samples: rows {some(row_numbers, ', ')} have no answer; the output column is {answer!r}"
        raise InContextError(text, path=f"rows[{row_numbers[0]}]", name=answer)


def warn_of_no_place(template: RowTemplate) -> None:
    """Warn of labels whose prompt has no place for worked examples."""
    labels = [label for label in template.labels or (None,) if not template.places(label)]
    if labels:
        template_name = "the template"
        if labels != [None]:
            template_name += f" for label {', '.join(map(repr, labels))}"
        text = (
            f"worked examples are not shown: {template_name} has no {template.ice_token!r} in it; "
            "add the ice_token at their place, or use ZeroRetriever"
        )
        warn(InContextWarning(text, name=", ".join(map(str, labels))))


def warn_of_own_answers(
    rows: Sequence[Row], train: Sequence[Row], ids: Sequence[tuple[int, ...]], answer: str | None
) -> None:
    """Warn of rows whose own answer is in a worked example.

    Args:
        rows: Test rows.
        train: Rows of the worked examples.
        ids: Positions in `train` of the worked examples of each row.
        answer: Name of the answer column.
    """
    if answer is None:
        return
    row_numbers = [
        str(number) for number, row in enumerate(rows) if answer in row and _is_shown(row, train, ids[number])
    ]
    if not row_numbers:
        return
    text = (
        f"{len(row_numbers)} of {len(rows)} rows (the first is row {row_numbers[0]}) have their own answer in a worked "
        "example, so that their score is meaningless: remove them from the training rows, or set another train_split"
    )
    warn(InContextWarning(text, name=", ".join(row_numbers)))


def _is_shown(row: Row, train: Sequence[Row], ids: Sequence[int]) -> bool:
    return any(train[position] == row for position in ids)


def warn_of_columns(
    rows: Sequence[Row], train: Sequence[Row], prompt_template: Any, ice_template: Any, input_columns: Sequence[str]
) -> None:
    """Warn of names in braces that are probably misspelt columns.

    Args:
        rows: Test rows.
        train: Rows of the worked examples.
        prompt_template: Template of a row, if any.
        ice_template: Template of a worked example, if any.
        input_columns: Names of the input columns.
    """
    columns = set[str]().union(*rows)
    templates = {"prompt_template": (prompt_template, columns)}
    # Without a prompt_template, the ice_template is used for both. Warn once.
    if ice_template is not prompt_template:
        templates["ice_template"] = (ice_template, columns.union(*train))
    suspects: Problems = []
    for name, (template, names) in templates.items():
        if template is not None:
            suspects += _suspects_of(name, template, names, input_columns)
    suspects = [*dict.fromkeys(suspects)]
    if suspects:
        texts = [f"{place.partition('.')[0]}: {text}" for place, text in suspects]
        warn(InContextWarning(some(texts, "; "), name=", ".join([suspect.place for suspect in suspects])))


def _suspects_of(name: str, template: Any, columns: set[str], input_columns: Sequence[str]) -> Problems:
    tokens = getattr(template, "tokens", ())
    # Braces inside a token of `column_token_map` do not name a column.
    braces_of_tokens = "\0".join(token for token, _ in tokens)
    spellings = {**{f"{{{column}}}": column for column in columns}, **dict(tokens)}
    suspects: Problems = []
    for text in _prompt_texts(template):
        unused = columns - {column for spelling, column in spellings.items() if spelling in text}
        suspects += _misspelt(text, columns, unused, input_columns)
    return inside(name, [suspect for suspect in suspects if suspect.place not in braces_of_tokens])


def _misspelt(text: str, columns: set[str], unused: set[str], input_columns: Sequence[str]) -> Problems:
    """Return a problem for each name in braces of one prompt that is probably a misspelt column."""
    missing = ", ".join([repr(name) for name in input_columns if name in unused])
    suspects: Problems = []
    for match in _NAME.finditer(text):
        braces, column = match[0], _intended_column(match[1], unused)
        # If no input column is unused and no column is similar, the braces are literal text.
        if braces[1:-1] not in columns and (column or missing):
            suspects.append(Problem(braces, _unknown_column_message(braces, column, missing)))
    return suspects


def _unknown_column_message(braces: str, column: str | None, missing: str) -> str:
    text = f"`{braces}` is not a column and is sent unchanged"
    if missing:
        text += f", and the input column {missing} is not in it"
    if column:
        text += f"; did you mean `{{{column}}}`?"
    return text


def _intended_column(name: str, columns: set[str]) -> str | None:
    """Return the column that a name in braces probably means, which can be misspelt."""
    if name in columns:
        return name
    # `similar` distinguishes the case of letters, so names are also compared without case.
    by_folded_name = {column.casefold(): column for column in sorted(columns, reverse=True)}
    return similar(name, sorted(columns)) or by_folded_name.get(name.casefold())


def _prompt_texts(template: Any) -> Iterator[str]:
    """Yield the text of each prompt of a template, for all labels."""
    content: Any = getattr(template, "template", None) or getattr(template, "messages", ())
    for prompt in content.values() if template.labels else [content]:
        yield "\n".join([node for node in iter_nodes(prompt) if isinstance(node, str)])
