"""What the page asks for, and the answers: plain JSON about the objects of one source."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from agentkit.agent.agent import Agent
from agentkit.errors import AgentError
from agentkit.ground.threads import in_thread
from agentkit.inspector.composition_view import composition_view, message_view, messages_view, prompt_views
from agentkit.inspector.diff_view import diff_view
from agentkit.inspector.edits import edited_layers
from agentkit.inspector.journal_view import journal_view
from agentkit.inspector.past_contexts import turn_bounds, turn_context
from agentkit.inspector.payload_view import TARGETS, payload_view
from agentkit.inspector.recall_view import recall_view
from agentkit.inspector.session_view import MAX_TURNS, first_turn, runs_begun, session_view, turns_view
from agentkit.inspector.source import InspectorSource, unbegun_journal
from agentkit.models.abilities import fitted, text_tokens_of
from agentkit.run.engine.loop import remembering
from agentkit.run.engine.replay import replayed_contexts
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.decisions import read_decision
from agentkit.run.parts.recaller import Found, recall
from agentkit.run.parts.session import SessionProtocol
from agentkit.runs.run_record import RunRecord
from agentkit_prompts.chat_templates.registry import CHAT_TEMPLATES
from agentkit_prompts.composition.compose import compose
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.errors import brief
from agentkit_prompts.names import nearest
from agentkit_prompts.tokens.budget import Budget

__all__ = [
    "Asked",
    "Decide",
    "Missing",
    "RecallNow",
    "Start",
    "compose_answer",
    "decide_answer",
    "message_answer",
    "messages_answer",
    "overview",
    "payload_answer",
    "recall_answer",
    "run_answer",
    "session_answer",
    "start_answer",
    "turns_answer",
    "why_answer",
]

_MAX_LISTED = 1_000
_FIRST_LISTED = 50
"""Of them, those that the page is given at first."""
_MAX_NAME = 200
_MAX_INPUT = 160
"""Characters of an input that are shown in a list."""

Json = dict[str, Any]
Name = Annotated[str, Field(max_length=4_000)]


class Missing(LookupError):
    """Something that the caller does not have."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Base(_Body):
    """Which model call is meant: one of a run, one of a turn of a session, or one that nobody made yet."""

    run: Name | None = None
    session: Name | None = None
    turn: int | Literal["last"] | None = None
    agent: Name | None = None
    """Which agent composes. Without one, a turn is that of its run; where it has none, the latest agent composes."""
    step: int | None = None
    """Which model call, from 1; the last one when not given."""


class Asked(_Body):
    """A composition that is asked for: an earlier one, or that with changes."""

    base: Base
    input: str | None = None
    """Another input."""
    kwargs: dict[str, Any] | None = None
    """Other additional kwargs."""
    layers: dict[str, str] = {}
    """Other templates, by the path of the prompt."""
    budget: StrictInt | Literal["keep"] | None = "keep"
    """Another budget; None for no budget, "keep" for that of the agent."""
    recall: bool = False
    """Whether memory is asked, where there is no run that did."""
    against: Base | None = None
    """What it is compared with; without this, what is changed is compared with what it was."""
    message: int | None = None
    target: str | None = None
    chat_template: str | None = None
    pointer: str | None = None
    journal: bool = False
    """Whether the run is returned, too."""


class Start(_Body):
    """A run to begin."""

    agent: Name
    input: str
    kwargs: dict[str, Any] = {}
    session: Name | None = None


class Decided(_Body):
    """A decision about a call."""

    approve: bool
    reason: str = ""
    arguments: dict[str, Any] | None = None


class Decide(_Body):
    """Decisions about the calls that a run waits with, by their ids."""

    run: Name
    decisions: dict[str, Decided]


class RecallNow(_Body):
    """A question for the memory of an agent."""

    agent: Name
    query: str
    limit: Annotated[int, Field(ge=1, le=100)] = 10


class _Located(NamedTuple):
    agent: Agent[Any, Any]
    ctx: PromptContext
    step: int
    steps: int
    run: RunRecord | None = None


async def overview(source: InspectorSource, *, is_whole: bool) -> Json:
    """Return what there is: agents with what they ask for, runs and sessions, newest first.

    Args:
        source: What the caller may see.
        is_whole: Whether all that is listed is asked for; otherwise the first of it, and in `more` the names of the
            lists that may go on.
    """
    most = _MAX_LISTED if is_whole else _FIRST_LISTED
    agents, runs, sessions = await asyncio.gather(source.agents(), source.runs(limit=most), source.sessions(limit=most))
    return {
        "agents": [
            {
                "name": name,
                "model": agent.chain.model.name,
                "tools": [spec.name for spec in agent.specs],
                "memory": agent.memory is not None,
                "schema": agent.additional_kwargs_schema,
            }
            for name, agent in agents.items()
        ],
        "more": []
        if is_whole
        else [name for name, one in (("runs", runs), ("sessions", sessions)) if len(one) >= most],
        "runs": [_summary(one) for one in runs],
        "sessions": list(sessions),
        "targets": list(TARGETS),
        "chat_templates": list(CHAT_TEMPLATES),
    }


