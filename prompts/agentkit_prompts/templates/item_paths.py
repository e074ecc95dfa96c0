"""`ItemPaths`: paths in the context of items that a prompt selects, sorts, filters, repeats or renames."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.prompt_context import Example, PromptContext

_ITEM = re.compile(r"(\w++)(?:\[(\d++)\])?")
_composed_context: ContextVar[PromptContext | None] = ContextVar("agentkit_composed_context", default=None)


class ItemPaths:
    """Paths in the context of items in the values of a template. Items are compared by identity.

    Examples are also compared by their content, because a selector can return copies with a score.

    Args:
        values: The values of the template; a class can change its lists later.
        ctx: The context of the rendering.
        composed: The context that contains the items; another context if a class renders a changed context.
    """

    __slots__ = ("_composed", "_contents", "_ctx", "_paths", "values")

    def __init__(self, values: Mapping[str, Any], ctx: PromptContext, composed: PromptContext) -> None:
        self.values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        self._ctx = ctx
        self._composed = composed
        self._paths: dict[int, str] = {}
        self._contents: dict[tuple[str, ...], str] = {}

    def contains(self, name: str) -> bool:
        """True if the value with this name is an item of the context."""
        return self._path_of(self.values.get(name)) is not None

    def of(self, pointer: str) -> str:
        """Return the path in the context of the value at a pointer into the values; empty if its item is not an item of
        the context.
        """
        match = _ITEM.match(pointer)
        if match is None or not self._is_changed(match[1]):
            return pointer
        item = value = self.values[match[1]]
        if match[2] is not None:
            item = None
            if isinstance(value, tuple | Conversation) and int(match[2]) < len(value):
                item = value[int(match[2])]
        path = self._path_of(item)
        if path is not None:
            return path + pointer[match.end() :]
        # A value with a name of the class has this name as its origin.
        if match[2] is not None and match[1] in self._composed.view:
            return ""
        return pointer

    def of_all(self, name: str) -> str:
        """Return the paths of all items of a value, separated by commas; the name for a value without items."""
        value = self.values.get(name)
        if not self._is_changed(name) or not isinstance(value, tuple | Conversation):
            return self._path_of(value) or name
        paths = [path for path in map(self._path_of, value) if path is not None]
        if not paths and name not in self._composed.view:
            return name
        return ", ".join(dict.fromkeys(paths))

    def _path_of(self, item: object) -> str | None:
        """Return the path of an item in the context; None for a value that is not an item of the context."""
        if not self._paths:
            self._find_items()
        path = self._paths.get(id(item))
        if path is None and isinstance(item, Example):
            path = self._contents.get(_content(item))
        return path

    def _find_items(self) -> None:
        """Store the paths of all items, at the first question: many renderings are sent without their origins."""
        paths = self._paths
        for name, items in self._composed.view.items():
            if isinstance(items, tuple | Conversation):
                for number, item in enumerate(items):
                    paths.setdefault(id(item), f"{name}[{number}]")
        # A view contains copies of documents whose labels are not unique; a class can also use the originals.
        for number, document in enumerate(self._composed.documents):
            paths.setdefault(id(document), f"documents[{number}]")
        for copy, document in zip(self._ctx.view["documents"], self._ctx.documents, strict=True):
            if id(document) in paths:
                paths.setdefault(id(copy), paths[id(document)])
        for number, example in enumerate(self._composed.examples):
            self._contents.setdefault(_content(example), f"examples[{number}]")

    def _is_changed(self, name: str) -> bool:
        return name in self.values and self.values[name] is not self._composed.view.get(name)


def _content(example: Example) -> tuple[str, ...]:
    """Return the fields of an example that a selector does not change."""
    return example.input, example.output, example.id


def composed_context() -> PromptContext | None:
    """Return the context of the composition while a custom class renders, which can pass a changed context to other
    prompts; None at other times.
    """
    return _composed_context.get()


@contextmanager
def composed_from(ctx: PromptContext) -> Iterator[None]:
    """Compute origins in this block as paths in `ctx`, also if a prompt renders a changed context.

    In a nested block, the outermost context remains: only its paths have a meaning in the composition.
    """
    if _composed_context.get() is not None:
        yield
        return
    token = _composed_context.set(ctx)
    try:
        yield
    finally:
        _composed_context.reset(token)
