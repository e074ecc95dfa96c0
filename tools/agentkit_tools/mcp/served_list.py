"""`ServedList`: tools or prompts that the program can change while a server runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentkit_tools.tool import Tool
from agentkit_tools.toolsets.toolset import by_name


class ServedList:
    """The tools of a list by name, of the list as it is now. The tools of any other iterable do not change.

    Raises:
        ToolDefinitionError: A function cannot be described, or two functions have the same name.
    """

    def __init__(self, source: Iterable[Tool | Callable[..., Any]]) -> None:
        self._list = source if isinstance(source, list) else None
        self._now: tuple[Any, ...] = ()
        if self._list is not None:
            source = self._now = tuple(self._list)
        self._tools = by_name(source)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name."""
        if self._list is None:
            return self._tools
        now = tuple(self._list)
        if len(now) != len(self._now) or any(new is not old for new, old in zip(now, self._now, strict=True)):
            # Tools keep their identity, so that their limits of concurrent calls stay.
            tools = {id(old): tool for old, tool in zip(self._now, self._tools.values(), strict=True)}
            self._tools = by_name([tools.get(id(new), new) for new in now])
            self._now = now
        return self._tools
