"""Events of a run in the form of AG-UI, for chat front ends."""

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

from agentkit.run.engine import events
from agentkit.server.ag_ui.ag_ui_interrupts import interrupt_of, outer_call
from agentkit.server.turns.turn import TurnAnswer
from agentkit_prompts.context.messages import ToolCall

__all__ = ["AGUIEvents"]

PROTOCOL_VERSION = "1.0"


class AGUIEvents:
    """Writes the events of one run.

    Args:
        thread: The conversation, as the client calls it.
        run: The run, as the client calls it.
        id: Our id of the run: ids of messages and calls begin with it, as those of a model may come again.
        streams_text: Whether the text of the model is the answer as it comes.
        waited: Ids of the calls that an earlier request of this run ended with: they began there.
    """

    def __init__(self, thread: str, run: str, id: str, *, streams_text: bool, waited: Iterable[str] = ()) -> None:
        self._thread, self._run, self._id = thread, run, id
        self._streams_text = streams_text
        self._has_begun = False
        self._step = 0
        self._text: str | None = None
        """Id of the text message that is open."""
        self._thought: str | None = None
        """Id of the reasoning message that is open."""
        self._has_text = False
        self._called_already = {outer_call(call) for call in waited}

    def begin(self) -> Iterator[BaseEvent]:
        """Yield what begins a run, once."""
        if not self._has_begun:
            self._has_begun = True
            yield RunStartedEvent(thread_id=self._thread, run_id=self._run, protocol_version=PROTOCOL_VERSION)

    def of(self, event: events.Event[Any]) -> Iterator[BaseEvent]:
        """Yield what an event of the run is here; nothing for those that the protocol has no form of."""
        yield from self.begin()
        if isinstance(event, events.PromptComposed):
            yield from self._closed()
            yield from self._step_ended()
            self._step = event.step
            yield StepStartedEvent(step_name=f"step {event.step}")
        elif isinstance(event, events.TextDelta) and self._streams_text:
            yield from self._written(event.text)
        elif isinstance(event, events.ThinkingDelta) and event.text:
            if self._thought is None:
                yield from self._closed()
                self._thought = f"{self._id}-thought-{event.step}"
                yield ReasoningStartEvent(message_id=self._thought)
                yield ReasoningMessageStartEvent(message_id=self._thought)
            yield ReasoningMessageContentEvent(message_id=self._thought, delta=event.text)
        elif isinstance(event, events.ToolStarted):
            yield from self._closed()
            yield from self._own_call(event.call)
        elif isinstance(event, events.ToolFinished):
            yield from self._closed()
            call = self._call_id(event.result.call_id)
            text = event.result.message.text
            yield ToolCallResultEvent(message_id=f"{call}-result", tool_call_id=call, content=text, role="tool")

    def end(self, answer: TurnAnswer) -> Iterator[BaseEvent]:
        """Yield what ends a run: what was not streamed, the calls that it waits for, and what it took."""
        yield from self.begin()
        if answer.text and not self._has_text:
            yield from self._written(answer.text)
        yield from self._closed()
        for call in answer.calls:
            yield from self._called(call, call.id)
        for call in answer.waiting:
            if outer_call(call.id) == call.id:  # that of an agent inside belongs to a call that has begun
                yield from self._own_call(call)
        yield from self._step_ended()
        used = answer.usage
        usage = TokenUsage(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            total_tokens=used.input_tokens + used.output_tokens,
            cached_input_tokens=used.cached_tokens,
        )
        pending = [call.id for call in answer.calls] or None
        outcome: RunFinishedInterruptOutcome | RunFinishedSuccessOutcome
        if answer.waiting:
            outcome = RunFinishedInterruptOutcome(interrupts=[interrupt_of(self._id, call) for call in answer.waiting])
        else:
            outcome = RunFinishedSuccessOutcome(pending_tool_call_ids=pending)
        yield RunFinishedEvent(
            thread_id=self._thread,
            run_id=self._run,
            result=None if self._streams_text or answer.calls else answer.output,
            outcome=outcome,
            usage=[usage],
        )

    def failed(self, message: str, code: str | None) -> Iterator[BaseEvent]:
        """Yield what ends a run that failed."""
        yield from self._closed()
        yield RunErrorEvent(message=message, code=code)

    def _message_id(self) -> str:
        return f"{self._id}-{self._step}"

    def _call_id(self, call: str) -> str:
        return f"{self._id}-{call}"

    def _written(self, text: str) -> Iterator[BaseEvent]:
        if not text:
            return
        if self._text is None:
            yield from self._closed()
            self._text = self._message_id()
            yield TextMessageStartEvent(message_id=self._text, role="assistant")
        self._has_text = True
        yield TextMessageContentEvent(message_id=self._text, delta=text)

    def _own_call(self, call: ToolCall) -> Iterator[BaseEvent]:
        """Yield a call of the agent, once."""
        if call.id not in self._called_already:
            self._called_already.add(call.id)
            yield from self._called(call, self._call_id(call.id))

    def _called(self, call: ToolCall, id: str) -> Iterator[BaseEvent]:
        yield ToolCallStartEvent(tool_call_id=id, tool_call_name=call.name, parent_message_id=self._message_id())
        yield ToolCallArgsEvent(tool_call_id=id, delta=call.arguments)
        yield ToolCallEndEvent(tool_call_id=id)

    def _closed(self) -> Iterator[BaseEvent]:
        """Yield the end of the message that is open."""
        if self._text is not None:
            yield TextMessageEndEvent(message_id=self._text)
        if self._thought is not None:
            yield ReasoningMessageEndEvent(message_id=self._thought)
            yield ReasoningEndEvent(message_id=self._thought)
        self._text = self._thought = None

    def _step_ended(self) -> Iterator[BaseEvent]:
        if self._step:
            yield StepFinishedEvent(step_name=f"step {self._step}")
