"""`Toolset`: a sequence of tools, with methods that select, rename and wrap them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from inspect import isawaitable
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast, overload

from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.hints import hinted
from agentkit_prompts.lists import is_list
from agentkit_prompts.names import nearest
from agentkit_tools.calling.tool_policy import Approval, PolicyOptions, check_counts
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.form import FORM
from agentkit_tools.schemas.foreign_shapes import tools_advice
from agentkit_tools.tool import Tool
from agentkit_tools.toolsets.wrapped_tool import Around, WrappedTool

if TYPE_CHECKING:
    from agentkit_tools.toolsets.foreign_tools import ForeignTool

ToolLike: TypeAlias = "Tool | Callable[..., Any] | Mapping[str, Any] | Toolset | ForeignTool"
"""A tool, a function, a toolset, a tool of LangChain, LlamaIndex or pydantic-ai, or a tool of a provider as data, such
as `{"type": "web_search"}`."""


def by_name(tools: Iterable[ToolLike]) -> dict[str, Tool]:
    """Return tools by their name for the model. Functions become tools, toolsets are replaced by their tools.

    Raises:
        ToolDefinitionError: Two tools have the same name, a name is reserved, or an item is not a tool. The message
            lists all such names.
    """
    if not is_list(tools):
        advice = tools_advice(tools)
        raise ToolDefinitionError(f"expected tools or functions, in a list, got {type(tools).__name__}{advice}")
    _check_no_part(tools)
    tools_by_name: dict[str, Tool] = {}
    clashes: dict[str, None] = {}
    for item in tools:
        for tool in (item,) if isinstance(item, Tool) else _tools_of(item):
            if tools_by_name.setdefault(tool.name, tool) is not tool:
                clashes[tool.name] = None
    if clashes:
        raise ToolDefinitionError(
            f"several tools have the same name: {', '.join(clashes)}; rename a tool with `tool.with_changes(name=...)`,"
            " or prefix a toolset with `toolset.prefixed(...)`",
            names=clashes,
        )
    if FORM in tools_by_name:
        raise ToolDefinitionError(f"the name {FORM} is reserved for questions of tools: rename the tool", tool=FORM)
    return tools_by_name


def _check_no_part(item: object) -> None:
    """Refuse a `ContextToolset`: its tools work only with its part of the prompt."""
    if isinstance(item, Toolset) and hasattr(item, "add_to"):
        raise ToolDefinitionError(
            f"{type(item).__name__} adds a part to the prompt: pass it to the agent directly, in its list of tools"
        )


def _tools_of(item: ToolLike) -> Iterable[Tool]:
    if isinstance(item, Toolset):
        _check_no_part(item)
        return item
    if isinstance(item, Mapping):
        return (Tool.from_provider(item),)
    if hasattr(item, "at"):
        kind = type(item).__name__
        raise ToolDefinitionError(f"{kind} creates its tools for each run: pass it to the agent directly")
    if not isinstance(item, FunctionType | MethodType):
        # Imported at the first object that is neither a tool nor a function.
        from agentkit_tools.toolsets.foreign_tools import foreign_tool

        tool = foreign_tool(item)
        if tool is not None:
            return (tool,)
    return (Tool(cast("Callable[..., Any]", item)),)


@hinted
class Toolset(Sequence[Tool]):
    """An immutable sequence of tools with different names. The methods return changed copies.

    Raises:
        ToolDefinitionError: Two tools have the same name.
    """

    __slots__ = ("_tools",)

    def __init__(self, tools: Iterable[ToolLike] = ()) -> None:
        self._tools = by_name(tools)

    @classmethod
    def from_object(cls, thing: object, *, only: Iterable[str] | None = None, without: Iterable[str] = ()) -> Toolset:
        """Return the public methods of an object as tools, bound to it.

        Names that start with `_` are never offered, properties are not read, and methods of base classes from other
        packages, such as pydantic, are omitted unless `only` contains them.

        Args:
            thing: Any object, but not a class or a module.
            only: Names of the methods to offer, in this order.
            without: Names of methods to omit.

        Raises:
            ToolDefinitionError: A name is unknown, or a method cannot become a tool; the message lists all of them.
        """
        from agentkit_tools.toolsets.from_object import methods_of

        return cls(methods_of(thing, only, without))

    @classmethod
    def from_module(
        cls, module: ModuleType, *, only: Iterable[str] | None = None, without: Iterable[str] = ()
    ) -> Toolset:
        """Return the public functions of a module as tools: the functions in `__all__`, or else all defined functions.

        Args:
            module: Any module.
            only: Names of the functions to offer, in this order, including imported functions.
            without: Names of functions to omit.

        Raises:
            ToolDefinitionError: A name is unknown, a function cannot become a tool, or two tools have the same name;
                the message lists all of them.
        """
        from agentkit_tools.toolsets.from_object import functions_of

        return cls(functions_of(module, only, without))

    async def at(self, context: PromptContext) -> Toolset:
        """Return the tools of one turn: the same in every turn. See `DynamicToolset`."""
        return self

    def prefixed(self, prefix: str) -> Toolset:
        """Put `prefix` before every name."""
        return self.renamed(lambda name: prefix + name)

    def renamed(self, names: Mapping[str, str] | Callable[[str], str]) -> Toolset:
        """Rename tools; names that are missing in a mapping are not changed."""
        if isinstance(names, Mapping):
            return self.renamed(lambda name: names.get(name, name))
        return Toolset(tool.with_changes(name=names(tool.original_name)) for tool in self)

    def filtered(self, keep: Callable[[Tool], bool]) -> Toolset:
        """Select the tools for which `keep` returns True."""
        return Toolset(tool for tool in self if keep(tool))

    def approved(self, approval: Approval = "always") -> Toolset:
        """Require a person's approval of calls: always, or if a predicate returns True."""
        return self.with_policy(approval=approval)

    def with_policy(self, **policy: Unpack[PolicyOptions]) -> Toolset:
        """Change fields of the policy of every tool."""
        return Toolset(tool.with_changes(**policy) for tool in self)

    def wrapped(self, around: Around) -> Toolset:
        """Run `around(proceed, call, context)` instead of every call; it awaits `proceed` to make the call."""
        return Toolset(WrappedTool(tool, around) for tool in self)

    def limited(self, calls: int) -> Toolset:
        """Limit a run to `calls` calls of all these tools together; further calls are denied.

        Raises:
            ToolDefinitionError: `calls` is not a whole number of 0 or more.
        """
        from agentkit_tools.toolsets.wrappers import CallLimit

        check_counts("limited", calls=(calls, 0))
        return self.wrapped(CallLimit(calls, ", ".join(self._tools)).around)

    def cached(self, maximum: int = 256) -> Toolset:
        """Reuse the results of successful calls for equal calls of the same run; cache the `maximum` latest results.

        Use it for tools without side effects. Runs share no results, because they can have different users.

        Raises:
            ToolDefinitionError: `maximum` is not a whole number of 1 or more.
        """
        from agentkit_tools.toolsets.wrappers import ResultCache

        check_counts("cached", maximum=(maximum, 1))
        return self.wrapped(ResultCache(maximum).around)

    def with_result_store(self, store: MutableMapping[str, str] | None = None) -> Toolset:
        """Store the complete text of every cut result, and add a tool `read_result` that reads it.

        Args:
            store: Any mutable mapping of references to texts; None for the 64 latest texts in memory.

        Raises:
            ToolDefinitionError: A tool is named `read_result` already.
        """
        from agentkit_tools.toolsets.wrappers import LatestEntries, ResultStore

        if store is None:
            store = LatestEntries[str, str]()
        results = ResultStore(store)
        return Toolset([*self.wrapped(results.around), results.reader()])

    def to_openai(self) -> list[dict[str, Any]]:
        """Return `tools` of a chat completion request; see `Tool.to_openai`."""
        return [tool.to_openai() for tool in self]

    def to_anthropic(self) -> list[dict[str, Any]]:
        """Return `tools` of an Anthropic messages request; see `Tool.to_anthropic`."""
        return [tool.to_anthropic() for tool in self]

    def to_gemini(self) -> list[dict[str, Any]]:
        """Return function declarations for Gemini; see `Tool.to_gemini`."""
        return [tool.to_gemini() for tool in self]

    def to_mcp(self) -> list[dict[str, Any]]:
        """Return the tools of the result of `tools/list` of MCP."""
        return [tool.to_mcp() for tool in self]

    def to_text(self) -> str:
        """Return the tools as JSON text for a prompt, one line each; equal tools have the same text."""
        return "\n".join([tool.to_text() for tool in self])

    def __add__(self, other: Iterable[ToolLike]) -> Toolset:
        return Toolset([*self, *other])

    @overload
    def __getitem__(self, index: int | str) -> Tool: ...
    @overload
    def __getitem__(self, index: slice) -> Toolset: ...
    def __getitem__(self, index: int | str | slice) -> Tool | Toolset:
        """Return the tool with a name or at an index, or the tools of a slice.

        Raises:
            KeyError: No tool has the name.
        """
        # One read: the tools of an MCP server can change between two reads.
        tools_by_name = self._tools
        if isinstance(index, str):
            if index not in tools_by_name:
                raise KeyError(f"no tool is named {index!r}{nearest(index, tools_by_name)}")
            return tools_by_name[index]
        tools = list(tools_by_name.values())
        if isinstance(index, slice):
            return Toolset(tools[index])
        return tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str):
            return item in self._tools
        return item in self._tools.values()

    def __repr__(self) -> str:
        return f"Toolset({', '.join(self._tools)})"


class DynamicToolset:
    """Tools that a function selects from the context: once for each turn, or before each step of a run.

    Use it if the tools depend on the user or on the progress of a run. In the context of a step, `intermediate`
    contains the messages of the run.

    Args:
        function: Sync or async; returns tools, functions or a wrapped toolset.
        per_step: True to call the function before each step, False once for each turn.
    """

    __slots__ = ("_function", "per_step")

    def __init__(
        self,
        function: Callable[[PromptContext], Iterable[ToolLike] | Awaitable[Iterable[ToolLike]]],
        *,
        per_step: bool = False,
    ) -> None:
        self._function = function
        self.per_step = per_step

    async def at(self, context: PromptContext) -> Toolset:
        """Return the tools of the turn or step that `context` starts.

        Raises:
            ToolDefinitionError: Two tools have the same name.
        """
        tools = self._function(context)
        if isawaitable(tools):
            tools = await tools
        if isinstance(tools, Toolset):
            return tools
        return Toolset(tools)
