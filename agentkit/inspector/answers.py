"""Answers to the requests of the page, as JSON."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from agentkit.agent.agent import Agent
from agentkit.errors import AgentError
from agentkit.ground.threads import in_thread
from agentkit.inspector.agent_view import agent_view
from agentkit.inspector.composition_view import composition_view, message_view, messages_view, prompt_views
from agentkit.inspector.diff_view import diff_view, reply_diff
from agentkit.inspector.evaluation_view import evaluation_list, evaluation_view
from agentkit.inspector.journal_view import events_view, reply_view
from agentkit.inspector.page_requests import CompositionRequest, Decide, EventsRequest, RecallNow, Start
from agentkit.inspector.past_contexts import turn_bounds, turn_context
from agentkit.inspector.payload_view import TARGETS, payload_view
from agentkit.inspector.played_prompt import PlayedPrompt, play_models, played_prompt
from agentkit.inspector.recall_view import recall_view
from agentkit.inspector.redacted_layers import redacted_layers, sent_composition
from agentkit.inspector.run_lists import FIRST_LISTED, run_summary
from agentkit.inspector.run_view import run_view
from agentkit.inspector.session_view import MAX_TURNS, first_turn, run_ids_of_turns, session_view, turns_view
from agentkit.inspector.source import InspectorSource, OutlinedRun, empty_journal
from agentkit.models.cache_minimums import cache_minimum
from agentkit.models.model import Model
from agentkit.run.engine.recalled_context import with_recall
from agentkit.run.engine.replay import replayed_contexts
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_outline import JournalOutline
from agentkit.run.parts.decisions import read_decision
from agentkit.run.parts.recaller import RecallResult, recall
from agentkit.run.parts.run_tags import checked_tags
from agentkit.run.parts.session import SessionProtocol
from agentkit.runs.run_record import RunRecord, RunsWanted
from agentkit_prompts.chat_templates.registry import CHAT_TEMPLATES
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.errors import brief
from agentkit_prompts.names import nearest

_MAX_LISTED = 1_000
"""Maximum sessions in the whole list."""
_RUNS_OF_AGENT = 20
"""Maximum runs on the page of an agent."""
_FIRST_LINES = 150
"""Maximum lines of a journal that are read for the first screen of a run."""
_MAX_NAME = 200
"""Maximum characters of a name in an error."""

Json = dict[str, Any]


class Missing(LookupError):
    """An object that does not exist for the caller."""


class ModelCall(NamedTuple):
    """A model call whose prompt the page shows."""

    agent: Agent[Any, Any]
    ctx: PromptContext
    step: int
    """Number of the call in its run or turn, from 1."""
    steps: int
    """Number of model calls of the run or turn."""
    run: RunRecord | None = None
    """The run of the call; None for a call without a stored run."""
    reply: Message | None = None
    """The reply of the model; None before the reply."""
    cached: int = 0
    """Tokens that the provider read from its cache."""
    models: Mapping[str, Model] = {}
    """Models that can replace the model of the agent, by name."""

    def played(self, request: CompositionRequest) -> PlayedPrompt:
        """Return the prompt of the call with the changes of a request."""
        return played_prompt(self.agent, self.ctx, request, self.models)


async def overview(source: InspectorSource, *, is_whole: bool) -> Json:
    """Return the agents with their schemas, and the runs and sessions, newest first.

    Args:
        source: The objects that the caller may read.
        is_whole: True for the whole list of sessions; False for its first entries. The runs are the first part of
            their list, see `list_answer`.
    """
    limit = _MAX_LISTED if is_whole else FIRST_LISTED
    agents, runs, sessions = await asyncio.gather(
        source.agents(), source.runs(RunsWanted(limit=FIRST_LISTED)), source.sessions(limit=limit)
    )
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
        "runs": [run_summary(run) for run in runs.runs],
        "older": runs.older,
        "sessions": list(sessions),
        "evaluations": await in_thread(evaluation_list, await source.evaluations()),
        "names_users": source.names_users,
        "has_more_sessions": not is_whole and len(sessions) >= limit,
        "play": {
            "allowed": source.can_play,
            "models": list(play_models(agents.values())),
            "cases": source.cases_file,
        },
        "targets": list(TARGETS),
        "chat_templates": list(CHAT_TEMPLATES),
    }


async def evaluation_answer(source: InspectorSource, name: str, before: str | None) -> Json:
    """Return an evaluation with its rows, next to the rows of another evaluation if `before` is its name."""
    evaluations = await source.evaluations()
    for wanted in filter(None, (name, before)):
        if wanted not in evaluations:
            raise Missing(f"evaluation: unknown evaluation {wanted[:_MAX_NAME]!r}")
    other = None
    if before:
        other = evaluations[before]
    return await in_thread(evaluation_view, evaluations[name], other)


async def agent_answer(source: InspectorSource, name: str) -> Json:
    """Return an agent with its newest runs and their statistics."""
    agent = await _agent(source, name)
    figures, newest = await asyncio.gather(
        source.figures(name), source.runs(RunsWanted(agent=name, limit=_RUNS_OF_AGENT))
    )
    view = await in_thread(agent_view, agent, figures)
    return {**view, "runs": [run_summary(run) for run in newest.runs]}


async def run_answer(source: InspectorSource, run_id: str, *, is_beginning: bool = False) -> Json:
    """Return a run with its timeline; `is_beginning` is True for the timeline of the first lines of the journal."""
    lines = None
    if is_beginning:
        lines = _FIRST_LINES
    return await in_thread(run_view, *await _outlined(source, run_id, lines))


async def events_answer(source: InspectorSource, request: EventsRequest) -> Json:
    """Return events of the timeline of a run, or of an inner agent, from a number; see `events_view`."""
    outline = (await _outlined(source, request.run)).outline
    for call in request.calls:
        inner = outline.inner.get(call)
        if inner is None:
            raise Missing(f"calls: no agent ran at the call {call[:_MAX_NAME]!r}")
        outline = inner
    return {"events": await in_thread(events_view, outline, request.start)}


async def session_answer(source: InspectorSource, name: str, turn: int | None = None) -> Json:
    """Return a session with the turns around `turn`, or its last turns; a turn of a stored run has the run's id."""
    session, newest = await asyncio.gather(_session(source, name), source.runs(RunsWanted(limit=1, session=name)))
    bounds = turn_bounds(session.conversation)
    first = first_turn(len(bounds) - 1, turn)
    runs = await _runs(source, name, session, bounds[first : first + MAX_TURNS + 1])
    view = await in_thread(session_view, session, runs=runs, turn=turn)
    return {**view, "session": name, "agents": [run.agent for run in newest.runs]}


