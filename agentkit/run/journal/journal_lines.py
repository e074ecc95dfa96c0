"""Lines of a journal: the first line has the context of the run, each other line has an entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from agentkit.errors import JournalError
from agentkit.models.model import Reply, Usage
from agentkit.output.output_validators import CheckedOutput
from agentkit.run.journal.failed_call import error_data, read_error
from agentkit.run.journal.journal_steps import Entry
from agentkit.run.journal.sent_layers import SentLayers
from agentkit.run.parts.compaction import CompactionResult
from agentkit.run.parts.decisions import decision_data, read_decision
from agentkit.run.parts.recaller import RecallResult
from agentkit.run.parts.run_inbox import SentMessage
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, Selection, ToolSpec
from agentkit_prompts.invalid_values import reason_of
from agentkit_tools.calling.result_content import Content
from agentkit_tools.calling.tool_result import ToolResult, ToolStatus

_FORMAT = 1
_NOT_JSON = (ValueError, TypeError, RecursionError)
"""Errors for a value that JSON cannot represent."""


def check_format(line: int, head: object) -> None:
    """Refuse a first line that is no head of a journal, or has the format of a newer version."""
    version = None
    if isinstance(head, Mapping):
        version = head.get("journal")
    if not isinstance(version, int):
        version = None
    if version is None or isinstance(version, bool) or version < 1:
        problem = "expected an object with `journal`, the number of its format, 1 or more"
        raise invalid_line(line, problem, name="journal", value=version)
    if version > _FORMAT:
        problem = (
            f"format {version} was written by a newer agentkit; this version reads up to {_FORMAT}: upgrade agentkit"
        )
        raise invalid_line(line, problem, name="journal", value=version)


def invalid_line(line: int, problem: str, *, name: str | None = None, value: str | int | None = None) -> JournalError:
    """Return the error of a line that cannot be read."""
    return JournalError(f"journal, line {line}: {problem}", line=line, name=name, value=value)


def read_objects(lines: list[bytes]) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON object of each line."""
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise invalid_line(number, f"not JSON ({error})") from error
        if not isinstance(data, dict):
            kind = type(data).__name__
            raise invalid_line(number, f"expected an object, got {kind}", value=kind)
        yield data


def _json_line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")) + "\n"


def head_line(names: Mapping[str, Any], context: PromptContext) -> str:
    """Return the first line of a journal.

    Raises:
        JournalError: The context has values that JSON cannot represent.
    """
    try:
        data = context_adapter().dump_python(context, mode="json", exclude={"session_key"})
        return _json_line({"journal": _FORMAT, **names, "context": data})
    except _NOT_JSON as error:
        raise JournalError(f"the context cannot be stored as JSON: {_cause(error)}", name="context") from error


def entry_line(entry: Entry) -> str:
    """Return the line of an entry.

    Raises:
        JournalError: The result has values that JSON cannot represent.
    """
    try:
        data = {"effect": entry.effect, "answer": _codecs()[entry.effect][0](entry.answer)}
        if entry.at is not None:
            data["at"] = entry.at
        if entry.layers is not None:
            data["layers"] = entry.layers._asdict()
        return _json_line(data)
    except _NOT_JSON as error:
        raise JournalError(
            f"the answer to {entry.effect} cannot be stored as JSON: {_cause(error)}", name=entry.effect
        ) from error


def _cause(error: BaseException) -> str:
    """Return the message of the original error, which pydantic wraps in another error."""
    return str(error.__cause__ or error)


def unreadable_line(line: int, error: Exception) -> JournalError:
    """Return the error of a line that lacks a field or has a value of another type."""
    if isinstance(error, KeyError):
        return invalid_line(line, f"{error} is missing", name=str(error.args[0]))
    return invalid_line(line, reason_of(error), value=type(error).__name__)


