"""Everything that can go wrong in a run that is not the fault of a prompt, a tool, a model or memory."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agentkit_prompts.errors import Picklable, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agentkit_prompts.context.messages import Message, ToolCall

__all__ = [
    "AgentDefinitionError",
    "AgentError",
    "ApprovalError",
    "AskAgain",
    "DepsMismatch",
    "JournalError",
    "LimitExceeded",
    "NothingToContinue",
    "OutputError",
    "OutputStopped",
    "Paused",
    "RunBusy",
    "RunIdReused",
    "ScopeMismatch",
    "SessionBusy",
    "UnknownOption",
]


_NAME = re.compile(r"\w+(\[[^]]*\])*(?=[:=])")
_UNITS = {"money": "US dollars"}
_STOPPED = {
    "refusal": "the model refused to answer",
    "length": "it was cut at the tokens that the model may answer with: allow more (max_tokens), or ask for less",
    "content_filter": "the content filter of the endpoint stopped it",
}


def named_problems(problems: Iterable[str]) -> Place:
    """Return problems as an error keeps them. A problem begins with the name of an option: `steps=0 must be ...`."""
    matches = [(_NAME.match(problem), problem) for problem in problems]
    pairs = [(match[0] if match else "", problem) for match, problem in matches]
    return {"name": ", ".join(dict.fromkeys([name for name, _ in pairs if name])), "problems": pairs}


class AgentError(Picklable):
    """Base of the errors of the runtime.

    Every error that ends a run, of whatever class, has the attributes `messages` (what the run added to the
    conversation), `usage` (tokens of its model calls) and `journal` (what `Agent.resume` takes).
    """

    messages: tuple[Message, ...] = ()
    usage: Any = None
    journal: Any = None


class AgentDefinitionError(AgentError, ValueError):
    """An agent, chain or limit that can never work as it was written."""


class UnknownOption(AgentDefinitionError, TypeError):
    """Options that do not exist, and so would be ignored. The message names all of them, and those that were meant.

    Attributes:
        meant: The option that may have been meant, or None, by the name of each unknown option.
    """

    def __init__(self, message: str, meant: Mapping[str, str | None] = MappingProxyType({})) -> None:
        super().__init__(message, name=", ".join(meant))
        self.meant = dict(meant)


class ApprovalError(AgentError, TypeError):
    """A call could not be decided about, and did not run.

    What was asked for approval gave an answer that is no decision; or an agent that plain code of a tool runs waits for
    one, which the run around it cannot do: `__cause__` is the `Paused` of that agent.
    """


class DepsMismatch(AgentError, TypeError):
    """Tools need `deps` that the run was not given, or of another type. Nothing was sent or kept.

    Attributes:
        problems: What is wrong, one text per tool.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(
            f"{'; '.join(problems)}: give the run what they need, such as agent.run(..., deps=...)", name="deps"
        )
        self.problems = tuple(problems)


class JournalError(AgentError, ValueError):
    """A journal that cannot be read, or is that of another agent or conversation. Nothing was sent or kept."""


class LimitExceeded(AgentError):
    """A run reached one of its limits. The session holds the messages until then, a valid history.

    Attributes:
        limit: Name of the limit: `steps`, `tool_calls`, `tokens`, `money`, `seconds` or `nested_runs`.
        value: What the limit allows.
    """

    def __init__(self, limit: str, allowed: float, advice: str) -> None:
        super().__init__(
            f"the run stopped at its limit of {allowed:g} {_UNITS.get(limit, limit.replace('_', ' '))}: {advice}",
            value=allowed,
        )
        self.limit = limit


class NothingToContinue(AgentError):
    """A run without input, and a conversation whose last message is an answer, or that is empty."""


class OutputError(AgentError):
    """The model's answer is not the output type, after all repair turns.

    Attributes:
        text: The last answer.
        problems: What was wrong with it.
        name: Place of the first problem in the answer, such as `inhabitants`; None if the answer could not be read.
    """

    def __init__(self, type_name: str, text: str, problems: str, name: str | None = None) -> None:
        super().__init__(f"the answer is not a valid {type_name}: {problems}", name=name)
        self.text = text
        self.problems = problems


class OutputStopped(OutputError):
    """The model stopped before there was an answer of the output type. Asking again would not help: it is not repaired.

    Attributes:
        reason: Why it stopped: `refusal`, `length` (the answer was cut) or `content_filter`.
    """

    def __init__(self, type_name: str, text: str, reason: str) -> None:
        super().__init__(type_name, text, _STOPPED.get(reason, f"the model stopped ({reason})"))
        self.reason = reason


class AskAgain(AgentError):
    """An output validator raises it: the model reads the message and answers again, as `Limits.repairs` allows."""


class Paused(AgentError):
    """The run waits for decisions about tool calls: `agent.resume(paused.journal, approve=...)` goes on with it.

    Attributes:
        calls: The calls that wait, none of which has run: all of a reply, also where only some are decided. That of an
            agent that runs as a tool has the id of the tool's call, a slash and its own, such as `c1/c7`.
        agents: The tool that each such call comes from, by the id of the call; `a/b` where `b` is a tool of agent `a`.
        journal: The run until here; `journal.dumps()` is text to store.
    """

    def __init__(self, calls: Sequence[ToolCall], agents: Mapping[str, str] = MappingProxyType({})) -> None:
        whose = {call: f" of {name}" for call, name in agents.items()}
        names = ", ".join(f"{call.name} ({call.id}){whose.get(call.id, '')}" for call in calls)
        super().__init__(
            f"the run waits for a decision about {names}: resume it with approve=, a function or a mapping of call ids "
            "to decisions"
        )
        self.calls = tuple(calls)
        self.agents = dict(agents)


class RunBusy(AgentError):
    """The run is going on already, in this process or in another one that keeps it in its file. Nothing was done.

    Attributes:
        run_id: Id of the run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id!r} is going on already, and two at once would do everything twice: wait until that one has "
            "ended, then resume its journal as it is then"
        )
        self.run_id = run_id


class RunIdReused(AgentError):
    """The conversation has a run of this id with another input. Nothing was sent or kept.

    Attributes:
        run_id: Id of the run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run id {run_id!r} was used for another input in this conversation: give every run an id of its own"
        )
        self.run_id = run_id


class ScopeMismatch(AgentError):
    """A run was to read memory in one scope and to go on with a conversation of another. Nothing was read or sent."""


class SessionBusy(AgentError):
    """Another run is using the session. Nothing was sent or kept.

    Attributes:
        session: Id of the session.
    """

    def __init__(self, session: str) -> None:
        super().__init__(
            f"session {session!r} is in use by another run, and two at once would mix their messages: "
            "wait until that one has ended, or give each run a session of its own"
        )
        self.session = session
