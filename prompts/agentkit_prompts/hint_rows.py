"""Rows of the hints: a name in other libraries, and what to write here. The text follows the word "use"."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ATTRIBUTES", "NAMES", "OPTIONS"]

NAMES: Mapping[str, str] = {
    # Prompts
    "ChatPromptTemplate": "agentkit.Layers with prompts such as agentkit.prompts.TextPrompt",
    "PromptTemplate": "agentkit.prompts.Template for text with variables",
    "HumanMessage": "agentkit.Message('user', text)",
    "UserMessage": "agentkit.Message('user', text)",
    "AIMessage": "agentkit.Message('assistant', text)",
    "AssistantMessage": "agentkit.Message('assistant', text)",
    "SystemMessage": "agentkit.Message('system', text)",
    "ToolMessage": "agentkit.Message('tool', text, tool_call_id=...)",
    "ImageUrl": "agentkit.prompts.Image(agentkit.prompts.Url(address))",
    "OutputRequest": "agentkit.OutputSpec for an agent, or output_schema=... of agentkit.prompts.compose",
    "InMemorySession": "agentkit.Session",
    "Layer": "agentkit.Layers(system=[...], user=[...])",
    "SystemPrompt": "agentkit.prompts.TextPrompt in the `system` of agentkit.Layers",
    # Tools
    "BaseTool": "agentkit.Tool(function)",
    "FunctionTool": "agentkit.Tool(function)",
    "StructuredTool": "agentkit.Tool(function)",
    "FunctionToolset": "agentkit.tools.Toolset([function, ...])",
    "function_tool": "agentkit.tool",
    "MCPServerHTTP": "agentkit.tools.MCPToolset(address)",
    "MCPServerStdio": "agentkit.tools.MCPToolset(command)",
    "MCPServerStreamableHTTP": "agentkit.tools.MCPToolset(address)",
    "ModelRetry": "agentkit.AskAgain in a validator of answers, agentkit.tools.ToolFailure in a tool",
    "RunContext": "agentkit.ToolContext",
    "RunContextWrapper": "agentkit.ToolContext",
}
"""Name that a module does not export -> what to write."""

ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "Message": {
        "assistant": "Message('assistant', text)",
        "system": "Message('system', text)",
        "tool": "Message('tool', text, tool_call_id=...)",
        "user": "Message('user', text)",
    },
}
"""Class -> attribute that it does not have -> what to write."""

OPTIONS: Mapping[str, Mapping[str, str]] = {
    "Document": {
        "content": "text=...",
        "page_content": "text=...",
        "url": "source=...",
    },
    "Fact": {"content": "text=..."},
    "PromptContext": {
        "context": "documents=[...]",
        "history": "conversation=[...]",
        "input": "user_input=...",
        "messages": "conversation=[...]",
        "query": "user_input=...",
        "variables": "user_input=UserInput(text, additional_kwargs={...})",
    },
    "Size": {"limit": "max=...", "tokens": "max=..."},
    "ToolPolicy": {
        "args_schema": "type hints of the function, or Tool.from_json_schema(...)",
        "max_retries": "retries=...",
        "requires_approval": "approval='always'",
        "return_direct": "final=True",
        "strict": "tool.strict()",
        "tries": "max_consecutive_failures=...",
    },
}
"""Class or function -> keyword argument that it does not take -> what to write."""
