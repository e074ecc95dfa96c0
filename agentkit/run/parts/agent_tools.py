"""`AgentTools`: the tools of an agent: fixed, or created by toolsets for each run or each step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from agentkit.errors import DepsMismatch
from agentkit.output.answer import AnswerReader
from agentkit_prompts.composition.tools_and_output import ToolsAndOutput
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec
from agentkit_tools import Toolset
from agentkit_tools.tool import Tool
from agentkit_tools.toolsets.toolset import by_name

if TYPE_CHECKING:
    from agentkit_tools.skills.skill_folder import SkillFolder

__all__ = ["AgentTools", "check_deps", "skills_of"]


class AgentTools:
    """The tools of an agent, and its skills.

    Attributes:
        argument: The argument `tools` of the agent, which can be passed to another agent; an iterator is stored as a
            tuple.
        tools: The tools by name; empty if each run creates its tools.
        skills: The folder of skills among the tools; None without skills.
        specs: The specifications of `tools`, sent to the model.
        is_per_run: True if each run creates its tools.
        is_per_step: True if each step of a run creates its tools.

    Raises:
        ToolDefinitionError: Two tools have the same name, or a tool cannot be offered to a model.
    """

    __slots__ = ("_answer", "_declared", "argument", "is_per_run", "is_per_step", "skills", "specs", "tools")

    def __init__(self, argument: Any, answer: AnswerReader) -> None:
        # Text and mappings are iterable too; they stay unchanged for `by_name`, whose error shows the value.
        is_plain = isinstance(argument, list | tuple | str | Mapping)
        if not is_plain and not hasattr(argument, "at") and isinstance(argument, Iterable):
            argument = tuple(argument)
        self.argument: Any = argument
        self._answer = answer
        self.skills = skills_of(argument)
        toolsets = [source for source in _sources(argument) if type(source) is not Tool and _creates_tools(source)]
        self.is_per_run = bool(toolsets)
        self.is_per_step = False
        self.tools: Mapping[str, Tool] = {}
        if toolsets:
            self.is_per_step = any(getattr(toolset, "per_step", False) for toolset in toolsets)
        else:
            self.tools = answer.with_answer_tool(by_name(self.argument))
        self.specs: tuple[ToolSpec, ...] = tuple([tool.spec for tool in self.tools.values()])
        self._declared: tuple[ToolsAndOutput, tuple[Tool, ...]] | None = None

    def with_skills(self, ctx: PromptContext) -> PromptContext:
        """Return the context with the skills of the agent, and with the skills that its messages loaded.

        Raises:
            ContextError: The context has other skills.
        """
        if self.skills is None:
            return ctx
        return self.skills.add_to(ctx)

    def declared(self) -> tuple[ToolsAndOutput, tuple[Tool, ...]]:
        """Return the tools and output request that are the same in every run, and the fixed tools that need deps."""
        if self._declared is None:
            tools_with_deps = tuple([tool for tool in self.tools.values() if tool.deps_types])
            self._declared = ToolsAndOutput(self.specs, self._answer.request), tools_with_deps
        return self._declared

    async def at(self, ctx: PromptContext, **deps_option: object) -> Mapping[str, Tool]:
        """Return the tools of a run, or of a step. If `deps` is passed, check its type.

        Raises:
            ToolDefinitionError: Two tools have the same name.
            DepsMismatch: Tools require deps of another type.
        """
        tools: list[Tool] = []
        # One after the other, in the task of the run: a separate task could outlive the run.
        for source in _sources(self.argument):
            run_tools = [source]
            if _creates_tools(source):
                run_tools = await source.at(ctx)
            tools += by_name(run_tools).values()
        tools_by_name = self._answer.with_answer_tool(by_name(tools))
        for deps in deps_option.values():
            check_deps(tools_by_name.values(), deps)
        return tools_by_name


def _sources(argument: Any) -> list[Any]:
    """Return the tools and toolsets of the argument `tools`."""
    if isinstance(argument, list | tuple):
        return list(argument)
    if hasattr(argument, "at"):
        return [argument]
    return []


def skills_of(argument: Any) -> SkillFolder | None:
    """Return the folder of skills in the argument `tools` of an agent, if any."""
    for source in _sources(argument):
        # The class is only imported by programs that use it.
        if isinstance(source, Toolset) and hasattr(source, "add_to"):
            return cast("SkillFolder", source)
    return None


def _creates_tools(source: Any) -> bool:
    """True if `source` creates tools for each run; the tools of a `Toolset` are the same in all runs."""
    if isinstance(source, Tool) or not hasattr(source, "at"):
        return False
    return getattr(type(source), "at", None) is not Toolset.at


def check_deps(tools: Iterable[Tool], deps: object) -> None:
    """Refuse `deps` whose type does not match the types that the tools require.

    Raises:
        DepsMismatch: Tools require another type. The error lists all these tools.
    """
    problems: list[str] = []
    for tool in tools:
        if tool.deps_types:
            problem = tool.deps_problem(deps)
            if problem:
                problems.append(problem)
    if problems:
        raise DepsMismatch(problems)