async def turns_answer(source: InspectorSource, name: str, start: int) -> Json:
    """Return turns of a session from number `start`, at most `MAX_TURNS`."""
    session = await _session(source, name)
    runs = await _runs(source, name, session, turn_bounds(session.conversation)[start : start + MAX_TURNS + 1])
    return {"turns": await in_thread(turns_view, session, start, runs=runs)}


async def compose_answer(source: InspectorSource, request: CompositionRequest) -> Json:
    """Return a composition, its prompts, and the differences to another composition."""
    model_call = await model_call_of(source, request)
    other = None
    if request.against is not None:
        other = await model_call_of(source, CompositionRequest(base=request.against, kwargs=request.kwargs))
    # Before a run, the composition without the changed kwargs may lack required kwargs.
    has_original = request.kwargs is None or request.base.run is not None

    def answer() -> Json:
        model, composition = model_call.played(request)
        diff = run = reply = None
        # The reply answers the sent prompt, not a changed prompt.
        if model_call.reply is not None and not request.is_changed:
            reply = reply_view(model_call.reply)
        if other is not None:
            diff = diff_view(composition, other.agent.chain.compose(other.ctx))
            diff["reply"] = reply_diff(model_call.reply, other.reply)
        elif request.is_changed and has_original:
            diff = diff_view(composition, model_call.agent.chain.compose(model_call.ctx))
        if request.journal and model_call.run is not None:
            run = run_view(model_call.run, JournalOutline.of(_journal(model_call.run)))
        view = composition_view(composition)
        replaced = redacted_layers(model, composition)
        for row in view["layers"]:
            row["redacted"] = replaced.get(row["layer"], [])
        return {
            "view": view,
            "cache": _cache(model),
            "cached": model_call.cached,
            "prompts": prompt_views(composition),
            "diff": diff,
            "step": model_call.step,
            "steps": model_call.steps,
            "input": composition.context.user_input.text,
            "kwargs": dict(composition.context.user_input.additional_kwargs),
            "agent": model_call.agent.name,
            "reply": reply,
            "run": run,
        }

    return await in_thread(answer)


