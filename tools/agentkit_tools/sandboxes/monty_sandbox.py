"""`MontySandbox`: a subset of Python, in an interpreter without access to the host."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from agentkit_tools.sandboxes.sandbox import (
    AnswerCalls,
    SandboxAnswer,
    SandboxCall,
    SandboxError,
    SandboxJob,
    SandboxResult,
    SandboxUnavailable,
)

__all__ = ["MontySandbox"]

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
            raise SandboxUnavailable(
                "MontySandbox needs the extra `monty`: pip install 'agentkit-prompt-tree[monty]'"
            ) from None
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
        output, host = _Output(limits.output_chars), _Host(answer)
        options: dict[str, Any] = {
            "print_callback": output.write,
            "external_lookup": {name: host.function(name) for name in job.functions},
        }
        if job.files:
            options["mount"] = self._mount(job, folder)
        resources = {
            "max_feed_duration_secs": limits.seconds,
            "max_memory": limits.memory_mb * _MEGABYTE,
            "max_suspensions": _MAX_SUSPENSIONS,
            "max_total_sleep_secs": limits.seconds,
        }
        # The same random numbers in each execution: a resumed run executes the code again.
        policy = {"random_start": {"seed": job.code}}
        # A time limit of a turn, for a worker that does not respond.
        pool = monty.AsyncMonty(max_processes=1, request_timeout=limits.seconds + _START_SECONDS)
        try:
            async with AsyncExitStack() as stack:
                await _enter(stack, pool)
                session = pool.checkout(script_name=job.file, limits=resources, os_policy=policy)
                await _enter(stack, session)
                snapshot = await session.feed_start(job.code, **options)
                value = await _value(monty, snapshot, job.functions, answer)
                host.check()
        except monty.MontyCrashedError as error:
            problem = "the worker of the code crashed"
            if error.timed_out:
                problem = f"the code was stopped after {limits.seconds:g} seconds"
            return SandboxResult(output.text(), error=problem)
        except (monty.MontySyntaxError, monty.MontyRuntimeError) as error:
            host.check()
            text = error.display("traceback").replace(_SCRIPT, job.file)
            return SandboxResult(output.text(), error=text[-limits.output_chars :])
        except monty.MontyError as error:
            return SandboxResult(output.text(), error=str(error)[: limits.output_chars])
        return SandboxResult(output.text(), _shown(value, limits.output_chars))

    def _mount(self, job: SandboxJob, folder: Path) -> Any:
        """Write the files of a job to a private folder, which the code sees; its changes stay in memory."""
        for name, content in job.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        memory = job.limits.memory_mb * _MEGABYTE
        return self._monty.MountDir(host_path=folder, virtual_path="/work", memory_usage_limit=memory)


async def _enter(stack: AsyncExitStack, resource: Any) -> None:
    """Enter a pool or session. A cancellation waits until it is entered: otherwise its worker would stay."""
    entering = asyncio.ensure_future(stack.enter_async_context(resource))
    try:
        await asyncio.shield(entering)
    except asyncio.CancelledError:
        await asyncio.wait([entering])
        raise


async def _value(monty: Any, snapshot: Any, names: Collection[str], answer: AnswerCalls) -> Any:
    """Continue an execution until its end, and return the value of its last expression."""
    calls: dict[int, SandboxCall] = {}
    while not isinstance(snapshot, monty.MontyComplete):
        if isinstance(snapshot, monty.AsyncFutureSnapshot):
            # The code waits: these are all calls that it made before.
            waiting = sorted(number for number in snapshot.pending_call_ids if number in calls)
            answers = await answer([calls.pop(number) for number in waiting])
            rows = zip(waiting, answers, strict=True)
            snapshot = await snapshot.resume({number: _monty_answer(each) for number, each in rows})
        elif isinstance(snapshot, monty.AsyncNameLookupSnapshot) or snapshot.is_os_function:
            snapshot = await snapshot.resume_auto()
        elif snapshot.function_name not in names:
            text = f"name {snapshot.function_name!r:.80} is not defined"
            snapshot = await snapshot.resume({"exc_type": "NameError", "message": text})
        else:
            if snapshot.allow_eager_await and not calls:
                # The code waits for this call only: one exchange with the worker instead of two.
                snapshot = await snapshot.resume_auto()
            else:
                try:
                    call = SandboxCall(snapshot.function_name, *_json_arguments(snapshot))
                except (TypeError, ValueError, RecursionError) as error:
                    problem = {"exc_type": type(error).__name__, "message": str(error)}
                    snapshot = await snapshot.resume(problem)
                    continue
                calls[snapshot.call_id] = call
                snapshot = await snapshot.resume({"future": ...})
    return snapshot.output


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


class _Host:
    """Functions of the host for calls that the code makes one after the other."""

    def __init__(self, answer: AnswerCalls) -> None:
        self._answer = answer
        self._error: BaseException | None = None

    def check(self) -> None:
        """Raise the error of the host, if answering a call failed."""
        if self._error is not None:
            raise self._error

    def function(self, name: str) -> Any:
        """Return an async function that answers calls of `name`."""

        async def call(*args: Any, **kwargs: Any) -> Any:
            row = SandboxCall(name, tuple(_json_data(args)), _json_data(kwargs))
            try:
                (result,) = await self._answer([row])
            except BaseException as error:
                self._error = self._error or error
                raise
            if result.error:
                raise RuntimeError(result.error)
            return result.value

        return call
