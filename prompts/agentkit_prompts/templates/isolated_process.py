"""Separate process for untrusted templates, so that a failure ends only that process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from threading import Lock, Timer
from typing import Any, TypeVar, cast

from agentkit_prompts.errors import PromptError

R = TypeVar("R")

_MAX_SECONDS = 10.0
"""Maximum seconds of one request, including the start of the process."""
_MAX_REPLY_BYTES = 128_000_000
"""Maximum bytes of a reply: the longest text under the usual limits, with every character escaped."""
_BYTES_PER_READ = 1 << 16
_PASSED_VARIABLES = ("SYSTEMROOT", "LANG", "LC_ALL")
"""Environment variables that the process gets. Other variables can contain API keys."""


_ADVICE = "do not use this template"
_PROCESSES: weakref.WeakSet[IsolatedProcess] = weakref.WeakSet()


class IsolatedProcess:
    """Process with limits for templates. It starts at the first request, and again after it was killed.

    Address space, CPU time and wall clock of the process are limited, and it gets only a few environment variables.
    Unless root runs it, it can open no files or connections and start no processes. It ends if this process is killed.
    Concurrent threads wait for each other. A forked child starts a new process.

    Args:
        worker: Module of the process, which replies to requests by `agentkit_prompts.templates.request_loop.serve`.
        error: Function that returns an error for the text of an error, and for the fields of its place, that the worker
            sent.
    """

    def __init__(self, worker: str, error: Callable[..., PromptError]) -> None:
        self._worker = worker
        self._error = error
        self._reset()
        _PROCESSES.add(self)

    def _reset(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None

    def __reduce__(self) -> tuple[Any, ...]:
        return IsolatedProcess, (self._worker, self._error)

    def ask(self, operation: str, read: Callable[[Any], R], **data: Any) -> R:
        """Send a request to the process, and return the content of its reply, which is untrusted.

        Args:
            operation: Name of the operation that is requested.
            read: Function that checks the JSON data of the reply and returns its content. It raises a built-in
                exception for invalid data.
            **data: Data of the request.

        Raises:
            PromptError: The template fails, or the process exceeds its time or memory, ends, or sends an invalid reply.
        """
        try:
            request = json.dumps({"operation": operation, **data}) + "\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise self._error(f"isolated=True passes JSON data to the template: {error}") from error
        line = self._answer(request.encode())
        try:
            answer = json.loads(line)
            if "error" not in answer:
                return read(answer["result"])
            failed = self._error(read_text(answer["error"]), **answer.get("place", {}))
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            self.close()
            raise self._error(f"the process of the isolated template sent an invalid reply; {_ADVICE}") from error
        raise failed

    def _answer(self, request: bytes) -> bytes:
        with self._lock:
            try:
                line, is_late = self._exchange(request)
            # For example, too many files are open, or too many threads run.
            except (OSError, RuntimeError) as error:
                raise self._error(f"the process of the isolated template cannot be started: {error}") from error
        if line.endswith(b"\n"):
            return line
        reason = "ended: it exceeded its memory, time, stack or text limit"
        if is_late:
            reason = f"took more than {_MAX_SECONDS:g} seconds"
        raise self._error(f"the process of the isolated template {reason}; {_ADVICE}")

    def close(self) -> None:
        """End the process; the next request starts a new process."""
        with self._lock:
            self._end()
            self._process = None

    def close_inherited(self) -> None:
        """Forget a process that the parent of this process started, and close its streams in this process."""
        self._end()
        self._reset()

    def _exchange(self, request: bytes) -> tuple[bytes, bool]:
        late = False

        def stop() -> None:
            nonlocal late
            late = True
            process.kill()

        process = self._running()
        line = b""
        timer = Timer(_MAX_SECONDS, stop)
        timer.daemon = True
        try:
            timer.start()
            # An error of writing: the process ended before it has read the request.
            with suppress(OSError):
                _write(cast(FileIO, process.stdin), request)
                line = _read(cast(FileIO, process.stdout))
        finally:
            timer.cancel()
            if not line.endswith(b"\n"):
                self._end()
                self._process = None
        return line, late

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        environment = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
        self._process = process = subprocess.Popen(
            [sys.executable, "-P", "-X", "utf8", "-m", self._worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Unbuffered, because a concurrent fork would copy the locks and the content of a buffer.
            bufsize=0,
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._end = weakref.finalize(self, _end, process, os.getpid())
        return process


def read_text(value: Any) -> str:
    """Return the data of a reply if it is text.

    Raises:
        TypeError: The data is not text.
    """
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value


def read_texts(value: Any) -> list[str]:
    """Return the data of a reply if it is a list of texts.

    Raises:
        TypeError: The data is not a list of texts.
    """
    return [read_text(text) for text in value]


def _write(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _read(file: FileIO) -> bytes:
    """Return the bytes of a reply, up to a line feed; without a line feed at the end, the reply is incomplete."""
    parts: list[bytes] = []
    remaining = _MAX_REPLY_BYTES
    while remaining > 0 and (part := file.read(_BYTES_PER_READ)):
        parts.append(part)
        remaining -= len(part)
        if part.endswith(b"\n"):
            break
    return b"".join(parts)


def _end(process: subprocess.Popen[bytes], pid: int) -> None:
    if pid == os.getpid():
        process.kill()
        process.wait()
    else:
        # Only the parent of this process can wait for the process. A return code prevents a warning of `Popen`.
        process.returncode = 0
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):
            cast(FileIO, stream).close()


def _forget() -> None:
    """Called in a forked child: forget the processes of the parent. Their locks can be held by threads of the parent,
    which do not exist in the child.
    """
    for process in list(_PROCESSES):
        process.close_inherited()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
