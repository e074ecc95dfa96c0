"""A run as spans, as plain data: from its journal, whoever ran it and wherever it is read.

The names of spans and attributes are those of the OpenTelemetry GenAI semantic conventions 0.1.0
(https://github.com/open-telemetry/semantic-conventions-genai); what they have no name for begins with `agentkit.`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypedDict

from agentkit.models.model import NO_USAGE, Reply, Usage
from agentkit.models.prices import Price
from agentkit.run.parts.recaller import Found
from agentkit_prompts.composition.composition import Composition
from agentkit_tools.calling.tool_result import ToolResult

__all__ = [
    "SentLayers",
    "TraceSpan",
    "layer_attributes",
    "recall_attributes",
    "reply_attributes",
    "run_attributes",
    "tool_attributes",
    "trace",
    "usage_attributes",
]

Attributes = dict[str, Any]


class TraceSpan(TypedDict):
    """One operation of a run, and those inside it."""

    name: str
    """Such as `invoke_agent shop`, `chat gpt-5`, `execute_tool look` or `search_memory`."""
    start: float | None
    """Seconds since 1970: when the operation before it was answered, which is when it could begin. A run that was cut
    short and resumed has the time between in the operation that was done again. None where it is not known."""
    end: float | None
    """Seconds since 1970; None where it has not ended, or is not known."""
    attributes: Attributes
    """Texts, numbers, booleans and lists of texts: no content of messages, tool calls or memory."""
    spans: list[TraceSpan]
    """The operations inside it, in order."""


class SentLayers(NamedTuple):
    """What the layers of a composition took."""

    tokens: Mapping[str, int]
    """Tokens by the path of the layer, such as `system[0]` or `conversation`; see `Composition.explain`."""
    trimmed: Sequence[str] = ()
    """The layers that the budget trimmed or dropped."""
    money: float | None = None
    """US dollars of the prompt, as part of what the reply cost; None where the price is not known."""

    @classmethod
    def of(cls, composition: Composition, usage: Usage = NO_USAGE, price: Price | None = None) -> Self:
        """Return those of a composition, of a model that has a price."""
        rows = composition.explain()
        tokens: dict[str, int] = {}
        for row in rows:
            tokens[row.layer] = tokens.get(row.layer, 0) + row.tokens
        trimmed = [row.layer for row in rows if row.status != "kept"]
        if price is None or usage.money is None:
            return cls(tokens, trimmed)
        prompt = Usage(usage.input_tokens, 0, usage.cached_tokens)
        return cls(tokens, trimmed, min(price.of(prompt), usage.money))  # another model may have answered

    @classmethod
    def of_data(cls, data: Any) -> Self:
        """Read what a journal holds of them.

        Raises:
            TypeError: It is something else.
        """
        try:
            tokens, trimmed, money = data["tokens"], data["trimmed"], data["money"]
            if all(type(count) is int for count in tokens.values()) and all(isinstance(one, str) for one in trimmed):
                return cls(tokens, trimmed, money)
        except (KeyError, TypeError, AttributeError):
            pass
        raise TypeError("layers: expected an object with `tokens` by layer, a list `trimmed`, and `money`")


class _Entry(Protocol):
    @property
    def effect(self) -> str: ...
    @property
    def answer(self) -> Any: ...
    @property
    def at(self) -> float | None: ...
    @property
    def layers(self) -> SentLayers | None: ...


class _Journal(Protocol):
    """What is needed of a journal."""

    agent: str
    run_id: str
    session: str | None

    @property
    def entries(self) -> Sequence[_Entry]: ...
    @property
    def inner(self) -> Mapping[str, _Journal]: ...
    @property
    def usage(self) -> Usage: ...


def trace(journal: _Journal) -> TraceSpan:
    """Return the run of a journal as spans: the run, and in it its model calls, tool calls and recalls."""
    spans: list[TraceSpan] = []
    before: float | None = None
    tools_began: float | None = None
    for entry in journal.entries:
        began = before
        if entry.effect == "CallTools":
            tools_began = before if tools_began is None else tools_began
            began = tools_began  # the calls of one reply begin together
        else:
            tools_began = None
        spans += _spans(journal, entry, began)
        before = entry.at if entry.at is not None else before
    ended = {entry.answer[0].call_id for entry in journal.entries if entry.effect == "CallTools"}
    spans += [trace(inner) for call, inner in journal.inner.items() if call not in ended]
    times = [entry.at for entry in journal.entries if entry.at is not None]
    attributes = run_attributes(journal.agent, journal.run_id, journal.session) | usage_attributes(journal.usage)
    start = times[0] if times else None
    return TraceSpan(name=f"invoke_agent {journal.agent}", start=start, end=before, attributes=attributes, spans=spans)


def _spans(journal: _Journal, entry: _Entry, began: float | None) -> list[TraceSpan]:
    """Return the span of an entry, where it has one."""
    inside: list[TraceSpan] = []
    if entry.effect == "CallModel":
        name, attributes = f"chat {entry.answer.model}".rstrip(), reply_attributes(entry.answer)
        if entry.layers is not None:
            attributes |= layer_attributes(entry.layers, entry.answer.usage)
    elif entry.effect == "CallTools":
        result = entry.answer[0]
        name, attributes = f"execute_tool {result.name}", tool_attributes(result)
        if (inner := journal.inner.get(result.call_id)) is not None:
            inside.append(trace(inner))
    elif entry.effect == "Recall":
        name, attributes = "search_memory", recall_attributes(entry.answer)
    else:
        return []
    return [TraceSpan(name=name, start=began, end=entry.at, attributes=attributes, spans=inside)]


def run_attributes(agent: str, run_id: str, session: str | None) -> Attributes:
    """Return what is known of a run when it begins."""
    found = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent, "agentkit.run.id": run_id}
    return found if session is None else {**found, "gen_ai.conversation.id": session}


def usage_attributes(usage: Usage) -> Attributes:
    """Return tokens and money."""
    found: Attributes = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    if usage.cached_tokens:
        found["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    if usage.money is not None:
        found["agentkit.usage.money"] = usage.money
    return found


def reply_attributes(reply: Reply) -> Attributes:
    """Return what is known of a model call by its reply."""
    found: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.finish_reasons": [str(reply.finish_reason)],
        **usage_attributes(reply.usage),
    }
    return {**found, "gen_ai.response.model": reply.model} if reply.model else found


def layer_attributes(layers: SentLayers, usage: Usage) -> Attributes:
    """Return what the layers of a prompt took, and which part of the prompt came from the provider's cache."""
    found: Attributes = {f"agentkit.layer.{name}.tokens": count for name, count in layers.tokens.items()}
    found["agentkit.prompt.tokens"] = sum(layers.tokens.values())
    if layers.trimmed:
        found["agentkit.prompt.trimmed"] = [*layers.trimmed]
    if usage.input_tokens:
        found["agentkit.prompt.cached_share"] = round(usage.cached_tokens / usage.input_tokens, 4)
    return found


def tool_attributes(result: ToolResult) -> Attributes:
    """Return what is known of a tool call by its result."""
    found = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": result.name,
        "gen_ai.tool.call.id": result.call_id,
        "gen_ai.tool.type": "function",
        "agentkit.tool.status": result.status,
    }
    if result.ok:
        return found
    return {**found, "error.type": result.status if result.error is None else type(result.error).__name__}


def recall_attributes(found: Found) -> Attributes:
    """Return how much was recalled from memory."""
    attributes: Attributes = {
        "gen_ai.operation.name": "search_memory",
        "gen_ai.memory.record.count": len(found.documents) + len(found.knowledge) + len(found.recalled),
    }
    return {**attributes, "agentkit.memory.degraded": len(found.degraded)} if found.degraded else attributes
