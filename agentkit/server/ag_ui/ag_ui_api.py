"""`/agents/{agent}/ag-ui`: what chat front ends ask that speak AG-UI. Needs the extra `ag-ui`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from ag_ui.core import BaseEvent, ResumeEntry, RunAgentInput
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from agentkit.ground.threads import in_thread
from agentkit.run.engine.event_sink import streaming
from agentkit.runs.executor import Executor
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Caller
from agentkit.server.ag_ui.ag_ui_events import AGUIEvents
from agentkit.server.ag_ui.ag_ui_interrupts import decisions_of, interrupted_run
from agentkit.server.endpoints.exchange import EventStream, read_json, sse, validated
from agentkit.server.endpoints.http_endpoint import Endpoint, Kwargs
from agentkit.server.openai_endpoints.openai_requests import ToolName, UserId
from agentkit.server.served_agents import ServedAgents
from agentkit.server.server_errors import BadRequest, Conflict, ServerError, UnknownResource, Unprocessable
from agentkit.server.server_options import ServerOptions
from agentkit.server.turns.answering import Turns
from agentkit.server.turns.client_tools import ClientTool
from agentkit.server.turns.turn import Turn, Waited, messages_of
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import UserInput

__all__ = ["AGUIEndpoints"]

_MAX_TOOLS = 128
_UNSENT = ("activity", "reasoning")
"""Messages of the front end that no model is sent."""


class _Props(BaseModel):
    """What `forwardedProps` may hold."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    additional_kwargs: Kwargs = {}
    user: UserId | None = None


