"""`/v1`: what OpenAI's clients ask. The agents are the models."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agentkit.errors import JournalError
from agentkit.ground.threads import in_thread
from agentkit.run.engine.event_sink import PassOn, streaming
from agentkit.run.journal.journal import Journal
from agentkit.runs.run_errors import RunNotFound
from agentkit.runs.run_record import RunRecord
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Caller
from agentkit.server.endpoints.exchange import (
    EventStream,
    JSONAnswer,
    read_json,
    sse,
    validated,
    while_connected,
)
from agentkit.server.endpoints.http_endpoint import Endpoint
from agentkit.server.openai_endpoints.chat_answers import ChatAnswers
from agentkit.server.openai_endpoints.openai_requests import ChatRequest, ResponsesRequest
from agentkit.server.openai_endpoints.response_answers import ResponseAnswers
from agentkit.server.served_agents import ServedAgents
from agentkit.server.server_errors import BadRequest, ServerError, UnknownResource, Unprocessable
from agentkit.server.server_options import ServerOptions
from agentkit.server.turns.answering import Turns
from agentkit.server.turns.client_tools import HeldReplies
from agentkit.server.turns.turn import Turn, TurnAnswer, messages_of
from agentkit_prompts.context.messages import Message

__all__ = ["OpenAIEndpoints"]

_DONE = b"data: [DONE]\n\n"


class OpenAIEndpoints:
    """The endpoints under `/v1`.

    Args:
        agents: The agents.
        store: Where responses are kept, as runs.
        turns: Answers.
        options: What the server allows.
    """

    def __init__(self, agents: ServedAgents, store: RunStore, turns: Turns, options: ServerOptions) -> None:
        self._agents = agents
        self._store = store
        self._turns = turns
        self._options = options
        self._held = HeldReplies(options.held_replies)
        self._began = int(time.time())

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints."""
        return [
            Endpoint("GET", "/v1/models", self.models, "The agents, as models", "read"),
            Endpoint("GET", "/v1/models/{model}", self.model, "An agent, as a model", "read"),
            Endpoint("POST", "/v1/chat/completions", self.chat, "A chat completion", "run", ChatRequest),
            Endpoint("POST", "/v1/responses", self.responses, "A response", "run", ResponsesRequest),
        ]

    async def models(self, request: Request, caller: Caller) -> Response:
        """List the agents that the caller may use."""
        del request
        return JSONAnswer({"object": "list", "data": [self._model(name) for name in self._agents.names(caller)]})

    async def model(self, request: Request, caller: Caller) -> Response:
        """Describe one of them."""
        return JSONAnswer(self._model(self._agents.get(request.path_params["model"], caller).name))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._began, "owned_by": "agentkit"}

    async def chat(self, request: Request, caller: Caller) -> Response:
        """Answer a chat completion."""
        asked = _validated(ChatRequest, await read_json(request, self._options))
        if asked.stream_options is not None and not asked.stream:
            raise BadRequest("stream_options: only with stream: true", param="stream_options", code="invalid_value")
        messages = await messages_of(asked.messages, "messages", "openai")
        turn = self._turn(asked, caller, messages)
        answers = ChatAnswers(f"chatcmpl-{turn.run_id}", asked.model)
        if not asked.stream:
            return JSONAnswer(answers.whole(await while_connected(request, self._answered(turn, caller))))
        include_usage = asked.stream_options is not None and asked.stream_options.include_usage

        async def chunks() -> AsyncGenerator[bytes, None]:
            has_text = False
            async with aclosing(streaming(partial(self._answered, turn, caller))) as pieces:
                async for piece in pieces:
                    if not has_text:
                        yield sse(answers.first())
                        has_text = True
                    yield sse(answers.text(piece))
            if not has_text:
                yield sse(answers.first())
            for chunk in answers.last(turn.answered, has_text=has_text, include_usage=include_usage):
                yield sse(chunk)
            yield _DONE

        return EventStream(chunks(), self._options, ending=lambda error: sse(error.body))

    async def responses(self, request: Request, caller: Caller) -> Response:
        """Answer a request of the Responses API."""
        asked = _validated(ResponsesRequest, await read_json(request, self._options))
        given = [{"role": "user", "content": asked.input}] if isinstance(asked.input, str) else asked.input
        before: tuple[Message, ...] = ()
        if asked.previous_response_id is not None:
            before = await self._before(asked.previous_response_id, caller, asked.user)
        messages = (*before, *await messages_of(given, "input", "responses", before))
        if asked.instructions:
            messages = (Message("system", asked.instructions), *messages)
        turn = self._turn(asked, caller, messages)
        turn.is_kept = asked.store is not False
        answers = ResponseAnswers(f"resp_{turn.run_id}", asked)
        if not asked.stream:
            return JSONAnswer(answers.whole(await while_connected(request, self._answered(turn, caller))))

        async def events() -> AsyncGenerator[bytes, None]:
            has_begun = False
            async with aclosing(streaming(partial(self._answered, turn, caller))) as pieces:
                async for piece in pieces:
                    if not has_begun:
                        has_begun = True
                        for kind, data in answers.begin():
                            yield sse(data, event=kind)
                    for kind, data in answers.text(piece):
                        yield sse(data, event=kind)
            for kind, data in (*(() if has_begun else answers.begin()), *answers.end(turn.answered)):
                yield sse(data, event=kind)

        def ending(error: ServerError) -> bytes:
            kind, data = answers.failed(error.body["error"])
            return sse(data, event=kind)

        return EventStream(events(), self._options, ending=ending)

    def _turn(self, asked: ChatRequest | ResponsesRequest, caller: Caller, messages: tuple[Message, ...]) -> Turn:
        loaded = self._agents.get(asked.model, caller)
        user = caller.as_user(asked.user)
        messages = self._held.restored((caller.tenant, user, loaded.name), messages)
        if not messages:
            raise BadRequest("there is no message to answer", param="messages", code="invalid_messages")
        return Turn(
            agents=self._agents,
            name=loaded.name,
            tenant=caller.tenant,
            user=user,
            messages=messages,
            kwargs=asked.additional_kwargs,
            tools=asked.client_tools,
            settings=asked.settings(),
            schema=asked.schema_of_answer,
        )

    async def _answered(self, turn: Turn, caller: Caller, on_text: PassOn[str] | None = None) -> TurnAnswer:
        """Run a turn, and hold what the client does not see of it until it has answered the calls of its tools."""
        answer = await self._turns.answered(turn, caller, None if on_text is None else turn.texts_to(on_text))
        if turn.reply is not None:
            self._held.hold((turn.tenant, turn.user, turn.name), turn.before, turn.reply)
        return answer

    async def _before(self, response_id: str, caller: Caller, user: str | None) -> tuple[Message, ...]:
        """Return the conversation until the end of a response.

        Raises:
            UnknownResource: The user has no such response of an agent that the caller may use.
        """
        await self._turns.kept()
        run_id = response_id.removeprefix("resp_")
        unknown = UnknownResource(
            f"there is no response {response_id!r:.80}",
            param="previous_response_id",
            code="previous_response_not_found",
        )
        try:
            record = await in_thread(self._store.get, run_id, tenant=caller.tenant)
            text = await in_thread(self._store.journal_text, run_id)
        except RunNotFound:
            raise unknown from None
        if record.user != caller.as_user(user) or record.agent not in self._agents.names(caller) or not text:
            raise unknown
        with suppress(JournalError):
            return await in_thread(_conversation, record, text)
        raise unknown


def _validated(model: Any, data: Any) -> Any:
    """Return a request of OpenAI's clients, which know wrong values as 400."""
    try:
        return validated(model, data)
    except Unprocessable as error:
        raise BadRequest(str(error), param=error.param, code="invalid_value") from None


def _conversation(record: RunRecord, text: str) -> tuple[Message, ...]:
    """Return the conversation that a run ended with; instructions hold for one response only."""
    journal = Journal.loads(text)
    given: Iterable[Message] = (*journal.context.conversation, *journal.messages)
    messages = tuple([message for message in given if message.role != "system"])
    if not record.waiting:
        return messages
    ids = iter(record.waiting)
    names = {call.tool for call in record.waiting}
    replies = [step.answer.message for step in journal.steps() if step.kind == "model"]
    calls = [replace(call, id=next(ids).call_id) for call in replies[-1].tool_calls if call.name in names]
    return (*messages, replace(replies[-1], tool_calls=tuple(calls)))
