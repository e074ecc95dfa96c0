"""`/agents/{agent}/ag-ui`: the endpoint of AG-UI chat front ends. Needs the extra `ag-ui`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from ag_ui.core import BaseEvent, ResumeEntry, RunAgentInput
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from agentkit.ground.threads import in_thread
from agentkit.run.engine.event_sink import streaming
from agentkit.run.parts.run_inbox import Inbox
from agentkit.runs.executor import Executor
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Caller
from agentkit.server.ag_ui.ag_ui_events import AGUIEvents
from agentkit.server.ag_ui.ag_ui_interrupts import decisions_of, interrupted_run
from agentkit.server.endpoints.exchange import EventStream, read_json, sse, validated
from agentkit.server.endpoints.http_endpoint import Endpoint, Kwargs, Locale, Tags
from agentkit.server.openai_endpoints.openai_requests import ToolName
from agentkit.server.owner import Owner
from agentkit.server.request_runs.client_tools import ClientTool
from agentkit.server.request_runs.paused_run import PausedRun
from agentkit.server.request_runs.request_messages import messages_of
from agentkit.server.request_runs.request_run import RequestRun
from agentkit.server.request_runs.request_runner import RequestRunner
from agentkit.server.served_agents import ServedAgents
from agentkit.server.server_errors import BadRequest, Conflict, UnknownResource, Unprocessable
from agentkit.server.server_options import ServerOptions
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import UserInput

_MAX_TOOLS = 128
_MEDIA_KINDS = {"image": "image_url", "audio": "audio_url", "video": "video_url", "document": "file_url"}
"""Types of parts in messages, by the types of AG-UI. The model of the agent may refuse a type."""
_DISPLAY_ROLES = ("activity", "reasoning")
"""Roles of messages that are only displayed and never sent to a model."""


class _Props(BaseModel):
    """Fields of `forwardedProps`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    additional_kwargs: Kwargs = {}
    user: str | None = None
    locale: Locale | None = None
    tags: Tags = []


