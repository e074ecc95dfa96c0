"""`AgentTools`: the tools of an agent, the same in all runs or made by toolsets for each run or each step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentkit.errors import DepsMismatch
from agentkit.output.answer import AnswerReader
from agentkit_prompts.composition.declarations import Declarations
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec
from agentkit_tools import Toolset, by_name
from agentkit_tools.tool import Tool

__all__ = ["AgentTools", "check_deps"]


class AgentTools:
    """The tools of an agent.

    Attributes:
        given: The argument `tools` of the agent; another agent takes it too.
        tools: The tools by name; empty if each run makes its tools.
        specs: The tools as they are offered to the model.
        is_per_run: True if each run makes its tools.
        is_per_step: True if each step of a run makes its tools.

    Raises:
        ToolDefinitionError: Two tools have the same name, or a tool cannot be offered to a model.
    """

    __slots__ = ("_answer", "_declared", "given", "is_per_run", "is_per_step", "specs", "tools")

    def __init__(self, given: Any, answer: AnswerReader) -> None:
        # Text and mappings are iterable too; `by_name` refuses them with the value that was given.
        is_plain = isinstance(given, list | tuple | str | Mapping)
        if not is_plain and not hasattr(given, "at") and isinstance(given, Iterable):
            given = tuple(given)
        self.given: Any = given
        self._answer = answer
        toolsets = [source for source in _sources(given) if type(source) is not Tool and _makes_tools(source)]
        self.is_per_run = bool(toolsets)
        self.is_per_step = False
        self.tools: Mapping[str, Tool] = {}
        if toolsets:
            self.is_per_step = any(getattr(toolset, "is_each_step", False) for toolset in toolsets)
        else:
            self.tools = answer.equipped(by_name(self.given))
        self.specs: tuple[ToolSpec, ...] = tuple([tool.spec for tool in self.tools.values()])
        self._declared: tuple[Declarations, tuple[Tool, ...]] | None = None

    def declared(self) -> tuple[Declarations, tuple[Tool, ...]]:
        """Return the declarations of every run, and the tools that need deps, without tools that a run makes."""
        if self._declared is None:
            needing = tuple([tool for tool in self.tools.values() if tool.deps_types])
            self._declared = Declarations(self.specs, self._answer.request), needing
        return self._declared

    async def at(self, ctx: PromptContext, **given: object) -> Mapping[str, Tool]:
        """Return the tools of a run, or of a step, and check its `deps` if they are given.

        Raises:
            ToolDefinitionError: Two tools have the same name.
            DepsMismatch: Some tools need other deps.
        """
        tools: list[Tool] = []
        # One after the other, in the task of the run: a separate task could outlive it.
        for source in _sources(self.given):
            made = await source.at(ctx) if _makes_tools(source) else [source]
            tools += by_name(made).values()
        equipped = self._answer.equipped(by_name(tools))
        for deps in given.values():
            check_deps(equipped.values(), deps)
        return equipped


def _sources(given: Any) -> list[Any]:
    if isinstance(given, list | tuple):
        return list(given)
    return [given] if hasattr(given, "at") else []


def _makes_tools(source: Any) -> bool:
    """Return True if `source` makes tools for a run; the tools of a plain `Toolset` are the same in all runs."""
    return type(source) not in (Tool, Toolset) and hasattr(source, "at")


def check_deps(tools: Iterable[Tool], deps: object) -> None:
    """Refuse `deps` of another type than tools need.

    Raises:
        DepsMismatch: Names all of these tools.
    """
    problems: list[str] = []
    for tool in tools:
        if tool.deps_types:
            problem = tool.deps_problem(deps)
            if problem:
                problems.append(problem)
    if problems:
        raise DepsMismatch(problems)
