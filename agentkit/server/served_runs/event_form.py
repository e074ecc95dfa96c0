"""Events of runs as JSON data, for clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from agentkit.models.model import Usage
from agentkit.run.engine import events
from agentkit.run.engine.events import Event
from agentkit.run.engine.run_result import RunResult
from agentkit.run.parts.citations import citation_form
from agentkit.run.parts.decisions import decision_data
from agentkit_prompts.context.json_form import part_adapter
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Audio, File, Image, Video
from agentkit_tools.calling.shown_arguments import argument_lines

_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_ANY: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_bytes="base64"))
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)


def event_form(event: Event) -> tuple[str, dict[str, Any]]:
    """Return the kind of an event, its class in lower case with underscores, and its data as JSON."""
    kind = snake_case(type(event).__name__)
    return kind, _FORMS.get(type(event), _fields)(event)


def snake_case(name: str) -> str:
    """Return the name of a class in lower case with underscores."""
    return _WORD.sub("_", name).lower()


def usage_form(usage: Usage) -> dict[str, Any]:
    """Return usage as JSON data: tokens, and `money` in US dollars or None."""
    return asdict(usage)


def call_form(call: ToolCall) -> dict[str, Any]:
    """Return a tool call as JSON data: its id, the name of the tool, and the arguments as JSON text."""
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def waiting_form(call: ToolCall) -> dict[str, Any]:
    """Return a call that needs approval as JSON data: also `lines`, its arguments for the person who approves it."""
    return {**call_form(call), "lines": argument_lines(call.arguments)}


def message_form(message: Message) -> dict[str, Any]:
    """Return a message as JSON data, without the opaque data of the provider."""
    form: dict[str, Any] = _MESSAGE.dump_python(message, mode="json", exclude={"opaque"})
    return form


def output_form(output: Any) -> Any:
    """Return an output as JSON data; bytes become base64, and other values without a JSON form become text."""
    if isinstance(output, str | int | float | bool | None):
        return output
    if isinstance(output, BaseModel):
        return output.model_dump(mode="json")
    if isinstance(output, Image | Audio | Video | File):
        return part_adapter().dump_python(output, mode="json")
    return _ANY.dump_python(output, mode="json", fallback=str, warnings=False)


def _fields(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in type(event).__dataclass_fields__}


def _composed(event: events.PromptComposed) -> dict[str, Any]:
    composition = event.composition
    return {"step": event.step, "messages": len(composition.messages), "prefix_hash": composition.prefix_hash}


def _replied(event: events.ModelReplied) -> dict[str, Any]:
    reply = event.reply
    return {
        "step": event.step,
        "text": reply.message.text,
        "tool_calls": [call_form(call) for call in reply.message.tool_calls],
        "finish_reason": reply.finish_reason,
        "model": reply.model,
        "usage": usage_form(reply.usage),
    }


def _recalled(event: events.Recalled) -> dict[str, Any]:
    return {
        "query": event.query,
        "documents": [
            {"source": document.source, "id": document.id, "score": document.score} for document in event.documents
        ],
        "messages": [{"session": message.session, "position": message.position} for message in event.recalled],
        "facts": len(event.knowledge),
        "degraded": list(event.degraded),
    }


def _result(event: events.ToolFinished) -> dict[str, Any]:
    result = event.result
    return {
        "step": event.step,
        "id": result.call_id,
        "name": result.name,
        "status": result.status,
        "text": result.message.text,
    }


def answer_form(result: RunResult[Any]) -> dict[str, Any]:
    """Return the answer of a run: `output`, `finish_reason`, `citations` and `unknown_labels`."""
    return {
        "output": output_form(result.output),
        "finish_reason": result.finish_reason,
        "citations": [citation_form(citation) for citation in result.citations],
        "unknown_labels": list(result.unknown_labels),
    }


def _finished(event: events.RunFinished[Any]) -> dict[str, Any]:
    result: RunResult[Any] = event.result
    return {
        **answer_form(result),
        "steps": result.steps,
        "usage": usage_form(result.usage),
    }


def _nested(event: events.Nested) -> dict[str, Any]:
    kind, data = event_form(event.event)
    return {"call_id": event.call_id, "name": event.name, "kind": kind, "event": data}


_FORMS: Mapping[type, Any] = {
    events.PromptComposed: _composed,
    events.ModelReplied: _replied,
    events.Recalled: _recalled,
    events.ApprovalAsked: lambda event: {"step": event.step, "calls": [waiting_form(call) for call in event.calls]},
    events.ApprovalGiven: lambda event: {
        "step": event.step,
        "call": call_form(event.call),
        "decision": decision_data(event.decision),
    },
    events.ToolStarted: lambda event: {"step": event.step, **call_form(event.call)},
    events.ToolProgress: lambda event: {
        "step": event.step,
        "id": event.call.id,
        "name": event.call.name,
        "message": event.message,
        "done": event.done,
        "total": event.total,
    },
    events.ToolFinished: _result,
    events.MessageReceived: lambda event: {
        "step": event.step,
        "text": event.sent.message.text,
        "by": event.sent.by,
        "when": event.sent.when,
        "sent_at": event.sent.sent_at,
    },
    events.RunFinished: _finished,
    events.Nested: _nested,
}
