"""`AgentTools`: the tools of an agent: fixed, or created by toolsets for each run or each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from agentkit.errors import DepsMismatch
from agentkit.output.answer import AnswerReader
from agentkit_prompts.composition.tools_and_output import ToolsAndOutput
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec
from agentkit_prompts.lists import is_list
from agentkit_tools import Toolset
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool
from agentkit_tools.toolsets.toolset import by_name

if TYPE_CHECKING:
    from agentkit_tools.toolsets.context_toolset import ContextToolset


class AgentTools:
    """The tools of an agent, and the parts that they add to the context.

    Attributes:
        argument: The argument `tools` of the agent, which can be passed to another agent; an iterator is stored as a
            tuple.
        tools: The tools by name; empty if each run creates its tools.
        context_toolsets: The toolsets that add a part to the context of each prompt, such as skills.
        specs: The specifications of `tools`, sent to the model.
        is_per_run: True if each run creates its tools.
        is_per_step: True if each step of a run creates its tools.

    Raises:
        ToolDefinitionError: Two tools have the same name, or a tool cannot be offered to a model.
    """

    __slots__ = ("_answer", "_declared", "argument", "context_toolsets", "is_per_run", "is_per_step", "specs", "tools")

    def __init__(self, argument: Any, answer: AnswerReader) -> None:
        # Text, mappings and records are iterable too; they stay unchanged for `by_name`, whose error shows the value.
        if not isinstance(argument, list | tuple) and not hasattr(argument, "at") and is_list(argument):
            argument = tuple(argument)
        self.argument: Any = argument
        self._answer = answer
        self.context_toolsets = context_toolsets(argument)
        if len(self.context_toolsets) > 1:
            _check_once(self.context_toolsets)
        toolsets = [source for source in _sources(argument) if _creates_tools(source)]
        self.is_per_run = bool(toolsets)
        self.is_per_step = False
        self.tools: Mapping[str, Tool] = {}
        if toolsets:
            self.is_per_step = any(getattr(toolset, "per_step", False) for toolset in toolsets)
        else:
            self.tools = answer.with_answer_tool(by_name(self._listed))
        self.specs: tuple[ToolSpec, ...] = tuple([tool.spec for tool in self.tools.values()])
        self._declared: tuple[ToolsAndOutput, tuple[Tool, ...]] | None = None

    @property
    def _listed(self) -> Any:
        """The argument `tools`, with the tools of context toolsets instead of these toolsets."""
        if not self.context_toolsets:
            return self.argument
        listed: list[Any] = []
        for source in _sources(self.argument):
            if _adds_context(source):
                listed += source
            else:
                listed.append(source)
        return listed

    def added_to(self, ctx: PromptContext) -> PromptContext:
        """Return the context with the parts that the toolsets add, such as the skills that its messages loaded.

        Raises:
            ContextError: The context has another such part.
        """
        for toolset in self.context_toolsets:
            ctx = toolset.add_to(ctx)
        return ctx

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
            if _adds_context(source):
                run_tools = [*source]
            elif _creates_tools(source):
                run_tools = await source.at(ctx)
            tools += by_name(run_tools).values()
        tools_by_name = self._answer.with_answer_tool(by_name(tools))
        for deps in deps_option.values():
            check_deps(tools_by_name.values(), deps)
        return tools_by_name


def _sources(argument: Any) -> Sequence[Any]:
    """Return the tools and toolsets of the argument `tools`."""
    if isinstance(argument, list | tuple):
        return argument
    if hasattr(argument, "at"):
        return [argument]
    return []


def context_toolsets(argument: Any) -> tuple[ContextToolset, ...]:
    """Return the toolsets in the argument `tools` of an agent that add a part to the context."""
    return tuple([source for source in _sources(argument) if _adds_context(source)])


def _check_once(toolsets: Sequence[ContextToolset]) -> None:
    counts = Counter([type(toolset).__name__ for toolset in toolsets])
    names = [name for name, count in counts.items() if count > 1]
    if names:
        raise ToolDefinitionError(
            f"several toolsets of the class {', '.join(names)}: an agent can have one: put their content "
            "in one toolset, such as the skills in one folder",
            names=names,
        )


def _adds_context(source: object) -> TypeGuard[ContextToolset]:
    """True for a `ContextToolset`. The class is only imported by programs that use it."""
    # Most sources are tools: their type is compared faster than `isinstance` examines an abstract class.
    return type(source) is not Tool and isinstance(source, Toolset) and hasattr(source, "add_to")


def _creates_tools(source: Any) -> bool:
    """True if `source` creates tools for each run; the tools of a `Toolset` are the same in all runs."""
    if type(source) is Tool or isinstance(source, Tool) or not hasattr(source, "at"):
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
