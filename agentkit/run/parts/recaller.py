"""Recall of an agent: documents, facts and earlier messages, without messages that the prompt shows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from agentkit.errors import AgentDefinitionError, AgentError, UnknownOption
from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.context.items import Speaker
from agentkit_prompts.context.prompt_context import Document, Fact, RecalledMessage
from agentkit_prompts.errors import brief
from agentkit_prompts.lists import is_list
from agentkit_prompts.options import Count, options
from agentkit_prompts.tree.layers import Layers

if TYPE_CHECKING:
    from agentkit_prompts.context.foreign_documents import ForeignDocument

_RECALLED_FIELDS = frozenset({"documents", "knowledge", "recalled"})
"""Names of recalled items in the context."""

Item = TypeVar("Item", Document, Fact)


class Recaller(Protocol):
    """A source of items that match a query, called in a thread. A function from a query to documents is a source too.

    `recall` can have further parameters: `session` (the session of the run, or None), `visible` (the number of the
    latest messages that the prompt shows, so that they need no recall; None for all), and `limit`, `policy` and `roles`
    (from the `RecallOptions` of the agent). The result can have the attributes `knowledge` (facts) and `degraded`
    (error messages of parts of the recall that failed).
    """

    def recall(self, query: str) -> Sequence[Document | RecalledMessage]:
        """Return documents and messages of earlier conversations, best first, with ids and scores."""
        ...


RecallSource: TypeAlias = "Recaller | Callable[[str], Sequence[Document | RecalledMessage | ForeignDocument]]"
"""Memory of an agent."""


@options(
    AgentDefinitionError, unknown=UnknownOption, elsewhere={"top_k": "limit", "k": "limit", "max_results": "limit"}
)
class RecallOptions:
    """Options of each recall of an agent. None selects the default of the memory."""

    limit: Count | None = None
    """Maximum number of documents and messages together, and maximum number of facts."""
    policy: object = None
    """Policy of retrieval, scores and selection; see `Memory.recall`."""
    roles: tuple[Speaker, ...] = ("user",)
    """Roles whose earlier messages are recalled. Answers of models are not evidence and are excluded by default."""


_DEFAULT_OPTIONS = RecallOptions()


class RecallResult(NamedTuple):
    """Result of a recall."""

    documents: tuple[Document, ...]
    knowledge: tuple[Fact, ...] = ()
    degraded: tuple[str, ...] = ()
    """Error messages of parts of the recall that failed."""
    recalled: tuple[RecalledMessage, ...] = ()


def recall(
    memory: RecallSource,
    query: str,
    session: SessionProtocol | None = None,
    visible: int | None = None,
    options: RecallOptions = _DEFAULT_OPTIONS,
) -> RecallResult:
    """Return the items that match a query, best first.

    Raises:
        AgentError: The memory does not support an option.
        TypeError: The result contains other values than documents, messages and facts.
    """
    function: Callable[..., Sequence[Document | RecalledMessage]] = getattr(memory, "recall", None) or cast(
        "Any", memory
    )
    parameters = _parameters(getattr(function, "__func__", function))
    set_options = {name: value for name in ("limit", "policy") if (value := getattr(options, name)) is not None}
    unsupported = sorted(set_options.keys() - parameters)
    if unsupported:
        raise AgentError(
            f"recall={options}: {name_of(memory)} does not support {' and '.join(unsupported)}",
            name="recall",
            value=", ".join(unsupported),
        )
    # A function can have only the parameter for the query: it receives the values that it has parameters for.
    optional: dict[str, Any] = {"session": session, "visible": visible, "roles": options.roles}
    result = function(query, **set_options, **{name: value for name, value in optional.items() if name in parameters})
    return _checked_result(result, memory, options.roles)


def _checked_result(result: Any, memory: RecallSource, roles: Sequence[Speaker]) -> RecallResult:
    """Return the checked result of a memory, without messages of other roles."""
    if inspect.iscoroutine(result):
        result.close()  # without a warning that it was never awaited
        raise TypeError(f"{name_of(memory)} is async: recall runs in a thread, define it as a synchronous function")
    if not is_list(result):
        raise TypeError(f"{name_of(memory)}: expected Documents, in a list, got {type(result).__name__}")
    documents: list[Document] = []
    messages: list[RecalledMessage] = []
    for item in result:
        if isinstance(item, RecalledMessage):
            messages.append(item)
        else:
            documents.append(_checked(_as_document(item), Document, memory))
    return RecallResult(
        tuple(documents),
        tuple([_checked(fact, Fact, memory) for fact in getattr(result, "knowledge", ())]),
        tuple(getattr(result, "degraded", ())),
        tuple([message for message in messages if message.role in roles]),
    )


def _as_document(item: Any) -> Any:
    """Return a document of another library as a `Document`, any other value unchanged."""
    if isinstance(item, Document):
        return item
    from agentkit_prompts.context.foreign_documents import foreign_document

    return foreign_document(item) or item


def _checked(item: Any, kind: type[Item], memory: RecallSource) -> Item:
    if isinstance(item, kind):
        return item
    got, name = type(item).__name__, kind.__name__
    advice = f"convert text with {name}(text)"
    if got == name:
        got = f"{name} of {type(item).__module__.partition('.')[0]}"
    raise TypeError(f"{name_of(memory)}: expected {name}s, got {got}; {advice}")


def _retriever_advice(memory: object) -> str:
    """Return the advice of an error for a retriever of LangChain or LlamaIndex; empty for other objects."""
    for name in ("invoke", "retrieve"):
        if callable(getattr(memory, name, None)):
            return f"; pass the method of the retriever: memory=retriever.{name}"
    return ""


def check_memory(memory: object, layers: Layers) -> None:
    """Refuse a value that is not a memory, and layers that do not show recalled items.

    Raises:
        AgentDefinitionError: The error contains the expected value.
    """
    if not callable(getattr(memory, "recall", None)) and not callable(memory):
        example = 'Memory("folder")'
        if isinstance(memory, str | PathLike):
            example = f"Memory({memory!r:.40})"
        raise AgentDefinitionError(
            f"memory: expected a memory, such as {example}, or a function from a query to documents, "
            f"got {type(memory).__name__}{_retriever_advice(memory)}",
            name="memory",
            value=type(memory).__name__,
        )
    check_shown(layers)


def check_shown(layers: Layers) -> None:
    """Refuse layers that do not show recalled items.

    Raises:
        AgentDefinitionError: The error contains prompts that show them.
    """
    if not any(_shows(layers, kind) for kind in _RECALLED_FIELDS):
        raise AgentDefinitionError(
            "the agent has a memory, but no prompt of the layers shows recalled items: add MemoPrompt() for documents, "
            "RecalledPrompt() for messages of earlier conversations or KnowledgePrompt() for facts, such as "
            "Layers(..., before_input=[MemoPrompt(), RecalledPrompt()]); in a folder of prompts, a file with "
            "`role: before_input` and `kind: memo`, `recalled` or `knowledge`",
            name="layers",
        )


def shown_options(options: RecallOptions | None, layers: Layers) -> RecallOptions:
    """Return the options of a recall for these layers: without roles if no prompt shows recalled messages.

    Raises:
        AgentDefinitionError: The value is not a `RecallOptions`.
    """
    if not isinstance(options, RecallOptions):
        raise AgentDefinitionError(
            f"recall: expected RecallOptions(...), got {brief(options, 40)}",
            name="recall",
            value=type(options).__name__,
        )
    if not _shows(layers, "recalled"):
        return replace(options, roles=())
    return options


def _shows(layers: Layers, kind: str) -> bool:
    return any(prompt.reads is None or kind in prompt.reads for _, prompt in layers.walk())


def name_of(memory: object) -> str:
    """Return the name of a memory for errors."""
    return getattr(memory, "__qualname__", None) or f"{type(memory).__name__}.recall"


@lru_cache(maxsize=64)
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the parameters of a recall function."""
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin, for example
        return frozenset()