class _Tool(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: ToolName
    description: str
    parameters: dict[str, Any] | None = None


class _Tools(BaseModel):
    tools: list[_Tool] = Field(max_length=_MAX_TOOLS)


class AGUIEndpoints:
    """The endpoint of the protocol.

    Args:
        agents: The agents.
        store: Where runs wait for a person.
        executor: Executes the runs of the server.
        turns: Answers.
        options: What the server allows.
    """

    def __init__(
        self, agents: ServedAgents, store: RunStore, executor: Executor, turns: Turns, options: ServerOptions
    ) -> None:
        self._agents = agents
        self._store = store
        self._executor = executor
        self._turns = turns
        self._options = options

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints."""
        path = "/agents/{agent}/ag-ui"
        what = "A run as events of AG-UI"
        return [Endpoint("POST", path, self.run, what, "run", RunAgentInput, media="text/event-stream")]

    async def run(self, request: Request, caller: Caller) -> Response:
        """Run an agent."""
        loaded = self._agents.get(request.path_params["agent"], caller)
        asked = validated(RunAgentInput, await read_json(request, self._options))
        props = validated(_Props, {} if asked.forwarded_props is None else asked.forwarded_props)
        if asked.state:
            raise Unprocessable("state: agents keep no state of the front end: leave it out", param="state")
        turn = Turn(
            agents=self._agents,
            name=loaded.name,
            tenant=caller.tenant,
            user=caller.as_user(props.user),
            messages=() if asked.resume else await _messages(asked),
            kwargs=props.additional_kwargs,
            tools=_tools(asked),
            can_wait="approve" in caller.permissions,
        )
        calls: tuple[str, ...] = ()
        if asked.resume:
            turn.waited = waited = await self._waited(asked, asked.resume, turn, caller)
            turn.run_id, calls = waited.record.run_id, tuple([call.call_id for call in waited.record.waiting])
        written = AGUIEvents(asked.thread_id, asked.run_id, turn.run_id, streams_text=turn.streams_text, waited=calls)

        async def pieces() -> AsyncGenerator[bytes, None]:
            async with aclosing(streaming(partial(self._turns.answered, turn, caller))) as events:
                async for event in events:
                    for piece in _bytes(written.of(event)):
                        yield piece
            if turn.answered.waiting:
                await self._turns.kept()  # before it can be answered
            for piece in _bytes(written.end(turn.answered)):
                yield piece

        def ending(error: ServerError) -> bytes:
            return b"".join(_bytes(written.failed(str(error.body["error"]["message"]), error.code)))

        return EventStream(pieces(), self._options, ending=ending)

    async def _waited(self, asked: RunAgentInput, resume: Sequence[ResumeEntry], turn: Turn, caller: Caller) -> Waited:
        """Return the run whose interrupts a request answers.

        Raises:
            UnknownResource: The caller has no such run of this agent.
            Conflict: It does not wait any more.
            Unprocessable: An interrupt has no answer, or the request asks for something else besides.
        """
        caller.check("approve")
        run_id = interrupted_run(resume)
        await self._turns.kept()
        record = await in_thread(self._store.get, run_id, tenant=caller.tenant)
        if record.agent != turn.name or record.user != turn.user:
            raise UnknownResource(f"unknown run {run_id!r:.80}", code="run_not_found")
        if record.session is not None:
            raise Conflict(f"resume: the run is one of a session: POST /runs/{run_id}/decisions", code="not_waiting")
        if record.state != "waiting":
            raise Conflict(f"resume: the run does not wait for a decision: it is {record.state}", code="not_waiting")
        decisions = decisions_of(resume, record)
        given = record.input or UserInput()
        last = asked.messages[-1] if asked.messages else None
        if last is not None and last.role == "user" and _text(last) != given.text:
            raise Unprocessable(
                "messages: a run that waits is gone on with as it was: send the new message once it has ended",
                param="messages",
            )
        if turn.kwargs and dict(turn.kwargs) != given.additional_kwargs:
            raise Unprocessable(
                "forwardedProps.additional_kwargs: a run that waits is gone on with as it was: leave them out",
                param="forwardedProps",
            )
        journal = await in_thread(self._store.journal, run_id)
        assert journal is not None  # a run that waits has begun
        return Waited(record, journal, decisions, self._store, self._executor.worker)


def _bytes(events: Iterator[BaseEvent]) -> Iterator[bytes]:
    for event in events:
        yield sse(event.model_dump(mode="json", by_alias=True))


def _text(message: Any) -> str:
    content = message.content
    return content if isinstance(content, str) else "".join([getattr(part, "text", "") for part in content])


def _tools(asked: RunAgentInput) -> list[ClientTool]:
    given = [tool.model_dump(by_alias=True) for tool in asked.tools or ()]
    known = validated(_Tools, {"tools": given}).tools
    return [ClientTool(tool.name, tool.description, tool.parameters) for tool in known]


async def _messages(asked: RunAgentInput) -> tuple[Message, ...]:
    """Return the conversation of a request, behind what it has as context."""
    given = [_chat_form(at, one.model_dump(mode="json", by_alias=True)) for at, one in enumerate(asked.messages)]
    sent = [one for one in given if one is not None]
    if not sent:
        raise BadRequest("messages: there is no message to answer", param="messages", code="invalid_messages")
    results = {one.get("tool_call_id") for one in sent}
    open_calls = [call["id"] for one in sent for call in one.get("tool_calls", ()) if call["id"] not in results]
    if open_calls:
        raise Unprocessable(
            f"messages: the calls {', '.join(open_calls):.500} have no result: answer their interrupts in resume, or "
            "send a tool message for each",
            param="messages",
            code="unanswered_calls",
        )
    messages = await messages_of(sent, "messages", "openai")
    about = "\n\n".join([f"{one.description}:\n{one.value}" for one in asked.context or ()])
    return (Message("system", about), *messages) if about else messages


def _chat_form(at: int, message: dict[str, Any]) -> dict[str, Any] | None:
    """Return a message in the form of chat completions; None for one that no model is sent."""
    role, content = message["role"], message.get("content")
    if role in _UNSENT:
        return None
    if isinstance(content, list):
        content = [_part(f"messages[{at}].content[{place}]", part) for place, part in enumerate(content)]
    if role == "tool":
        error = message.get("error")
        return {"role": "tool", "tool_call_id": message["toolCallId"], "content": content or error or ""}
    made = {"role": "system" if role == "developer" else role, "content": content}
    if calls := message.get("toolCalls"):
        made["tool_calls"] = [{name: call[name] for name in ("id", "type", "function")} for call in calls]
    return made


def _part(where: str, part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    source = part["source"]
    if part["type"] == "image" and source["type"] == "url":
        return {"type": "image_url", "image_url": {"url": source["value"]}}
    if part["type"] == "image" and source["type"] == "data":
        return {"type": "image_url", "image_url": {"url": f"data:{source['mimeType']};base64,{source['value']}"}}
    raise BadRequest(
        f"{where}: expected text, or an image of a url or of data, got {part['type']} of a {source['type']}",
        param="messages",
        code="invalid_messages",
    )
