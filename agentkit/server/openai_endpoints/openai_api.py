"""`/v1`: endpoints for OpenAI clients. Each agent is a model."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agentkit.models.settings import NO_SETTINGS, ModelSettings
from agentkit.run.engine.event_sink import PassOn, streaming
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
from agentkit.server.openai_endpoints.openai_requests import ChatRequest, ResponsesRequest, user_of
from agentkit.server.openai_endpoints.response_answers import ResponseAnswers
from agentkit.server.openai_endpoints.stored_responses import StoredResponses
from agentkit.server.owner import Owner
from agentkit.server.request_runs.client_tools import HeldReplies
from agentkit.server.request_runs.request_messages import messages_of
from agentkit.server.request_runs.request_run import RequestAnswer, RequestRun
from agentkit.server.request_runs.request_runner import RequestRunner
from agentkit.server.served_agents import ServedAgents
from agentkit.server.server_errors import BadRequest, ServerError, Unprocessable
from agentkit.server.server_options import ServerOptions
from agentkit_prompts.context.messages import Message

_DONE = b"data: [DONE]\n\n"


class OpenAIEndpoints:
    """The endpoints under `/v1`.

    Args:
        agents: The agents.
        store: Store of responses, as runs.
        runner: Executes the runs.
        options: Limits of the server.
    """

    def __init__(self, agents: ServedAgents, store: RunStore, runner: RequestRunner, options: ServerOptions) -> None:
        self._agents = agents
        self._stored = StoredResponses(agents, store, runner)
        self._runner = runner
        self._options = options
        self._held_replies = HeldReplies(options.held_replies)
        self._started_at = int(time.time())

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints."""
        return [
            Endpoint("GET", "/v1/models", self.models, "The agents, as models", "read"),
            Endpoint("GET", "/v1/models/{model}", self.model, "An agent, as a model", "read"),
            Endpoint("POST", "/v1/chat/completions", self.chat, "A chat completion", "run", ChatRequest),
            Endpoint("POST", "/v1/responses", self.responses, "A response", "run", ResponsesRequest),
            *self._stored.endpoints(),
        ]

    async def models(self, request: Request, caller: Caller) -> Response:
        """List the permitted agents of the caller."""
        del request
        return JSONAnswer({"object": "list", "data": [self._model(name) for name in self._agents.names(caller)]})

    async def model(self, request: Request, caller: Caller) -> Response:
        """Describe an agent."""
        return JSONAnswer(self._model(self._agents.get(request.path_params["model"], caller).name))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._started_at, "owned_by": "agentkit"}

    async def chat(self, request: Request, caller: Caller) -> Response:
        """Answer a chat completion."""
        body = _validated(ChatRequest, await read_json(request, self._options))
        if body.stream_options is not None and not body.stream:
            raise BadRequest(
                "stream_options: only valid with stream: true", param="stream_options", code="invalid_value"
            )
        messages = await messages_of(body.messages, "messages", "openai")
        run = self._request_run(body, caller, messages)
        answers = ChatAnswers(f"chatcmpl-{run.run_id}", body.model)
        if not body.stream:
            return JSONAnswer(answers.whole(await while_connected(request, self._execute(run, caller))))
        include_usage = body.stream_options is not None and body.stream_options.include_usage
        chunks = self._chat_chunks(run, caller, answers, include_usage)
        return EventStream(chunks, self._options, ending=lambda error: sse(error.body))

    async def _chat_chunks(
        self, run: RequestRun, caller: Caller, answers: ChatAnswers, include_usage: bool
    ) -> AsyncGenerator[bytes, None]:
        has_text = False
        async with aclosing(streaming(partial(self._execute, run, caller))) as texts:
            async for text in texts:
                # Nothing is sent before the first text: an error until then is an error answer with its status.
                if not has_text:
                    yield sse(answers.first())
                    has_text = True
                yield sse(answers.text(text))
        if not has_text:
            yield sse(answers.first())
        for chunk in answers.last(run.result, has_text=has_text, include_usage=include_usage):
            yield sse(chunk)
        yield _DONE

    async def responses(self, request: Request, caller: Caller) -> Response:
        """Answer a request of the Responses API."""
        body = _validated(ResponsesRequest, await read_json(request, self._options))
        data = body.input
        if isinstance(data, str):
            data = [{"role": "user", "content": data}]
        data = await self._stored.with_items(data, caller, body.user)
        previous: tuple[Message, ...] = ()
        if body.previous_response_id is not None:
            previous = await self._stored.conversation(body.previous_response_id, caller, body.user)
        messages = (*previous, *await messages_of(data, "input", "responses", previous))
        if body.instructions:
            messages = (Message("system", body.instructions), *messages)
        run = self._request_run(body, caller, messages)
        run.is_stored = body.store is not False
        run.form = answers = ResponseAnswers(run.run_id, body, self._model_settings(run))
        if not body.stream:
            return JSONAnswer(answers.whole(await while_connected(request, self._execute(run, caller))))

        def ending(error: ServerError) -> bytes:
            kind, event = answers.failed(error.body["error"])
            return sse(event, event=kind)

        return EventStream(self._response_events(run, caller, answers), self._options, ending=ending)

    async def _response_events(
        self, run: RequestRun, caller: Caller, answers: ResponseAnswers
    ) -> AsyncGenerator[bytes, None]:
        has_started = False
        async with aclosing(streaming(partial(self._execute, run, caller))) as texts:
            async for text in texts:
                # As for chat completions, an error before the first text is an error answer.
                if not has_started:
                    has_started = True
                    for kind, data in answers.start():
                        yield sse(data, event=kind)
                for kind, data in answers.text(text):
                    yield sse(data, event=kind)
        if not has_started:
            for kind, data in answers.start():
                yield sse(data, event=kind)
        for kind, data in answers.end(run.result):
            yield sse(data, event=kind)

    def _request_run(
        self, body: ChatRequest | ResponsesRequest, caller: Caller, messages: tuple[Message, ...]
    ) -> RequestRun:
        loaded = self._agents.get(body.model, caller)
        user = user_of(caller, body.user)
        messages = self._held_replies.restore((caller.tenant, user, loaded.name), messages)
        if not messages:
            raise BadRequest("messages: expected at least one message", param="messages", code="invalid_messages")
        return RequestRun(
            agents=self._agents,
            name=loaded.name,
            owner=Owner(caller.tenant, user),
            permissions=caller.permissions,
            messages=messages,
            kwargs=body.additional_kwargs,
            locale=body.locale,
            tags=tuple(body.tags),
            tools=body.client_tools,
            settings=body.settings(),
            schema=body.answer_schema,
        )

    def _model_settings(self, run: RequestRun) -> ModelSettings:
        settings = getattr(run.agent.chain.model, "settings", None)
        if isinstance(settings, ModelSettings):
            return settings
        return NO_SETTINGS

    async def _execute(self, run: RequestRun, caller: Caller, on_text: PassOn[str] | None = None) -> RequestAnswer:
        """Execute a run, and hold messages that the client does not receive until it sends results of its tools."""
        listener = None
        if on_text is not None:
            listener = run.text_listener(on_text)
        answer = await self._runner.execute(run, caller, listener)
        if run.reply is not None:
            self._held_replies.add((run.owner.tenant, run.owner.user, run.name), run.before, run.reply)
        return answer


def _validated(model: Any, data: Any) -> Any:
    """Return a validated request; invalid values are status 400 as at OpenAI, not 422."""
    try:
        return validated(model, data)
    except Unprocessable as error:
        raise BadRequest(str(error), param=error.param, code="invalid_value") from None
