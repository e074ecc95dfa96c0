"""The agent loop: all decisions of a run. It awaits `Steps` for everything else, and does no I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Generic, NamedTuple

from agentkit.errors import (
    UNREADABLE_CALL,
    LimitExceeded,
    NothingToContinue,
    OutputError,
    OutputStopped,
    RunIdReused,
    ToolCallError,
)
from agentkit.models.model import NO_USAGE, Reply, Usage
from agentkit.run.engine.call_ids import with_unique_ids
from agentkit.run.engine.recalled_context import visible_count, with_recall
from agentkit.run.engine.reply_calls import calls_with_approval, final_result
from agentkit.run.engine.run_result import RunResult
from agentkit.run.engine.run_setup import RunSetup
from agentkit.run.engine.steps import Steps, ToolRound
from agentkit.run.journal.failed_call import RecordedError, ends_round, failed_call
from agentkit.run.parts.chain import Chain, Output
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.repairs import is_call_repair, is_repair, repair_message
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.select_examples import needs_selection
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import UserInput
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool

_NO_DECISIONS: Mapping[str, Decision] = MappingProxyType({})


async def run_loop(run: RunSetup[Output], steps: Steps) -> RunResult[Output]:
    """Answer one user input.

    A replay never suspends: `run_loop(run, steps).send(None)` returns at the end of the journal.

    Raises:
        LimitExceeded: The run exceeded a limit.
        OutputError: The answer does not match the output type, after all repairs.
        ToolCallError: A tool failed, and `Limits.on_tool_error` is `raise`.
        NothingToContinue: The run has no input, and the last message of the conversation is an answer.
        RunIdReused: An earlier run with this id had another input.
    """
    chain, limits = run.definition.chain, run.definition.limits
    state = _LoopState(run, steps)
    receives = run.receives
    await state.begin()
    if receives and await state.receive():
        await state.compose_next()
    while state.result is None:
        # Checked before the call: the last allowed step can be the answer.
        if limits.steps is not None and state.step >= limits.steps:
            raise LimitExceeded("steps", limits.steps, "the model returned no final answer; raise the limit")
        state.step += 1
        reply = chain.answer.reply(await steps.call_model(state.composition, state.step))
        state.usage += reply.usage
        if reply.message.tool_calls:
            await state.call_tools(reply.message)
        else:
            await state.read_answer(reply)
        if receives:
            await state.receive()
        # An answer that exceeds a limit is returned, because its cost has been paid.
        if state.result is None:
            limits.check(state.usage)
            await state.compose_next()
    return state.result


class _Answer(NamedTuple):
    """The answer of a reply, or a message that requests its repair."""

    output: Any
    repair: Message | None


class _LoopState(Generic[Output]):
    """State of a run between two steps: its context, messages and counters."""

    __slots__ = (
        "call_ids",
        "chain",
        "composition",
        "ctx",
        "messages",
        "received",
        "repairs",
        "result",
        "run",
        "step",
        "steps",
        "tools",
        "unavailable",
        "usage",
    )

    composition: Composition
    """The next prompt."""
    tools: Mapping[str, Tool]
    """The available tools, by name."""

    def __init__(self, run: RunSetup[Output], steps: Steps) -> None:
        self.run = run
        self.steps = steps
        self.chain: Chain[Output] = run.definition.chain
        self.ctx = run.ctx
        self.messages: tuple[Message, ...] = ()
        self.usage: Usage = NO_USAGE
        self.step = 0
        self.repairs = 0
        self.received = 0  # number of messages that were sent to the run
        self.call_ids: set[str] = set()  # the ids of all calls
        self.unavailable: set[str] = set()  # the names of tools that failed too often
        self.result: RunResult[Output] | None = None

    # Start of the run

    async def begin(self) -> None:
        """Read the conversation, complete the context and store the user message."""
        start = await self.steps.begin()
        conversation, stored = start.conversation, start.done
        if start.user_input is not None:
            self.ctx = self.ctx.evolve(user_input=start.user_input)
        if conversation is not self.ctx.conversation:
            self.ctx = self.ctx.evolve(conversation=conversation)
        answer = None
        if stored:
            answer = await self._continue(stored)
        # Before compaction, which can remove the messages that loaded a skill.
        self.ctx = self.run.definition.tools.added_to(self.ctx)
        # Missing kwargs are reported before a recall, and before a model writes a summary.
        self.chain.preflight(self.ctx.user_input)
        await self._complete_context()
        # The prompt is composed before anything is stored: a rendering error changes no conversation.
        self.composition = self.chain.compose(self.ctx, cache=self.run.render_cache)
        if not stored:
            self.messages = (self.ctx.user_input.message,)
            await self.steps.append(self.messages, f"{self.run.journal.run_id}:0")
        elif answer is not None and answer.repair is None:
            self._finish(answer.output)
        elif answer is not None and answer.repair is not None:
            await self._ask_repair(answer.repair)
            self._add(answer.repair)
            self.composition = self.chain.compose(self.ctx, cache=self.run.render_cache)

    async def _continue(self, stored: tuple[Message, ...]) -> _Answer | None:
        """Continue after the messages of an earlier attempt; return the answer in the last message, if any."""
        run = self.run
        self.messages = stored
        self.repairs = sum(map(is_repair, stored))
        self.received = sum([message.role == "user" for message in stored[1:]]) - self.repairs
        self.step = sum([message.role == "assistant" for message in stored])
        self.call_ids.update([call.id for message in stored for call in message.tool_calls])
        answer = None
        if stored[-1].role == "assistant" and not stored[-1].tool_calls:
            answer = await self._read(Reply(stored[-1]), stored)
        if run.journal.continues_session:
            # A valid answer needs no model call; an invalid answer is repaired.
            if answer is not None and answer.repair is None:
                raise NothingToContinue(
                    "the last message of the conversation is an answer: pass an input to the run",
                    name="user_input",
                    value="answered",
                )
        elif stored[0] != self.ctx.user_input.message:
            raise RunIdReused(run.journal.run_id)
        self.ctx = self.ctx.evolve(
            user_input=UserInput(stored[0].content, self.ctx.user_input.additional_kwargs),
            intermediate=Conversation(stored[1:]),
        )
        return answer

    async def _complete_context(self) -> None:
        """Add summary, tools, examples and recalled items to the context."""
        definition, steps = self.run.definition, self.steps
        is_cut = False
        if definition.compaction is not None and len(self.ctx.conversation):
            compacted = await steps.compact(self.ctx)
            self.usage, is_cut = compacted.usage, compacted.messages > 0
            conversation = self.ctx.conversation[compacted.messages :]
            self.ctx = self.ctx.evolve(conversation=conversation, summary=compacted.summary)
        # After compaction: a toolset receives the context of the first prompt.
        if definition.tools.is_per_run:
            await self._create_tools()
        else:
            self.tools = definition.tools.tools
        if needs_selection(self.chain.layers):
            self.ctx = self.ctx.evolve(selections=await steps.select_examples(self.ctx))
        if self.run.memory is not None:
            count = visible_count(self.chain, self.ctx, self.run.render_cache, is_cut=is_cut)
            self.ctx = with_recall(self.ctx, await steps.recall(self.ctx.user_input.text, count))

    # Replies without tool calls

    async def read_answer(self, reply: Reply) -> None:
        """Store a reply; finish the run with its answer, or request a repair."""
        message = reply.message
        repair = await self.steps.append((message,), f"{self.run.journal.run_id}:{self.step}")
        if repair is None:
            answer = await self._read(reply)
            if answer.repair is None:
                self._finish(answer.output, (message,), reply.finish_reason)
                return
            repair = answer.repair
        await self._ask_repair(repair)
        self._add(message, repair)

    async def _read(self, reply: Reply, messages: Sequence[Message] = ()) -> _Answer:
        """Read an answer; `messages` are the messages of an earlier attempt that ended with this answer.

        Raises:
            OutputError: The answer does not match the output type, or a validator refused it, after all repairs.
        """
        if self.chain.answer.tool is not None and len(messages) > 1 and messages[-2].role == "tool":
            # The earlier attempt called the output function; the message contains its return value.
            return await self._validated(self.chain.answer.value_of_text(reply.message.text))
        try:
            output = self.chain.parse(reply)
        except OutputError as error:
            if isinstance(error, OutputStopped) or not self._may_repair:
                raise
            # The model has one turn to correct a call; then the format of its calls is wrong.
            if error.name == UNREADABLE_CALL and self._follows_call_repair:
                raise
            return _Answer(None, repair_message(error))
        return await self._validated(output)

    @property
    def _follows_call_repair(self) -> bool:
        """True if the last message before the reply requests a tool call again."""
        messages = self.messages
        if messages and messages[-1].role == "assistant":
            messages = messages[:-1]
        return bool(messages) and is_call_repair(messages[-1])

    async def _validated(self, output: Any) -> _Answer:
        """Return the answer, or the request for its repair, after the validators of the output type.

        Raises:
            OutputError: A validator refused the answer, after all repairs.
        """
        if not self.chain.answer.validators:
            return _Answer(output, None)
        checked = await self.steps.check_output(output, self.step)
        if checked.problem is None:
            return _Answer(checked.output, None)
        error = self.chain.answer.validator_error(output, checked.problem)
        if not self._may_repair:
            raise error
        return _Answer(output, repair_message(error))

    @property
    def _may_repair(self) -> bool:
        return self.repairs < self.run.definition.limits.repairs

    async def _ask_repair(self, repair: Message) -> None:
        self.repairs += 1
        await self.steps.append((repair,), f"{self.run.journal.run_id}:{self.step}:repair")

    # Replies with tool calls

    async def call_tools(self, message: Message) -> None:
        """Run the calls of a reply, and store the reply with their results.

        Raises:
            LimitExceeded: The run has more tool calls than allowed.
        """
        # Decisions, results and journal entries are assigned by call id, but some models repeat ids.
        message = with_unique_ids(message, self.call_ids, self.step)
        allowed = self.run.definition.limits.tool_calls
        if allowed is not None and len(self.call_ids) > allowed:
            raise LimitExceeded("tool_calls", allowed, "raise the limit, or pass fewer tools")
        groups = self.ctx.conversation, self.messages, (message,)
        round_ = ToolRound(message.tool_calls, self.step, _NO_DECISIONS, self.usage, groups, self.composition)
        guards = self.run.definition.guards
        calls = message.tool_calls
        if guards is None or not guards.tool_call:
            calls = calls_with_approval(calls, self.tools)
        if calls:
            round_.decisions = await self.steps.ask_approval(calls, round_)
        results: dict[str, ToolResult] = {}

        def on_result(result: ToolResult, inner_usage: Usage | None) -> None:
            results[result.call_id] = result
            if inner_usage is not None:
                round_.usage = self.usage = self.usage + inner_usage

        try:
            await self.steps.call_tools(round_, on_result)
        except (Exception, asyncio.CancelledError):
            # Tools of a cancelled round can have had effects: the conversation stores their results.
            if len(results) == len(message.tool_calls):
                with suppress(Exception):
                    await self._end_round(message, results, is_cut=True)
            raise
        self._withdraw_failed(results)
        if self.run.definition.limits.on_tool_error == "raise":
            await self._raise_tool_errors(message, results)
        await self._end_round(message, results)

    async def _raise_tool_errors(self, message: Message, results: Mapping[str, ToolResult]) -> None:
        """End the run if a tool failed, after the results of all calls are stored.

        Raises:
            ToolCallError: Tools failed.
        """
        output_tool = self.chain.answer.tool
        # Answers that an output function refuses are repaired, up to `Limits.repairs` times.
        tools = {name for name in self.tools if output_tool is None or name != output_tool.name}
        failed = [call for call in message.tool_calls if call.name in tools and ends_round(results[call.id])]
        if failed:
            new_messages = (message, *[results[call.id].message for call in message.tool_calls])
            await self.steps.append(new_messages, f"{self.run.journal.run_id}:{self.step}")
            cause = results[failed[0].id].error
            if isinstance(cause, RecordedError):
                cause = None
            raise ToolCallError([failed_call(call, results[call.id]) for call in failed]) from cause

    def _withdraw_failed(self, results: Mapping[str, ToolResult]) -> None:
        """Remove tools that failed too often from the next prompts."""
        failed = {result.name for result in results.values() if result.status == "unavailable"}
        if not failed <= self.unavailable:
            self.unavailable |= failed
            self.ctx = self.ctx.evolve(tools=self._available_specs(self.ctx.tools))

    async def _end_round(self, message: Message, results: Mapping[str, ToolResult], *, is_cut: bool = False) -> None:
        """Store a round of tool calls; finish the run if a result is the answer."""
        new_messages = (message, *[results[call.id].message for call in message.tool_calls])
        key = f"{self.run.journal.run_id}:{self.step}"
        final = final_result(message, self.tools, results)
        if final is not None:
            await self._end_with_final(final, new_messages, key)
            return
        function_result = None
        if self.chain.answer.tool is not None:
            function_result = self.chain.answer.function_result(message, results)
        if function_result is None:
            await self.steps.append(new_messages, key)
        elif not function_result.ok:
            await self.steps.append(new_messages, key)
            if not self._may_repair:
                raise self.chain.answer.function_error(function_result)
            self.repairs += 1
        elif is_cut and self.chain.answer.validators:
            return  # the run was cancelled before the answer was validated: the next attempt validates the answer
        else:
            output, text = self.chain.answer.function_value(function_result)
            answer = await self._validated(output)
            # One append: after a crash between two appends, the conversation would have no answer after the result.
            new_messages += (answer.repair or Message("assistant", text),)
            await self.steps.append(new_messages, key)
            if answer.repair is None:
                self._finish(answer.output, new_messages)
                return
            self.repairs += 1
        self._add(*new_messages)

    async def _end_with_final(self, final: ToolResult, new_messages: tuple[Message, ...], key: str) -> None:
        """Finish the run with the result of a final tool as the answer."""
        answer = Message("assistant", final.message.text)
        try:
            output = self.chain.parse(Reply(answer))
        except OutputError:
            # The tool can have had effects: its result is stored although it is not a valid answer.
            await self.steps.append(new_messages, key)
            raise
        await self.steps.append((*new_messages, answer), key)
        self._finish(output, (*new_messages, answer))

    # Messages to the run

    async def receive(self) -> bool:
        """Add the messages that were sent to the run; a message continues a run that has its answer."""
        received = await self.steps.receive(self.step, is_idle=self.result is not None)
        if not received:
            return False
        if self.result is not None:
            self._add(*self.result.messages[len(self.messages) :])
            self.result = None
        for sent in received:
            # A separate key for each message: an attempt without a journal finds the messages by their numbers.
            self.received += 1
            await self.steps.append((sent.message,), f"{self.run.journal.run_id}:received:{self.received}")
            self._add(sent.message)
        return True

    # The next prompt, and the end of the run

    async def compose_next(self) -> None:
        """Compose the prompt of the next step."""
        self.ctx = self.run.definition.tools.added_to(self.ctx)
        if self.run.definition.tools.is_per_step:
            await self._create_tools()
        self.composition = self.chain.compose(self.ctx, cache=self.run.render_cache)

    async def _create_tools(self) -> None:
        self.tools = await self.steps.tools(self.ctx)
        self.ctx = self.ctx.evolve(tools=self._available_specs([tool.spec for tool in self.tools.values()]))

    def _available_specs(self, specs: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([spec for spec in specs if spec.name not in self.unavailable])

    def _add(self, *new_messages: Message) -> None:
        """Add messages to the run, and to the context of the next prompt."""
        self.messages += new_messages
        before = self.ctx.intermediate
        self.ctx = self.ctx.evolve(
            intermediate=before.append(*new_messages) if len(before) else Conversation(new_messages)
        )

    def _finish(self, output: Any, new_messages: tuple[Message, ...] = (), reason: str = "stop") -> None:
        """Finish the run with its answer."""
        journal = self.run.journal
        messages = self.messages + new_messages
        self.result = RunResult(
            output, messages, self.composition, self.usage, self.step, reason, journal.run_id, journal
        )
