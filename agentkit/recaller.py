"""What an agent asks of a memory: documents and facts for the user's text, without what the prompt shows anyway."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from agentkit.errors import AgentDefinitionError, AgentError, ScopeMismatch
from agentkit.session import Session
from agentkit_prompts.context.prompt_context import Document, Fact
from agentkit_prompts.tree.layers import Layers

__all__ = ["Found", "RecallOptions", "RecallSource", "Recaller", "check_memory", "in_scope", "recall"]


class Recaller(Protocol):
    """Finds chunks for a query. Called in a thread. A function that takes a query and returns documents is one too.

    One whose `recall` takes `session`, `visible`, `limit` or `policy` too is given these: the session of the run, how
    many of its latest messages the prompt shows (None: all), which need not be recalled, and the `RecallOptions` of the
    agent. What it returns may have facts in `knowledge`, and in `degraded` what did not work.
    """

    def recall(self, query: str) -> Sequence[Document]:
        """Return chunks, best first, with ids and scores."""
        ...


RecallSource: TypeAlias = Recaller | Callable[[str], Sequence[Document]]
"""What an agent takes as its memory."""


@dataclass(frozen=True, slots=True)
class RecallOptions:
    """How an agent asks its memory. None leaves it to the memory."""

    limit: int | None = None
    """Most documents, and most facts."""
    policy: object = None
    """How to find, score and choose; see `Memory.recall`."""


class Found(NamedTuple):
    """What memory answered."""

    documents: tuple[Document, ...]
    knowledge: tuple[Fact, ...] = ()
    degraded: tuple[str, ...] = ()
    """What did not work on the way."""


def recall(
    memory: RecallSource,
    query: str,
    session: Session | None = None,
    visible: int | None = None,
    options: RecallOptions = RecallOptions(),
) -> Found:
    """Return what memory finds, best first.

    Raises:
        AgentError: There are options that this memory does not take.
        TypeError: It answered with something else than documents and facts.
    """
    ask: Callable[..., Sequence[Document]] = getattr(memory, "recall", None) or cast("Any", memory)
    taken = _taken(getattr(ask, "__func__", ask))
    chosen = {name: value for name in ("limit", "policy") if (value := getattr(options, name)) is not None}
    if ignored := chosen.keys() - taken:
        raise AgentError(f"recall={options}: {_name(memory)} takes no {' and no '.join(sorted(ignored))}")
    beside = {"session": session, "visible": visible} if session is not None else {}
    answer = ask(query, **chosen, **{name: value for name, value in beside.items() if name in taken})
    found = Found(tuple(answer), tuple(getattr(answer, "knowledge", ())), tuple(getattr(answer, "degraded", ())))
    for kind, items in ((Document, found.documents), (Fact, found.knowledge)):
        for item in items:
            if not isinstance(item, kind):
                got, name = type(item).__name__, kind.__name__
                raise TypeError(f"{_name(memory)}: expected {name}s, got {got}; text becomes one with {name}(text)")
    return found


def in_scope(memory: RecallSource | None, session: Session | None, scope: Any) -> RecallSource | None:
    """Return the memory that a run reads: in the scope of its session, or in `scope` where that has none.

    Args:
        memory: The memory of the agent; its own scope is the widest that is read.
        session: The conversation.
        scope: What the run was given: a scope, the name of a tenant, or the names of a scope; None for nothing.

    Raises:
        ScopeMismatch: The scopes of session, run and memory do not agree.
        AgentError: The memory has no scopes, or there is none, and a scope was given.
    """
    own, base = getattr(session, "scope", None), getattr(memory, "scope", None)
    within = getattr(memory, "within", None)
    if scope is not None:
        if base is None or within is None:
            missing = "the agent has no memory" if memory is None else f"{_name(memory)} has no scopes"
            raise AgentError(f"scope={scope!r}: {missing}, so the scope would be ignored")
        scope = type(base)(*scope) if isinstance(scope, tuple) else type(base).of(scope)
        if own is not None and own != scope:
            raise ScopeMismatch(f"the session belongs to {own}, and scope= is {scope}: give one of them only")
    wanted = own if own is not None else scope
    if wanted is None or base is None or within is None or wanted == base:
        return memory
    if not base.covers(wanted):
        raise ScopeMismatch(
            f"the memory of the agent is that of {base}, and the run that of {wanted}: give the agent a memory that "
            f"covers both, such as that of {wanted.tenant!r}, or one agent to each"
        )
    found: RecallSource = within(wanted)
    return found


def check_memory(memory: object, layers: Layers) -> None:
    """Refuse what cannot be asked, and layers that would not show what it finds.

    Raises:
        AgentDefinitionError: Names what to give instead.
    """
    if not callable(getattr(memory, "recall", None)) and not callable(memory):
        raise AgentDefinitionError(
            f"memory: expected a memory, such as Memory.open({memory!r:.40}), or a function from a query to documents, "
            f"got {type(memory).__name__}"
        )
    for _, prompt in layers.walk():
        if prompt.reads is None or not prompt.reads.isdisjoint(("documents", "knowledge")):
            return
    raise AgentDefinitionError(
        "memory is given, and no prompt of the layers shows what it finds: add MemoPrompt() for documents or "
        "KnowledgePrompt() for facts, such as Layers(..., before_input=MemoPrompt())"
    )


def _name(memory: object) -> str:
    return getattr(memory, "__qualname__", None) or f"{type(memory).__name__}.recall"


@lru_cache(maxsize=64)
def _taken(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of what a recaller takes beside the query."""
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of a kind that cannot be looked into
        return frozenset()