class _Tool(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: ToolName
    description: str
    parameters: dict[str, Any] | None = None


class _Tools(BaseModel):
    tools: list[_Tool] = Field(max_length=_MAX_TOOLS)


class AGUIEndpoints:
    """The endpoint of the AG-UI protocol.

    Args:
        agents: The agents.
        store: Store of the paused runs.
        executor: Executor of the server; its worker resumes paused runs.
        runner: Executes the runs.
        options: Limits of the server.
    """

    def __init__(
        self, agents: ServedAgents, store: RunStore, executor: Executor, runner: RequestRunner, options: ServerOptions
    ) -> None:
        self._agents = agents
        self._store = store
        self._executor = executor
        self._runner = runner
        self._options = options

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints."""
        path = "/agents/{agent}/ag-ui"
        summary = "A run as events of AG-UI"
        return [Endpoint("POST", path, self.run, summary, "run", RunAgentInput, media_type="text/event-stream")]

    async def run(self, request: Request, caller: Caller) -> Response:
        """Run an agent."""
        loaded = self._agents.get(request.path_params["agent"], caller, "agent")
        body = validated(RunAgentInput, await read_json(request, self._options))
        props = _Props()
        if body.forwarded_props is not None:
            props = validated(_Props, body.forwarded_props)
        if body.state:
            raise Unprocessable("state: agents do not store state of the front end: omit it", param="state")
        messages: tuple[Message, ...] = ()
        if not body.resume:
            messages = await _messages(body)
        run = RequestRun(
            agents=self._agents,
            name=loaded.name,
            owner=Owner(caller.tenant, caller.as_user(props.user)),
            permissions=caller.permissions,
            messages=messages,
            kwargs=props.additional_kwargs,
            locale=props.locale,
            tags=tuple(props.tags),
            tools=_tools(body),
            can_pause="approve" in caller.permissions,
            inbox=Inbox(),
        )
        calls: list[str] = []
        if body.resume:
            run.paused = paused = await self._paused_run(body, body.resume, run, caller)
            run.run_id = paused.record.run_id
            run.inbox = None  # the store has the messages of a paused run
            calls = [call.call_id for call in paused.record.waiting]
        writer = AGUIEvents(body.thread_id, body.run_id, run.run_id, streams_text=run.streams_text, started=calls)
        stream = EventStream(
            self._stream(run, caller, writer),
            self._options,
            ending=lambda error: b"".join(_bytes(writer.error(str(error.body["error"]["message"]), error.code))),
        )
        # The protocol has only the id of the client: messages to the run need the id on the server.
        stream.headers["Location"] = f"/runs/{run.run_id}"
        return stream

    async def _stream(self, run: RequestRun, caller: Caller, writer: AGUIEvents) -> AsyncGenerator[bytes, None]:
        async with aclosing(streaming(partial(self._runner.execute, run, caller))) as events:
            async for event in events:
                for data in _bytes(writer.events_of(event)):
                    yield data
        # A client may answer an interrupt as soon as it has it: the run must be stored before.
        if run.result.waiting:
            await self._runner.wait_stored()
        for data in _bytes(writer.end(run.result)):
            yield data

    async def _paused_run(
        self, body: RunAgentInput, resume: Sequence[ResumeEntry], run: RequestRun, caller: Caller
    ) -> PausedRun:
        """Return the run whose interrupts a request answers.

        Raises:
            UnknownResource: The caller has no such run of this agent.
            Conflict: The run does not wait for a decision.
            Unprocessable: An interrupt has no answer, or the request changes the input of the run.
        """
        # The endpoint requires only the permission to run agents.
        caller.check("approve")
        run_id = interrupted_run(resume)
        await self._runner.wait_stored()
        record = await in_thread(self._store.get, run_id, tenant=caller.tenant)
        # The error of an unknown run: a caller must not learn which runs of other users exist.
        if record.agent != run.name or record.user != run.owner.user:
            raise UnknownResource(f"unknown run {run_id!r:.80}", code="run_not_found")
        if record.session is not None:
            raise Conflict(
                f"resume: the run belongs to a session: use POST /runs/{run_id}/decisions", code="not_waiting"
            )
        if record.state != "waiting":
            raise Conflict(f"resume: the run does not wait for a decision: it is {record.state}", code="not_waiting")
        decisions = decisions_of(resume, record)
        _check_input(body, run, record.input or UserInput())
        journal = await in_thread(self._store.journal, run_id)
        # A run that waits has started, so it has a journal.
        assert journal is not None
        return PausedRun(record, journal, decisions, self._store, self._executor.worker)


def _check_input(body: RunAgentInput, run: RequestRun, user_input: UserInput) -> None:
    """Check that a request which resumes a run does not change the input of the run."""
    if body.messages:
        last = body.messages[-1]
        if last.role == "user" and _text(last) != user_input.text:
            raise Unprocessable(
                "messages: a paused run resumes with its original input: send the new message after the run",
                param="messages",
            )
    if run.kwargs and dict(run.kwargs) != user_input.additional_kwargs:
        raise Unprocessable(
            "forwardedProps.additional_kwargs: a paused run resumes with its original input: omit them",
            param="forwardedProps",
        )


def _bytes(events: Iterator[BaseEvent]) -> Iterator[bytes]:
    for event in events:
        yield sse(event.model_dump(mode="json", by_alias=True))


def _text(message: Any) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    return "".join([getattr(part, "text", "") for part in content])


def _tools(body: RunAgentInput) -> list[ClientTool]:
    data = [tool.model_dump(by_alias=True) for tool in body.tools or ()]
    tools = validated(_Tools, {"tools": data}).tools
    return [ClientTool(tool.name, tool.description, tool.parameters) for tool in tools]


async def _messages(body: RunAgentInput) -> tuple[Message, ...]:
    """Return the context of a request as a system message, followed by its conversation."""
    forms = []
    for index, message in enumerate(body.messages):
        if message.role not in _DISPLAY_ROLES:
            forms.append(_chat_form(index, message.model_dump(mode="json", by_alias=True)))
    if not forms:
        raise BadRequest("messages: expected at least one message", param="messages", code="invalid_messages")
    _check_results(forms)
    messages = await messages_of(forms, "messages", "openai")
    context = "\n\n".join([f"{item.description}:\n{item.value}" for item in body.context or ()])
    if context:
        return (Message("system", context), *messages)
    return messages


def _check_results(messages: Sequence[Mapping[str, Any]]) -> None:
    # A provider refuses a conversation with calls without results, with an error that names no interrupt.
    results = {message.get("tool_call_id") for message in messages}
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    unanswered = [call for call in calls if call not in results]
    if unanswered:
        raise Unprocessable(
            f"messages: the calls {', '.join(unanswered):.500} have no result: answer their interrupts in resume, or "
            "send a tool message for each call",
            param="messages",
            code="unanswered_calls",
        )


def _chat_form(index: int, message: dict[str, Any]) -> dict[str, Any]:
    """Return a message in the format of chat completions."""
    role, content = message["role"], message.get("content")
    if isinstance(content, list):
        content = [_part(f"messages[{index}].content[{number}]", part) for number, part in enumerate(content)]
    if role == "tool":
        error = message.get("error")
        return {"role": "tool", "tool_call_id": message["toolCallId"], "content": content or error or ""}
    if role == "developer":
        role = "system"
    form = {"role": role, "content": content}
    calls = message.get("toolCalls")
    if calls:
        form["tool_calls"] = [{name: call[name] for name in ("id", "type", "function")} for call in calls]
    return form


def _part(where: str, part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    kind, source = _MEDIA_KINDS.get(part["type"]), part["source"]
    if kind is None or source["type"] not in ("url", "data"):
        raise BadRequest(
            f"{where}: expected text, image, audio, video or document with a source of type url or data, got "
            f"{part['type']} with a source of type {source['type']}",
            param="messages",
            code="invalid_messages",
        )
    media = {"url": source["value"], "media_type": source.get("mimeType")}
    if source["type"] == "data":
        media = {"url": f"data:{source['mimeType']};base64,{source['value']}"}
    metadata = part.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(metadata.get("filename"), str):
        media["filename"] = metadata["filename"]
    return {"type": kind, kind: media}
