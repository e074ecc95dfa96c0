"""What an agent asks of a memory: documents, facts and earlier messages, without what the prompt shows anyway."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from os import PathLike
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from agentkit.errors import AgentDefinitionError, AgentError, ScopeMismatch, UnknownOption
from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.context.items import Speaker
from agentkit_prompts.context.prompt_context import Document, Fact, RecalledMessage
from agentkit_prompts.errors import brief
from agentkit_prompts.options import Count, options
from agentkit_prompts.tree.layers import Layers

__all__ = [
    "Found",
    "RecallOptions",
    "RecallSource",
    "Recaller",
    "check_memory",
    "check_shown",
    "in_scope",
    "recall",
    "shown_options",
]

_KINDS = frozenset({"documents", "knowledge", "recalled"})
"""Names of the context that hold what memory finds."""

Item = TypeVar("Item", Document, Fact)


class Recaller(Protocol):
    """Finds what fits a query. Called in a thread. A function that takes a query and returns documents is one too.

    One whose `recall` takes `session`, `visible`, `limit`, `policy` or `roles` too is given these: the session of the
    run (None: it has none), how many of its latest messages the prompt shows (None: all), which need not be recalled,
    and the `RecallOptions` of the agent. What it returns may have facts in `knowledge`, and in `degraded` what did not
    work.
    """

    def recall(self, query: str) -> Sequence[Document | RecalledMessage]:
        """Return documents and messages of earlier conversations, best first, with ids and scores."""
        ...


RecallSource: TypeAlias = Recaller | Callable[[str], Sequence[Document | RecalledMessage]]
"""What an agent takes as its memory."""


@options(
    AgentDefinitionError, unknown=UnknownOption, elsewhere={"top_k": "limit", "k": "limit", "max_results": "limit"}
)
class RecallOptions:
    """How an agent asks its memory. None leaves it to the memory."""

    limit: Count | None = None
    """Most documents and messages together, and most facts."""
    policy: object = None
    """How to find, score and choose; see `Memory.recall`."""
    roles: tuple[Speaker, ...] = ("user",)
    """Whose earlier messages are recalled. What the model answered is no evidence, so that by default only what people
    wrote is."""


_DEFAULT_OPTIONS = RecallOptions()


class Found(NamedTuple):
    """What memory answered."""

    documents: tuple[Document, ...]
    knowledge: tuple[Fact, ...] = ()
    degraded: tuple[str, ...] = ()
    """What did not work on the way."""
    recalled: tuple[RecalledMessage, ...] = ()


def recall(
    memory: RecallSource,
    query: str,
    session: SessionProtocol | None = None,
    visible: int | None = None,
    options: RecallOptions = _DEFAULT_OPTIONS,
) -> Found:
    """Return what memory finds, best first.

    Raises:
        AgentError: There are options that this memory does not take.
        TypeError: It answered with something else than documents, messages and facts.
    """
    ask: Callable[..., Sequence[Document | RecalledMessage]] = getattr(memory, "recall", None) or cast("Any", memory)
    taken = _taken(getattr(ask, "__func__", ask))
    chosen = {name: value for name in ("limit", "policy") if (value := getattr(options, name)) is not None}
    if ignored := chosen.keys() - taken:
        raise AgentError(
            f"recall={options}: {_name(memory)} takes no {' and no '.join(sorted(ignored))}",
            name="recall",
            value=", ".join(sorted(ignored)),
        )
    beside: dict[str, Any] = {"session": session, "visible": visible, "roles": options.roles}
    answer = ask(query, **chosen, **{name: value for name, value in beside.items() if name in taken})
    documents: list[Document] = []
    messages: list[RecalledMessage] = []
    if inspect.iscoroutine(answer):
        answer.close()
        raise TypeError(f"{_name(memory)} is async: recall runs in a thread, write it as a plain function")
    if not isinstance(answer, Iterable):
        raise TypeError(f"{_name(memory)}: expected Documents, in a list, got {type(answer).__name__}")
    for item in answer:
        if isinstance(item, RecalledMessage):
            messages.append(item)
        else:
            documents.append(_checked(item, Document, memory))
    return Found(
        tuple(documents),
        tuple([_checked(fact, Fact, memory) for fact in getattr(answer, "knowledge", ())]),
        tuple(getattr(answer, "degraded", ())),
        tuple([message for message in messages if message.role in options.roles]),
    )


def _checked(item: Any, kind: type[Item], memory: RecallSource) -> Item:
    if isinstance(item, kind):
        return item
    got, name = type(item).__name__, kind.__name__
    how = f"text becomes one with {name}(text)"
    if got == name:
        got = f"one of {type(item).__module__.partition('.')[0]}"
    if kind is Document and isinstance(getattr(item, "page_content", None), str):
        how = 'write Document(one.page_content, source=one.metadata.get("source", "")) for each'
    raise TypeError(f"{_name(memory)}: expected {name}s, got {got}; {how}")


def _of_other_retriever(memory: object) -> str:
    """Return what to write for a retriever of LangChain's."""
    if not callable(getattr(memory, "get_relevant_documents", None)) and not callable(getattr(memory, "invoke", None)):
        return ""
    return (
        "; of a retriever write a function: def found(query): return [Document(one.page_content, "
        'source=one.metadata.get("source", "")) for one in retriever.invoke(query)]'
    )


