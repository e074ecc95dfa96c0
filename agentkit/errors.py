"""Errors of runs, except errors of prompts, tools, models and memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agentkit_prompts.errors import Picklable, Place
from agentkit_prompts.hints import Hinted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agentkit_prompts.context.messages import Message, ToolCall

__all__ = [
    "AgentDefinitionError",
    "AgentError",
    "ApprovalError",
    "AskAgain",
    "DepsError",
    "DepsMismatch",
    "FailedCall",
    "GuardError",
    "GuardStopped",
    "JournalError",
    "LimitExceeded",
    "NothingToContinue",
    "OutputError",
    "OutputStopped",
    "Paused",
    "RunBusy",
    "RunEnded",
    "RunIdReused",
    "ScopeMismatch",
    "SessionBusy",
    "ToolCallError",
    "UnknownOption",
]


SEE_LOG = "; see the log for the cause"
"""End of the message of an error whose cause is only in the log. Commands print the log, and omit the end."""
UNREADABLE_CALL = "tool_call"
"""Name of an `OutputError` for a tool call in the text of a reply that cannot be read."""
_OPTION = re.compile(r"(?<!\w)\w++(?:\[[^][]*+\])*+(?=[:=])")
"""Option name at the start of a problem, such as `steps` or `tools[2]`."""
_UNITS = {"money": "US dollars"}
_STOP_PROBLEMS = {
    "refusal": "the model refused to answer",
    "length": "the answer was cut at the maximum tokens of a reply: raise max_tokens, or request a shorter answer",
    "content_filter": "the content filter of the endpoint stopped it",
}


def named_problems(problems: Iterable[str]) -> Place:
    """Return the attributes `name` and `problems` of an error.

    A problem can start with the name of its option, such as `steps=0 must be ...`.
    """
    pairs: list[tuple[str, str]] = []
    for problem in problems:
        name = ""
        match = _OPTION.match(problem)
        if match is not None:
            name = match[0]
        pairs.append((name, problem))
    return {"name": ", ".join(dict.fromkeys([name for name, _ in pairs if name])), "problems": pairs}


class AgentError(Picklable):
    """Base of the errors of the runtime.

    Every error that ends a run, of any class, has the attributes `messages` (messages of the run), `usage` (usage of
    its model calls) and `journal` (for `Agent.resume`).
    """

    messages: tuple[Message, ...] = ()
    usage: Any = None
    journal: Any = None


class AgentDefinitionError(AgentError, ValueError):
    """The definition of an agent, chain or limit is invalid."""


class UnknownOption(AgentDefinitionError, TypeError):
    """Options are unknown. The error lists all unknown options, with suggestions.

    Attributes:
        meant: The suggestion for each unknown option; None without a suggestion.
    """

    def __init__(self, message: str, meant: Mapping[str, str | None] = MappingProxyType({})) -> None:
        super().__init__(message, name=", ".join(meant))
        self.meant = dict(meant)


class ApprovalError(AgentError, TypeError):
    """A call has no valid decision, and did not run.

    Either the result of the approver is not a decision. Or the code of a tool ran an agent that waits for a decision:
    the outer run cannot pause inside this code, and `__cause__` is the `Paused` of the agent.
    """


class DepsMismatch(AgentError, TypeError):
    """`deps` is missing, or has another type than tools require. Nothing was sent or stored.

    Attributes:
        problems: One message per tool.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        advice = "pass agent.run(..., deps=...), or write `deps: module:function` in the agent file"
        super().__init__(f"{'; '.join(problems)}: {advice}", name="deps")
        self.problems = tuple(problems)


class DepsError(AgentError):
    """The function that creates the `deps` of a run failed, took too long, or returned another type than tools require.

    The log contains the cause. Nothing was sent or stored.

    Attributes:
        agent: Name of the agent.
    """

    def __init__(self, agent: str) -> None:
        super().__init__(f"the deps of the agent {agent!r} could not be created{SEE_LOG}", name="deps")
        self.agent = agent


class GuardError(AgentError):
    """A guard failed, took longer than its time limit, or returned no valid verdict.

    The run ended: a value that the guard has not accepted is neither sent nor stored, except an input whose model call
    started before the verdict. `__cause__` is the exception of the guard.

    Attributes:
        guard: Name of the guard.
        stage: Stage of the guard: `input`, `output`, `tool_call` or `tool_result`; `redaction` for the detectors of a
            `RedactingModel`.
    """

    def __init__(self, guard: str, stage: str, problem: str) -> None:
        super().__init__(f"the guard {guard!r} of the stage {stage} {problem}; the run ended", name=guard)
        self.guard = guard
        self.stage = stage


class GuardStopped(AgentError):
    """A guard, or a person whom a guard asked, stopped the run.

    The session does not contain the stopped value, except an input whose model call started before the verdict.

    Attributes:
        guard: Name of the guard.
        stage: Stage of the guard: `input`, `output`, `tool_call` or `tool_result`.
        reason: Reason of the guard or of the person.
    """

    def __init__(self, guard: str, stage: str, reason: str) -> None:
        super().__init__(
            f"the guard {guard!r} of the stage {stage} stopped the run: {reason or 'no reason'}", name=guard
        )
        self.guard = guard
        self.stage = stage
        self.reason = reason


class JournalError(AgentError, ValueError):
    """A journal is corrupt, or belongs to another agent or conversation. Nothing was sent or stored."""