def _cache(model: Model) -> Json | None:
    """Return the provider of a model and the minimum tokens of its prompt cache; None if they are unknown."""
    minimum = cache_minimum(model)
    if minimum is None:
        return None
    return minimum._asdict()


async def message_answer(source: InspectorSource, request: CompositionRequest) -> Json:
    """Return one message of a composition with its whole text."""
    model_call = await model_call_of(source, request)
    return await in_thread(lambda: message_view(model_call.played(request).composition, request.message or 0))


async def messages_answer(source: InspectorSource, request: CompositionRequest) -> Json:
    """Return messages of a composition from a number, at most `MAX_MESSAGES`."""
    model_call = await model_call_of(source, request)
    start = max(0, request.message or 0)
    return await in_thread(lambda: {"messages": messages_view(model_call.played(request).composition, start)})


async def payload_answer(source: InspectorSource, request: CompositionRequest) -> Json:
    """Return the request of a provider, or the text of a local model."""
    model_call = await model_call_of(source, request)

    def answer() -> Json:
        sent, _ = sent_composition(*model_call.played(request))
        return payload_view(sent, request.target or "openai", request.chat_template)

    return await in_thread(answer)


async def why_answer(source: InspectorSource, request: CompositionRequest) -> Json:
    """Return the spans of the prompt that show a part of the context, and the reason if no span shows the part."""
    model_call = await model_call_of(source, request)
    why = await in_thread(lambda: model_call.played(request).composition.why(request.pointer or ""))
    places = [{"message": span.message, "prompt": span.prompt, "line": span.line} for span in why.spans[:100]]
    return {"pointer": why.pointer, "reason": why.reason, "spans": places}


async def recall_answer(source: InspectorSource, request: RecallNow) -> Json:
    """Return the hits of a new search in the memory of an agent."""
    await _agent(source, request.agent)
    memory = await source.memory(request.agent, request.user or None)
    if memory is None:
        raise AgentError(f"agent {request.agent!r} has no memory")
    search: Any = getattr(memory, "recall", None) or memory

    def answer() -> Json:
        # A memory can be a function with the query as its only parameter.
        if "limit" in inspect.signature(search).parameters:
            return recall_view(search(request.query, limit=request.limit))
        return recall_view(search(request.query))

    return await in_thread(answer)


async def start_answer(source: InspectorSource, request: Start) -> Json:
    """Start a run."""
    await _agent(source, request.agent)
    user_input = UserInput(request.input, request.kwargs)
    user, tags = request.user or None, checked_tags(request.tags)
    return {"run": await source.start(request.agent, user_input, request.session, user, tags)}


async def decide_answer(source: InspectorSource, request: Decide) -> Json:
    """Resume a paused run with decisions."""
    await _run(source, request.run)
    await source.decide(
        request.run, {call: read_decision(body.model_dump()) for call, body in request.decisions.items()}
    )
    return {"run": request.run}


def _journal(run: RunRecord) -> Journal:
    if run.journal is None:
        return empty_journal(run)
    return run.journal


async def _run(source: InspectorSource, run_id: str, lines: int | None = None) -> RunRecord:
    run = await source.run(run_id, lines=lines)
    if run is None:
        raise Missing(f"run: unknown run {run_id[:_MAX_NAME]!r}")
    return run


async def _outlined(source: InspectorSource, run_id: str, lines: int | None = None) -> OutlinedRun:
    run = await source.outlined(run_id, lines=lines)
    if run is None:
        raise Missing(f"run: unknown run {run_id[:_MAX_NAME]!r}")
    return run


async def _session(source: InspectorSource, name: str) -> SessionProtocol:
    session = await source.session(name)
    if session is None:
        raise Missing(f"session: unknown session {name[:_MAX_NAME]!r}")
    return session


async def _runs(source: InspectorSource, name: str, session: SessionProtocol, bounds: Sequence[int]) -> dict[int, str]:
    """Return the ids of stored runs by the index of the first message of their turn; see `run_ids_of_turns`."""
    run_ids = await in_thread(run_ids_of_turns, session, bounds)
    ids = set(run_ids.values())
    if not ids:
        return {}
    # The messages of a session name also runs that were deleted.
    listed = await source.runs(RunsWanted(limit=len(ids), session=name, ids=ids))
    stored = {run.run_id for run in listed.runs}
    return {at: run_id for at, run_id in run_ids.items() if run_id in stored}


