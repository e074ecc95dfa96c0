"""What durable runs cost: tokens and money from their journals, by run, agent, tenant, session, tool or layer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from agentkit.durable.stored.durable_store import DurableStore
from agentkit.errors import JournalError
from agentkit.models.model import NO_USAGE, Usage
from agentkit.run.journal.journal import Journal
from agentkit.runs.run_errors import DurableError, RunNotFound
from agentkit.runs.run_record import RunRecord, RunsWanted

__all__ = ["CostBy", "RunCost", "run_costs"]

CostBy: TypeAlias = Literal["run", "agent", "tenant", "session", "tool", "layer"]
_PAGE = 200
_log = logging.getLogger("agentkit")


@dataclass(slots=True)
class RunCost:
    """What the runs of a tenant cost, or those of an agent, one run, the calls of a tool, or a layer of prompts."""

    name: str
    runs: int = 0
    """Runs; where it is a tool, its calls, and where it is a layer, the model calls that it was sent with."""
    usage: Usage = NO_USAGE
    """Tokens, and US dollars where prices were known. Of a tool: what agents used that it runs. Of a layer: its part
    of the tokens of prompts and of their price; what was written is the layer `reply`. Layers add up to the whole."""


def run_costs(store: DurableStore, by: CostBy, tenant: str | None = None) -> list[RunCost]:
    """Return what the runs in a database cost, the most expensive first; only those of a tenant where it is given.

    A run whose journal cannot be read is left out, and logged.

    Raises:
        DurableError: There is no such way to count.
    """
    if by not in get_args(CostBy):
        raise DurableError(
            f"by={by!r:.40}: expected one of {', '.join(map(repr, get_args(CostBy)))}", name="by", value=str(by)
        )
    found: dict[str, RunCost] = {}
    for info in _infos(store, tenant):
        try:
            journal = store.journal(info.run_id)
        except (JournalError, RunNotFound):
            _log.warning("run %s is not counted: its journal cannot be read, or it was deleted meanwhile", info.run_id)
            continue
        for name, usage in _parts(journal, info, by):
            cost = found.setdefault(name, RunCost(name))
            cost.runs += 1
            cost.usage += usage
    return sorted(found.values(), key=lambda one: (-(one.usage.money or 0), -one.usage.input_tokens, one.name))


def _infos(store: DurableStore, tenant: str | None) -> Iterator[RunRecord]:
    at = 0
    while True:
        page = store.rows.page(RunsWanted(tenant=tenant, limit=_PAGE, offset=at))
        yield from page
        at += _PAGE
        if len(page) < _PAGE:
            return


def _parts(journal: Journal, info: RunRecord, by: CostBy) -> Iterator[tuple[str, Usage]]:
    if by == "tool":
        for effect, answer, *_ in journal.entries:
            if effect == "CallTools":
                yield answer[0].name, answer[1] or NO_USAGE
        return
    if by == "layer":
        yield from _layers(journal)
        return
    names = {"run": info.run_id, "agent": info.agent, "tenant": info.tenant, "session": info.session or ""}
    yield names[by], journal.usage


def _layers(journal: Journal) -> Iterator[tuple[str, Usage]]:
    """Yield what each layer took of each model call, those of agents inside included: `agent/layer`.

    What is known as a whole only is `agent/tool`, of a tool whose code runs agents, and `agent/compaction`.
    """
    for entry in journal.entries:
        known, usage = "", NO_USAGE
        if entry.effect == "CallTools" and entry.answer[0].call_id not in journal.inner:
            known, usage = entry.answer[0].name, entry.answer[1] or NO_USAGE
        elif entry.effect == "Compact":
            known, usage = "compaction", entry.answer.usage
        if usage != NO_USAGE:
            yield f"{journal.agent}/{known}", usage
        if entry.effect != "CallModel":
            continue
        usage, sent = entry.answer.usage, entry.layers
        if sent is None:  # of a release before layers were noted
            yield f"{journal.agent}/unknown", usage
            continue
        whole, before, count = sum(sent.tokens.values()) or 1, 0, 0
        for layer, tokens in sent.tokens.items():
            count += tokens
            until = round((usage.input_tokens or whole) * count / whole)  # so that the parts add up to the whole
            money = None if sent.money is None else sent.money * tokens / whole
            yield f"{journal.agent}/{layer}", Usage(until - before, money=money)
            before = until
        rest = None if usage.money is None or sent.money is None else usage.money - sent.money
        yield f"{journal.agent}/reply", Usage(0, usage.output_tokens, money=rest)
    for inner in journal.inner.values():
        yield from _layers(inner)
