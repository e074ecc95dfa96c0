"""Texts of the problems of an answer, for the repair message to the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from agentkit_prompts.invalid_values import JSON_WORDS, invalid_values

_MAX_PROBLEMS = 50
"""Maximum number of problems in a repair message."""


def problem_texts(error: ValidationError, text: str, *, wrapper: str) -> Iterator[str]:
    """Yield the problems of a repair message as `path: problem`.

    Args:
        error: The error of pydantic.
        text: The JSON text of the answer.
        wrapper: The property around a wrapped answer.
    """
    data: Any = None
    # The only problem of other texts is that they are not JSON.
    with suppress(ValueError):
        data = from_json(text.encode())
    problems = invalid_values(error, data, words=JSON_WORDS)
    for problem in problems[:_MAX_PROBLEMS]:
        # A path starts inside of the wrapper, as in the output type.
        if problem.path[:1] == (wrapper,) and error.title == wrapper:
            problem = problem._replace(path=problem.path[1:])
        # Without the value: the texts are also in errors and logs, and an answer can contain personal data.
        yield f"{problem.place or 'answer'}: {problem.text}"
    if len(problems) > _MAX_PROBLEMS:
        yield f"and {len(problems) - _MAX_PROBLEMS:,} more"
