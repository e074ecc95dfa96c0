"""Events of a run in the format of AG-UI."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ag_ui.core import (
    BaseEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

from agentkit.models.model import Usage
from agentkit.run.engine import events
from agentkit.server.ag_ui.ag_ui_interrupts import interrupt_of, outer_call
from agentkit.server.request_runs.request_run import RequestAnswer
from agentkit_prompts.context.messages import ToolCall

PROTOCOL_VERSION = "1.0"


class AGUIEvents:
    """Writes the events of one run.

    Args:
        thread_id: Id of the conversation at the client.
        client_run_id: Id of the run at the client.
        run_id: Id of the run on the server. It prefixes the ids of messages and calls, because ids of a
            model may repeat.
        streams_text: True if the answer is the text of the model, so that its deltas are sent.
        started: Ids of the calls that an earlier request of this run reported.
    """

    def __init__(
        self, thread_id: str, client_run_id: str, run_id: str, *, streams_text: bool, started: Iterable[str] = ()
    ) -> None:
        self._thread_id, self._client_run_id, self._run_id = thread_id, client_run_id, run_id
        self._streams_text = streams_text
        self._has_started = False
        self._step = 0
        self._text_id: str | None = None
        """Id of the open text message."""
        self._reasoning_id: str | None = None
        """Id of the open reasoning message."""
        self._has_text = False
        self._received_count = 0
        self._started_calls = {outer_call(call) for call in started}

    def start(self) -> Iterator[BaseEvent]:
        """Yield the event that starts the run; nothing on later calls."""
        if not self._has_started:
            self._has_started = True
            yield RunStartedEvent(
                thread_id=self._thread_id, run_id=self._client_run_id, protocol_version=PROTOCOL_VERSION
            )

    def events_of(self, event: events.Event[Any]) -> Iterator[BaseEvent]:
        """Yield the AG-UI events of an event of the run; nothing if the protocol has no equivalent."""
        yield from self.start()
        if isinstance(event, events.PromptComposed):
            yield from self._close_messages()
            yield from self._finish_step()
            self._step = event.step
            yield StepStartedEvent(step_name=f"step {event.step}")
        elif isinstance(event, events.TextDelta) and self._streams_text:
            yield from self._text_delta(event.text)
        elif isinstance(event, events.ThinkingDelta) and event.text:
            yield from self._thinking_delta(event)
        elif isinstance(event, events.ToolStarted):
            yield from self._close_messages()
            yield from self._agent_call(event.call)
        elif isinstance(event, events.ToolFinished):
            yield from self._close_messages()
            call = self._call_id(event.result.call_id)
            text = event.result.message.text
            yield ToolCallResultEvent(message_id=f"{call}-result", tool_call_id=call, content=text, role="tool")
        elif isinstance(event, events.MessageReceived):
            yield from self._received(event.sent.message.text)

    def _received(self, text: str) -> Iterator[BaseEvent]:
        """Yield a message of the user that the run received while it ran."""
        yield from self._close_messages()
        self._received_count += 1
        message = f"{self._run_id}-received-{self._received_count}"
        yield TextMessageStartEvent(message_id=message, role="user")
        if text:
            yield TextMessageContentEvent(message_id=message, delta=text)
        yield TextMessageEndEvent(message_id=message)

    def end(self, answer: RequestAnswer) -> Iterator[BaseEvent]:
        """Yield the last events of a run: text that was not streamed, open calls, outcome and usage."""
        yield from self.start()
        if answer.text and not self._has_text:
            yield from self._text_delta(answer.text)
        yield from self._close_messages()
        for call in answer.calls:
            yield from self._call(call, call.id)
        for call in answer.waiting:
            # A call of an inner agent belongs to the call of its tool, which has started already.
            if outer_call(call.id) == call.id:
                yield from self._agent_call(call)
        yield from self._finish_step()
        result = None
        if not self._streams_text and not answer.calls:
            result = answer.output
        yield RunFinishedEvent(
            thread_id=self._thread_id,
            run_id=self._client_run_id,
            result=result,
            outcome=self._outcome(answer),
            usage=[_usage(answer.usage)],
        )

    def _outcome(self, answer: RequestAnswer) -> RunFinishedInterruptOutcome | RunFinishedSuccessOutcome:
        if answer.waiting:
            return RunFinishedInterruptOutcome(interrupts=[interrupt_of(self._run_id, call) for call in answer.waiting])
        return RunFinishedSuccessOutcome(pending_tool_call_ids=[call.id for call in answer.calls] or None)

    def error(self, message: str, code: str | None) -> Iterator[BaseEvent]:
        """Yield the last events of a failed run."""
        yield from self._close_messages()
        yield RunErrorEvent(message=message, code=code)

    def _message_id(self) -> str:
        return f"{self._run_id}-{self._step}"

    def _call_id(self, call_id: str) -> str:
        return f"{self._run_id}-{call_id}"

    def _thinking_delta(self, event: events.ThinkingDelta) -> Iterator[BaseEvent]:
        if self._reasoning_id is None:
            yield from self._close_messages()
            self._reasoning_id = f"{self._run_id}-thought-{event.step}"
            yield ReasoningStartEvent(message_id=self._reasoning_id)
            yield ReasoningMessageStartEvent(message_id=self._reasoning_id)
        yield ReasoningMessageContentEvent(message_id=self._reasoning_id, delta=event.text)

    def _text_delta(self, text: str) -> Iterator[BaseEvent]:
        if not text:
            return
        if self._text_id is None:
            yield from self._close_messages()
            self._text_id = self._message_id()
            yield TextMessageStartEvent(message_id=self._text_id, role="assistant")
        self._has_text = True
        yield TextMessageContentEvent(message_id=self._text_id, delta=text)

    def _agent_call(self, call: ToolCall) -> Iterator[BaseEvent]:
        """Yield the events of a call of the agent's tools; nothing if they were sent before."""
        if call.id not in self._started_calls:
            self._started_calls.add(call.id)
            yield from self._call(call, self._call_id(call.id))

    def _call(self, call: ToolCall, id: str) -> Iterator[BaseEvent]:
        yield ToolCallStartEvent(tool_call_id=id, tool_call_name=call.name, parent_message_id=self._message_id())
        yield ToolCallArgsEvent(tool_call_id=id, delta=call.arguments)
        yield ToolCallEndEvent(tool_call_id=id)

    def _close_messages(self) -> Iterator[BaseEvent]:
        """End the open text or reasoning message, if any."""
        if self._text_id is not None:
            yield TextMessageEndEvent(message_id=self._text_id)
        if self._reasoning_id is not None:
            yield ReasoningMessageEndEvent(message_id=self._reasoning_id)
            yield ReasoningEndEvent(message_id=self._reasoning_id)
        self._text_id = self._reasoning_id = None

    def _finish_step(self) -> Iterator[BaseEvent]:
        if self._step:
            yield StepFinishedEvent(step_name=f"step {self._step}")


def _usage(usage: Usage) -> TokenUsage:
    return TokenUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        cached_input_tokens=usage.cached_tokens,
        reasoning_tokens=usage.reasoning_tokens,
    )