class LimitExceeded(AgentError):
    """A run reached a limit. The session contains the messages so far, which are a valid history.

    Attributes:
        limit: Name of the limit: `steps`, `tool_calls`, `tokens`, `money`, `seconds` or `nested_runs`.
        value: Value of the limit.
    """

    def __init__(self, limit: str, allowed: float, advice: str) -> None:
        super().__init__(
            f"the run stopped at its limit of {allowed:g} {_UNITS.get(limit, limit.replace('_', ' '))}: {advice}",
            value=allowed,
        )
        self.limit = limit


class NothingToContinue(AgentError):
    """No input, and no message in the conversation to answer."""


class OutputError(AgentError):
    """The answer of the model does not match the output type, after all repairs.

    Attributes:
        text: The last answer.
        problems: Problems of the answer.
        name: Path of the first problem in the answer, such as `inhabitants`; None if the answer could not be read.
    """

    def __init__(self, type_name: str, text: str, problems: str, name: str | None = None) -> None:
        super().__init__(f"the answer is not a valid {type_name}: {problems}", name=name)
        self.text = text
        self.problems = problems


class OutputStopped(OutputError):
    """The model stopped before the end of its answer, so that a repair would not help.

    Attributes:
        reason: Finish reason: `refusal`, `length` (the answer was cut) or `content_filter`.
    """

    def __init__(self, type_name: str, text: str, reason: str) -> None:
        super().__init__(type_name, text, _STOP_PROBLEMS.get(reason, f"the model stopped ({reason})"))
        self.reason = reason


class AskAgain(AgentError):
    """Raised by output validators: the model receives the message and answers again, up to `Limits.repairs` times."""


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A tool call that failed, or exceeded its time limit. The run continued after the call."""

    call: ToolCall
    """The call of the model. A call of an agent that ran as a tool has an id such as `c1/c7`."""
    tool: str
    """Name of the tool."""
    message: str
    """Text that the model received instead of a result."""
    exception_class: str
    """Class of the exception, such as `NameError`; empty if the tool returned its error, or is unknown."""
    traceback: str = field(default="", repr=False)
    """Traceback of the code of the tool, for operators: it contains names of files. Empty without an exception of
    the tool."""

    def __str__(self) -> str:
        return f"{self.tool} ({self.call.id}): {self.message}"


class ToolCallError(AgentError):
    """A tool failed, and `Limits.on_tool_error` is `raise`. The session contains the messages so far, which are a valid
    history; `__cause__` is the exception of the tool.

    Attributes:
        tool_errors: The failed calls of the reply; see `FailedCall`.
    """

    def __init__(self, tool_errors: Sequence[FailedCall]) -> None:
        failures = "; ".join(map(str, tool_errors))
        super().__init__(
            f"{failures}. The run ended: Limits(on_tool_error='raise'); to resume it after this error, pass "
            "limits=Limits(on_tool_error='report')",
            name=", ".join(dict.fromkeys([failed.tool for failed in tool_errors])),
        )
        self.tool_errors = tuple(tool_errors)


class Paused(AgentError, metaclass=Hinted):
    """The run waits for decisions about tool calls: `agent.resume(paused.journal, approve=...)` resumes the run.

    Attributes:
        calls: The waiting calls, all of a reply, none of which has run, with the arguments that their tools receive:
            `Tool.as_received`. The id of a call of an agent as a tool is prefixed with the id of the outer call and a
            slash, such as `c1/c7`.
        agents: Tool of each such inner call, by call id; `a/b` if `b` is a tool of agent `a`.
        journal: The journal of the run; `journal.dumps()` returns text.
    """

    def __init__(self, calls: Sequence[ToolCall], agents: Mapping[str, str] = MappingProxyType({})) -> None:
        suffixes = {call: f" of {name}" for call, name in agents.items()}
        names = ", ".join(f"{call.name} ({call.id}){suffixes.get(call.id, '')}" for call in calls)
        super().__init__(
            f"the run waits for a decision about {names}: resume it with approve=, a function or a mapping of call ids "
            "to decisions"
        )
        self.calls = tuple(calls)
        self.agents = dict(agents)


class RunBusy(AgentError):
    """The run is in progress, in this process or in another process that writes its journal file. Nothing was done.

    Attributes:
        run_id: Id of the run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id!r} is in progress, and concurrent attempts would repeat its steps: wait for its end, "
            "then resume its latest journal"
        )
        self.run_id = run_id


class RunEnded(AgentError):
    """The run has finished, failed or was cancelled, so that it receives no message. Nothing was sent.

    Attributes:
        run_id: Id of the run.
        state: `finished`, `failed` or `cancelled`.
    """

    def __init__(self, run_id: str, state: str) -> None:
        outcome = {"cancelled": "was cancelled", "failed": "has failed"}.get(state, "has finished")
        advice = "pass the message as the input of the next run of the session"
        if state != "finished":
            advice = f"resume the run and send the message again, or {advice}"
        super().__init__(f"run {run_id!r:.80} {outcome}: it receives no message, and nothing was sent; {advice}")
        self.run_id = run_id
        self.state = state


class RunIdReused(AgentError):
    """The conversation contains a run with the same id and another input. Nothing was sent or stored.

    Attributes:
        run_id: Id of the run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run id {run_id!r} was used for another input in this conversation: use a unique id for every run"
        )
        self.run_id = run_id


class ScopeMismatch(AgentError):
    """The scopes of memory, session and run do not match. Nothing was read or sent."""


class SessionBusy(AgentError):
    """Another run uses the session. Nothing was sent or stored.

    Attributes:
        session: Id of the session.
    """

    def __init__(self, session: str) -> None:
        super().__init__(
            f"session {session!r} is in use by another run, and concurrent runs would mix their messages: wait for the "
            "end of the other run, or use separate sessions"
        )
        self.session = session