async def run_answer(source: InspectorSource, run_id: str) -> Json:
    """Return a run with its timeline."""
    found = await _run(source, run_id)
    return await in_thread(_run_view, found)


def _run_view(run: RunRecord) -> Json:
    waiting = [{"id": one.call_id, "name": one.tool, "arguments": one.arguments} for one in run.waiting]
    error = "" if run.error is None else str(run.error)
    return {**_summary(run), "error": error, "waiting": waiting, "journal": journal_view(_journal(run))}


async def session_answer(source: InspectorSource, name: str, turn: int | None = None) -> Json:
    """Return a session with the turns around one, or its last ones, those of known runs with the id of the run."""
    session, newest = await asyncio.gather(_session(source, name), source.runs(limit=1, session=name))
    bounds = turn_bounds(session.conversation)
    first = first_turn(len(bounds) - 1, turn)
    runs = await _runs(source, name, session, bounds[first : first + MAX_TURNS + 1])
    view = await in_thread(session_view, session, runs=runs, turn=turn)
    return {**view, "session": name, "agents": [one.agent for one in newest]}


async def turns_answer(source: InspectorSource, name: str, start: int) -> Json:
    """Return the turns of a session from one on, as many as are shown at once."""
    session = await _session(source, name)
    runs = await _runs(source, name, session, turn_bounds(session.conversation)[start : start + MAX_TURNS + 1])
    return {"turns": await in_thread(turns_view, session, start, runs=runs)}


async def compose_answer(source: InspectorSource, asked: Asked) -> Json:
    """Return a composition, the prompts it was made of, and what is different from another one."""
    located = await _located(source, asked)
    other = None if asked.against is None else await _located(source, Asked(base=asked.against, kwargs=asked.kwargs))
    is_changed = asked.layers or asked.budget != "keep" or asked.input is not None or asked.kwargs is not None

    def made() -> Json:
        composition = _composition(located, asked)
        diff = None
        if other is not None:
            diff = diff_view(composition, other.agent.chain.compose(other.ctx))
        elif is_changed and not (asked.kwargs is not None and asked.base.run is None):
            diff = diff_view(composition, located.agent.chain.compose(located.ctx))
        return {
            "view": composition_view(composition),
            "prompts": prompt_views(composition),
            "diff": diff,
            "step": located.step,
            "steps": located.steps,
            "input": composition.context.user_input.text,
            "kwargs": dict(composition.context.user_input.additional_kwargs),
            "agent": located.agent.name,
            "run": _run_view(located.run) if asked.journal and located.run is not None else None,
        }

    return await in_thread(made)


async def message_answer(source: InspectorSource, asked: Asked) -> Json:
    """Return one message of a composition, whole."""
    located = await _located(source, asked)
    return await in_thread(lambda: message_view(_composition(located, asked), asked.message or 0))


async def messages_answer(source: InspectorSource, asked: Asked) -> Json:
    """Return the messages of a composition from one on, as many as are shown at once."""
    located = await _located(source, asked)
    start = max(0, asked.message or 0)
    return await in_thread(lambda: {"messages": messages_view(_composition(located, asked), start)})


async def payload_answer(source: InspectorSource, asked: Asked) -> Json:
    """Return what a provider or a local model gets."""
    located = await _located(source, asked)
    return await in_thread(
        lambda: payload_view(_composition(located, asked), asked.target or "openai", asked.chat_template)
    )


async def why_answer(source: InspectorSource, asked: Asked) -> Json:
    """Return where a part of the context ended up, and why."""
    located = await _located(source, asked)
    found = await in_thread(lambda: _composition(located, asked).why(asked.pointer or ""))
    places = [{"message": span.message, "prompt": span.prompt, "line": span.line} for span in found.spans[:100]]
    return {"pointer": found.pointer, "reason": found.reason, "spans": places}


async def recall_answer(source: InspectorSource, asked: RecallNow) -> Json:
    """Return what the memory of an agent finds now."""
    await _agent(source, asked.agent)
    memory = await source.memory(asked.agent)
    if memory is None:
        raise AgentError(f"agent {asked.agent!r} has no memory to ask")
    ask: Any = getattr(memory, "recall", None) or memory

    def answer() -> Json:
        takes_limit = "limit" in inspect.signature(ask).parameters
        return recall_view(ask(asked.query, limit=asked.limit) if takes_limit else ask(asked.query))

    return await in_thread(answer)


async def start_answer(source: InspectorSource, asked: Start) -> Json:
    """Begin a run."""
    await _agent(source, asked.agent)
    return {"run": await source.start(asked.agent, UserInput(asked.input, asked.kwargs), asked.session)}


async def decide_answer(source: InspectorSource, asked: Decide) -> Json:
    """Go on with a run that waits."""
    await _run(source, asked.run)
    await source.decide(asked.run, {call: read_decision(one.model_dump()) for call, one in asked.decisions.items()})
    return {"run": asked.run}


def _summary(run: RunRecord) -> Json:
    """Return a run as the page lists it; one that waits for room is shown as one that is executed."""
    return {
        "id": run.run_id,
        "agent": run.agent,
        "session": run.session,
        "status": "running" if run.state == "queued" else run.state,
        "input": "" if run.input is None else run.input.text[:_MAX_INPUT],
        "started_at": run.created_at or None,
    }


