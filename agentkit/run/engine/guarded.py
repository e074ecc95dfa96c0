"""`Guarded`: steps of a run whose input, replies, tool calls and tool results are checked by guards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentkit.errors import GuardError, GuardStopped, Paused
from agentkit.models.model import NO_USAGE, Reply, Usage
from agentkit.output.output_validators import CheckedOutput
from agentkit.run.engine.event_sink import EventSink, HoldingSink
from agentkit.run.engine.events import (
    ArgumentsDelta,
    ModelReplied,
    PartialOutput,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
)
from agentkit.run.engine.run_setup import RunSetup
from agentkit.run.engine.steps import OnResult, RunStart, Steps, ToolRound
from agentkit.run.parts.compaction import CompactionResult
from agentkit.run.parts.decisions import Decision, Denied
from agentkit.run.parts.recaller import RecallResult
from agentkit.run.parts.run_guards import Guard, GuardCheck, Guards, Subject, content_with_text, with_text
from agentkit.run.parts.run_inbox import SentMessage
from agentkit.run.parts.verdicts import Ask, Replace, Stop
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Part, Text
from agentkit_prompts.context.prompt_context import PromptContext, Selection, UserInput
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool

_NOT_RUN = ("denied", "cancelled", "unavailable")
"""Status of a result whose text contains nothing from its tool."""
_REPLY_EVENTS = (TextDelta, ThinkingDelta, ArgumentsDelta, PartialOutput, ModelReplied)


def guarded(setup: RunSetup[Any], steps: Steps, sink: EventSink | None = None, *, is_replay: bool = False) -> Steps:
    """Return steps that call the guards of the agent; the same steps without guards.

    Args:
        setup: The run.
        steps: Performs and records the steps.
        sink: Receives the events.
        is_replay: True if all verdicts are recorded, so that no guard runs next to a model call.
    """
    guards = setup.definition.guards
    if guards is None:
        return steps
    if not isinstance(sink, HoldingSink):
        sink = None
    return Guarded(setup, steps, guards, sink, is_replay=is_replay)


class Guarded:
    """Wraps the steps of a run: calls the guards before and after them. Other steps are passed on."""

    __slots__ = ("_guards", "_is_input_checked", "_is_replay", "_setup", "_sink", "_steps", "_tools", "_usage")

    def __init__(
        self, setup: RunSetup[Any], steps: Steps, guards: Guards, sink: HoldingSink | None, *, is_replay: bool
    ) -> None:
        self._setup = setup
        self._steps = steps
        self._guards = guards
        self._sink = sink
        self._is_replay = is_replay
        self._is_input_checked = not guards.parallel
        self._tools: Mapping[str, Tool] = setup.definition.tools.tools
        self._usage = NO_USAGE
        """Usage of guards that no reply and no tool result contains yet."""

    # Steps that are passed on

    async def compact(self, ctx: PromptContext) -> CompactionResult:
        return await self._steps.compact(ctx)

    async def select_examples(self, ctx: PromptContext) -> tuple[Selection, ...]:
        return await self._steps.select_examples(ctx)

    async def recall(self, query: str, visible: int | None) -> RecallResult:
        return await self._steps.recall(query, visible)

    async def append(self, messages: tuple[Message, ...], key: str) -> Message | None:
        return await self._steps.append(messages, key)

    async def check_output(self, output: Any, step: int) -> CheckedOutput:
        return await self._steps.check_output(output, step)

    async def check_guard(self, guard: Guard, subject: Subject, key: str, round_: ToolRound) -> GuardCheck:
        return await self._steps.check_guard(guard, subject, key, round_)

    async def tools(self, ctx: PromptContext) -> Mapping[str, Tool]:
        self._tools = await self._steps.tools(ctx)
        return self._tools

    # The input

    async def begin(self, at: tuple[int, int] | None = None) -> RunStart:
        start = await self._steps.begin(at)
        if not self._guards.input:
            return start
        user_input = self._setup.ctx.user_input
        content = user_input.input
        is_stored = self._setup.journal.continues_session and bool(start.done)
        if is_stored:
            content = start.done[0].content
        round_ = self._round(0, None, (start.conversation, (Message("user", content),)))
        text = before = _text(content)
        for guard in self._guards.input:
            text = await self._accepted(await self._check(guard, text, "", round_), text, round_)
            if is_stored and text != before:
                raise GuardError(guard.name, guard.stage, "cannot replace the input: the session contains it already")
        if text == before:
            return start
        changed = UserInput(content_with_text(content, text), user_input.additional_kwargs)
        return start._replace(user_input=changed)

    async def _input_checks(self, round_: ToolRound, text: str) -> list[GuardCheck]:
        """Call the guards that run next to the model call.

        Raises:
            GuardStopped: A guard stops the run; the other guards are cancelled.
        """
        if self._is_replay:
            checks = [await self._check(guard, text, "", round_) for guard in self._guards.parallel]
            for check in checks:
                _raise_stop(check)
            return checks
        tasks = [asyncio.create_task(self._check(guard, text, "", round_)) for guard in self._guards.parallel]
        try:
            for finished in asyncio.as_completed(tasks):
                _raise_stop(await finished)
            return [task.result() for task in tasks]
        finally:
            await _ended(*tasks)

    # Messages to the run

    async def receive(self, step: int, *, is_idle: bool) -> tuple[SentMessage, ...]:
        received = await self._steps.receive(step, is_idle=is_idle)
        if not (self._guards.input or self._guards.parallel):
            return received
        return tuple([await self._checked_message(sent, step, number) for number, sent in enumerate(received, 1)])

    async def _checked_message(self, sent: SentMessage, step: int, number: int) -> SentMessage:
        """Return a message with the text that the guards of the input have accepted."""
        message = sent.message
        text = before = _text(message.content)
        round_ = self._round(step, None, ((message,),))
        # The next model call has not started: guards that run next to the first call can replace a message too.
        for guard in (*self._guards.input, *self._guards.parallel):
            check = await self._check(guard, text, f"received_{step}_{number}", round_)
            text = await self._accepted(check, text, round_)
        if text == before:
            return sent
        return replace(sent, message=replace(message, content=content_with_text(message.content, text)))

    # Replies

    async def call_model(self, composition: Composition, step: int) -> Reply:
        is_beside = not self._is_input_checked
        self._is_input_checked = True
        if is_beside or self._guards.output:
            self._hold(*_REPLY_EVENTS)
        try:
            if is_beside:
                reply = await self._call_beside(composition, step)
            else:
                reply = await self._steps.call_model(composition, step)
            checked = await self._checked_reply(reply, composition, step)
        except BaseException:
            # Events of a reply that no guard has accepted.
            self._take()
            raise
        events = self._take()
        # A replaced text is one delta.
        if checked is not reply and events:
            events = [TextDelta(step, checked.message.text), ModelReplied(step, checked)]
        await self._emit(events)
        return replace(checked, usage=checked.usage + self._spent())

    async def _call_beside(self, composition: Composition, step: int) -> Reply:
        """Send the first prompt of the run, and call the parallel guards at the same time."""
        user_input = composition.context.user_input
        round_ = self._round(step, composition, (composition.context.conversation, (user_input.message,)))
        text = _text(user_input.input)
        if self._is_replay:
            await self._input_checks(round_, text)
            return await self._steps.call_model(composition, step)
        call = asyncio.create_task(self._steps.call_model(composition, step))
        checking = asyncio.create_task(self._input_checks(round_, text))
        try:
            await asyncio.wait((call, checking), return_when=asyncio.FIRST_COMPLETED)
            # An error of the model ends the run; the verdicts do not matter then.
            if call.done() and not checking.done():
                call.result()
            checks = await checking
            if not self._guards.output and not any(isinstance(check.verdict, Ask) for check in checks):
                await self._emit(self._take())
            reply = await call
        finally:
            await _ended(call, checking)
        for check in checks:
            # After the reply, which has a cost: the journal contains it if the run pauses here.
            accepted = await self._accepted(check, text, round_)
            if accepted != text:
                raise GuardError(check.guard, check.stage, "cannot replace the input: the model call has started")
        return reply

    async def _checked_reply(self, reply: Reply, composition: Composition, step: int) -> Reply:
        """Return the reply with the text that the guards have accepted."""
        message = reply.message
        before = text = _text(message.content)
        if not text or not self._guards.output:
            return reply
        ctx = composition.context
        groups = (ctx.conversation, (ctx.user_input.message,), ctx.intermediate, (message,))
        round_ = self._round(step, composition, groups)
        for guard in self._guards.output:
            text = await self._accepted(await self._check(guard, text, str(step), round_), text, round_)
        if text == before:
            return reply
        return replace(reply, message=with_text(message, text))

    # Tool calls

    async def ask_approval(self, calls: tuple[ToolCall, ...], round_: ToolRound) -> Mapping[str, Decision]:
        if not self._guards.tool_call:
            return await self._steps.ask_approval(calls, round_)
        decisions: dict[str, Decision] = {}
        asked: list[str] = []
        checked = [await self._checked_call(call, round_, decisions, asked) for call in round_.calls]
        round_.calls, round_.asked = tuple(checked), asked
        waiting = [call for call in checked if call.id not in decisions and self._may_wait(call, asked)]
        if waiting:
            decisions |= await self._steps.ask_approval(tuple(waiting), round_)
        return decisions

    def _may_wait(self, call: ToolCall, asked: Sequence[str]) -> bool:
        if call.name not in self._tools:
            return False
        return call.id in asked or self._tools[call.name].policy.approval != "never"

    async def _checked_call(
        self, call: ToolCall, round_: ToolRound, decisions: dict[str, Decision], asked: list[str]
    ) -> ToolCall:
        """Return a call with the arguments that the guards have accepted; add denials and questions."""
        if call.name not in self._tools:
            return call
        for guard in self._guards.tool_call:
            check = await self._check(guard, call, call.id, round_)
            _raise_stop(check)
            verdict = check.verdict
            if isinstance(verdict, Ask):
                asked.append(call.id)
            if not isinstance(verdict, Replace):
                continue
            if isinstance(verdict.value, str):
                decisions[call.id] = Denied(verdict.value)
                break
            call = replace(call, arguments=json.dumps(dict(verdict.value)))
        return call

    # Tool results

    async def call_tools(self, round_: ToolRound, on_result: OnResult) -> None:
        answers = set[str]()
        if self._guards.output:
            answers = {call.id for call in round_.calls if self._is_answer(call)}
        if not answers and not self._guards.tool_result:
            await self._steps.call_tools(round_, on_result)
            return
        calls = round_.calls
        results: dict[str, tuple[ToolResult, Usage | None]] = {}

        def collect(result: ToolResult, inner_usage: Usage | None) -> None:
            results[result.call_id] = result, inner_usage

        self._hold(ToolFinished)
        try:
            await self._steps.call_tools(round_, collect)
            accepted = [await self._checked_result(results[call.id][0], round_, answers) for call in calls]
        except Paused:
            self._take()
            raise
        except (Exception, asyncio.CancelledError):
            self._take()
            # The tools can have had effects: the conversation stores that they ran, without results that no guard
            # has accepted.
            for result, usage in results.values():
                on_result(_withheld(result), usage)
            raise
        for result in accepted:
            # The usage of the guards is added to the usage of the first result.
            on_result(result, _sum(results[result.call_id][1], self._spent()))
        by_id = {result.call_id: result for result in accepted}
        events = [event for event in self._take() if isinstance(event, ToolFinished)]
        await self._emit([ToolFinished(event.step, by_id[event.result.call_id]) for event in events])

    def _is_answer(self, call: ToolCall) -> bool:
        """True if the result of a call can be the answer of the run, which the guards of replies check."""
        if call.name not in self._tools:
            return False
        return self._tools[call.name].policy.final or self._is_output_function(call.name)

    def _is_output_function(self, name: str) -> bool:
        tool = self._setup.definition.chain.answer.tool
        return tool is not None and tool.name == name

    async def _checked_result(self, result: ToolResult, round_: ToolRound, answers: set[str]) -> ToolResult:
        """Return a result with the text that the guards have accepted."""
        is_answer = result.call_id in answers and result.ok
        withheld = _withheld(result)
        if withheld.message in round_.stored:
            subjects: list[tuple[Guard, Subject]] = [(guard, result) for guard in self._guards.tool_result]
            if is_answer:
                subjects += [(guard, result.message.text) for guard in self._guards.output]
            # The conversation contains this result already: a verdict cannot replace it, only stop the run.
            for guard, subject in subjects:
                _raise_stop(await self._check(guard, subject, result.call_id, round_))
            return withheld
        for guard in self._guards.tool_result:
            text = result.message.text
            check = await self._check(guard, result, result.call_id, round_)
            result = _with_result(result, text, await self._accepted(check, text, round_))
        if not is_answer:
            return result
        for guard in self._guards.output:
            text = result.message.text
            check = await self._check(guard, text, result.call_id, round_)
            accepted = await self._accepted(check, text, round_)
            if accepted != text and self._is_output_function(result.name):
                raise GuardError(guard.name, guard.stage, "cannot replace the value of an output function")
            result = _with_result(result, text, accepted)
        return result

    # Verdicts

    async def _check(self, guard: Guard, subject: Subject, key: str, round_: ToolRound) -> GuardCheck:
        check = await self._steps.check_guard(guard, subject, key, round_)
        if check.usage is not None:
            self._usage += check.usage
        return check

    async def _accepted(self, check: GuardCheck, text: str, round_: ToolRound) -> str:
        """Return the text with which the run continues after a verdict.

        Raises:
            GuardStopped: The guard, or the person whom it asks, stops the run.
            Paused: A person must decide.
        """
        _raise_stop(check)
        if isinstance(check.verdict, Replace):
            return str(check.verdict.value)
        call = check.waiting_call
        if call is None:
            return text
        asking = replace(round_, calls=(call,), asked=(call.id,))
        decision = (await self._steps.ask_approval((call,), asking))[call.id]
        if isinstance(decision, Denied):
            raise GuardStopped(check.guard, check.stage, decision.reason or "a person denied it")
        changed = (decision.arguments or {}).get("text", text)
        if not isinstance(changed, str):
            raise GuardError(check.guard, check.stage, "was approved with arguments whose `text` is no text")
        return changed

    def _round(self, step: int, composition: Composition | None, messages: tuple[Sequence[Message], ...]) -> ToolRound:
        """Return the state of the run for a guard of the input or of a reply."""
        return ToolRound((), step, {}, self._setup.journal.usage, messages, composition)

    def _spent(self) -> Usage:
        """Return the usage of guards since the last call of this method."""
        spent, self._usage = self._usage, NO_USAGE
        return spent

    # Events

    def _hold(self, *kinds: type) -> None:
        if self._sink is not None:
            self._sink.hold(*kinds)

    def _take(self) -> list[Any]:
        if self._sink is None:
            return []
        return self._sink.take()

    async def _emit(self, events: Sequence[Any]) -> None:
        for event in events:
            if self._sink is not None:
                await self._sink.emit(event)


def _sum(inner_usage: Usage | None, spent: Usage) -> Usage | None:
    """Return the usage of the inner runs of a call and of guards; None without any."""
    if spent is NO_USAGE:
        return inner_usage
    return (inner_usage or NO_USAGE) + spent


def _raise_stop(check: GuardCheck) -> None:
    if isinstance(check.verdict, Stop):
        raise GuardStopped(check.guard, check.stage, check.verdict.reason)


def _text(content: str | tuple[Part, ...]) -> str:
    """Return the text of an input or of a reply, without media."""
    if isinstance(content, str):
        return content
    return "".join([part.text for part in content if isinstance(part, Text)])


def _with_result(result: ToolResult, before: str, text: str) -> ToolResult:
    if text == before:
        return result
    return ToolResult(result.call_id, result.name, text, result.status)


def _withheld(result: ToolResult) -> ToolResult:
    if result.status in _NOT_RUN:
        return result
    text = f"{result.name} ran. Its result is withheld: the run ended before a guard accepted it."
    return ToolResult(result.call_id, result.name, text, "cancelled")


async def _ended(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        # Otherwise asyncio logs an exception that no code read.
        if not task.cancelled():
            task.exception()
