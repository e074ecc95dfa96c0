"""Texts of the problems of an answer, for the repair message to the model."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from agentkit_prompts.errors import start_of

_MAX_PROBLEMS = 50
"""Maximum number of problems in a repair message."""
_MAX_PATH = 200
"""Maximum characters of the path of a problem."""


def problem_texts(error: ValidationError, *, wrapper: str) -> Iterator[str]:
    """Yield the problems of a repair message as `path: problem`; `wrapper` is the property around a wrapped answer."""
    items = error.errors(include_url=False, include_context=False, include_input=False)
    for item in items[:_MAX_PROBLEMS]:
        keys = [*map(str, item["loc"])]
        # A path starts inside of the wrapper, as in the output type.
        if keys and keys[0] == wrapper and error.title == wrapper:
            keys = keys[1:]
        yield f"{start_of('.'.join(keys) or 'answer', _MAX_PATH)}: {item['msg']}"
    if len(items) > _MAX_PROBLEMS:
        yield f"and {len(items) - _MAX_PROBLEMS:,} more"