async def _agent(source: InspectorSource, name: str | None) -> Agent[Any, Any]:
    agents: Mapping[str, Agent[Any, Any]] = await source.agents()
    if name is None and len(agents) == 1:
        return next(iter(agents.values()))
    if name is None or name not in agents:
        raise Missing(f"agent: unknown agent {brief(name, _MAX_NAME)}{nearest(str(name)[:_MAX_NAME], agents)}")
    return agents[name]


async def model_call_of(source: InspectorSource, request: CompositionRequest) -> ModelCall:
    """Return the requested model call, with the models that the request can name."""
    model_call = await _unchanged_call(source, request)
    if request.model is None:
        return model_call
    return model_call._replace(models=play_models((await source.agents()).values()))


async def _unchanged_call(source: InspectorSource, request: CompositionRequest) -> ModelCall:
    base = request.base
    if base.run is not None:
        return await _call_of_run(source, base.run, base.step, is_beginning=request.is_beginning)
    if base.session is not None and base.turn is not None:
        return await _call_of_turn(source, base.session, base.turn, request)
    agent = await _agent(source, base.agent)
    session = memory = None
    if base.session is not None:
        session = await _session(source, base.session)
    ctx = await in_thread(agent.context, UserInput(request.input or "", request.kwargs or {}), session)
    if request.recall:
        memory = await source.memory(agent.name, request.user or None)
    if memory is not None and ctx.user_input.text:
        result: RecallResult = await in_thread(recall, memory, ctx.user_input.text, session)
        ctx = with_recall(ctx, result)
    return ModelCall(agent, ctx, 1, 1)


async def _call_of_run(
    source: InspectorSource, run_id: str, step: int | None, *, is_beginning: bool = False
) -> ModelCall:
    lines = None
    if is_beginning:
        lines = _FIRST_LINES
    run = await _run(source, run_id, lines)
    agent = await _agent(source, run.agent)
    session = None
    if run.session is not None:
        session = await source.session(run.session)
    contexts = await in_thread(replayed_contexts, agent.definition, _journal(run), session)
    replies = [entry.answer for entry in _journal(run).entries if entry.effect == "CallModel"]
    if is_beginning:
        # The lines that are not read can contain messages for the prompt of a call without a reply.
        contexts = contexts[: max(1, len(replies))]
        step = min(step or len(contexts), len(contexts))
    if step is None:
        step = len(contexts)
    if not 1 <= step <= len(contexts):
        raise Missing(f"step: unknown step {brief(step)}; the run has {len(contexts)} model calls, from 1")
    model_call = ModelCall(agent, contexts[step - 1], step, len(contexts), run)
    # A failed or paused run has a context for the next call, which has no reply.
    if step > len(replies):
        return model_call
    reply = replies[step - 1]
    return model_call._replace(reply=reply.message, cached=reply.usage.cached_tokens)


async def _call_of_turn(
    source: InspectorSource, name: str, turn: int | Literal["last"], request: CompositionRequest
) -> ModelCall:
    """Return a model call of a turn, from its stored run; without a stored run, as an agent would compose it now."""
    base = request.base
    agent_name = base.agent
    session = await _session(source, name)
    bounds = turn_bounds(session.conversation)
    # The last entry of `bounds` is the number of messages: the entry before it is the start of the last turn.
    if turn == "last":
        turn = len(bounds) - 2
    if agent_name is None:
        runs = await _runs(source, name, session, bounds[turn : turn + 2] if turn >= 0 else ())
        if runs and (run_id := runs.get(bounds[turn])) is not None:
            return await _call_of_run(source, run_id, base.step)
        agents, newest = await asyncio.gather(
            source.agents(), source.runs(RunsWanted(limit=FIRST_LISTED, session=name))
        )
        agent_name = next((run.agent for run in newest.runs if run.agent in agents), next(iter(agents), None))
    agent = await _agent(source, agent_name)
    call = await in_thread(turn_context, agent, session, turn, request.kwargs, base.step)
    return ModelCall(agent, call.ctx, base.step or call.steps, call.steps, reply=call.reply)
