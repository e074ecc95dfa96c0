"""`ChildProcess`: a process with streams, whose start can be cancelled at any moment."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Self


class ChildProcess:
    """A process in a separate session, and the streams to it.

    It replaces the subprocesses of asyncio: if all tasks are cancelled while such a subprocess starts, as after Ctrl-C,
    asyncio waits for its end forever.

    Attributes:
        pid: Id of the process and of its group.
        stdin: Stream to the process.
        stdout: Stream of the messages of the process.
        stderr: Stream of the text that the process prints.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._transports: list[asyncio.BaseTransport] = []
        self.pid = process.pid
        self.stdin: asyncio.StreamWriter
        self.stdout: asyncio.StreamReader
        self.stderr: asyncio.StreamReader

    @classmethod
    async def start(cls, command: Sequence[str], folder: str, environment: Mapping[str, str], limit: int) -> Self:
        """Start a process.

        Args:
            command: The program and its arguments.
            folder: Working directory.
            environment: All environment variables.
            limit: Maximum bytes of a line that is read.
        """
        pipe = subprocess.PIPE
        started = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env=environment, start_new_session=True
        )
        process = cls(started)
        try:
            process.stdout = await process._reader(started.stdout, limit)
            process.stderr = await process._reader(started.stderr, limit)
            process.stdin = await process._writer(started.stdin)
        except BaseException:
            started.kill()
            started.wait()
            process.close()
            raise
        return process

    async def wait(self) -> int:
        """Wait for the end of the process, and return its exit status."""
        # A cancellation leaves the thread, which ends with the process.
        return await asyncio.get_running_loop().run_in_executor(None, self._process.wait)

    def close(self) -> None:
        """Close the streams."""
        for transport in self._transports:
            transport.close()
        # In the order of `start`: a pipe without a transport is closed directly.
        for pipe in (self._process.stdout, self._process.stderr, self._process.stdin)[len(self._transports) :]:
            if pipe is not None:
                pipe.close()

    async def _reader(self, pipe: Any, limit: int) -> asyncio.StreamReader:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit, loop)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), pipe)
        self._transports.append(transport)
        return reader

    async def _writer(self, pipe: Any) -> asyncio.StreamWriter:
        loop = asyncio.get_running_loop()
        unused = asyncio.StreamReader(loop=loop)
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(unused, loop=loop), pipe
        )
        self._transports.append(transport)
        return asyncio.StreamWriter(transport, protocol, None, loop)
