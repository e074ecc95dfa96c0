"""Tools for models: functions with validated arguments, whose calls return a result also if they fail."""

from agentkit_prompts.lazy import exports

# `tool` is a module, too. Bind the function before `import agentkit_tools.tool` can set the module here.
from agentkit_tools.tool import tool as tool

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit_tools.calling.tool_policy": "Approval ToolPolicy",
        "agentkit_tools.calling.tool_result": "ToolResult",
        "agentkit_tools.errors": (
            "MCPLoginError MCPServerError MCPServerLost ToolArgumentError ToolDefinitionError ToolDescriptionWarning "
            "ToolError ToolFailure"
        ),
        "agentkit_tools.mcp.login": "mcp_login",
        "agentkit_tools.mcp.mcp_toolset": "MCPToolset",
        "agentkit_tools.mcp.sampling": "Sampling",
        "agentkit_tools.mcp.serve": "mcp_server serve_mcp",
        "agentkit_tools.mcp.served_changes": "mcp_changed",
        "agentkit_tools.ready.arithmetic": "calculate",
        "agentkit_tools.ready.file_tools": "file_tools",
        "agentkit_tools.ready.http_tool": "http_tool",
        "agentkit_tools.ready.scratch_files": "ScratchFiles",
        "agentkit_tools.ready.time_tool": "time_tool",
        "agentkit_tools.ready.todos": "todo_tools",
        "agentkit_tools.skills.skill_folder": "SkillFolder",
        "agentkit_tools.tool": "Tool tool",
        "agentkit_tools.tool_context": "ToolContext",
        "agentkit_tools.toolsets.clear_results": "ClearResults",
        "agentkit_tools.toolsets.tool_search": "ToolSearch",
        "agentkit_tools.toolsets.toolset": "DynamicToolset Toolset",
    },
)
