"""Rows of evaluations from stored runs, without secrets and personal data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentkit.errors import JournalError
from agentkit.evals.eval_row import EvalRow
from agentkit.observing.redaction import Redact, redacted
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.context.wire.write_openai_chat import openai_message

_STRUCTURE = frozenset(("role", "type", "id", "tool_call_id", "format"))
"""Keys of messages and content parts whose values have a fixed meaning."""
_DATA = frozenset(("data", "file_data"))
"""Keys of content parts with encoded bytes."""
_ESCAPED = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
"""Characters that end a line for some readers of text, and characters that UTF-8 cannot represent."""


def first_context(journal: Journal, session: SessionProtocol | None = None) -> PromptContext:
    """Return the input of a run, and the conversation before it.

    Args:
        journal: The journal of the run.
        session: The session of the run; None if the run had none.

    Raises:
        JournalError: The session is missing, or has fewer messages than before the run.
    """
    if journal.session is None:
        return journal.context
    name = journal.session
    if session is None:
        raise JournalError(
            f"run {journal.run_id!r}: its earlier turns are in session {name!r:.80}: pass the session",
            name="session",
            value=name,
        )
    position = session.position(f"{journal.run_id}:0")
    starts = [entry.answer[0] for entry in journal.entries if entry.effect == "Begin"]
    if starts:
        position = starts[0]
    conversation = session.conversation
    if position is None or position > len(conversation):
        position = len(conversation)
    user_input = journal.context.user_input
    if journal.continues_session and position < len(conversation):
        # The run answered the last message of the session.
        user_input = replace(user_input, input=conversation[position].content)
    return journal.context.evolve(user_input=user_input, conversation=conversation[:position])


def case_of(
    context: PromptContext,
    *,
    id: str = "",
    expected: Any = None,
    tags: Sequence[str] = (),
    redact: Redact | None = None,
) -> EvalRow:
    """Return a row with the input of a run and the conversation before it. The row has no user.

    Args:
        context: The context of the run, see `first_context`.
        id: Id of the row, such as the id of the run.
        expected: The expected answer, as JSON data.
        tags: Names of the slices of the row.
        redact: Returns the text to record for each text and number of the input, the additional kwargs, the
            conversation and the expected answer. A text for which it returns None or fails becomes `[removed]`.
            Thinking is left out. The bytes of media are not changed.

    Raises:
        MediaError: The run has media that the format of rows cannot represent, such as video.
    """
    row = EvalRow(
        input=context.user_input.input,
        id=id,
        expected=expected,
        additional_kwargs=dict(context.user_input.additional_kwargs),
        history=tuple(context.conversation),
        tags=tuple(tags),
    )
    data = json.loads(case_line(row))
    for name in ("input", "expected", "additional_kwargs", "history"):
        if name in data:
            data[name] = _redacted(data[name], redact, is_wire=name in ("input", "history"))
    return EvalRow.model_validate(data)


def case_line(row: EvalRow) -> str:
    """Return a row as a line of JSON, as a file of rows contains it, without a line break."""
    message = openai_message(UserInput(row.input).message)
    data: dict[str, Any] = {"input": message["content"]}
    fields = {
        "id": row.id,
        "expected": row.expected,
        "additional_kwargs": row.additional_kwargs,
        "history": [_wire(each) for each in row.history],
        "script": row.script,
        "goal": row.goal,
        "user": row.user,
        "tags": row.tags,
    }
    data |= {name: value for name, value in fields.items() if value is not None and (value or name == "expected")}
    text = json.dumps(data, ensure_ascii=False, default=_plain)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _wire(message: Message) -> Mapping[str, Any]:
    """Return a message in the format of OpenAI, without thinking and without data of a provider."""
    calls = tuple([replace(call, opaque={}) for call in message.tool_calls])
    return openai_message(replace(message, thinking=(), opaque={}, tool_calls=calls))


def _plain(value: object) -> object:
    """Return data of the context as JSON data."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    return str(value)


def _redacted(value: Any, redact: Redact | None, *, is_wire: bool) -> Any:
    """Return JSON data with each text and number redacted.

    Args:
        value: The data.
        redact: The function.
        is_wire: True for messages and content parts, which have entries that are no content.
    """
    if redact is None:
        return value
    if isinstance(value, str):
        return redacted(redact, value)
    if isinstance(value, dict):
        return {key: _entry(key, each, redact, is_wire=is_wire) for key, each in value.items()}
    if isinstance(value, list):
        return [_redacted(each, redact, is_wire=is_wire) for each in value]
    if isinstance(value, bool) or value is None:
        return value
    # A number, such as the number of a phone, becomes text only if the function changes it.
    text = json.dumps(value)
    changed = redacted(redact, text)
    return value if changed == text else changed


def _entry(key: str, value: Any, redact: Redact, *, is_wire: bool) -> Any:
    """Return the redacted value of a key."""
    if is_wire and isinstance(value, str):
        if key in _STRUCTURE or key in _DATA or value.startswith("data:"):
            return value
        if key == "arguments":
            return _redacted_json(value, redact)
    return _redacted(value, redact, is_wire=is_wire)


def _redacted_json(text: str, redact: Redact) -> str:
    """Return the arguments of a call with each value redacted."""
    try:
        data = json.loads(text)
    except ValueError:
        return redacted(redact, text)
    return json.dumps(_redacted(data, redact, is_wire=False), ensure_ascii=False)
