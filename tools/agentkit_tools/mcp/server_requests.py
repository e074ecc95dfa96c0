"""Requests of an MCP server to the person or the model of the run that calls its tool."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from agentkit_prompts.limits import MAX_NAME_CHARS
from agentkit_tools.errors import ToolError, describe_error
from agentkit_tools.mcp.sampling import SampledCall, Sampling

if TYPE_CHECKING:
    from mcp_types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        ElicitRequestParams,
        ElicitResult,
        ErrorData,
        JSONRPCRequest,
    )

    from agentkit_tools.tool_context import ToolContext

T = TypeVar("T")

_ELICIT, _SAMPLE = "elicitation/create", "sampling/createMessage"
_MAX_PENDING = 8
"""Maximum number of requests of an older server that wait for answers."""


class CallingRun:
    """The run that calls a tool of a server. Its event loop is in another thread than the session.

    Args:
        context: Context of the call.
        server: Name of the server.
        sampling: Permission to use a model; None for no permission.
        can_repeat: True if the call may run again, also if its server cannot continue it.
    """

    def __init__(self, context: ToolContext[Any], server: str, sampling: Sampling | None, *, can_repeat: bool) -> None:
        self._context = context
        self._server = server
        self._sampled = None if sampling is None else SampledCall(sampling, server)
        self._can_repeat = can_repeat
        self._loop = asyncio.get_running_loop()
        self._variables = copy_context()
        self._waiting: set[Future[Any]] = set()

    async def elicit(self, params: ElicitRequestParams, *, is_stateless: bool) -> ElicitResult:
        """Return the answer of the person to a form; an address is declined, because no browser may be opened.

        Args:
            params: The request.
            is_stateless: True if the server continues a call that is sent again.
        """
        from mcp_types import ElicitResult

        if params.mode == "url":
            return ElicitResult(action="decline")
        question = f"MCP server {self._server} asks: {params.message}"
        schema = dict(params.requested_schema)
        can_repeat = is_stateless or self._can_repeat
        values = await self._in_run(lambda: self._context.ask(question, schema, can_repeat=can_repeat))
        if values is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=values)

    async def sample(
        self, params: CreateMessageRequestParams, *, is_stateless: bool
    ) -> CreateMessageResult | ErrorData:
        """Return the answer of the agent, or the reason of a refusal."""
        from mcp_types import INVALID_REQUEST, CreateMessageResult, ErrorData

        run, sampled = self._context.run, self._sampled
        if run is None or sampled is None:
            return ErrorData(code=INVALID_REQUEST, message="sampling is not allowed")
        can_repeat = is_stateless or self._can_repeat
        call_id = self._context.call_id
        try:
            fields = await self._in_run(lambda: sampled.answer(params, run, call_id, can_repeat=can_repeat))
        except ToolError as error:
            return ErrorData(code=INVALID_REQUEST, message=str(error))
        return CreateMessageResult.model_validate(fields)

    async def _in_run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the value of `work()`, which runs in the event loop and with the variables of the call."""
        variables = self._variables.copy()
        future = variables.run(asyncio.run_coroutine_threadsafe, work(), self._loop)
        self._waiting.add(future)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ToolError("the call has ended") from None
        finally:
            self._waiting.discard(future)

    def end(self) -> None:
        """End the requests that still wait, such as after the time limit of the call: the person is not asked again."""
        for future in [*self._waiting]:
            future.cancel()


_CALLING_RUN: ContextVar[CallingRun | None] = ContextVar("agentkit_mcp_calling_run", default=None)


class ServerRequests:
    """Requests of one server. All methods run in the thread of the session.

    Servers of the newer protocol answer a call with their requests, and the client sends the call again with the
    answers. Older servers send requests while a call runs, and do not name the call.
    """

    def __init__(self, *, samples: bool) -> None:
        self.samples = samples
        """True if the server may use a model."""
        self._runs: list[CallingRun] = []
        self._pending = 0

    @contextmanager
    def during(self, run: CallingRun | None) -> Iterator[None]:
        """Answer requests in a block, which calls a tool, from the run of the call."""
        if run is None:
            yield
            return
        token = _CALLING_RUN.set(run)
        self._runs.append(run)
        try:
            yield
        finally:
            self._runs.remove(run)
            run.end()
            _CALLING_RUN.reset(token)

    # Newer servers

    async def elicit(self, context: object, params: ElicitRequestParams) -> ElicitResult:
        """Answer a form that is part of the answer to a call; a callback of the SDK."""
        from mcp_types import ElicitResult

        run = _CALLING_RUN.get()
        if run is None:
            return ElicitResult(action="decline")
        return await run.elicit(params, is_stateless=True)

    async def sample(self, context: object, params: CreateMessageRequestParams) -> CreateMessageResult | ErrorData:
        """Answer a request for a model that is part of the answer to a call; a callback of the SDK."""
        from mcp_types import INVALID_REQUEST, ErrorData

        run = _CALLING_RUN.get()
        if run is None:
            return ErrorData(code=INVALID_REQUEST, message="sampling is not allowed outside of a call")
        return await run.sample(params, is_stateless=True)

    # Older servers

    def accepts(self, request: JSONRPCRequest) -> bool:
        """True if a request is answered by `answer`: a server that reads no answers can send many."""
        if request.method != _ELICIT and not (request.method == _SAMPLE and self.samples):
            return False
        return self._pending < _MAX_PENDING

    async def answer(self, request: JSONRPCRequest, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        """Answer a request. `send` receives `result` or `error`.

        Without exactly one current call, a form is declined, because the server does not name the call.
        """
        from mcp_types import INTERNAL_ERROR

        self._pending += 1
        try:
            answer = await self._answer(request)
        except Exception as error:
            # The run has paused or ended; otherwise the request is invalid.
            answer = {"error": {"code": INTERNAL_ERROR, "message": describe_error(error)[:MAX_NAME_CHARS]}}
        finally:
            self._pending -= 1
        await send(answer)

    async def _answer(self, request: JSONRPCRequest) -> dict[str, Any]:
        from mcp_types import CreateMessageRequest, ElicitRequest, ErrorData

        run = None
        if len(self._runs) == 1:
            run = self._runs[0]
        body = {"method": request.method, "params": request.params or {}}
        if request.method == _ELICIT:
            params = ElicitRequest.model_validate(body).params
            if run is None:
                return {"result": {"action": "decline"}}
            elicited = await run.elicit(params, is_stateless=False)
            return {"result": elicited.model_dump(by_alias=True, mode="json", exclude_none=True)}
        if run is None:
            raise ToolError("sampling is not allowed outside of a call")
        sampled = await run.sample(CreateMessageRequest.model_validate(body).params, is_stateless=False)
        data = sampled.model_dump(by_alias=True, mode="json", exclude_none=True)
        if isinstance(sampled, ErrorData):
            return {"error": data}
        return {"result": data}