def read_entry(data: Mapping[str, Any]) -> Entry:
    """Read an entry from the data of its line."""
    effect, at, layers = data["effect"], data.get("at"), data.get("layers")
    if not isinstance(effect, str) or effect not in _codecs():
        raise TypeError(f"effect: expected one of {', '.join(_codecs())}, got {effect!r:.40}")
    if not (at is None or type(at) in (int, float)):
        raise TypeError(f"at: expected seconds, got {type(at).__name__}")
    answer = _codecs()[effect][1](data["answer"])
    if layers is not None:
        layers = SentLayers.from_data(layers)
    return Entry(effect, answer, at, layers)


@lru_cache(maxsize=1)
def context_adapter() -> TypeAdapter[PromptContext]:
    """Return the reader and writer of contexts."""
    return TypeAdapter(PromptContext)


_Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""Functions that convert a result to JSON data, and JSON data to the result."""


@lru_cache(maxsize=1)
def _codecs() -> Mapping[str, _Codec]:
    """Return the codec of each effect."""
    from agentkit.run.parts.run_guards import GuardCheck, Stage
    from agentkit.run.parts.verdicts import Verdict

    def codec_of(kind: Any) -> _Codec:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        return lambda answer: adapter.dump_python(answer, mode="json"), adapter.validate_python

    write_usage, read_usage = codec_of(Usage | None)
    write_content, read_content = codec_of(Content)
    read_status, read_stage = codec_of(ToolStatus)[1], codec_of(Stage)[1]

    def write_result(answer: tuple[ToolResult, Usage | None]) -> dict[str, Any]:
        result, usage = answer
        return {
            "call_id": result.call_id,
            "name": result.name,
            "content": write_content(result.content),
            "status": result.status,
            "whole": result.whole,
            "usage": write_usage(usage),
            **error_data(result),
        }

    def read_result(data: Mapping[str, Any]) -> tuple[ToolResult, Usage | None]:
        content = read_content(data["content"])
        whole = data["whole"]
        if whole is not None:
            whole = checked_text(whole)
        status = read_status(data["status"])
        call_id, name = checked_text(data["call_id"]), checked_text(data["name"])
        if not call_id:
            raise ValueError("call_id: expected the id of a call, got an empty text")
        result = ToolResult(call_id, name, content, status, error=read_error(data), whole=whole)
        return result, read_usage(data["usage"])

    write_verdict, read_verdict = codec_of(Verdict)

    def write_check(check: GuardCheck) -> dict[str, Any]:
        row = {**check._asdict(), "verdict": write_verdict(check.verdict), "usage": write_usage(check.usage)}
        return {name: value for name, value in row.items() if value}

    def read_check(data: Mapping[str, Any]) -> GuardCheck:
        names = [checked_text(data.get(name, "")) for name in ("stage", "guard", "subject")]
        verdict, usage = read_verdict(data["verdict"]), read_usage(data.get("usage"))
        return GuardCheck(read_stage(names[0]), names[1], names[2], verdict, usage, checked_text(data.get("text", "")))

    def read_checked(data: Any) -> CheckedOutput:
        return CheckedOutput(None, data if data is None else checked_text(data))

    return {
        "Begin": codec_of(tuple[int, int]),
        "Compact": codec_of(CompactionResult),
        "Equip": codec_of(tuple[ToolSpec, ...]),
        "SelectExamples": codec_of(tuple[Selection, ...]),
        "Recall": codec_of(RecallResult),
        "Append": codec_of(tuple[Message, ...]),
        "CallModel": codec_of(Reply),
        "AskApproval": (
            lambda decisions: {call: decision_data(decision) for call, decision in decisions.items()},
            lambda data: {call: read_decision(row) for call, row in data.items()},
        ),
        "CallTools": (write_result, read_result),
        "CheckOutput": (lambda checked: checked.problem, read_checked),
        "CheckGuard": (write_check, read_check),
        "Receive": codec_of(tuple[SentMessage, ...]),
    }


def checked_text(value: Any) -> str:
    """Return a value that must be text.

    Raises:
        TypeError: The value is no text.
    """
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value
