"""Public types and helpers for extensions of the tools layer.

Most programs need `agentkit.tools` only.
"""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit_prompts.composition.untrusted_sources": "SourceKind UntrustedSource",
        "agentkit_tools.calling.result_content": "Content",
        "agentkit_tools.calling.tool_policy": "PolicyOptions",
        "agentkit_tools.calling.tool_result": "ToolStatus unknown_tool",
        "agentkit_tools.calling.tool_threads": "abandoned_threads",
        "agentkit_tools.errors": "ArgumentProblem",
        "agentkit_tools.schemas.argument_reader": "Arguments",
        "agentkit_tools.schemas.callables": "wire_name",
        "agentkit_tools.tool_context": "RunState TokenUsage",
        "agentkit_tools.toolsets.toolset": "by_name",
        "agentkit_tools.toolsets.wrapped_tool": "Around Proceed WrappedTool",
    },
)
