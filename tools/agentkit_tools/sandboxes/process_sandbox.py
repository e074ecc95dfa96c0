"""`ProcessSandbox`: code in a separate Python process, isolated by Linux."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.sandboxes.child_process import ChildProcess
from agentkit_tools.sandboxes.sandbox import (
    AnswerCalls,
    SandboxCall,
    SandboxError,
    SandboxJob,
    SandboxResult,
    SandboxUnavailable,
)

_PROGRAM = Path(__file__).with_name("sandboxed_process.py")
_MAX_LINE = 8_000_000
"""Maximum bytes of the calls that the code makes at once, and of its result."""
_START_SECONDS = 20.0
"""Seconds for the start of Python, which are not seconds of the code."""
_GRACE = 2.0
"""Seconds until a process that does not end is killed."""


class ProcessSandbox:
    """A sandbox for all of Python's standard library: a process for each job, isolated by the Linux kernel.

    The process has its own namespaces of users, processes and network (without a network), sees an empty file system
    with the standard library, and cannot start processes or open sockets. Limits apply to time, memory, files and
    output. It has no environment variables, no packages and no threads.

    Args:
        namespaces: False to run without namespaces, where the kernel does not allow them, such as in some containers.
            The code can then read all files that the user of this process can read. Starting processes and opening
            sockets stay forbidden on x86_64 and aarch64 only.

    Raises:
        SandboxUnavailable: The operating system is not Linux. If Linux does not allow namespaces, `run` raises it.
        ToolDefinitionError: `namespaces` is not True or False.
    """

    def __init__(self, *, namespaces: bool = True) -> None:
        if not isinstance(namespaces, bool):
            raise ToolDefinitionError(
                f"ProcessSandbox: namespaces: expected True or False, got {namespaces!r:.40}", names=["namespaces"]
            )
        if sys.platform != "linux":
            raise SandboxUnavailable(f"ProcessSandbox needs Linux, this is {sys.platform}: use MontySandbox()")
        self._namespaces = namespaces

    async def run(self, job: SandboxJob, answer: AnswerCalls) -> SandboxResult:
        """Execute code in a new process. See `Sandbox.run`."""
        with contextlib.ExitStack() as stack:
            folder = "/"
            if not self._namespaces:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sandbox-"))
            process = await ChildProcess.start(
                [sys.executable, "-P", "-S", "-s", "-B", str(_PROGRAM)],
                folder,
                # The same order of sets in each execution: a resumed run executes the code again.
                {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
                _MAX_LINE,
            )
            try:
                printed = _Printed(process, job.limits.output_chars)
                try:
                    result = await _Execution(process, job, answer).result(self._start_line(job))
                finally:
                    await _end(process)
                    text = await printed.text()
            finally:
                process.close()
            return replace(result, output=text)

    def _start_line(self, job: SandboxJob) -> bytes:
        """Return the first message for the process: its length in a line, then the job."""
        data = {
            "code": job.code,
            "file": job.file,
            "functions": job.functions,
            "files": {name: base64.b64encode(content).decode() for name, content in job.files.items()},
            "arguments": job.arguments,
            "seconds": job.limits.seconds,
            "memory_mb": job.limits.memory_mb,
            "output_chars": job.limits.output_chars,
            "namespaces": self._namespaces,
        }
        text = json.dumps(data).encode()
        return b"%d\n%b" % (len(text), text)


class _Invalid(Exception):
    """A message of the process is invalid."""


class _Printed:
    """The text that the process prints, read while it runs: a process that is killed has printed text too."""

    def __init__(self, process: ChildProcess, limit: int) -> None:
        self._stream = process.stderr
        self._limit = limit + 100  # with the note on text that was dropped
        self._data = bytearray()
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        while data := await self._stream.read(1 << 16):
            # A character has up to 4 bytes. The code can write more than our program does.
            self._data += data[: max(4 * self._limit - len(self._data), 0)]

    async def text(self) -> str:
        """Return the text, after the end of the process."""
        await asyncio.wait([self._reading], timeout=_GRACE)
        self._reading.cancel()
        return self._data.decode("utf-8", "replace")[: self._limit]


class _Execution:
    """One execution: messages between the host and the process, within the time limit of the code."""

    def __init__(self, process: ChildProcess, job: SandboxJob, answer: AnswerCalls) -> None:
        self._process = process
        self._input, self._output = process.stdin, process.stdout
        self._job = job
        self._answer = answer
        self._result: SandboxResult | None = None

    async def result(self, start: bytes) -> SandboxResult:
        """Send the job, answer calls, and return the result.

        Raises:
            SandboxUnavailable: The kernel refused the isolation.
            SandboxError: The process could not be started.
        """
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._send(start)
                data = await self._read()
            if data is None or "ready" not in data:
                raise _start_error(data)
            seconds = self._job.limits.seconds
            async with asyncio.timeout(seconds) as limit:
                began = clock()
                while (calls := self._calls(await self._read())) is not None:
                    # The code waits for the answers: this time is not its time.
                    seconds -= clock() - began
                    limit.reschedule(None)
                    answers = await self._answer(calls)
                    rows = [{"value": each.value, "error": each.error} for each in answers]
                    began = clock()
                    limit.reschedule(began + seconds)
                    await self._send(json.dumps({"answers": rows}).encode() + b"\n")
        except TimeoutError:
            return SandboxResult(error=f"the code was stopped after {self._job.limits.seconds:g} seconds")
        except _Invalid:
            return SandboxResult(error=f"the code sent invalid data, or more than {_MAX_LINE:,} bytes at once")
        return self._result or SandboxResult(error=await self._end_reason())

    def _calls(self, data: Mapping[str, Any] | None) -> list[SandboxCall] | None:
        """Return the calls in a message; None if it is the last message.

        Raises:
            _Invalid: The code shares its process with our program, and can write anything to the connection.
        """
        if data is None:
            return None
        try:
            if "result" in data:
                self._result = self._read_result(data["result"])
                return None
            if not data["calls"]:
                raise ValueError  # our program sends no such message, which would cost the code no time
            return [_read_call(row, self._job.functions) for row in data["calls"]]
        except (LookupError, TypeError, ValueError) as error:
            raise _Invalid from error

    async def _send(self, data: bytes) -> None:
        """Send a message."""
        # A process that ended cannot read: the next message reports its end.
        with contextlib.suppress(ConnectionError):
            self._input.write(data)
            if self._input.transport.get_write_buffer_size() > 0:
                await self._input.drain()

    async def _read(self) -> Mapping[str, Any] | None:
        """Return the next message; None if the process ended.

        Raises:
            _Invalid: The message is too long, or no JSON object.
        """
        try:
            line = await self._output.readline()
            if not line.endswith(b"\n"):
                return None
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _Invalid from error
        if not isinstance(data, dict):
            raise _Invalid
        return data

    def _read_result(self, data: Any) -> SandboxResult:
        texts = [data["value"], data["error"]]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError
        limit = self._job.limits.output_chars + 100
        value, error = [text[:limit] for text in texts]
        return SandboxResult(value=value, error=error)

    async def _end_reason(self) -> str:
        """Return the reason why the process ended without a result."""
        _close_input(self._process)
        status = await self._process.wait()
        if status == 128 + signal.SIGXCPU:
            return f"the code was stopped: it used more than {self._job.limits.seconds:g} seconds"
        if status > 128:
            return f"the process of the code was killed by signal {status - 128}, possibly by its limit of memory"
        return "the process of the code ended without a result"


def _read_call(row: Any, functions: tuple[str, ...]) -> SandboxCall:
    name, args, kwargs = row
    if name not in functions or not isinstance(args, list) or not isinstance(kwargs, dict):
        raise TypeError
    return SandboxCall(name, tuple(args), kwargs)


def _start_error(data: Mapping[str, Any] | None) -> SandboxError:
    if data is not None and "refused" in data:
        return SandboxUnavailable(
            f"ProcessSandbox: the kernel refused the isolation ({data['refused']!s:.200}); allow user namespaces, use "
            "MontySandbox(), or ProcessSandbox(namespaces=False), whose code can read the files of this user"
        )
    return SandboxError("ProcessSandbox: its Python could not be started")


async def _end(process: ChildProcess) -> None:
    """End a process: its supervisor kills the code when the connection is closed."""
    _close_input(process)
    waiting = asyncio.ensure_future(process.wait())
    try:
        async with asyncio.timeout(_GRACE):
            await asyncio.shield(waiting)
    except TimeoutError:
        _kill(process)
    except BaseException:
        _kill(process)
        raise
    finally:
        waiting.cancel()


def _close_input(process: ChildProcess) -> None:
    """Close the input, also if the process does not read the answers that are left."""
    process.stdin.close()
    if process.stdin.transport.get_write_buffer_size() > 0:
        process.stdin.transport.abort()


def _kill(process: ChildProcess) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
