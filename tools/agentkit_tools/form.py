"""Forms: questions of a running tool to the person of the run, which wait like calls that need approval."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.invalid_values import place_of
from agentkit_prompts.limits import MAX_LISTED
from agentkit_prompts.schemas.schema_problems import InvalidSchemaError
from agentkit_tools.errors import ToolError, describe_error

if TYPE_CHECKING:
    from agentkit_prompts.schemas.json_validator import JsonValidator

FORM = "fill_in_form"
"""Name of the call that represents a form."""
Decide: TypeAlias = Callable[[ToolCall], Awaitable[Mapping[str, Any] | None]]
"""Returns the arguments with which a person approves a form; None if the person denies it."""

QUESTION_ID = "ask-"
"""Start of the ids of questions of a running call; the id of the call and a slash precede it in a run."""
_DIGITS = 8
_ATTEMPTS = 3
_MAX_CHARS = 100_000


def is_form(call: ToolCall) -> bool:
    """True if a waiting call is a form."""
    return call.name == FORM and is_question_id(call.id)


def is_question_id(call_id: str) -> bool:
    """True if an id can be the id of a question of a running call."""
    return call_id.rpartition("/")[2].startswith(QUESTION_ID)


async def fill_form(question: str, schema: Mapping[str, Any], decide: Decide) -> dict[str, Any] | None:
    """Return the values of a form; None if the person declines.

    The arguments of the call are `question`, `fields`, `required` and `answer` with the default values. A person
    changes `answer`, and approves the call. After an invalid answer, the person is asked again, up to two times.

    Args:
        question: Text for the person.
        schema: JSON Schema of an object.
        decide: Requests the decision about the call.

    Raises:
        ToolError: The schema is invalid, the form is too large, or all answers were invalid.
    """
    _check_size(question, schema)
    validator = _validator(schema)
    fields: Mapping[str, Any] = schema.get("properties") or {}
    arguments: dict[str, Any] = {
        "question": question,
        "fields": fields,
        "required": list(schema.get("required") or ()),
        "answer": {name: _default(field) for name, field in fields.items()},
    }
    # Another question has another id, so that a stored answer belongs to the question that the person has read.
    text = json.dumps(arguments, sort_keys=True)
    name = f"{QUESTION_ID}{sha256(text.encode()).hexdigest()[:_DIGITS]}"
    problems: list[str] = []
    for attempt in range(1, _ATTEMPTS + 1):
        call_id = name
        if attempt > 1:
            call_id = f"{name}-{attempt}"
            arguments = {**arguments, "problems": problems}
        approved = await decide(ToolCall(call_id, FORM, json.dumps(arguments)))
        if approved is None:
            return None
        answer = approved.get("answer", arguments["answer"])
        if isinstance(answer, Mapping):
            # Null is a field without a value.
            answer = {field: value for field, value in answer.items() if value is not None}
        violations = validator.problems(answer)
        if not violations:
            return dict(answer)
        problems = [f"{place_of(problem.path) or 'answer'}: {problem.expected}" for problem in violations[:MAX_LISTED]]
    raise ToolError(f"the form was not filled in: {'; '.join(problems)}")


def _check_size(question: str, schema: Mapping[str, Any]) -> None:
    """Refuse a form that a person could not read, or that would fill the journal."""
    try:
        size = len(json.dumps([question, schema]))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"the form cannot be used: {describe_error(error)}") from error
    if size > _MAX_CHARS:
        raise ToolError(f"the form has {size:,} characters, {_MAX_CHARS:,} are allowed")


def _validator(schema: Mapping[str, Any]) -> JsonValidator:
    from agentkit_prompts.schemas.json_validator import JsonValidator

    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise ToolError("a form needs the JSON Schema of an object")
    try:
        return JsonValidator({**schema, "type": "object"}, is_lenient=True)
    except InvalidSchemaError as error:
        raise ToolError(f"the schema of the form is invalid: {error}") from error


def _default(field: Any) -> Any:
    if not isinstance(field, Mapping):
        return None
    return field.get("default")
