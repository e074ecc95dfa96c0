"""`code_mode`: one tool that executes Python code in a sandbox, in which tools are functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Unpack, cast

from pydantic_core import to_jsonable_python

from agentkit.agent.code_model import CodeModel, encoded_error, encoded_value, read_result
from agentkit.agent.inner_call import run_in_call
from agentkit.errors import GuardError, GuardStopped, LimitExceeded
from agentkit.models.settings import NO_SETTINGS
from agentkit.run.engine.current_run import current_run
from agentkit.run.journal.code_runs import CODE_TAG
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.agent_tools import AgentTools, context_toolsets
from agentkit.run.parts.agent_version import AgentVersion
from agentkit.run.parts.chain import Chain
from agentkit.run.parts.limits import Limits
from agentkit.run.parts.run_guards import Guards
from agentkit_prompts.composition.compose import RenderCache, compose
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, Trust, UserInput
from agentkit_prompts.tokens.counter import ESTIMATE
from agentkit_prompts.tree.layers import Layers
from agentkit_tools import DynamicToolset, Toolset
from agentkit_tools.calling.tool_policy import check_counts
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import ToolDefinitionError, ToolFailure
from agentkit_tools.sandboxes.sandbox import Sandbox, SandboxJob, SandboxLimits, SandboxUnavailable, result_text
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext
from agentkit_tools.toolsets.function_stubs import stubs_within, tool_functions
from agentkit_tools.toolsets.tool_search import ToolIndex
from agentkit_tools.toolsets.toolset import ToolLike

if TYPE_CHECKING:
    from agentkit_tools.calling.tool_policy import PolicyOptions

SEARCH_FUNCTION = "search_functions"
_TIMEOUT = 600.0
"""Seconds until a call is cancelled, if the policy has no timeout."""
_MAX_ROUNDS = 1_000
"""Maximum groups of calls that one execution makes."""
_MAX_VALUE_CHARS = 1_000_000
"""Maximum characters of the value of a call for the code."""
_PLAIN = (str, int, float, bool, type(None))
"""Types of values that are JSON data."""
_RESULTS = 5
_NO_LAYERS = Layers()
_ABOUT = (
    "Execute Python code. Use it to call several functions at once, and to compute with their results. The result has "
    "the printed text and the value of the last expression. Variables are lost after each execution. Call the "
    "functions with `await`, such as `rows = await search(query='x')`; call independent functions together with "
    "`await asyncio.gather(...)`. A function that fails raises a RuntimeError."
)


def code_mode(
    tools: Iterable[ToolLike] | Any,
    *,
    sandbox: Sandbox,
    name: str = "run_code",
    limits: SandboxLimits | None = None,
    stub_tokens: int = 2_000,
    **policy: Unpack[PolicyOptions],
) -> Toolset | DynamicToolset:
    """Return a toolset with one tool, which executes Python code of the model, in which `tools` are async functions.

    The rules of each tool hold for its calls in code: checks of arguments, policies, approvals (the run pauses) and the
    limits of the run. The journal of the run contains the calls. A resumed run executes the code again, and answers the
    calls that have a result from the journal.

    The parameter of the tool shows the functions as stubs with types. Functions that exceed `stub_tokens` are found by
    the code with the function `search_functions`.

    Args:
        tools: Tools, functions or toolsets, also toolsets that create the tools of each run.
        sandbox: Executes the code.
        name: Name of the tool.
        limits: Limits of one execution.
        stub_tokens: Maximum tokens, estimated, of all stubs.
        **policy: Fields of the `ToolPolicy` of the tool; the default of `timeout` is 600 seconds.

    Raises:
        ToolDefinitionError: A tool cannot be a function: a tool of a provider, or a tool with `final=True`; skills; two
            tools have the same name; or an argument is invalid.
    """
    if not callable(getattr(sandbox, "run", None)) or isinstance(sandbox, type):
        raise ToolDefinitionError(
            f"code_mode: sandbox: expected a sandbox, such as MontySandbox() or ProcessSandbox(), got {sandbox!r:.60}",
            names=["sandbox"],
        )
    if limits is not None and not isinstance(limits, SandboxLimits):
        raise ToolDefinitionError(
            f"code_mode: limits: expected SandboxLimits, such as SandboxLimits(seconds=5), got {limits!r:.60}",
            names=["limits"],
        )
    check_counts("code_mode", stub_tokens=(stub_tokens, 100))
    toolsets = context_toolsets(tools)
    if toolsets:
        names = ", ".join([type(toolset).__name__ for toolset in toolsets])
        raise ToolDefinitionError(
            f"code_mode: {names}: these toolsets are parts of the prompt: pass them to the agent, next to code_mode",
            names=["tools"],
        )
    policy.setdefault("timeout", _TIMEOUT)
    source = AgentTools(tools, _CHAIN.answer)

    def tool_of(inner: Iterable[Tool]) -> Tool:
        return _CodeTool(tuple(inner), sandbox, name, limits or SandboxLimits(), stub_tokens).tool(policy)

    if not source.is_per_run:
        return Toolset([tool_of(source.tools.values())])

    async def at(context: PromptContext) -> list[ToolLike]:
        return [tool_of((await source.at(context)).values())]

    return DynamicToolset(at, per_step=source.is_per_step)


class _CodeChain(Chain[str]):
    """Chain of a run of code: its model reads the messages of the run, and no prompt."""

    __slots__ = ()

    def compose(self, ctx: PromptContext, *, cache: RenderCache | None = None) -> Composition:
        return compose(_NO_LAYERS, ctx, cache=cache, declares_tools=False)


class _NoModel:
    """Model of the definition of a tool. Each execution replaces it by a `CodeModel`."""

    name = CodeModel.name

    async def request(self, composition: Composition, *, on_delta: Any = None) -> Any:
        raise AssertionError("an execution of code has a CodeModel")


_CHAIN = _CodeChain(_NoModel())


class _CodeTool:
    """The tool that executes code."""

    def __init__(
        self, tools: Sequence[Tool], sandbox: Sandbox, name: str, limits: SandboxLimits, stub_tokens: int
    ) -> None:
        _check_tools(tools)
        self._sandbox = sandbox
        self._name = name
        self._limits = limits
        self._functions = tool_functions(tools, (SEARCH_FUNCTION,))
        self._stubs = list(stubs_within(self._functions, ESTIMATE.count, stub_tokens))
        self._trust: Trust = "trusted"
        if any(tool.spec.trust == "untrusted" for tool in tools):
            self._trust = "untrusted"
        if len(self._stubs) < len(self._functions):
            (search,) = tool_functions([self._search_tool(tools)])
            self._functions.append(replace(search, name=SEARCH_FUNCTION))
            self._stubs.append(self._functions[-1].stub)
        self._by_name = {function.name: function for function in self._functions}
        inner = AgentTools([_InnerTool(each.tool) for each in self._functions], _CHAIN.answer)
        self._definition = AgentDefinition(
            name,
            cast("Chain[Any]", _CHAIN),
            inner,
            Limits(steps=_MAX_ROUNDS),
            None,
            None,
            None,
            None,
            NO_SETTINGS,
            AgentVersion(_CHAIN, inner),
        )

    def tool(self, policy: PolicyOptions) -> Tool:
        """Return the tool."""
        about = "Python code."
        if self._stubs:
            about = "\n\n".join(["Python code. Its functions:", *self._stubs])
        parameters = {
            "type": "object",
            "properties": {"code": {"type": "string", "description": about}},
            "required": ["code"],
            "additionalProperties": False,
        }

        async def execute(_context: ToolContext[Any], code: str) -> Any:
            return await self._execute(_context, code)

        tool = Tool.from_json_schema(self._name, _ABOUT, parameters, execute, trust=self._trust, **policy)
        types = [deps_type for function in self._functions for deps_type in function.tool.deps_types]
        tool.deps_types = tuple(dict.fromkeys(types))
        return cast(Tool, tool)

    def _search_tool(self, tools: Sequence[Tool]) -> Tool:
        stubs = {function.tool.name: function.stub for function in self._functions}
        index = ToolIndex(tools)

        async def search_functions(query: Annotated[str, "Purpose of a function, in a few words."]) -> list[str]:
            return [stubs[tool.name] for tool in index.matches(query, _RESULTS)]

        hidden = len(self._functions) - len(self._stubs)
        about = f"Return the definitions of functions that fit a query; {hidden:,} functions are not shown here."
        name = SEARCH_FUNCTION
        while name in {tool.name for tool in tools}:
            name += "_"
        return Tool(search_functions, name=name, description=about)

    async def _execute(self, context: ToolContext[Any], code: str) -> Any:
        """Execute code as a run whose model is the code."""
        outer = current_run()

        def count(calls: int) -> None:
            if outer is not None:
                outer.count_code_calls(calls)

        job = SandboxJob(code, tuple(self._by_name), limits=self._limits)
        model = CodeModel(self._sandbox, job, self._by_name, count)
        definition = self._definition._replace(chain=_CodeChain(model))
        options: dict[str, Any] = {"tags": [CODE_TAG]}
        as_outer = getattr(context.run, "as_outer", None)
        if as_outer is not None:
            options["outer"] = as_outer._replace(counts=context.calls)
            definition = definition._replace(guards=_guards_of_tools(as_outer.guards))
        user_input = UserInput(code, additional_kwargs=context.additional_kwargs)
        try:
            output = await run_in_call(definition, self._name, user_input, context, options, ends_outer_run=_ends_run)
        except LimitExceeded as error:
            if error.limit == "steps":
                raise ToolFailure(
                    f"the code made more than {_MAX_ROUNDS:,} groups of calls: call less, or together"
                ) from None
            raise
        finally:
            await model.close()
        if isinstance(output, ToolResult):
            return output
        return result_text(read_result(output))


def _check_tools(tools: Iterable[Tool]) -> None:
    problems: dict[str, str] = {}
    for tool in tools:
        if tool.spec.native is not None:
            problems[tool.name] = f"{tool.name} runs at the provider of the model"
        elif tool.policy.final:
            problems[tool.name] = f"{tool.name} has final=True, and would end the run"
    if problems:
        raise ToolDefinitionError(
            f"code_mode: {'; '.join(problems.values())}: pass these tools to the agent directly", names=problems
        )


def _ends_run(error: Exception) -> bool:
    """True for an error that ends the run of the agent, too."""
    if isinstance(error, LimitExceeded):
        return error.limit == "tool_calls"
    return isinstance(error, SandboxUnavailable | GuardStopped | GuardError)


def _guards_of_tools(guards: Guards | None) -> Guards | None:
    """Return the guards that check tool calls and their results: they check the calls of code too."""
    if guards is None or not (guards.tool_call or guards.tool_result):
        return None
    return Guards((*guards.tool_call, *guards.tool_result))


class _InnerTool(Tool):
    """A tool whose results have content that the code reads as data."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Tool) -> None:
        for slot in Tool.__slots__:
            if slot != "__weakref__":
                setattr(self, slot, getattr(inner, slot))
        self._inner = inner

    async def call(self, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        """Make a call. See `Tool.call`."""
        result = await self._inner.call(call, context)
        return ToolResult(call.id, call.name, _content(result), result.status, result.value, result.error)


def _content(result: ToolResult) -> str:
    """Return the value of a call as content that the code reads, or its error."""
    if not result.ok:
        return encoded_error(result.message.text)
    value = result.value
    if value is None:
        text = result.message.text
        if text not in ("", "null"):
            value = text
    elif type(value) not in _PLAIN:
        try:
            value = to_jsonable_python(value, by_alias=True)
        except (ValueError, TypeError, RecursionError):
            value = result.message.text  # such as media
    content = encoded_value(value)
    if len(content) > _MAX_VALUE_CHARS:
        return encoded_error(f"the result has {len(content):,} characters; at most {_MAX_VALUE_CHARS:,} can be read")
    return content
