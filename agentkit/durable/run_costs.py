"""Costs of durable runs: tokens and money of their journals, by run, agent, tenant, session, tool or layer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from agentkit.durable.stored.durable_store import DurableStore
from agentkit.errors import JournalError
from agentkit.models.model import NO_USAGE, Usage
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.sent_layers import SentLayers
from agentkit.runs.run_errors import DurableError, RunNotFound
from agentkit.runs.run_record import RunRecord, RunsWanted

CostBy: TypeAlias = Literal["run", "agent", "tenant", "session", "tool", "layer"]
_PAGE = 200
_log = logging.getLogger("agentkit")


@dataclass(slots=True)
class RunCost:
    """Cost of a run, an agent, a tenant, a session, a tool or a layer."""

    name: str
    runs: int = 0
    """Number of runs. For a tool: number of its calls. For a layer: number of model calls with this layer."""
    usage: Usage = NO_USAGE
    """Tokens, and US dollars if prices are known. For a tool: usage of the agents that it runs. For a layer: its share
    of the usage of prompts; the layer `reply` has the usage of replies, so that all layers add up to the total."""


def run_costs(store: DurableStore, by: CostBy, tenant: str | None = None) -> list[RunCost]:
    """Return the costs of the runs of all tenants or one, most expensive first.

    A run whose journal cannot be read is omitted, and logged.

    Raises:
        DurableError: `by` is invalid.
    """
    if by not in get_args(CostBy):
        raise DurableError(
            f"by={by!r:.40}: expected one of {', '.join(map(repr, get_args(CostBy)))}", name="by", value=str(by)
        )
    costs: dict[str, RunCost] = {}
    for record in _records(store, tenant):
        try:
            journal = store.journal(record.run_id)
        except (JournalError, RunNotFound):
            _log.warning(
                "run %s is not counted: its journal cannot be read, or it was deleted meanwhile", record.run_id
            )
            continue
        for name, usage in _usages(journal, record, by):
            cost = costs.setdefault(name, RunCost(name))
            cost.runs += 1
            cost.usage += usage
    return sorted(costs.values(), key=lambda cost: (-(cost.usage.money or 0), -cost.usage.input_tokens, cost.name))


def _records(store: DurableStore, tenant: str | None) -> Iterator[RunRecord]:
    at = 0
    while True:
        page = store.rows.page(RunsWanted(tenant=tenant, limit=_PAGE, offset=at))
        yield from page
        at += _PAGE
        if len(page) < _PAGE:
            return


def _usages(journal: Journal, record: RunRecord, by: CostBy) -> Iterator[tuple[str, Usage]]:
    if by == "tool":
        for step in journal.steps():
            if step.kind == "tool" and step.has_result:
                yield step.answer[0].name, step.usage or NO_USAGE
        return
    if by == "layer":
        yield from _layer_usages(journal)
        return
    names = {"run": record.run_id, "agent": record.agent, "tenant": record.tenant, "session": record.session or ""}
    yield names[by], journal.usage


def _layer_usages(journal: Journal) -> Iterator[tuple[str, Usage]]:
    """Yield the usage of each layer in each model call, also of inner agents, by a name such as `agent/layer`.

    Usage that cannot be split has the name `agent/tool` (a tool whose code runs agents) or `agent/compaction`.
    """
    for step in journal.steps():
        usage = step.usage or NO_USAGE
        if step.inner is not None:
            yield from _layer_usages(step.inner)
        elif step.kind == "model":
            for layer, share in _shares_of_call(usage, step.layers):
                yield f"{journal.agent}/{layer}", share
        elif usage != NO_USAGE:
            name = "compaction"
            if step.call is not None:
                name = step.call.name
            yield f"{journal.agent}/{name}", usage


def _shares_of_call(usage: Usage, sent: SentLayers | None) -> Iterator[tuple[str, Usage]]:
    """Yield the share of each layer in the usage of a model call, and the usage of the reply."""
    if sent is None:  # the journal has no layers
        yield "unknown", usage
        return
    whole, before, count = sum(sent.tokens.values()) or 1, 0, 0
    for layer, tokens in sent.tokens.items():
        count += tokens
        # The rounded end of each layer, so that the shares add up to the whole.
        until = round((usage.input_tokens or whole) * count / whole)
        money = None
        if sent.money is not None:
            money = sent.money * tokens / whole
        yield layer, Usage(until - before, money=money)
        before = until
    rest = None
    if usage.money is not None and sent.money is not None:
        rest = usage.money - sent.money
    yield "reply", Usage(0, usage.output_tokens, money=rest)