def in_scope(memory: RecallSource | None, session: SessionProtocol | None, scope: Any) -> RecallSource | None:
    """Return the memory that a run reads: in the scope of its session, or in `scope` where that has none.

    Args:
        memory: The memory of the agent; its own scope is the widest that is read.
        session: The conversation.
        scope: What the run was given: a scope, the name of a tenant, or the names of a scope; None for nothing.

    Raises:
        ScopeMismatch: The scopes of session, run and memory do not agree.
        AgentError: A scope was given, and the agent has no memory, or one without scopes.
    """
    if memory is None and scope is None:
        return None
    own, base = getattr(session, "scope", None), getattr(memory, "scope", None)
    within = getattr(memory, "within", None)
    if scope is not None:
        if base is None or within is None:
            missing = "the agent has no memory" if memory is None else f"{_name(memory)} has no scopes"
            raise AgentError(f"scope={scope!r}: {missing}, so the scope would be ignored", name="scope")
        scope = type(base)(*scope) if isinstance(scope, tuple) else type(base).of(scope)
        if own is not None and own != scope:
            raise ScopeMismatch(
                f"the session belongs to {own}, and scope= is {scope}: give one of them only", name="session"
            )
    wanted = own if own is not None else scope
    if wanted is None or base is None or within is None or wanted == base:
        return memory
    if not base.covers(wanted):
        raise ScopeMismatch(
            f"the memory of the agent is that of {base}, and the run that of {wanted}: give the agent a memory that "
            f"covers both, such as that of {wanted.tenant!r}, or one agent to each",
            name="memory",
        )
    found: RecallSource = within(wanted)
    return found


def check_memory(memory: object, layers: Layers) -> None:
    """Refuse what cannot be asked, and layers that would not show what it finds.

    Raises:
        AgentDefinitionError: Names what to give instead.
    """
    if not callable(getattr(memory, "recall", None)) and not callable(memory):
        example = f"Memory({memory!r:.40})" if isinstance(memory, str | PathLike) else 'Memory("folder")'
        raise AgentDefinitionError(
            f"memory: expected a memory, such as {example}, or a function from a query to documents, "
            f"got {type(memory).__name__}{_of_other_retriever(memory)}",
            name="memory",
            value=type(memory).__name__,
        )
    check_shown(layers)


def check_shown(layers: Layers) -> None:
    """Refuse layers that show nothing of what a memory finds.

    Raises:
        AgentDefinitionError: Names the prompts that would.
    """
    if not any(_shows(layers, kind) for kind in _KINDS):
        raise AgentDefinitionError(
            "memory is given, and no prompt of the layers shows what it finds: add MemoPrompt() for documents, "
            "RecalledPrompt() for messages of earlier conversations or KnowledgePrompt() for facts, such as "
            "Layers(..., before_input=[MemoPrompt(), RecalledPrompt()]); in a folder of prompts, a file with "
            "`role: before_input` and `kind: memo`, `recalled` or `knowledge`",
            name="layers",
        )


def shown_options(options: RecallOptions | None, layers: Layers) -> RecallOptions:
    """Return how memory is asked where these layers show what it finds: messages that no prompt shows are left out.

    Raises:
        AgentDefinitionError: These are no options.
    """
    if not isinstance(options, RecallOptions):
        raise AgentDefinitionError(
            f"recall: expected RecallOptions(...), got {brief(options, 40)}",
            name="recall",
            value=type(options).__name__,
        )
    return options if _shows(layers, "recalled") else replace(options, roles=())


def _shows(layers: Layers, kind: str) -> bool:
    return any(prompt.reads is None or kind in prompt.reads for _, prompt in layers.walk())


def _name(memory: object) -> str:
    return getattr(memory, "__qualname__", None) or f"{type(memory).__name__}.recall"


@lru_cache(maxsize=64)
def _taken(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of what a recaller takes beside the query."""
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of a kind that cannot be looked into
        return frozenset()
