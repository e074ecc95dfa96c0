"""`Journalled`: steps that are replayed while the journal has entries; later steps are performed and recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from agentkit.errors import JournalError
from agentkit.models.model import Reply, Usage
from agentkit.models.prices import Price
from agentkit.output.output_validators import CheckedOutput
from agentkit.run.engine.steps import OnResult, RunStart, Steps, ToolRound
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_file import JournalWriter
from agentkit.run.journal.journal_steps import Entry
from agentkit.run.journal.sent_layers import SentLayers
from agentkit.run.parts.compaction import CompactionResult
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.recaller import RecallResult
from agentkit.run.parts.repairs import is_repair
from agentkit.run.parts.run_inbox import SentMessage
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, Selection, ToolSpec
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool

if TYPE_CHECKING:
    from agentkit.run.parts.run_guards import Guard, GuardCheck, Subject

Result = TypeVar("Result")
_log = logging.getLogger("agentkit")
_log.addHandler(logging.NullHandler())  # the application configures its log


class Journalled:
    """Wraps the steps of a run: replays the steps in its journal, performs and records the next steps.

    A journal contains one entry for each result. It contains neither the conversation, which the session stores, nor
    functions: a replay performs `begin`, `tools` and a successful `check_output` again.

    Args:
        steps: Performs the steps.
        journal: Receives the results; it starts with the entries of `earlier`.
        earlier: Journal of earlier attempts.
        price: Price of the model, for the cost of each layer in the journal.

    Attributes:
        sent: The composition of the last model call.
        writer: Writer of the journal; its lines are written before the next step is performed. None: not written.

    Raises:
        JournalError: The next step of the run does not match the next entry of the journal.
    """

    __slots__ = (
        "_at",
        "_entries",
        "_is_cut",
        "_is_logged",
        "_journal",
        "_price",
        "_replays",
        "_steps",
        "_verdicts",
        "sent",
        "writer",
    )

    def __init__(
        self, steps: Steps, journal: Journal, earlier: Journal | None = None, price: Price | None = None
    ) -> None:
        self._steps = steps
        self._journal = journal
        self._entries: list[Entry] = []
        # By guard instead of by position: guards run next to other steps.
        self._verdicts: dict[tuple[str, str, str], GuardCheck] = {}
        if earlier is not None:
            self._entries = [entry for entry in earlier.entries if entry.effect != "CheckGuard"]
            checks = [entry.answer for entry in earlier.entries if entry.effect == "CheckGuard"]
            self._verdicts = {(check.stage, check.guard, check.subject): check for check in checks}
        self._at = 0
        self._replays = bool(self._entries)
        self._price = price
        self._is_cut = False
        self._is_logged = _log.isEnabledFor(logging.DEBUG)
        self.sent: Composition | None = None
        self.writer: JournalWriter | None = None

    async def begin(self, at: tuple[int, int] | None = None) -> RunStart:
        is_replay = self._replays
        if is_replay:
            at = self._next("Begin")
        await self._ready("Begin")
        start = await self._steps.begin(at)
        # Only the numbers of messages: the session contains the messages.
        if not is_replay:
            self._journal.add("Begin", (len(start.conversation), len(start.done)))
        return start

    async def compact(self, ctx: PromptContext) -> CompactionResult:
        return await self._result("Compact", lambda: self._steps.compact(ctx))

    async def tools(self, ctx: PromptContext) -> Mapping[str, Tool]:
        # A journal contains no functions: a replay calls the toolset again, and uses the recorded specifications.
        specs: tuple[ToolSpec, ...] | None = None
        if self._replays:
            specs = self._next("Equip")
        await self._ready("Equip")
        tools = await self._steps.tools(ctx)
        if specs is not None:
            return _recorded_tools(specs, tools)
        self._journal.add("Equip", tuple([tool.spec for tool in tools.values()]))
        return tools

    async def select_examples(self, ctx: PromptContext) -> tuple[Selection, ...]:
        return await self._result("SelectExamples", lambda: self._steps.select_examples(ctx))

    async def recall(self, query: str, visible: int | None) -> RecallResult:
        return await self._result("Recall", lambda: self._steps.recall(query, visible))

    async def append(self, messages: tuple[Message, ...], key: str) -> Message | None:
        # A person decided about one result of a round that was cut before the guards had accepted the other results.
        while self._replays and self._entries[self._at].effect == "AskApproval":
            self._next("AskApproval")
        if self._replays:
            # The session contains these messages already. If they differ, the agent has changed.
            if self._next("Append") != messages:
                raise self._mismatch("Append", "Append")
            return self._stored_repair()
        # A cancelled round is stored without waiting for the journal, whose writer can hang.
        if self._is_cut:
            if self.writer is not None and self.writer.is_taken:
                raise JournalError(f"run {self._journal.run_id!r}: another process continues it", value="taken")
        elif self._journal.session is not None:
            await self._ready("Append")
        elif self._is_logged:
            self._log("Append")
        await self._steps.append(messages, key)
        self._journal.add("Append", messages)
        return None

    async def call_model(self, composition: Composition, step: int) -> Reply:
        self.sent = composition
        if self._replays:
            result: Reply = self._next("CallModel")
            return result
        await self._ready("CallModel")
        reply = await self._steps.call_model(composition, step)
        layers = None
        # Counting the tokens of each layer is slow: only written and observed journals need these numbers.
        if self._journal.has_layers:
            layers = SentLayers.of(composition, reply.usage, self._price)
        self._journal.add("CallModel", reply, layers)
        return reply

    async def ask_approval(self, calls: tuple[ToolCall, ...], round_: ToolRound) -> Mapping[str, Decision]:
        return await self._result("AskApproval", lambda: self._steps.ask_approval(calls, round_))

    async def call_tools(self, round_: ToolRound, on_result: OnResult) -> None:
        # If the process ended within the round, the journal has some of its results: only the other calls run.
        pending = {call.id: call for call in round_.calls}
        while pending and self._replays:
            # Tools of the round asked a person: they find the decisions in the journal.
            if self._entries[self._at].effect == "AskApproval":
                self._next("AskApproval")
                continue
            result, inner_usage = self._next("CallTools")
            if result.call_id not in pending:
                raise self._mismatch("CallTools", "CallTools")
            del pending[result.call_id]
            on_result(result, inner_usage)
        if not pending:
            round_.stored = self._next_stored()
            return

        def record(result: ToolResult, inner_usage: Usage | None) -> None:
            self._journal.add("CallTools", (result, inner_usage))
            on_result(result, inner_usage)

        if len(pending) < len(round_.calls):
            round_.calls = tuple(pending.values())
        await self._ready("CallTools")
        try:
            await self._steps.call_tools(round_, record)
        except (Exception, asyncio.CancelledError):
            self._is_cut = True
            raise

    async def check_guard(self, guard: Guard, subject: Subject, key: str, round_: ToolRound) -> GuardCheck:
        recorded = self._verdicts.get((guard.stage, guard.name, key))
        if recorded is not None:
            return recorded
        await self._ready("CheckGuard")
        check = await self._steps.check_guard(guard, subject, key, round_)
        self._journal.add("CheckGuard", check)
        return check

    async def check_output(self, output: Any, step: int) -> CheckedOutput:
        is_replay = self._replays
        if is_replay:
            earlier: CheckedOutput = self._next("CheckOutput")
            # A journal contains the problem, but not the output of the validators: a valid output is validated again.
            if earlier.problem is not None:
                return earlier
        await self._ready("CheckOutput")
        checked = await self._steps.check_output(output, step)
        if not is_replay:
            self._journal.add("CheckOutput", checked)
        return checked

    async def receive(self, step: int, *, is_idle: bool) -> tuple[SentMessage, ...]:
        received: tuple[SentMessage, ...] = ()
        if self._replays:
            # A journal has no entry if no message arrived: most steps of most runs.
            if self._entries[self._at].effect == "Receive":
                received = self._next("Receive")
            return received
        await self._ready("Receive")
        received = await self._steps.receive(step, is_idle=is_idle)
        if received:
            self._journal.add("Receive", received)
        return received

    async def _result(self, name: str, perform: Callable[[], Awaitable[Result]]) -> Result:
        """Return the result of the next entry, or perform a step and add its result to the journal."""
        if self._replays:
            recorded: Result = self._next(name)
            return recorded
        await self._ready(name)
        result = await perform()
        self._journal.add(name, result)
        return result

    # The journal of earlier attempts

    def _next(self, name: str) -> Any:
        """Return the result in the next entry of the journal.

        Raises:
            JournalError: The entry does not belong to the step `name`.
        """
        entry = self._entries[self._at]
        if entry.effect != name:
            raise self._mismatch(entry.effect, name)
        self._at += 1
        self._replays = self._at < len(self._entries)
        return entry.answer

    def _next_stored(self) -> Sequence[Message]:
        """Return the messages that an earlier attempt stored next; empty if it stored no further messages."""
        for at in range(self._at, len(self._entries)):
            if self._entries[at].effect == "Append":
                messages: Sequence[Message] = self._entries[at].answer
                return messages
        return ()

    def _stored_repair(self) -> Message | None:
        """Return the repair message if the next entry stored one; otherwise None."""
        if not self._replays:
            return None
        entry = self._entries[self._at]
        if entry.effect != "Append" or not entry.answer:
            return None
        message = entry.answer[-1]
        if not isinstance(message, Message) or not is_repair(message):
            return None
        return message

    def _mismatch(self, stored: str, name: str) -> JournalError:
        return JournalError(
            f"journal of run {self._journal.run_id!r}: the next entry is {stored}, but the next step is {name}: "
            "the journal belongs to another agent, or the agent has changed",
            name=stored,
            value=name,
        )

    # Before a step is performed

    async def _ready(self, name: str) -> None:
        """Wait until the results of earlier steps are written: the process could end in the step `name`."""
        if self.writer is not None:
            await self.writer.written()
        if self._is_logged:
            self._log(name)

    def _log(self, name: str) -> None:
        _log.debug("run %s: %s", self._journal.run_id, name)


def _recorded_tools(specs: tuple[ToolSpec, ...], tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """Return the tools of an earlier prompt, with their recorded specifications and current functions.

    Raises:
        JournalError: Tools are missing now.
    """
    missing = ", ".join(spec.name for spec in specs if spec.name not in tools)
    if missing:
        raise JournalError(f"the run requires tools that are missing now: {missing}", name="tools", value=missing)
    recorded: dict[str, Tool] = {}
    for spec in specs:
        tool = copy(tools[spec.name])
        tool.spec = spec
        recorded[spec.name] = tool
    return recorded
