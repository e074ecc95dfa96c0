"""Guards: functions and agents that check the input, the replies, the tool calls and the tool results of a run."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from agentkit.errors import AgentDefinitionError, GuardError
from agentkit.models.model import Usage
from agentkit.output.output_spec import argument_count
from agentkit.run.parts.verdicts import PASS, Ask, Pass, Replace, Stop, Verdict
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Part, Text
from agentkit_tools.calling.deadline import DeadlineError, outcome
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.calling.tool_threads import run_in_thread
from agentkit_tools.errors import describe_error, ends_run

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from agentkit_tools.tool_context import ToolContext

Stage: TypeAlias = Literal["input", "output", "tool_call", "tool_result"]
"""Part of a run that a guard checks: the input; the text of each reply, and the answer of a final tool; each tool call;
each tool result."""
Subject: TypeAlias = str | ToolCall | ToolResult
"""Value that a guard receives: text, or a tool call or a tool result for these stages."""

_SECONDS = 10.0
"""Default time limit of a guard."""
_EXPECTED: Mapping[Stage, str] = {
    "input": "Replace(text)",
    "output": "Replace(text)",
    "tool_call": "Replace(arguments), Replace(text)",
    "tool_result": "Replace(text)",
}


@dataclass(frozen=True, slots=True)
class Guard:
    """A check of one stage of a run; created by `guard`."""

    stage: Stage
    check: Any
    """The function, or the agent."""
    name: str
    """Name of the function or of the agent, unique in its stage."""
    timeout: float
    """Seconds until the check is cancelled, and the run ends with a `GuardError`."""
    parallel: bool = False
    """True if the model call starts before the verdict about the input."""
    takes_context: bool = False
    """True if the function has a parameter for the `ToolContext`."""

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.check(*arguments)


class GuardCheck(NamedTuple):
    """A verdict of a guard, as the journal stores it."""

    stage: Stage
    guard: str
    """Name of the guard."""
    subject: str
    """Id of the tool call; number of the step of a reply; empty for the input."""
    verdict: Verdict
    usage: Usage | None = None
    """Tokens of a guard that is an agent."""
    text: str = ""
    """Text about which a person decides; empty for a tool call, and for other verdicts than `Ask`."""

    @property
    def waiting_call(self) -> ToolCall | None:
        """The call by which a person decides about a text; None for a tool call, and for other verdicts than `Ask`."""
        if not isinstance(self.verdict, Ask) or self.stage == "tool_call":
            return None
        call_id = "_".join(filter(None, (self.stage, self.subject, self.guard)))
        return ToolCall(call_id, self.guard, {"text": self.text, "reason": self.verdict.reason})


def guard(stage: Stage, *, timeout: float = _SECONDS, parallel: bool = False) -> Callable[[Any], Guard]:
    """Return a decorator that makes a guard of a function or of an agent.

    The function receives the text of the input or of the reply, the `ToolCall` or the `ToolResult`, and the
    `ToolContext` if it has a second parameter. It returns None, `Replace`, `Ask` or `Stop`, and can be async. An agent
    receives the text, and has the output type `Verdict`.

    Args:
        stage: Part of the run that is checked.
        timeout: Seconds until the check is cancelled, and the run ends with a `GuardError`.
        parallel: True if the first model call starts before the verdict about the input. No tool call starts before the
            verdict, and `Stop` cancels the model call. The guard cannot replace the input.

    Raises:
        AgentDefinitionError: The stage is unknown, an option is invalid, or the function has other parameters.
    """
    problems: list[str] = []
    if stage not in get_args(Stage):
        problems.append(f"expected the stage {', '.join(map(repr, get_args(Stage)))}, got {stage!r:.60}")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < float("inf"):
        problems.append(f"timeout={timeout!r:.60}: expected seconds above 0")
    if parallel is True and stage != "input":
        problems.append("parallel=True: only a guard of the stage 'input' can run next to the model call")
    elif not isinstance(parallel, bool):
        problems.append(f"parallel={parallel!r:.60}: expected True or False")
    if problems:
        raise AgentDefinitionError(f"guard: {'; '.join(problems)}", name="guard")

    def decorate(check: Any) -> Guard:
        name = getattr(check, "__name__", None) or getattr(check, "name", None) or type(check).__name__
        if _is_agent(check):
            return Guard(stage, check, name, timeout, parallel)
        count = argument_count(check)
        if count not in (1, 2):
            raise AgentDefinitionError(
                f"guard {name!s:.60}: expected an agent, or a function of the {_subject_name(stage)}, or of the "
                f"{_subject_name(stage)} and a ToolContext",
                name="guard",
                value=str(name),
            )
        return Guard(stage, check, name, timeout, parallel, count == 2)

    return decorate


def _is_agent(check: object) -> bool:
    return hasattr(check, "definition") and hasattr(check, "run")


def _subject_name(stage: Stage) -> str:
    if stage == "tool_call":
        return "ToolCall"
    if stage == "tool_result":
        return "ToolResult"
    return "text"


class Guards:
    """The guards of an agent, by stage.

    Attributes:
        argument: All guards, in their order.
        parallel: Guards of the input that run next to the first model call.
    """

    __slots__ = ("argument", "input", "output", "parallel", "tool_call", "tool_result")

    def __init__(self, guards: tuple[Guard, ...] = ()) -> None:
        self.argument = guards
        self.input = tuple([each for each in guards if each.stage == "input" and not each.parallel])
        self.parallel = tuple([each for each in guards if each.parallel])
        self.output = tuple([each for each in guards if each.stage == "output"])
        self.tool_call = tuple([each for each in guards if each.stage == "tool_call"])
        self.tool_result = tuple([each for each in guards if each.stage == "tool_result"])


def checked_guards(argument: object) -> Guards | None:
    """Return the guards of an agent; None without guards.

    Raises:
        AgentDefinitionError: A value is not a guard, or two guards of a stage have the same name.
    """
    if isinstance(argument, Guard | str | Mapping) or not isinstance(argument, Iterable):
        raise AgentDefinitionError(
            f"guards: expected a list of functions with the decorator @guard, got {type(argument).__name__}; write "
            "guards=[...]",
            name="guards",
            value=type(argument).__name__,
        )
    guards = tuple(argument)
    problems: list[str] = []
    names = set[tuple[str, str]]()
    for number, each in enumerate(guards):
        if not isinstance(each, Guard):
            problems.append(
                f"guards[{number}]: expected a function with the decorator @guard, got a {type(each).__name__}"
            )
        elif (each.stage, each.name) in names:
            problems.append(f"guards[{number}]: another guard of {each.stage!r} has the name {each.name!r:.60}")
        else:
            names.add((each.stage, each.name))
    if problems:
        raise AgentDefinitionError("; ".join(problems), name="guards")
    if not guards:
        return None
    return Guards(guards)


def content_with_text(content: str | tuple[Part, ...], text: str) -> str | tuple[Part, ...]:
    """Return content with another text, and the same media after the text."""
    if isinstance(content, str):
        return text
    return (Text(text), *[part for part in content if not isinstance(part, Text)])


def with_text(message: Message, text: str) -> Message:
    """Return a reply with another text."""
    # Thinking and opaque data can quote the original text, and their signatures do not fit another text.
    return replace(message, content=content_with_text(message.content, text), thinking=(), opaque={})


async def guard_check(guard: Guard, subject: Subject, key: str, context: ToolContext[Any]) -> GuardCheck:
    """Call a guard, and return its verdict.

    Raises:
        GuardError: The guard raised, took longer than its time limit, or returned no valid verdict.
    """
    usage = None
    if _is_agent(guard.check):
        result, error = await outcome(_agent_run(guard.check, subject, context), guard.timeout)
        verdict: Any = None
        if error is None and result is not None:
            verdict, usage = result.output, result.usage
            if verdict is None:
                error = TypeError("the output of the agent is None")
    else:
        verdict, error = await _result(guard, subject, context)
    if error is not None and ends_run(error):
        raise error
    if isinstance(error, DeadlineError):
        raise GuardError(guard.name, guard.stage, f"took longer than {guard.timeout:g} seconds") from None
    if error is not None:
        raise GuardError(guard.name, guard.stage, f"failed: {describe_error(error)}") from error
    checked = _checked(guard, verdict)
    text = ""
    if isinstance(checked, Ask) and not isinstance(subject, ToolCall):
        text = _text_of(subject)
    return GuardCheck(guard.stage, guard.name, key, checked, usage, text)


async def _result(guard: Guard, subject: Subject, context: ToolContext[Any]) -> tuple[Any, BaseException | None]:
    """Return the result of a function, or its error; a synchronous function runs in a thread."""
    call: Callable[[], Any] = partial(guard.check, subject)
    if guard.takes_context:
        call = partial(guard.check, subject, context)
    if inspect.iscoroutinefunction(guard.check):
        return await outcome(call(), guard.timeout)
    result, error = await run_in_thread(call, guard.timeout)
    if error is None and inspect.isawaitable(result):
        return await outcome(_awaited(result), guard.timeout)
    return result, error


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _agent_run(agent: Any, subject: Subject, context: ToolContext[Any]) -> Coroutine[Any, Any, Any]:
    """Return the run of an agent that checks a subject for the same tenant and user."""
    owner = {}
    if context.user or context.tenant != "local":
        owner = {"tenant": context.tenant, "user": context.user}
    run: Coroutine[Any, Any, Any] = agent.run(_text_of(subject), **owner)
    return run


def _text_of(subject: Subject) -> str:
    if isinstance(subject, ToolCall):
        return f"{subject.name} {subject.arguments}"
    if isinstance(subject, ToolResult):
        return subject.message.text
    return subject


def _is_json(arguments: object) -> bool:
    """True if a value can be the arguments of a call."""
    try:
        json.dumps(arguments, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return isinstance(arguments, dict)


def _checked(guard: Guard, verdict: object) -> Verdict:
    """Return a valid verdict.

    Raises:
        GuardError: The value is no verdict, or its replacement does not fit the stage.
    """
    if verdict is None:
        return PASS
    if isinstance(verdict, Pass):
        return verdict
    # The journal contains the reason: it must be readable again.
    if isinstance(verdict, Ask | Stop) and isinstance(verdict.reason, str):
        return verdict
    if isinstance(verdict, Replace):
        is_text = isinstance(verdict.value, str)
        is_valid = is_text or (guard.stage == "tool_call" and _is_json(verdict.value))
        if is_valid and not guard.parallel:
            return verdict
    expected = f"{_EXPECTED[guard.stage]}, Ask(reason)"
    if guard.parallel:
        expected = "Ask(reason)"
    problem = f"returned no valid verdict: expected None, {expected} or Stop(reason), got {verdict!r:.80}"
    if isinstance(verdict, Ask | Stop):
        problem += ": the reason must be text"
    if guard.parallel and isinstance(verdict, Replace):
        problem += ": a parallel guard cannot replace the input, because the model call has started"
    raise GuardError(guard.name, guard.stage, problem)