def _journal(run: RunRecord) -> Journal:
    return unbegun_journal(run) if run.journal is None else run.journal


async def _run(source: InspectorSource, run_id: str) -> RunRecord:
    found = await source.run(run_id)
    if found is None:
        raise Missing(f"run: unknown run {run_id[:_MAX_NAME]!r}")
    return found


async def _session(source: InspectorSource, name: str) -> SessionProtocol:
    session = await source.session(name)
    if session is None:
        raise Missing(f"session: there is no session {name[:_MAX_NAME]!r}")
    return session


async def _runs(source: InspectorSource, name: str, session: SessionProtocol, bounds: Sequence[int]) -> dict[int, str]:
    """Return the ids of the runs that turns are of, of those that are known: see `runs_begun`."""
    begun = await in_thread(runs_begun, session, bounds)
    ids = set(begun.values())
    known = {one.run_id for one in await source.runs(limit=len(ids), session=name, ids=ids)} if ids else set()
    return {at: run_id for at, run_id in begun.items() if run_id in known}


async def _agent(source: InspectorSource, name: str | None) -> Agent[Any, Any]:
    agents: Mapping[str, Agent[Any, Any]] = await source.agents()
    if name is None and len(agents) == 1:
        return next(iter(agents.values()))
    if name is None or name not in agents:
        raise Missing(f"agent: there is no agent {brief(name, _MAX_NAME)}{nearest(str(name)[:_MAX_NAME], agents)}")
    return agents[name]


async def _located(source: InspectorSource, asked: Asked) -> _Located:
    """Return the context of the model call that is meant."""
    base = asked.base
    if base.run is not None:
        return await _of_run(source, base.run, base.step)
    if base.session is not None and base.turn is not None:
        return await _of_turn(source, base.session, base.turn, asked)
    agent = await _agent(source, base.agent)
    session = None if base.session is None else await _session(source, base.session)
    given = UserInput(asked.input or "", asked.kwargs or {})
    ctx = await in_thread(agent.context, given, session)
    memory = await source.memory(agent.name) if asked.recall else None
    if memory is not None and ctx.user_input.text:
        found_now: Found = await in_thread(recall, memory, ctx.user_input.text, session)
        ctx = remembering(ctx, found_now)
    return _Located(agent, ctx, 1, 1)


async def _of_run(source: InspectorSource, run_id: str, asked_step: int | None) -> _Located:
    found = await _run(source, run_id)
    agent = await _agent(source, found.agent)
    name = found.session
    session = None if name is None else await source.session(name)
    contexts = await in_thread(replayed_contexts, agent.definition, _journal(found), session)
    step = len(contexts) if asked_step is None else asked_step
    if not 1 <= step <= len(contexts):
        raise Missing(f"step: the run has {len(contexts)} model calls, from 1; there is no {brief(asked_step)}")
    return _Located(agent, contexts[step - 1], step, len(contexts), found)


async def _of_turn(source: InspectorSource, name: str, asked_turn: int | Literal["last"], asked: Asked) -> _Located:
    """Return the model call of a turn: that of its run, or without one that which an agent would make now."""
    base = asked.base
    chosen = base.agent
    session = await _session(source, name)
    bounds = turn_bounds(session.conversation)
    turn = len(bounds) - 2 if asked_turn == "last" else asked_turn
    if chosen is None:
        runs = await _runs(source, name, session, bounds[turn : turn + 2] if turn >= 0 else ())
        if runs and (run_id := runs.get(bounds[turn])) is not None:
            return await _of_run(source, run_id, base.step)
        agents, newest = await asyncio.gather(source.agents(), source.runs(limit=_FIRST_LISTED, session=name))
        chosen = next((run.agent for run in newest if run.agent in agents), next(iter(agents), None))
    agent = await _agent(source, chosen)
    ctx, steps = await in_thread(turn_context, agent, session, turn, asked.kwargs, base.step)
    return _Located(agent, ctx, base.step or steps, steps)


def _composition(located: _Located, asked: Asked) -> Composition:
    """Return the composition with the changes that are asked for."""
    agent, ctx = located.agent, located.ctx
    if asked.input is not None or asked.kwargs is not None:
        known = ctx.user_input
        kwargs = known.additional_kwargs if asked.kwargs is None else asked.kwargs
        ctx = ctx.evolve(user_input=UserInput(known.input if asked.input is None else asked.input, kwargs))
    chain = agent.chain
    if not asked.layers and asked.budget == "keep":
        return chain.compose(ctx)
    budget = chain.budget
    if asked.budget != "keep":
        budget = None if asked.budget is None else Budget(asked.budget)
    layers = edited_layers(chain.sent_layers, asked.layers)
    made = compose(
        layers,
        ctx,
        budget=budget,
        counter=chain.counter,
        output_schema=chain.answer.request,
        text_tokens=text_tokens_of(chain.model),
    )
    return fitted(chain.model, made if chain.redact is None else chain.redact(made))
