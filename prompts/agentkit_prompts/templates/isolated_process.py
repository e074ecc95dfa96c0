"""A process of its own for templates that are not trusted: what goes wrong in it ends that process, not this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Timer
from typing import IO, Any, cast

from agentkit_prompts.errors import PromptError

__all__ = ["IsolatedProcess"]

_MAX_SECONDS = 10.0
"""Wall clock that one request may take, the start of the process included."""
_MAX_ANSWER = 128_000_000
"""Characters of an answer: the longest text under the usual limits, all of it escaped."""
_KEPT = ("SYSTEMROOT", "LANG", "LC_ALL")
"""Variables of the environment that the process sees; no keys are among them."""


class IsolatedProcess:
    """Runs templates in a process with limits of its own, started when it is first asked and after it was killed.

    The process has a limited address space, CPU time and wall clock, no environment, and writes no files.

    Args:
        worker: Module that it runs, which answers requests by `agentkit_prompts.templates.request_loop.serve`.
        error: What an error of the template becomes here, made from its text and what the worker gives with it.
    """

    def __init__(self, worker: str, error: Callable[..., PromptError]) -> None:
        self._worker = worker
        self._error = error
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None
        self._end: Callable[[], object] = lambda: None

    def __reduce__(self) -> tuple[Any, ...]:
        return IsolatedProcess, (self._worker, self._error)

    def ask(self, what: str, **given: Any) -> Any:
        """Return the answer of the process to one request.

        Raises:
            PromptError: The template fails, or the process took too long, too much memory, or ended.
        """
        try:
            request = json.dumps({"what": what, **given}) + "\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise self._error(f"isolated=True passes JSON data to the template: {error}") from error
        with self._lock:
            line, late = self._exchange(request)
        if not line.endswith("\n"):
            why = (
                f"took more than {_MAX_SECONDS:g} seconds"
                if late
                else "ended: it took too much memory, time, stack or text"
            )
            raise self._error(f"the process of the isolated template {why}; do not use this template")
        answer = json.loads(line)
        if "error" in answer:
            raise self._error(answer["error"], **answer.get("place", {}))
        return answer["made"]

    def close(self) -> None:
        """End the process; the next request starts another."""
        with self._lock:
            self._end()
            self._process = None

    def _exchange(self, request: str) -> tuple[str, bool]:
        late = False

        def stop() -> None:
            nonlocal late
            late = True
            process.kill()

        process = self._running()
        timer = Timer(_MAX_SECONDS, stop)
        timer.daemon = True
        timer.start()
        line = ""
        try:
            cast("IO[str]", process.stdin).write(request)
            cast("IO[str]", process.stdin).flush()
            line = cast("IO[str]", process.stdout).readline(_MAX_ANSWER)
        except OSError:  # it ended while it was written to
            pass
        finally:
            timer.cancel()
            if not line.endswith("\n"):
                self._end()
                self._process = None
        return line, late

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._process = process = subprocess.Popen(
            [sys.executable, "-P", "-X", "utf8", "-m", self._worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._end = weakref.finalize(self, _end, process)
        return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):  # what was still to be written has nobody to read it
            cast("IO[str]", stream).close()
