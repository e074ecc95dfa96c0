"""`CodeModel`: code in a sandbox as the model of a run, whose replies are the calls that the code makes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentkit.errors import JournalError
from agentkit.models.model import OnDelta, Reply, Usage
from agentkit.models.prices import Price
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_tools.sandboxes.sandbox import (
    Sandbox,
    SandboxAnswer,
    SandboxCall,
    SandboxJob,
    SandboxResult,
    checked_result,
)
from agentkit_tools.toolsets.function_stubs import ToolFunction, arguments_text

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition

_FREE = Price(input=0, output=0)
_NO_COST = Usage(money=0.0)
"""Usage of each reply, so that no run calculates its cost."""


class CodeModel:
    """One execution of code. Each request returns the calls that the code waits for, or its result.

    The run executes and records these calls as the calls of a model. If the run is resumed, the code is executed again:
    the messages of the run answer the calls that it made before.

    Args:
        sandbox: Executes the code.
        job: The code.
        functions: The functions of the code, by name.
        count: Counts calls; it raises an exception if the run may not make them.

    Attributes:
        name: Name of the model.
        price: Price of the model: code costs no tokens.
    """

    name = "code"
    price = _FREE

    def __init__(
        self, sandbox: Sandbox, job: SandboxJob, functions: Mapping[str, ToolFunction], count: Callable[[int], None]
    ) -> None:
        self._sandbox = sandbox
        self._job = job
        self._functions = functions
        self._count = count
        self._call_number = 0
        self._read_messages = 0
        self._task: asyncio.Task[SandboxResult] | None = None
        self._batch: _Batch | None = None
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Answer the calls before with the results in the messages, and return the next calls, or the result.

        Raises:
            JournalError: The code made other calls than the messages contain.
            SandboxError: The sandbox failed.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._sandbox.run(self._job, self._answers))
            self._task.add_done_callback(lambda _: self._changed.set())
        messages = composition.context.intermediate
        while self._read_messages < len(messages):
            await self._answer_round(messages[self._read_messages :])
        batch = await self._next_batch()
        if batch is None:
            text = _result_text(checked_result(self._sandbox, self._task.result()))
            return Reply(Message("assistant", text), _NO_COST)
        self._count(len(batch.calls))
        return Reply(Message("assistant", tool_calls=batch.calls), _NO_COST, "tool_calls")

    async def _answer_round(self, messages: Sequence[Message]) -> None:
        """Answer the calls of a message of the run with the results after it."""
        message = messages[0]
        results = {result.tool_call_id: result for result in messages[1 : len(message.tool_calls) + 1]}
        batch = await self._next_batch()
        calls: tuple[ToolCall, ...] = ()
        if batch is not None:
            calls = batch.calls
        if [(call.name, call.arguments) for call in calls] != [
            (call.name, call.arguments) for call in message.tool_calls
        ]:
            raise _divergence(message.tool_calls, calls)
        assert batch is not None
        # The run can have replaced an id; the results are in the order of the calls.
        batch.finish([_read_answer(results[call.id]) for call in message.tool_calls])
        self._batch = None
        self._read_messages += 1 + len(message.tool_calls)

    async def _next_batch(self) -> _Batch | None:
        """Wait for calls, and return them; None if the code ended."""
        assert self._task is not None
        while self._batch is None:
            if self._task.done():
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._batch

    async def _answers(self, calls: Sequence[SandboxCall]) -> Sequence[SandboxAnswer]:
        """Return the answers of calls of the code, when the run has them."""
        # A sandbox can ask again before it has the answers: the run answers one group after the other.
        async with self._lock:
            batch = _Batch(calls, self._functions, self._call_number)
            self._call_number += len(batch.calls)
            if batch.calls:
                self._batch = batch
                self._changed.set()
                await batch.finished
        return batch.answers

    async def close(self) -> None:
        """Stop the code if it still runs."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # read, so that asyncio does not log it


class _Batch:
    """Calls that the code made before it waited.

    Attributes:
        calls: The calls for tools; calls with arguments that fit no parameters are answered without the tool.
        answers: The answers, in the order of the code.
        finished: Future that ends when all calls have answers.
    """

    def __init__(self, calls: Sequence[SandboxCall], functions: Mapping[str, ToolFunction], number: int) -> None:
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answers: list[SandboxAnswer] = []
        self._positions: list[int] = []
        tool_calls: list[ToolCall] = []
        for position, call in enumerate(calls):
            answer = SandboxAnswer()
            try:
                function = functions.get(call.name)
                if function is None:
                    raise LookupError(f"unknown function {call.name!r:.80}")
                arguments = arguments_text(function, call.args, call.kwargs)
            except (LookupError, TypeError, ValueError, RecursionError) as error:
                answer = SandboxAnswer(error=str(error)[:1000])
            else:
                self._positions.append(position)
                tool_calls.append(ToolCall(str(number + len(tool_calls) + 1), function.tool.name, arguments))
            self.answers.append(answer)
        self.calls = tuple(tool_calls)

    def finish(self, answers: Sequence[SandboxAnswer]) -> None:
        """Set the answers of the calls for tools."""
        for position, answer in zip(self._positions, answers, strict=True):
            self.answers[position] = answer
        if not self.finished.done():
            self.finished.set_result(None)


def encoded_value(value: Any) -> str:
    """Return the content of the result of a call for code: its value as JSON data."""
    return json.dumps({"value": value}, ensure_ascii=False)


def encoded_error(text: str) -> str:
    """Return the content of the result of a call that failed."""
    return json.dumps({"error": text}, ensure_ascii=False)


def _read_answer(message: Message) -> SandboxAnswer:
    """Return the answer in the result of a call."""
    try:
        data = json.loads(message.text)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and data.keys() == {"value"}:
        return SandboxAnswer(data["value"])
    if isinstance(data, dict) and data.keys() == {"error"} and isinstance(data["error"], str):
        return SandboxAnswer(error=data["error"])
    if message.text.startswith((f"{message.name} was not called", f"{message.name} was cancelled")):
        return SandboxAnswer(error=message.text)
    # A guard replaced the text of the result.
    return SandboxAnswer(message.text)


def _result_text(result: SandboxResult) -> str:
    texts = {"output": result.output, "value": result.value, "error": result.error}
    return json.dumps(texts)


def read_result(text: str) -> SandboxResult:
    """Return the result of an execution from the answer of its run."""
    return SandboxResult(**json.loads(text))


def _divergence(before: Sequence[ToolCall], now: Sequence[ToolCall]) -> JournalError:
    present = ", ".join([_shown(call) for call in now]) or "nothing"
    expected = ", ".join([_shown(call) for call in before])
    return JournalError(
        f"the code of a model was executed again, and called {present:.300} instead of {expected:.300}: its calls "
        "depend on time, random numbers or a changed tool; start a new run",
        name="code",
        value=present[:300],
    )


def _shown(call: ToolCall) -> str:
    return f"{call.name}({call.arguments})"
