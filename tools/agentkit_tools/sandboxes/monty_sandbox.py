"""`MontySandbox`: a subset of Python, in an interpreter without access to the host."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agentkit_prompts.extras import install
from agentkit_tools.sandboxes.sandbox import (
    AnswerCalls,
    SandboxAnswer,
    SandboxCall,
    SandboxError,
    SandboxJob,
    SandboxResult,
    SandboxUnavailable,
)

_T = TypeVar("_T")
_MAX_SUSPENSIONS = 100_000
"""Maximum calls and look-ups of names of one execution; the runtime limits calls of tools itself."""
_MEGABYTE = 1024 * 1024
_START_SECONDS = 20.0
_SCRIPT = "<python-input-0>"
"""Name of the code in tracebacks of Monty."""


class MontySandbox:
    """A sandbox on every operating system: the interpreter Monty, in a worker process.

    Monty executes a subset of Python with a part of the standard library. Code cannot reach files, the network or
    processes, because the interpreter has no such functions. Scripts with arguments need a `ProcessSandbox`.

    Raises:
        SandboxUnavailable: The extra `monty` is not installed.
    """

    def __init__(self) -> None:
        try:
            import pydantic_monty
        except ImportError:
            raise SandboxUnavailable(f"MontySandbox needs the extra `monty`: {install('monty')}") from None
        self._monty: Any = pydantic_monty

    async def run(self, job: SandboxJob, answer: AnswerCalls) -> SandboxResult:
        """Execute code in a new worker process. See `Sandbox.run`."""
        if job.arguments:
            raise SandboxError(
                "MontySandbox: its Python has no sys.argv: use ProcessSandbox() for scripts with arguments"
            )
        with tempfile.TemporaryDirectory(prefix="sandbox-") as folder:
            return await self._run(job, answer, Path(folder))

    async def _run(self, job: SandboxJob, answer: AnswerCalls, folder: Path) -> SandboxResult:
        monty, limits = self._monty, job.limits
        output = _Output(limits.output_chars)
        options: dict[str, Any] = {"print_callback": output.write}
        if job.files:
            options["mount"] = self._mount(job, folder)
        execution = _Execution(monty, job, options)
        try:
            calls = await execution.start()
            while calls is not None:
                calls = await execution.resume(await answer(calls))
        except monty.MontyCrashedError as error:
            problem = "the worker of the code crashed"
            if error.timed_out:
                problem = f"the code was stopped after {limits.seconds:g} seconds"
            return SandboxResult(output.text(), error=problem)
        except (monty.MontySyntaxError, monty.MontyRuntimeError) as error:
            text = error.display("traceback").replace(_SCRIPT, job.file)
            return SandboxResult(output.text(), error=text[-limits.output_chars :])
        except monty.MontyError as error:
            return SandboxResult(output.text(), error=str(error)[: limits.output_chars])
        finally:
            await execution.close()
        return SandboxResult(output.text(), _shown(execution.value, limits.output_chars))

    def _mount(self, job: SandboxJob, folder: Path) -> Any:
        """Write the files of a job to a private folder, which the code sees; its changes stay in memory."""
        for name, content in job.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        memory = job.limits.memory_mb * _MEGABYTE
        return self._monty.MountDir(host_path=folder, virtual_path="/work", memory_usage_limit=memory)


class _Execution:
    """One execution in a worker process.

    A thread exchanges the messages with the worker: the interface of Monty for asyncio takes several times as long per
    message.

    Args:
        monty: The module `pydantic_monty`.
        job: The code.
        options: Further options of the execution.

    Attributes:
        value: Value of the last expression, after the end of the code.
    """

    def __init__(self, monty: Any, job: SandboxJob, options: Mapping[str, Any]) -> None:
        self._monty = monty
        self._job = job
        self._options = options
        self._executor = ThreadPoolExecutor(1, "monty-sandbox")
        self._resources = ExitStack()
        self._session: Any = None
        self._worker: int | None = None
        self._snapshot: Any = None
        self._waiting: list[int] = []
        """Ids of the calls for which the code waits."""
        self.value: Any = None

    async def start(self) -> list[SandboxCall] | None:
        """Start a worker, and execute the code until it waits for calls; None if the code ended."""
        await self._in_thread(self._enter)
        return await self._in_thread(self._start)

    async def resume(self, answers: Sequence[SandboxAnswer]) -> list[SandboxCall] | None:
        """Answer the calls, and execute the code until it waits for the next calls; None if the code ended."""
        return await self._in_thread(partial(self._resume, answers))

    async def close(self) -> None:
        """End the worker."""
        # From here on, another process can get the id of the worker.
        self._worker = None
        try:
            await self._in_thread(self._resources.close)
        finally:
            self._executor.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        """Do work in the thread. A cancellation ends the worker, and waits for the end of the work."""
        working = asyncio.get_running_loop().run_in_executor(self._executor, work)
        working.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            if not working.done():
                self._kill()
            await asyncio.wait([working])
            raise

    def _kill(self) -> None:
        """End the worker, if it has started."""
        if self._worker is not None:
            with suppress(ProcessLookupError):
                os.kill(self._worker, signal.SIGTERM)

    # In the thread

    def _enter(self) -> None:
        limits = self._job.limits
        resources = {
            "max_feed_duration_secs": limits.seconds,
            "max_memory": limits.memory_mb * _MEGABYTE,
            "max_suspensions": _MAX_SUSPENSIONS,
            "max_total_sleep_secs": limits.seconds,
        }
        # The same random numbers in each execution: a resumed run executes the code again.
        policy = {"random_start": {"seed": self._job.code}}
        # A time limit of a turn, for a worker that does not respond.
        pool = self._monty.Monty(max_processes=1, request_timeout=limits.seconds + _START_SECONDS)
        self._resources.enter_context(pool)
        checkout = pool.checkout(script_name=self._job.file, limits=resources, os_policy=policy)
        self._session = self._resources.enter_context(checkout)
        # Read now: the session does not return it while the code runs.
        self._worker = self._session.worker_pid

    def _start(self) -> list[SandboxCall] | None:
        functions = dict.fromkeys(self._job.functions, _host_function)
        snapshot = self._session.feed_start(self._job.code, external_lookup=functions, **self._options)
        return self._calls_after(snapshot)

    def _resume(self, answers: Sequence[SandboxAnswer]) -> list[SandboxCall] | None:
        rows = zip(self._waiting, answers, strict=True)
        return self._calls_after(self._snapshot.resume({number: _monty_answer(each) for number, each in rows}))

    def _calls_after(self, snapshot: Any) -> list[SandboxCall] | None:
        """Continue the execution until the code waits, and return the calls that it made; None if it ended."""
        monty = self._monty
        calls: dict[int, SandboxCall] = {}
        while not isinstance(snapshot, monty.MontyComplete):
            if isinstance(snapshot, monty.FutureSnapshot):
                # The code waits: these are all calls that it made before.
                self._snapshot = snapshot
                self._waiting = sorted(number for number in snapshot.pending_call_ids if number in calls)
                return [calls[number] for number in self._waiting]
            if isinstance(snapshot, monty.NameLookupSnapshot) or snapshot.is_os_function:
                snapshot = snapshot.resume_auto()
            elif snapshot.function_name not in self._job.functions:
                text = f"name {snapshot.function_name!r:.80} is not defined"
                snapshot = snapshot.resume({"exc_type": "NameError", "message": text})
            else:
                try:
                    call = SandboxCall(snapshot.function_name, *_json_arguments(snapshot))
                except (TypeError, ValueError, RecursionError) as error:
                    problem = {"exc_type": type(error).__name__, "message": str(error)}
                    snapshot = snapshot.resume(problem)
                    continue
                calls[snapshot.call_id] = call
                snapshot = snapshot.resume({"future": ...})
        self.value = snapshot.output
        return None


def _retrieve(working: asyncio.Future[Any]) -> None:
    """Read the exception of work that a cancellation interrupted, so that asyncio does not log it."""
    if not working.cancelled():
        working.exception()


def _host_function(*args: Any, **kwargs: Any) -> None:
    """Mark a name of the code as a function of the host; `_Execution` answers its calls."""


def _json_arguments(snapshot: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    args: Sequence[Any] = _json_data(list(snapshot.args))
    return tuple(args), _json_data(snapshot.kwargs)


def _json_data(value: Any) -> Any:
    return json.loads(json.dumps(value, default=_plain))


def _plain(value: Any) -> Any:
    """Return JSON data for a value that `json` does not support."""
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return str(value)


def _monty_answer(answer: SandboxAnswer) -> dict[str, Any]:
    if answer.error:
        return {"exc_type": "RuntimeError", "message": answer.error}
    return {"return_value": answer.value}


def _shown(value: Any, limit: int) -> str:
    """Return the text of a value: JSON if possible, otherwise its `repr`."""
    if value is None:
        return ""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        try:
            text = repr(value)
        except (ValueError, RecursionError) as error:  # such as a large integer
            text = f"<{type(value).__name__} without a text: {type(error).__name__}>"
    if len(text) > limit:
        text = text[:limit] + " [cut]"
    return text


class _Output:
    """The first characters of the printed text."""

    def __init__(self, limit: int) -> None:
        self._texts: list[str] = []
        self._left = limit
        self._is_cut = False

    def write(self, stream: str, text: str) -> None:
        """Keep printed text up to the limit."""
        if len(text) > self._left:
            self._is_cut = True
        if self._left > 0 and text:
            self._texts.append(text[: self._left])
            self._left -= len(self._texts[-1])

    def text(self) -> str:
        """Return the text, with a note if a part was dropped."""
        text = "".join(self._texts)
        if self._is_cut:
            text += "\n[The rest of the output was dropped.]"
        return text
