"""Connection to an MCP server that opens sessions on demand, and again after the server was lost.

A session runs in one task of a separate thread, because its transports belong to the task that opened them. Requests
from any event loop run in that thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from contextvars import Context
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, finalize

from agentkit_prompts.limits import MAX_MESSAGE_CHARS
from agentkit_prompts.system.background_loop import BackgroundLoop, retrieve
from agentkit_tools.errors import MCPServerError, MCPServerLost, describe_error, ends_run
from agentkit_tools.mcp.cpu_pace import CPUPace
from agentkit_tools.mcp.sdk_logging import silence_sdk
from agentkit_tools.mcp.server_requests import CallingRun, ServerRequests
from agentkit_tools.mcp.target import StderrTail, Target

if TYPE_CHECKING:
    from mcp import Client

    from agentkit_tools.mcp.sampling import Sampling

T = TypeVar("T")

_LISTEN_AGAIN_SECONDS = 1.0
_END_SECONDS = 0.3
_LATE_SECONDS = 0.25
"""Seconds after the time limit of a request until the calling thread stops waiting for the thread of the session."""
_MIN_PROBE_SECONDS = 0.5
_MAX_PROBE_SECONDS = 2.0


class Connection:
    """Connection to one server."""

    def __init__(self, target: Target, connect_timeout: float, sampling: Sampling | None = None) -> None:
        self.sampling = sampling
        """Permission of the server to use a model; None for no permission."""
        self.name = target.name
        self.seconds = connect_timeout
        """Maximum seconds of a request, including the reading of its result."""
        self._sessions = _Sessions(target, connect_timeout, samples=sampling is not None)
        self._thread: BackgroundLoop | None = None
        self._pid = 0
        self._lock = Lock()
        self._closed = False
        self._ending: finalize[Any, Any] | None = None

    @property
    def changes(self) -> int:
        """Number of announced or possible changes of the tools."""
        return self._sessions.changes

    @property
    def stderr_tail(self) -> str:
        """The end of the stderr of the latest process of the server."""
        return self._sessions.stderr_tail

    async def request(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Return the value of `work(client)`, which runs in the thread of the session and can be cancelled.

        Raises:
            MCPServerLost: The server cannot be reached, exited before its response, or exceeded `connect_timeout`.
            MCPServerError: The server refused the request, or its response violates the protocol.
        """
        return await asyncio.wrap_future(self._submit(work, self.seconds))

    async def call(self, work: Callable[[Client], Awaitable[T]], run: CallingRun | None = None) -> T:
        """Do the same as `request` without time limit, for calls of tools, which have a policy.

        `run` answers requests of the server to a person or a model.
        """
        return await asyncio.wrap_future(self._submit(work, None, run))

    def request_blocking(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Do the same as `request` for sync code. It blocks the calling thread."""
        future = self._submit(work, self.seconds)
        try:
            return future.result(self.seconds + _LATE_SECONDS)
        except TimeoutError as error:
            if future.done():
                raise
            # The thread of the session is busy reading the output of the server.
            future.cancel()
            text = f"MCP server {self.name} did not answer within {self.seconds:g} seconds"
            raise MCPServerLost(text, server=self.name, limit=self.seconds) from error
        except BaseException:
            future.cancel()
            raise

    def _submit(
        self, work: Callable[[Client], Awaitable[T]], seconds: float | None, run: CallingRun | None = None
    ) -> Future[T]:
        with self._lock:
            if self._closed:
                text = f"the connection to MCP server {self.name} was closed by this program"
                raise MCPServerLost(text, server=self.name)
            # The thread and the session do not exist in a forked child.
            if self._thread is None or self._pid != os.getpid():
                self._thread, self._pid = BackgroundLoop(f"agentkit-mcp-{self.name}"), os.getpid()
                self._sessions = self._sessions.renewed()
                # `finalize` also runs at exit.
                self._ending = finalize(self, _end, self._thread, self._sessions, self._pid)
            return self._thread.submit(self._sessions.run(work, seconds, run))

    def close(self) -> None:
        """Close the session, its process and its thread, and wait for them. Current requests fail."""
        with self._lock:
            self._closed = True
        if self._ending is not None:
            self._ending()


def _end(thread: BackgroundLoop, sessions: _Sessions, pid: int) -> None:
    if pid == os.getpid():
        thread.stop(sessions.close())
        sessions.kill()


class _Sessions:
    """Successive sessions of a connection. Other threads use only `changes`, `stderr_tail` and `kill`."""

    def __init__(self, target: Target, connect_timeout: float, changes: int = 0, *, samples: bool) -> None:
        self._samples = samples
        self._target = target
        self._connect_timeout = connect_timeout
        self._now: _Session | None = None
        self.changes = changes
        self.stderr = StderrTail()
        self._tails: WeakSet[StderrTail] = WeakSet()

    def renewed(self) -> _Sessions:
        """Return a copy without a session."""
        return _Sessions(self._target, self._connect_timeout, self.changes, samples=self._samples)

    async def run(
        self, work: Callable[[Client], Awaitable[T]], seconds: float | None, run: CallingRun | None = None
    ) -> T:
        start = monotonic()
        session = await self._session()
        with session.pace.call(), session.requests.during(run):
            return await self._result(session, work, start, seconds)

    async def _result(
        self, session: _Session, work: Callable[[Client], Awaitable[T]], start: float, seconds: float | None
    ) -> T:
        # In a separate task, a cancellation ends the wait at once.
        request = asyncio.ensure_future(work(session.client))
        request.add_done_callback(retrieve)
        try:
            timeout = None
            if seconds is not None:
                timeout = max(0.0, start + seconds - monotonic())
            await asyncio.wait((request,), timeout=timeout)
        finally:
            # After a timeout or a cancellation, the server may hang.
            if not request.done():
                session.probe(monotonic() - start)
                request.cancel()
        if not request.done():
            raise self._lost(f"MCP server {self._target.name} did not answer within {seconds:g} seconds", seconds)
        try:
            return request.result()
        except Exception as error:
            raise await self._translated(error, session) from error

    async def close(self) -> None:
        if self._now is not None:
            await self._now.close()

    def kill(self) -> None:
        """Kill all remaining processes of the server. Any thread can call this method."""
        for tail in list(self._tails):
            tail.kill()

    async def _session(self) -> _Session:
        """Return an open session. Concurrent callers wait for the same session."""
        session = self._now
        # A request to a hanging server would be lost.
        if session is not None and session.probing is not None:
            await asyncio.wait((session.probing,))
            session = self._now
        if session is None or session.closing.is_set():
            if problem := self._target.problem():
                raise MCPServerLost(problem, server=self._target.name, name=self._target.command)
            self.stderr = StderrTail()
            self._tails.add(self.stderr)
            session = self._now = _Session(
                self._target, self.stderr, self._changed, ServerRequests(samples=self._samples)
            )
        try:
            async with asyncio.timeout(self._connect_timeout):
                await session.opened.wait()
        except TimeoutError as error:
            await session.close()
            text = f"MCP server {self._target.name} did not answer within {self._connect_timeout:g} seconds"
            raise self._lost(text, self._connect_timeout) from error
        if session.fault is not None:
            raise session.fault
        if session.error is not None:
            cause = session.error
            if ends_run(cause):
                raise cause
            raise self._lost(f"MCP server {self._target.name} cannot be reached: {_innermost(cause)}") from cause
        return session

    def _changed(self) -> None:
        self.changes += 1

    @property
    def stderr_tail(self) -> str:
        """The end of the stderr of the latest process of the server, without keys."""
        return self._target.masked(self.stderr.text)

    def _lost(self, text: str, limit: float | None = None) -> MCPServerLost:
        error = MCPServerLost(self._target.masked(text), server=self._target.name, limit=limit)
        if tail := self.stderr_tail:
            error.add_note(f"The end of its stderr:\n{tail}")
        return error

    async def _translated(self, error: Exception, session: _Session) -> Exception:
        """Return an error of this package for an error of the SDK."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        name = self._target.name
        if isinstance(error, MCPServerError):
            return error
        if isinstance(error, MCPError):
            # Servers can send the SDK's code for a closed connection with another meaning. A server that was restarted
            # does not know the session.
            closed = error.code == CONNECTION_CLOSED and (session.closing.is_set() or error.message.startswith("SSE"))
            if closed or error.message == "Session terminated":
                await session.close()
                self._changed()
                if session.fault is not None:
                    return session.fault
                text = f"MCP server {name} exited before its response"
                if session.error is not None:
                    text += f" ({_innermost(session.error)})"
                return self._lost(text)
            return MCPServerError(
                f"MCP server {name}: {error.message} (code {error.code})", server=name, code=error.code
            )
        reason = describe_error(error)
        if isinstance(error, RuntimeError):
            # The SDK explains violations of the protocol in the first line of a RuntimeError.
            reason = str(error).partition("\n")[0]
        text = f"MCP server {name} sent an invalid response: {reason[:MAX_MESSAGE_CHARS]}"
        return MCPServerError(text, server=name)


class _Session:
    """Session in a task that opens it, waits until it is closed or lost, and closes it."""

    client: Client
    """Client of the SDK; set if `opened` is set and `error` is None."""

    def __init__(
        self, target: Target, stderr: StderrTail, changed: Callable[[], None], requests: ServerRequests
    ) -> None:
        self.requests = requests
        self.opened = asyncio.Event()
        self.closing = asyncio.Event()
        self.pace = CPUPace()
        self.error: BaseException | None = None
        self.fault: MCPServerError | None = None
        """Violation of the protocol, or refused login, that ended the session."""
        self._target = target
        self._stderr = stderr
        self._changed = changed
        self.probing: asyncio.Task[None] | None = None
        """Task that tests if the server hangs."""
        # The session has an empty context, because it outlives the call that opened it.
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), context=Context())

    async def close(self) -> None:
        """Stop the task, and wait for it."""
        self.closing.set()
        if not self.opened.is_set():
            self._keeper.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.shield(self._keeper)

    def probe(self, waited: float) -> None:
        """Close the session if the server does not respond any more; the next request connects again.

        The server has half of the `waited` seconds of a request without a response, within bounds.
        """
        if self.probing is None or self.probing.done():
            seconds = min(max(waited / 2, _MIN_PROBE_SECONDS), _MAX_PROBE_SECONDS)
            self.probing = asyncio.get_running_loop().create_task(self._probe(seconds), context=Context())

    async def _probe(self, seconds: float) -> None:
        request = asyncio.ensure_future(self.client.list_tools())
        # A server that responds with an error does not hang.
        request.add_done_callback(retrieve)
        with self.pace.call():
            await asyncio.wait((request,), timeout=seconds)
        if not request.done():
            self.closing.set()
            # The cancellation is not awaited: the SDK first notifies the server, which may not read.
            request.cancel()

    async def _keep(self) -> None:
        from mcp import Client
        from mcp_types import Implementation

        silence_sdk()
        info = Implementation(name="agentkit", version="0")
        transport = self._target.transport(self._stderr, self.pace, self._ended, self.requests)
        try:
            async with AsyncExitStack() as stack:
                # The task that waits for the session limits the time.
                with self.pace.call():
                    unopened = Client(
                        transport,
                        cache=None,
                        client_info=info,
                        message_handler=self._receive,
                        elicitation_callback=self.requests.elicit,
                        sampling_callback=self.requests.sample if self.requests.samples else None,
                    )
                    client = await stack.enter_async_context(unopened)
                client.session.validate_tool_result = _unchecked  # type: ignore[method-assign]
                self.client = client
                listening = asyncio.create_task(self._listen(client))
                self.opened.set()
                try:
                    await self.closing.wait()
                finally:
                    listening.cancel()
                    await asyncio.wait([listening], timeout=_END_SECONDS)
        except BaseException as error:
            # A cancellation as well: only `close` cancels this task.
            self.error = error
        finally:
            self.closing.set()
            self.opened.set()

    def _ended(self, fault: MCPServerError | None) -> None:
        # The end of the transport follows a refused login.
        self.fault = self.fault or fault
        self.closing.set()

    async def _receive(self, message: object) -> None:
        """Count the notifications of changes that older servers send."""
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._changed()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes, as newer servers require. A lost subscription counts as a change."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        tools = client.server_capabilities.tools
        was_subscribed = False
        while tools is not None and tools.list_changed:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    if was_subscribed:
                        self._changed()
                    was_subscribed = True
                    async for _ in events:
                        self._changed()
            except SubscriptionLost:
                pass
            except (ListenNotSupportedError, MCPError):
                return
            await asyncio.sleep(_LISTEN_AGAIN_SECONDS)


async def _unchecked(name: str, result: object) -> None:
    """Accept a result, which `remote_tools` validates with a time limit; the validation of the SDK has no limit."""


def _innermost(error: BaseException) -> str:
    """Describe the first exception inside of nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return describe_error(error)
