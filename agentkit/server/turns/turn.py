"""`Turn`: one request of an OpenAI-compatible endpoint, as a run of an agent."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from agentkit.agent.agent import Agent
from agentkit.errors import AgentDefinitionError, ApprovalError, OutputStopped, Paused
from agentkit.ground.threads import in_thread
from agentkit.models.model import NO_USAGE, Usage
from agentkit.models.settings import ModelSettings
from agentkit.output.output_spec import OutputSpec
from agentkit.run.engine.events import Event, TextDelta
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.session import Session
from agentkit.runs.run_record import ENDED, RunRecord, WaitingCall, usage_since
from agentkit.runs.run_store import Attempt, RunStore
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.event_form import answer_form, output_form
from agentkit.server.served_runs.public_errors import public_error
from agentkit.server.server_errors import BadRequest, Conflict
from agentkit.server.turns.client_tools import ClientTool, approver, calls_of, own_ids, with_client_tools
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.errors import MessageError

__all__ = ["OnEvent", "Turn", "TurnAnswer", "Waited", "messages_of"]

OnEvent: TypeAlias = Callable[[Event], Awaitable[None] | None]
_MAX_READ_HERE = 200
"""Messages of a request that are read between other requests; more are read in a thread."""

_SEPARATOR = "\n\n"
"""Between what the agent wrote before it called a tool of its own, and what it wrote then."""


@dataclass(slots=True)
class TurnAnswer:
    """What the client gets."""

    text: str
    """All that was written in this turn."""
    calls: tuple[ToolCall, ...]
    """Calls of the client's own tools; empty where the turn ended with an answer."""
    finish_reason: str
    usage: Usage
    """What the model calls of this request took."""
    refusal: bool = False
    output: Any = None
    """The answer as JSON data, where it is one of a type."""
    waiting: tuple[ToolCall, ...] = ()
    """Calls of the agent that wait for a person; empty where the turn ended."""


@dataclass(slots=True)
class Waited:
    """A run that waited for a person, and is gone on with."""

    record: RunRecord
    journal: Journal
    decisions: Mapping[str, Decision]
    """By the ids of the calls."""
    store: RunStore
    """Where the run is stored."""
    worker: str | None
    """Id of the worker of this server; see `Executor.worker`."""
    attempt: Attempt | None = None
    """What may store something of the run, once it is claimed."""

    async def claim(self) -> None:
        """Store the decisions, and begin the attempt that continues the run.

        Raises:
            Conflict: Another request continued it.
        """
        run_id = self.record.run_id
        try:
            await in_thread(self.store.decide, run_id, self.decisions)
            self.attempt = await in_thread(self.store.begin_attempt, run_id, worker=self.worker)
        except ApprovalError:
            self.attempt = None
        if self.attempt is None:
            raise Conflict(f"the run {run_id} does not wait for a decision any more", code="not_waiting")

    def add_line(self, line: str) -> None:
        """Store a line of the journal of the run."""
        assert self.attempt is not None
        self.store.add_lines(self.attempt, [(line, ())])


async def messages_of(given: Any, where: str, form: str, before: Sequence[Message] = ()) -> tuple[Message, ...]:
    """Return the messages of a request; `before` are those in front of them.

    Raises:
        BadRequest: Names everything that is wrong with them.
    """
    read = partial(read_messages, given, where=where, form=form, before=before)
    try:
        return read() if len(given) < _MAX_READ_HERE else await in_thread(read)
    except MessageError as error:
        raise BadRequest(str(error), param=where, code="invalid_messages") from error


