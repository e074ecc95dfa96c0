"""`RequestRun`: the run of one request of an OpenAI-compatible or AG-UI endpoint."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

from agentkit.agent.agent import Agent
from agentkit.errors import AgentDefinitionError, OutputStopped, Paused
from agentkit.ground.contained import contained
from agentkit.models.model import NO_USAGE, Usage
from agentkit.models.settings import ModelSettings
from agentkit.output.output_spec import OutputSpec
from agentkit.run.engine.events import Event, TextDelta
from agentkit.run.engine.run_result import RunResult
from agentkit.run.journal.journal import Journal, tool_error_count
from agentkit.run.parts.agent_version import AgentVersion
from agentkit.run.parts.run_inbox import Inbox
from agentkit.run.parts.session import Session
from agentkit.runs.run_record import ENDED, RunRecord, WaitingCall, usage_since
from agentkit.server.owner import Owner
from agentkit.server.request_runs.answer_usage import answer_usage
from agentkit.server.request_runs.client_tools import (
    ClientTool,
    pause_at_client_calls,
    reply_with_client_calls,
    with_client_tools,
    with_unique_ids,
)
from agentkit.server.request_runs.paused_run import PausedRun
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.event_form import answer_form, output_form
from agentkit.server.served_runs.public_errors import public_error
from agentkit.server.server_errors import BadRequest
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, UserInput

OnEvent: TypeAlias = Callable[[Event], Awaitable[None] | None]
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
"""Schema of an answer that is any JSON object. The own output type of an agent may describe the object."""
_SEPARATOR = "\n\n"
"""Text between the replies of two steps."""


@dataclass(slots=True)
class RequestAnswer:
    """Answer to a request."""

    text: str
    """The text of all replies of this run."""
    calls: tuple[ToolCall, ...]
    """Calls of client tools; empty if the run finished with an answer."""
    finish_reason: str
    usage: Usage
    """Usage of the model calls of this request, for the client; see `answer_usage`."""
    refusal: bool = False
    output: Any = None
    """The output of the agent as JSON data."""
    waiting: tuple[ToolCall, ...] = ()
    """Calls of the agent that wait for a decision; empty if the run finished."""


class AnswerForm(Protocol):
    """The form in which an answer is stored with its run, so that a client can read the answer again."""

    def whole(self, answer: RequestAnswer) -> Mapping[str, Any]:
        """Return a whole answer as JSON data."""
        ...

    def failure(self, state: str) -> Mapping[str, Any]:
        """Return the form of a run that failed or was cancelled as JSON data."""
        ...


@dataclass(slots=True, kw_only=True)
class RequestRun:
    """The run of one request.

    If the last message is from the user, it is the input of the run and the messages before it are the conversation.
    If the client sends tool results, the run continues after them.
    """

    agents: ServedAgents
    name: str
    """Name of the agent."""
    owner: Owner
    """Tenant and user for whom the run acts."""
    permissions: frozenset[str]
    """Scopes of the token of the request."""
    messages: tuple[Message, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Additional kwargs of the prompts."""
    locale: str | None = None
    tags: tuple[str, ...] = ()
    tools: Sequence[ClientTool] = ()
    settings: ModelSettings | None = None
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer, if the request has one."""
    form: AnswerForm | None = None
    """Form of the answer that is stored with the run; None if only the run is stored."""
    run_id: str = field(default_factory=lambda: os.urandom(16).hex())
    is_stored: bool = True
    """True if the run is stored when it has ended or paused."""
    can_pause: bool = False
    """True if a call that needs a decision pauses the run; otherwise such a call is denied."""
    paused: PausedRun | None = None
    """The paused run that is resumed; `messages` are ignored then."""
    inbox: Inbox | None = None
    """Messages for the run; None if it receives none, or is stored, as a paused run is."""

    _agent: Agent[Any, Any] | None = None
    _has_text: bool = False
    _step: int = 0
    _created_at: float = field(default_factory=time.time)
    result: RequestAnswer = field(init=False)
    """The whole answer, once the run has finished."""
    journal: Journal | None = None
    """The journal, once the run has finished, failed or paused."""
    before: tuple[Message, ...] = ()
    """Messages between the input and `reply`."""
    reply: Message | None = None
    """The reply with calls of client tools, if the run finished with them."""
    _outcome: dict[str, Any] = field(default_factory=dict)
    """Changes of the stored record by the outcome of the run; empty before."""

    @property
    def streams_text(self) -> bool:
        """True if text deltas of the model are the answer. Typed output is validated before it is sent."""
        return self.schema is None and self.agent.chain.output is str

    @property
    def _number(self) -> int:
        """Number of the version of the agent; see `ServedAgents.number`."""
        if self.paused is not None:
            record = self.paused.record
            return self.agents.number(self.name, self.owner, record.session, record.run_id, record.version)
        return self.agents.number(self.name, self.owner, None, self.run_id)

    @property
    def version(self) -> AgentVersion:
        """Versions of the agent and of its parts."""
        return self.agent.definition.version

    @property
    def agent(self) -> Agent[Any, Any]:
        """The agent, with the memory of the tenant; the same agent if the server loads a changed file meanwhile."""
        if self._agent is None:
            self._agent = self.agents.of_tenant(self.name, self.owner.tenant, self._number)
        return self._agent

    def text_listener(self, send: Callable[[str], Awaitable[None]]) -> OnEvent | None:
        """Return a listener that sends each text delta; None if the run does not stream text."""
        if not self.streams_text:
            return None
        return partial(self._send_text, send)

    async def answer(self, on_event: OnEvent | None = None) -> RequestAnswer:
        """Execute the run and return the whole answer.

        Args:
            on_event: Listener of the events.

        Raises:
            Exception: The error that ended the run.
        """
        answer = await self._answer(on_event)
        answer.usage = answer_usage(self.usage, self.messages, answer.text)
        if self.form is not None:
            self._outcome["response"] = self.form.whole(answer)
        return answer

    async def _answer(self, on_event: OnEvent | None) -> RequestAnswer:
        agent = self.agent
        names = [tool.name for tool in self.tools]
        options = self._options(agent, names)
        if on_event is not None:
            options["on_event"] = on_event
        # After the checks of the request: an invalid request must not use up the decisions of the run.
        if self.paused is not None:
            await self._claim(self.paused)
            options["inbox"] = self.paused.inbox
        try:
            result = await contained(self._run(agent, options))
        except Paused as paused:
            return self._pause(paused, names)
        except OutputStopped as stopped:
            self._fail(stopped)
            return self._stopped_answer(stopped)
        except BaseException as error:
            self._fail(error)
            raise
        self.journal = self._with_conversation(result.journal)
        self._outcome = {
            "state": "finished",
            **answer_form(result),
            "steps": result.steps,
            "usage": result.usage,
        }
        text = _as_json(result.output)
        if self.streams_text:
            text = _text(result.journal.messages)
        reason = result.finish_reason
        return RequestAnswer(text, (), reason, self.usage, refusal=reason == "refusal", output=self._outcome["output"])

    async def _claim(self, paused: PausedRun) -> None:
        """Claim the paused run; the run ends if the client left in the meantime."""
        try:
            await paused.claim()
        except asyncio.CancelledError as error:
            if paused.attempt is not None:
                self._fail(error)
            raise

    async def _run(self, agent: Agent[Any, Any], options: dict[str, Any]) -> RunResult[Any]:
        if self.paused is not None:
            return await agent.resume(self.paused.journal, approve=dict(self.paused.decisions), **options)
        return await agent.run(self._input(agent, options), run_id=self.run_id, **options)

    def _stopped_answer(self, stopped: OutputStopped) -> RequestAnswer:
        """Return the answer of a reply that a client expects as an answer, not as an error."""
        if stopped.reason == "refusal":
            return RequestAnswer(stopped.text, (), "stop", self.usage, refusal=True)
        if stopped.reason in ("content_filter", "length"):
            return RequestAnswer(stopped.text, (), stopped.reason, self.usage)
        raise stopped

    def _pause(self, paused: Paused, names: list[str]) -> RequestAnswer:
        """Finish the run with calls of client tools; without such calls, pause it for decisions."""
        self.journal = self._with_conversation(paused.journal)
        if not any(call.name in names for call in paused.calls):
            self._outcome = {"state": "waiting", "waiting": _waiting(paused.calls), "usage": paused.usage}
            return RequestAnswer(_text(paused.messages), (), "tool_calls", self.usage, waiting=paused.calls)
        self.reply = reply = with_unique_ids(reply_with_client_calls(paused, names))
        messages = tuple(paused.messages)
        # The first message of a new run is its input, which the client has already.
        self.before = messages if paused.journal.continues_session else messages[1:]
        self._outcome = {
            "state": "finished",
            "finish_reason": "tool_calls",
            "waiting": _waiting(reply.tool_calls),
            "usage": paused.usage,
        }
        return RequestAnswer(_text((*paused.messages, reply)), reply.tool_calls, "tool_calls", self.usage)

    def _with_conversation(self, journal: Journal) -> Journal:
        """Return a journal with the conversation of the client.

        A run after tool results reads a session of this request, which is not stored.
        """
        if journal.session is None:
            return journal
        copy = journal.copy()
        user_input = UserInput("", additional_kwargs=dict(self.kwargs))
        copy.session = None
        copy.context = journal.context.evolve(user_input=user_input, conversation=Conversation(self.messages))
        return copy

    @property
    def has_ended(self) -> bool:
        """True if the run is finished, failed or cancelled; a paused or requeued run is not."""
        return self._outcome.get("state") in ENDED

    @property
    def usage(self) -> Usage:
        """Usage of the model calls of this request."""
        usage = self._outcome.get("usage")
        if not isinstance(usage, Usage):
            return NO_USAGE
        if self.paused is not None:
            return usage_since(self.paused.journal.usage, usage)
        return usage

    def record(self) -> RunRecord:
        """Return the record of the run for the store."""
        outcome = {"state": "failed", "tool_errors": tool_error_count(self.journal), **self._outcome}
        if self.paused is not None:
            return replace(self.paused.record, **{"waiting": (), "error": None, "updated_at": time.time(), **outcome})
        user_input = None
        if self.messages and self.messages[-1].role == "user":
            user_input = UserInput(self.messages[-1].text, additional_kwargs=dict(self.kwargs))
        return RunRecord(
            run_id=self.run_id,
            tenant=self.owner.tenant,
            agent=self.name,
            user=self.owner.user,
            permissions=tuple(sorted(self.permissions)),
            locale=self.locale,
            tags=self.tags,
            version=self.version.id,
            created_at=self._created_at,
            updated_at=time.time(),
            input=user_input,
            **outcome,
        )

    def _fail(self, error: BaseException) -> None:
        usage: Any = NO_USAGE
        if self.paused is not None:
            self.journal = self.paused.journal
            usage = self.paused.journal.usage
        # Errors of a started run have its journal and usage.
        journal = getattr(error, "journal", None)
        if isinstance(journal, Journal):
            self.journal = self._with_conversation(journal)
        usage = getattr(error, "usage", usage)
        self._outcome = {"state": "failed", "error": public_error(error)}
        if isinstance(error, asyncio.CancelledError):
            self._outcome = {"state": "cancelled"}
        if self.form is not None:
            self._outcome["response"] = self.form.failure(self._outcome["state"])
        # `usage` can be an attribute of an error of another library.
        self._outcome["usage"] = usage if isinstance(usage, Usage) else NO_USAGE

    def requeue(self) -> None:
        """Leave a resumed run to the next server when this server stops.

        The decisions and the journal of the run are stored. A run without decisions is not requeued: the client sends
        the request again.
        """
        if self.paused is not None and self._outcome:
            self._outcome = {**self._outcome, "state": "queued"}

    def _options(self, agent: Agent[Any, Any], names: list[str]) -> dict[str, Any]:
        options: dict[str, Any] = {"permissions": self.permissions}
        if not self.can_pause:
            options["approve"] = pause_at_client_calls(names)
        if self.settings is not None:
            _check_tool_choice(self.settings.tool_choice, agent, names)
            options["settings"] = self.settings
        if self.tools:
            options["tools"] = with_client_tools(agent, self.tools)
        if self.schema is not None and not _is_own_output(agent, self.schema):
            options["output"] = _output_spec(agent, self.schema)
        # A resumed run has the scope of its journal.
        if self.paused is not None:
            permissions = self.paused.record.permissions
            return {**options, "permissions": permissions, "journal": self.paused.add_line}
        options |= {"locale": self.locale, "tags": self.tags, "inbox": self.inbox}
        return {**options, **ServedAgents.owner(agent, self.owner, self.run_id)}

    def _input(self, agent: Agent[Any, Any], options: dict[str, Any]) -> PromptContext | None:
        """Return the input of the run with its conversation; after tool results, return None and add a session."""
        last = self.messages[-1]
        # Invalid kwargs are refused before the run starts, so that nothing of it is stored.
        agent.chain.preflight(UserInput("", additional_kwargs=dict(self.kwargs)))
        if last.role == "user":
            user_input = UserInput(last.content, additional_kwargs=dict(self.kwargs))
            return PromptContext(user_input=user_input, conversation=Conversation(self.messages[:-1]))
        if last.role != "tool":
            raise BadRequest(
                f"messages[{len(self.messages) - 1}]: expected the role 'user' or 'tool' in the last message, got "
                f"{last.role!r}",
                param="messages",
                code="invalid_messages",
            )
        # A run without input continues a session: the messages become a session without an id, which no tool can read.
        session = Session("", Conversation(self.messages))
        if self.kwargs:
            session.keep_kwargs(self.kwargs)
        options["session"] = session
        return None

    def _send_text(self, send: Callable[[str], Awaitable[None]], event: Event) -> Awaitable[None] | None:
        if type(event) is not TextDelta:
            return None
        text = event.text
        # The replies of two steps are one text for the client.
        if event.step != self._step:
            if self._step and self._has_text:
                text = _SEPARATOR + text
            self._step = event.step
        self._has_text = True
        return send(text)


def _check_tool_choice(choice: str | None, agent: Agent[Any, Any], client_names: Sequence[str]) -> None:
    names = {*client_names, *agent.tools}
    if choice in (None, "auto", "none", *names) or (choice == "required" and names):
        return
    # Tools that each run creates are unknown here; the provider refuses a wrong choice.
    if not agent.definition.tools.is_per_run:
        text = f"tool_choice: missing tool for {choice!r:.80}; expected a tool of the client or of the agent"
        raise BadRequest(text, param="tool_choice", code="invalid_value")


def _is_own_output(agent: Agent[Any, Any], schema: Mapping[str, Any]) -> bool:
    """True if the output type of the agent satisfies the schema of a request."""
    own = agent.chain.answer.schema
    return schema == ANY_OBJECT and own is not None and own.get("type") == "object"


def _output_spec(agent: Agent[Any, Any], schema: Mapping[str, Any]) -> OutputSpec[Any]:
    if agent.chain.output is not str:
        raise BadRequest("response_format: the agent defines its own output type", param="response_format")
    try:
        return OutputSpec(schema)
    except AgentDefinitionError as error:
        raise BadRequest(str(error), param="response_format", code="invalid_value") from error


def _waiting(calls: Sequence[ToolCall]) -> tuple[WaitingCall, ...]:
    return tuple([WaitingCall.of(call) for call in calls])


def _text(messages: Sequence[Message]) -> str:
    """Return the text of all replies of a run."""
    return _SEPARATOR.join([message.text for message in messages if message.role == "assistant" and message.text])


def _as_json(output: Any) -> str:
    if isinstance(output, str):
        return output
    return json.dumps(output_form(output), ensure_ascii=False)
