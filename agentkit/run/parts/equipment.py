"""`Equipment`: the tools of an agent, the same in all runs or made by toolsets for each run, or each step of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentkit.errors import DepsMismatch
from agentkit.output.answer import AnswerReader
from agentkit_prompts.composition.declarations import Declarations
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec
from agentkit_tools import Toolset, by_name
from agentkit_tools.tool import Tool

__all__ = ["Equipment", "check_deps"]


class Equipment:
    """What an agent was given as its tools.

    Attributes:
        given: The same, to be given to another agent.
        tools: The tools by name; empty when each run has its own.
        specs: The tools as the model is offered them.
        is_own: Whether each run has its own.
        is_each_step: Whether each step of a run has.

    Raises:
        ToolDefinitionError: Two tools have the same name, or one cannot be offered to a model.
    """

    __slots__ = ("_answer", "_ready", "given", "is_each_step", "is_own", "specs", "tools")

    def __init__(self, given: Any, answer: AnswerReader) -> None:
        is_plain = isinstance(given, list | tuple | str | Mapping)  # text and mappings are refused as they are
        if not is_plain and not hasattr(given, "at") and isinstance(given, Iterable):
            given = tuple(given)
        self.given: Any = given
        self._answer = answer
        made = [one for one in _sources(given) if type(one) is not Tool and _is_made(one)]
        self.is_own = bool(made)
        self.is_each_step = bool(made) and any(getattr(one, "is_each_step", False) for one in made)
        self.tools: Mapping[str, Tool] = {} if made else answer.equipped(by_name(self.given))
        self.specs: tuple[ToolSpec, ...] = tuple([tool.spec for tool in self.tools.values()])
        self._ready: tuple[Declarations, tuple[Tool, ...]] | None = None

    def known(self) -> tuple[Declarations, tuple[Tool, ...]]:
        """Return what every run declares, and the tools that need deps, where a run has no tools of its own."""
        if self._ready is None:
            needing = tuple([tool for tool in self.tools.values() if tool.deps_types])
            self._ready = Declarations(self.specs, self._answer.request), needing
        return self._ready

    async def at(self, ctx: PromptContext, **given: object) -> Mapping[str, Tool]:
        """Return the tools that a run has, or a step of it, checked where its `deps` are given.

        Raises:
            ToolDefinitionError: Two tools have the same name.
            DepsMismatch: Some need other deps.
        """
        sources = _sources(self.given)
        made = [await one.at(ctx) for one in sources if _is_made(one)]  # in no task of its own, which could outlive us
        found = iter([by_name(tools).values() for tools in made])
        listed = [tool for one in sources for tool in (next(found) if _is_made(one) else by_name([one]).values())]
        tools = self._answer.equipped(by_name(listed))
        for deps in given.values():
            check_deps(tools.values(), deps)
        return tools


def _sources(given: Any) -> list[Any]:
    if isinstance(given, list | tuple):
        return list(given)
    return [given] if hasattr(given, "at") else []


def _is_made(source: Any) -> bool:
    """Whether this makes tools for a run: a toolset that is more than the tools in it."""
    return type(source) not in (Tool, Toolset) and hasattr(source, "at")


def check_deps(tools: Iterable[Tool], deps: object) -> None:
    """Refuse `deps` that tools could not work with.

    Raises:
        DepsMismatch: Names all of these tools.
    """
    if problems := [problem for tool in tools if tool.deps_types and (problem := tool.deps_problem(deps))]:
        raise DepsMismatch(problems)