@dataclass(slots=True, kw_only=True)
class Turn:
    """One request, as a run.

    The last message is the input of the run where it is one of the user, and the rest the conversation before it. Where
    a client sends what its tools returned, the run goes on behind them.
    """

    agents: ServedAgents
    name: str
    """Name of the agent."""
    tenant: str
    user: str
    messages: tuple[Message, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Additional kwargs of the prompts."""
    tools: Sequence[ClientTool] = ()
    settings: ModelSettings | None = None
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer, where the client wants one."""
    run_id: str = field(default_factory=lambda: os.urandom(16).hex())
    is_kept: bool = True
    """Whether it is kept as a run."""
    can_wait: bool = False
    """Whether a call that needs a person ends the turn, to be gone on with once it was decided about; without it such
    a call is denied."""
    waited: Waited | None = None
    """What it goes on with in place of the messages."""

    _has_text: bool = False
    _step: int = 0
    _began: float = field(default_factory=time.time)
    answered: TurnAnswer = field(init=False)
    """The whole answer, once there is one."""
    journal: Journal | None = None
    """The run until now, once it has ended."""
    before: tuple[Message, ...] = ()
    """What the run added behind its input, where it ended with calls of the client."""
    reply: Message | None = None
    """The reply with these calls."""
    _ended: dict[str, Any] = field(default_factory=dict)

    @property
    def streams_text(self) -> bool:
        """Whether the text of the model is the answer as it comes; an answer of a type is checked first."""
        return self.schema is None and self.agents.of_tenant(self.name, self.tenant).chain.output is str

    def texts_to(self, put: Callable[[str], Awaitable[None]]) -> OnEvent | None:
        """Return a listener that hands on each piece of the answer as it comes; None where the answer is no text."""
        return partial(self._heard, put) if self.streams_text else None

    async def answer(self, on_event: OnEvent | None = None) -> TurnAnswer:
        """Run, and return the whole answer.

        Args:
            on_event: Takes each event in its place.

        Raises:
            Exception: Whatever ended the run.
        """
        agent: Agent[Any, Any] = self.agents.of_tenant(self.name, self.tenant)
        names = [tool.name for tool in self.tools]
        options = self._options(agent, names)
        if on_event is not None:
            options["on_event"] = on_event
        if self.waited is not None:
            await self.waited.claim()
        try:
            if self.waited is not None:
                result = await agent.resume(self.waited.journal, **options)
            else:
                result = await agent.run(self._input(agent, options), run_id=self.run_id, **options)
        except Paused as paused:
            return self._paused(paused, names)
        except OutputStopped as stopped:
            self._failed(stopped)
            if stopped.reason not in ("refusal", "content_filter", "length"):
                raise
            is_refusal = stopped.reason == "refusal"
            reason = "stop" if is_refusal else stopped.reason
            return TurnAnswer(stopped.text, (), reason, self.usage, refusal=is_refusal)
        except BaseException as error:
            self._failed(error)
            raise
        self.journal = self._whole(result.journal)
        self._ended = {
            "state": "finished",
            **answer_form(result),
            "steps": result.steps,
            "usage": result.usage,
        }
        output = self._ended["output"]
        text = _joined(result.journal.messages) if self.streams_text else _as_json(result.output)
        refused = result.finish_reason == "refusal"
        return TurnAnswer(text, (), result.finish_reason, self.usage, refusal=refused, output=output)

    def _paused(self, paused: Paused, names: list[str]) -> TurnAnswer:
        """End the turn with the calls of the client; where there are none, with those that wait for a person."""
        self.journal = self._whole(paused.journal)
        if not any(call.name in names for call in paused.calls):
            self._ended = {"state": "waiting", "waiting": _waiting(paused.calls), "usage": paused.usage}
            return TurnAnswer(_joined(paused.messages), (), "tool_calls", self.usage, waiting=paused.calls)
        self.reply = reply = own_ids(calls_of(paused, names))
        self.before = tuple(paused.messages[0 if paused.journal.continues_session else 1 :])
        waiting = _waiting(reply.tool_calls)
        self._ended = {
            "state": "finished",
            "finish_reason": "tool_calls",
            "waiting": waiting,
            "usage": paused.usage,
        }
        return TurnAnswer(_joined((*paused.messages, reply)), reply.tool_calls, "tool_calls", self.usage)

    def _whole(self, journal: Journal) -> Journal:
        """Return a journal with the conversation of the client, which nobody else keeps."""
        if journal.session is None:
            return journal
        whole = journal.copy()
        asked = UserInput("", additional_kwargs=dict(self.kwargs))
        whole.session = None
        whole.context = journal.context.evolve(user_input=asked, conversation=Conversation(self.messages))
        return whole

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended: it neither waits for a person nor for the next server."""
        return self._ended.get("state") in ENDED

    @property
    def usage(self) -> Usage:
        """What the model calls of this request took."""
        found = self._ended.get("usage")
        if not isinstance(found, Usage):
            return NO_USAGE
        return found if self.waited is None else usage_since(self.waited.journal.usage, found)

    def record(self) -> RunRecord:
        """Return the run as it is kept."""
        if self.waited is not None:
            known = replace(self.waited.record, waiting=(), error=None, updated_at=time.time())
            return replace(known, **{"state": "failed", **self._ended})
        last = self.messages[-1] if self.messages else None
        text = last.text if last is not None and last.role == "user" else None
        asked = None if text is None else UserInput(text, additional_kwargs=dict(self.kwargs))
        return RunRecord(
            run_id=self.run_id,
            tenant=self.tenant,
            agent=self.name,
            user=self.user,
            created_at=self._began,
            updated_at=time.time(),
            input=asked,
            **{"state": "failed", **self._ended},
        )

    def _failed(self, error: BaseException) -> None:
        found = getattr(error, "journal", None)
        known = None if self.waited is None else self.waited.journal
        self.journal = self._whole(found) if isinstance(found, Journal) else known
        usage = getattr(error, "usage", None if known is None else known.usage)
        self._ended = {"state": "failed", "error": public_error(error)}
        if isinstance(error, asyncio.CancelledError):
            self._ended = {"state": "cancelled"}
        self._ended["usage"] = usage if isinstance(usage, Usage) else NO_USAGE

    def leave(self) -> None:
        """Have the next server go on with a run that was decided about, and cancelled as this one stops.

        What was decided counts, and the run is at least as far as its journal. One that has no decisions is of a
        client that asks again.
        """
        if self.waited is not None and self._ended:
            self._ended = {**self._ended, "state": "queued"}

    def _options(self, agent: Agent[Any, Any], names: list[str]) -> dict[str, Any]:
        options: dict[str, Any] = {} if self.can_wait else {"approve": approver(names)}
        choice = None if self.settings is None else self.settings.tool_choice
        if choice not in (None, "auto", "none", "required") and choice not in names and choice not in agent.tools:
            raise BadRequest(
                f"tool_choice: there is no tool {choice!r:.80}, declared by the client or of the agent",
                param="tool_choice",
                code="invalid_value",
            )
        if self.tools:
            options["tools"] = with_client_tools(agent, self.tools)
        if self.settings is not None:
            options["settings"] = self.settings
        if self.schema is not None:
            if agent.chain.output is not str:
                raise BadRequest("the agent has an answer of its own type", param="response_format")
            try:
                options["output"] = OutputSpec(self.schema)
            except AgentDefinitionError as error:
                raise BadRequest(str(error), param="response_format", code="invalid_value") from error
        if self.waited is not None:
            return {**options, "approve": dict(self.waited.decisions), "journal": self.waited.add_line}
        if (scope := ServedAgents.scope(agent, self.tenant, self.user)) is not None:
            options["scope"] = scope
        return options

    def _input(self, agent: Agent[Any, Any], options: dict[str, Any]) -> PromptContext | None:
        """Return the input of the run with the conversation before it; or None, and a session to go on with."""
        last = self.messages[-1]
        agent.chain.preflight(
            UserInput("", additional_kwargs=dict(self.kwargs))
        )  # nothing is kept of what cannot begin
        if last.role == "user":
            asked = UserInput(last.content, additional_kwargs=dict(self.kwargs))
            return PromptContext(user_input=asked, conversation=Conversation(self.messages[:-1]))
        if last.role != "tool":
            raise BadRequest(
                f"messages[{len(self.messages) - 1}]: the last message must be one of the user, or the result of a "
                f"tool, got one of the role {last.role!r}",
                param="messages",
                code="invalid_messages",
            )
        session = Session(conversation=Conversation(self.messages))
        if self.kwargs:
            session.keep_kwargs(self.kwargs)
        options["session"] = session
        return None

    def _heard(self, put: Callable[[str], Awaitable[None]], event: Event) -> Awaitable[None] | None:
        if type(event) is not TextDelta:
            return None
        text = event.text
        if event.step != self._step:
            text = _SEPARATOR + text if self._step and self._has_text else text
            self._step = event.step
        self._has_text = True
        return put(text)


def _waiting(calls: Sequence[ToolCall]) -> tuple[WaitingCall, ...]:
    return tuple([WaitingCall.of(call) for call in calls])


def _joined(messages: Sequence[Message]) -> str:
    """Return all that was written in a run."""
    return _SEPARATOR.join([one.text for one in messages if one.role == "assistant" and one.text])


def _as_json(output: Any) -> str:
    return output if isinstance(output, str) else json.dumps(output_form(output), ensure_ascii=False)
