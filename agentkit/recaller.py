"""What an agent asks of a memory: documents and facts for the user's text, without what the prompt shows anyway."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from agentkit.session import Session
from agentkit_prompts.context.prompt_context import Document, Fact

__all__ = ["Found", "Recaller", "recall"]


class Recaller(Protocol):
    """Finds chunks for a query. Called in a thread.

    One whose `recall` takes `session` and `visible` too is given the session of the run, and how many of its latest
    messages the prompt shows (None: all), which need not be recalled. What it returns may have facts in `knowledge`,
    and in `degraded` what did not work.
    """

    def recall(self, query: str) -> Sequence[Document]:
        """Return chunks, best first, with ids and scores."""
        ...


class Found(NamedTuple):
    """What memory answered."""

    documents: tuple[Document, ...]
    knowledge: tuple[Fact, ...] = ()
    degraded: tuple[str, ...] = ()
    """What did not work on the way."""


def recall(memory: Recaller, query: str, session: Session | None = None, visible: int | None = None) -> Found:
    """Return what memory finds, best first.

    Raises:
        TypeError: It answered with something else than documents and facts.
    """
    ask: Callable[..., Sequence[Document]] = memory.recall
    beside = session is not None and _takes_session(getattr(ask, "__func__", ask))
    answer = ask(query, session=session, visible=visible) if beside else ask(query)
    found = Found(tuple(answer), tuple(getattr(answer, "knowledge", ())), tuple(getattr(answer, "degraded", ())))
    for kind, items in ((Document, found.documents), (Fact, found.knowledge)):
        for item in items:
            if not isinstance(item, kind):
                where, got = type(memory).__name__, type(item).__name__
                name = kind.__name__
                raise TypeError(f"{where}.recall: expected {name}s, got {got}; text becomes one with {name}(text)")
    return found


@lru_cache(maxsize=64)
def _takes_session(function: Callable[..., Any]) -> bool:
    try:
        return {"session", "visible"} <= inspect.signature(function).parameters.keys()
    except (TypeError, ValueError):  # of a kind that cannot be looked into
        return False
