"""Rows of the hints: a name in other libraries, and what to write here. The text follows the word "use"."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ATTRIBUTES", "NAMES", "OPERATORS", "OPTIONS", "POSITIONS"]

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
    "Layer": "agentkit.Layers(system=[...], before_input=[...])",
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
    "AgentExecutor": "agentkit.Agent",
    "AgentRunner": "agentkit.Agent and its method run_sync",
    "Runner": "agentkit.Agent and its method run_sync",
    "ChatOpenAI": "agentkit.OpenAIModel",
    "ChatAnthropic": "agentkit.AnthropicModel",
    "FakeModel": "agentkit.testing.ScriptedModel",
    "FunctionModel": "agentkit.testing.ScriptedModel",
    "TestModel": "agentkit.testing.ScriptedModel",
    "Handoff": "agentkit.Agent and its method as_tool, with final=True",
    "InMemorySession": "agentkit.Session('name')",
    "MemorySession": "agentkit.Session('name')",
    "SQLiteSession": "agentkit.Memory(path).session('name')",
    "StreamEvent": "agentkit.Event",
    "UsageLimits": "agentkit.Limits",
    "VectorStore": "agentkit.Memory",
    "RunContext": "agentkit.ToolContext",
    "RunContextWrapper": "agentkit.ToolContext",
}
"""Name that a module does not export -> what to write."""

_STREAM = "agent.stream_text(text) for text, agent.stream(text) for events"
_TOOLS = "Agent(model, tools=[function])"
_INSTRUCTIONS = "Agent(model, instructions=...)"
_RESULT_MESSAGES = "result.messages for the messages of the run, session.conversation for all messages"
_RECALL = "memory.recall(text, limit=...)"

ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "Agent": {
        **dict.fromkeys(("tool", "tool_plain", "register_tool", "add_tool"), _TOOLS),
        **dict.fromkeys(("system_prompt", "instructions"), _INSTRUCTIONS),
        **dict.fromkeys(("output_validator", "result_validator"), "output=OutputSpec(type, output_validator=check)"),
        **dict.fromkeys(("invoke", "chat", "kickoff", "generate", "complete"), "agent.run_sync(text)"),
        **dict.fromkeys(("ainvoke", "arun", "achat"), "await agent.run(text)"),
        **dict.fromkeys(("iter", "run_stream", "run_streamed", "astream", "stream_events"), _STREAM),
        **dict.fromkeys(("run_stream_sync", "stream_sync_text"), "agent.stream_text_sync(text)"),
        **dict.fromkeys(("batch", "abatch", "run_batch"), "agent.map(inputs, name=..., out=...)"),
        **dict.fromkeys(("to_cli", "to_cli_sync", "cli"), "the command agentkit chat --agent module:agent"),
        "but": "agent.with_changes(...)",
        "clone": "agent.with_changes(...)",
        "copy": "agent.with_changes(...)",
        "model": "agent.chain.model",
        "layers": "agent.chain.layers",
    },
    "Memory": {
        **dict.fromkeys(("search", "query", "retrieve", "similarity_search"), _RECALL),
        "add": "memory.documents.add(text) for a document, memory.facts.add(text) for a fact",
        "delete": "memory.documents.forget(source), memory.delete_session(name) or memory.erase(scope)",
        "messages": "memory.session(name).conversation",
        "open": "Memory(path)",
    },
    "Runs": {
        "get": "runs.handle(run_id)",
        "list": "await runs.list_runs()",
    },
    "RunHandle": {
        **dict.fromkeys(("status", "state"), "(await handle.info()).state"),
        **dict.fromkeys(("wait", "get", "get_result"), "await handle.result()"),
    },
    "RunResult": {
        **dict.fromkeys(("final_output", "data", "content", "text", "answer", "response"), "result.output"),
        **dict.fromkeys(("all_messages", "new_messages", "to_input_list", "all_messages_json"), _RESULT_MESSAGES),
        "last_agent": "result.trace()",
    },
    "Server": {
        **dict.fromkeys(("run", "serve", "start"), "agentkit.server.serve(agents), or a Server as an ASGI app"),
    },
    "Session": {
        **dict.fromkeys(("messages", "history", "get_items"), "session.conversation"),
        **dict.fromkeys(("add", "add_message", "add_items"), "session.append(message)"),
        **dict.fromkeys(("clear", "clear_session"), "session.rewind(0)"),
    },
    "StoredSession": {
        **dict.fromkeys(("messages", "history", "get_items"), "session.conversation"),
        **dict.fromkeys(("add", "add_message", "add_items"), "session.append(message)"),
    },
    "Message": {
        "assistant": "Message('assistant', text)",
        "system": "Message('system', text)",
        "tool": "Message('tool', text, tool_call_id=...)",
        "user": "Message('user', text)",
    },
}
"""Class -> attribute that it does not have -> what to write."""

OPERATORS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Agent": {
        "__call__": ("is not callable", "agent.run_sync(text)"),
        "__or__": ("does not support |", "Agent(model, output=type) for a parsed answer"),
        "__ror__": ("does not support |", "Agent(model, instructions=prompt)"),
    },
    "Usage": {"__call__": ("is not callable", "result.usage without parentheses")},
}
"""Class -> special method that it does not have -> the problem, and what to write."""

_SETTINGS = {
    name: f"settings=ModelSettings({name}=...)"
    for name in ("temperature", "top_p", "top_k", "max_tokens", "stop", "seed", "effort", "tool_choice")
}
_SETTINGS["reasoning_effort"] = _SETTINGS["effort"]
_LIMITS = dict.fromkeys(("max_turns", "max_steps", "max_iterations", "usage_limits"), "limits=Limits(steps=...)")
_CHANGES = {**_LIMITS, **_SETTINGS}
_RUN = {
    **_CHANGES,
    **dict.fromkeys(("message_history", "messages", "chat_history"), "history=[...]"),
    "user_id": "scope=Scope(tenant, user=...), or a session of memory.within(scope)",
}

_MODELS = (
    "AnthropicModel",
    "CompletionModel",
    "DeepSeekModel",
    "GeminiModel",
    "OpenAIModel",
    "OpenAIResponsesModel",
)

_DURABLE = {name: f"Agent(model, {text}), and add the agent to runs" for name, text in _CHANGES.items()}

OPTIONS: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(_MODELS, _SETTINGS),
    "Agent": {
        **_LIMITS,
        **_SETTINGS,
        **dict.fromkeys(("handoffs", "sub_agents"), "tools=[agent.as_tool(name=..., description=..., final=True)]"),
        **dict.fromkeys(("retries", "output_retries", "max_retries"), "limits=Limits(repairs=...)"),
        **dict.fromkeys(("toolsets", "mcp_servers"), "tools=MCPToolset(server), or tools=[function]"),
        "callbacks": "agent.run(text, on_event=function)",
        "input_guardrails": "Agent(Chain(model, redact=check)), which checks each prompt before it is sent",
        "middleware": "Agent(Chain(model, redact=function)) to change prompts, or agentkit.observe() to record runs",
        "output_guardrails": "output=OutputSpec(type, output_validator=check)",
        "verbose": "agent.run(text, on_event=print)",
    },
    "Documents.add": {
        **dict.fromkeys(("id", "name", "path", "doc_id"), "source=..."),
        "text": "the first argument",
    },
    "IngestOptions": dict.fromkeys(
        ("chunk_size", "chunk_overlap"), "documents.add(text, source=...) for each chunk of a custom size"
    ),
    "Memory.recall": {
        **dict.fromkeys(("top_k", "k", "n", "n_results", "max_results"), "limit=..."),
        **dict.fromkeys(("filter", "filters", "metadata"), "where=RecallFilter(...)"),
        **dict.fromkeys(("user_id", "scope", "namespace"), "memory.within(scope).recall(...)"),
    },
    "run": _RUN,
    **dict.fromkeys(("resume", "with_changes", "override"), _CHANGES),
    "start": {
        **_DURABLE,
        **dict.fromkeys(("session_id", "thread_id"), "session=memory.session(name)"),
        "user_id": "user=...",
    },
    "map": _DURABLE,
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

POSITIONS: Mapping[str, str] = {
    "Documents.add": "documents.add(text, source=name)",
    "Memory.recall": "memory.recall(text, limit=3)",
}
"""Function -> what to write instead of too many positional arguments."""
