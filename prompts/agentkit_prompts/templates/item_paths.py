"""`ItemPaths`: paths in the context of items that a prompt class sorts, filters, repeats or renames in its values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.prompt_context import PromptContext

_ITEM = re.compile(r"(\w++)(?:\[(\d++)\])?")


class ItemPaths:
    """Paths in the context of items in the values of a template. Items are compared by identity.

    Args:
        values: The values of the template.
        context: The context of the rendering.
    """

    __slots__ = ("_paths", "_values", "_view")

    def __init__(self, values: Mapping[str, Any], context: PromptContext) -> None:
        self._values = values
        self._view = context.view
        # The view contains copies of documents whose labels are not unique; a class can also use the originals.
        self._paths: dict[int, str] = {}
        for name, items in (*context.view.items(), ("documents", context.documents)):
            if isinstance(items, tuple | Conversation):
                for number, item in enumerate(items):
                    self._paths.setdefault(id(item), f"{name}[{number}]")

    def contains(self, name: str) -> bool:
        """True if the value with this name is an item of the context."""
        return id(self._values.get(name)) in self._paths

    def of(self, pointer: str) -> str:
        """Return the path in the context of the value at a pointer into the values; empty if its item is not an item of
        the context.
        """
        match = _ITEM.match(pointer)
        if match is None or not self._is_changed(match[1]):
            return pointer
        value = self._values[match[1]]
        if match[2] is None:
            return self._paths.get(id(value), match[1]) + pointer[match.end() :]
        path = None
        if isinstance(value, tuple | Conversation) and int(match[2]) < len(value):
            path = self._paths.get(id(value[int(match[2])]))
        if path is not None:
            return path + pointer[match.end() :]
        # A value with a name of the class has this name as its origin.
        if match[1] in self._view:
            return ""
        return pointer

    def of_all(self, name: str) -> str:
        """Return the paths of all items of a value, separated by commas; the name for a value without items."""
        value = self._values.get(name)
        if not self._is_changed(name) or not isinstance(value, tuple | Conversation):
            return self._paths.get(id(value), name)
        paths = [self._paths[id(item)] for item in value if id(item) in self._paths]
        if not paths and name not in self._view:
            return name
        return ", ".join(dict.fromkeys(paths))

    def _is_changed(self, name: str) -> bool:
        return name in self._values and self._values[name] is not self._view.get(name)
