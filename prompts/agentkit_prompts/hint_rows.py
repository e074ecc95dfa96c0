"""Rows of the hints: a name in other libraries, and what to write here. The text follows the word "use"."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ATTRIBUTES", "CALLS", "NAMES", "OPERATORS", "OPTIONS"]

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
    "Prompt": "agentkit.Layers(system=[...]) for a whole prompt, agentkit.prompts.TextPrompt(text) for a part",
    "TemplatePrompt": "agentkit.prompts.TextPrompt('... {{ additional_kwargs.name }}')",
    "DocumentsPrompt": (
        "agentkit.prompts.MemoPrompt() in the `before_input` of agentkit.Layers, with the documents in "
        "agentkit.PromptContext(documents=[...])"
    ),
    # Memory
    **dict.fromkeys(
        ("Filter", "MetadataFilter", "SearchFilter"), "agentkit.memory.RecallFilter(metadata={'key': 'value'})"
    ),
    # Durable runs
    **dict.fromkeys(("DurableRuns", "RunManager"), "agentkit.Runs(url), and its method add(agent)"),
    "RunState": "the `journal` of agentkit.Paused, which a waiting run raises; agentkit.Journal reads stored journals",
    # Server
    **dict.fromkeys(
        ("create_app", "create_server", "make_app", "build_app"),
        "agentkit.server.Server([agent]), which is an ASGI app; tokens: Server([agent], access=Access(path))",
    ),
    # Tools
    "BaseTool": "agentkit.Tool(function)",
    "FunctionTool": "agentkit.Tool(function)",
    "StructuredTool": "agentkit.Tool(function)",
    "FunctionToolset": "agentkit.tools.Toolset([function, ...])",
    "function_tool": "agentkit.tool",
    "MCPServerHTTP": "agentkit.tools.MCPToolset(address)",
    **dict.fromkeys(
        ("MCPServer", "MCPServerStdio", "MCPClient"),
        "agentkit.tools.MCPToolset([command, argument, ...]), or agentkit.tools.MCPToolset(address)",
    ),
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

_STREAM = "agent.stream_text(text) for text, agent.stream(text) for events, whose last event has the result"
_TOOLS = "Agent(model, tools=[function])"
_INSTRUCTIONS = "Agent(model, instructions=...)"
_RESULT_MESSAGES = "result.messages for the messages of the run, session.conversation for all messages"
_RECALL = "memory.recall(text, limit=...)"
_SESSION_OF = (
    "agent.run_sync(text, session=session) with Session(id), or memory.within(Scope(tenant, user=...)).session(id)"
)
_PAUSED = "`except Paused as paused`, with paused.calls and paused.journal: a run that waits for approval raises it"
_WITHIN = "memory.within(Scope(tenant, user=...))"
_INPUT = "UserInput(text, additional_kwargs={...}) as the input"

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
        **dict.fromkeys(("session", "conversation", "chat_session"), _SESSION_OF),
        "clone": "agent.with_changes(...)",
        "copy": "agent.with_changes(...)",
        "model": "agent.chain.model",
        "layers": "agent.chain.layers",
    },
    "Memory": {
        **dict.fromkeys(("search", "query", "retrieve", "similarity_search"), _RECALL),
        "add": "memory.documents.add(text) for a document, memory.facts.add(text) for a fact",
        **dict.fromkeys(("add_fact", "remember", "save_fact"), "memory.facts.add(text)"),
        **dict.fromkeys(
            ("add_document", "add_text", "add_documents", "add_texts"), "memory.documents.add(text, source=...)"
        ),
        **dict.fromkeys(
            ("delete", "forget", "remove"),
            "memory.documents.forget(source), memory.facts.remove(id) or memory.delete_session(name)",
        ),
        "messages": "memory.session(name).conversation",
        "open": "Memory(path)",
    },
    "Facts": {
        **dict.fromkeys(("forget", "delete"), "facts.remove(id)"),
        "all": "facts.list()",
    },
    "Documents": {
        **dict.fromkeys(("remove", "delete"), "documents.forget(source)"),
        "search": _RECALL,
    },
    "Paused": {
        **dict.fromkeys(("pending_approvals", "interruptions", "pending", "tool_calls", "waiting"), "paused.calls"),
        "state": "paused.journal",
        "run_id": "paused.journal.run_id",
    },
    "Journal": {
        **dict.fromkeys(("to_json", "to_dict", "model_dump_json"), "journal.dumps()"),
        "save": "path.write_text(journal.dumps()), or agent.run(text, journal=path)",
        **dict.fromkeys(
            ("load", "from_json", "from_dict", "model_validate_json"), "Journal.loads(text), or Journal.read(path)"
        ),
        **dict.fromkeys(("approve", "deny", "reject"), "agent.resume(journal, approve={call_id: True}); False denies"),
        **dict.fromkeys(("pending_approvals", "interruptions"), "paused.calls of the Paused that the run raised"),
    },
    "Runs": {
        "get": "runs.handle(run_id)",
        "list": "await runs.list_runs()",
        **dict.fromkeys(
            ("approve", "deny", "cancel", "resume", "result", "events", "info"),
            "runs.handle(run_id), whose methods are async: approve, deny, cancel, resume, result, events, info",
        ),
    },
    "RunHandle": {
        **dict.fromkeys(("status", "state"), "(await handle.info()).state"),
        **dict.fromkeys(("wait", "get", "get_result"), "await handle.result()"),
        **dict.fromkeys(("pending_approvals", "pending", "waiting", "interruptions"), "(await handle.info()).waiting"),
        "id": "handle.run_id",
        "output": "(await handle.result()).output",
    },
    "RunRecord": {
        "id": "record.run_id",
        "status": "record.state",
        **dict.fromkeys(("pending_approvals", "pending"), "record.waiting"),
        "result": "record.output",
    },
    "RunResult": {
        **dict.fromkeys(("final_output", "data", "content", "text", "answer", "response"), "result.output"),
        **dict.fromkeys(("all_messages", "new_messages", "to_input_list", "all_messages_json"), _RESULT_MESSAGES),
        **dict.fromkeys(("pending_approvals", "interruptions", "state", "is_paused"), _PAUSED),
        "last_agent": "result.trace()",
        "tool_calls": "[call for message in result.messages for call in message.tool_calls]",
        "id": "result.run_id",
    },
    "Server": {
        **dict.fromkeys(
            ("run", "serve", "start"), "agentkit.server.serve(server, port=8000), or the Server as an ASGI app"
        ),
    },
    "Session": {
        **dict.fromkeys(("messages", "history", "get_items"), "session.conversation"),
        **dict.fromkeys(("add", "add_message", "add_items"), "session.append(message)"),
        **dict.fromkeys(("clear", "clear_session"), "session.rewind(0)"),
        **dict.fromkeys(("run", "send", "chat"), "await agent.run(text, session=session)"),
        "run_sync": "agent.run_sync(text, session=session)",
    },
    "StoredSession": {
        **dict.fromkeys(("messages", "history", "get_items"), "session.conversation"),
        **dict.fromkeys(("add", "add_message", "add_items"), "session.append(message)"),
        **dict.fromkeys(("run", "send", "chat"), "await agent.run(text, session=session)"),
        "run_sync": "agent.run_sync(text, session=session)",
    },
    "BasePrompt": {
        "compose": "compose([prompt], text)",
        **dict.fromkeys(("format", "invoke"), "prompt.render(PromptContext(user_input=text))"),
    },
    "Layers": {
        **dict.fromkeys(("compose", "render", "format"), "compose(layers, text, budget=...)"),
    },
    "Composition": {
        **dict.fromkeys(("total_tokens", "token_count", "num_tokens"), "composition.tokens"),
        **dict.fromkeys(("rows", "table"), "composition.explain()"),
    },
    "Message": {
        "assistant": "Message('assistant', text)",
        "system": "Message('system', text)",
        "tool": "Message('tool', text, tool_call_id=...)",
        "user": "Message('user', text)",
    },
}
"""Class -> attribute that it does not have -> what to write."""

_NO_CONTEXT = ("is not a context manager", "the agent without `with`; `async with toolset` closes an MCPToolset")
OPERATORS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Agent": {
        "__call__": ("is not callable", "agent.run_sync(text)"),
        "__or__": ("does not support |", "Agent(model, output=type) for a parsed answer"),
        "__ror__": ("does not support |", "Agent(model, instructions=prompt)"),
        **dict.fromkeys(("__enter__", "__exit__", "__aenter__", "__aexit__"), _NO_CONTEXT),
    },
    "Documents": {"__call__": ("is not callable", "memory.documents.list()")},
    "Facts": {"__call__": ("is not callable", f"memory.facts.list(), or {_WITHIN}.facts.list() for a user")},
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
    **dict.fromkeys(("kwargs", "additional_kwargs", "variables"), _INPUT),
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

_TOKENS = "access=Access(path) with a file that add_token(path, name, tenant) or the command `agentkit token` writes"
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "ExamplesPrompt": dict.fromkeys(
        ("title", "header", "prefix"), r"WrapPrompt([ExamplesPrompt(examples)], 'Title\n{{ wrapped_str }}')"
    ),
    "Layers": {
        **dict.fromkeys(("context", "documents", "recalled", "memory"), "before_input=[...]"),
        **dict.fromkeys(("user", "messages"), "input=[...]"),
        **dict.fromkeys(("prompts", "instructions", "system_prompt"), "system=[...]"),
    },
    "WrapPrompt": dict.fromkeys(
        ("before", "after", "prefix", "suffix", "tag", "xml"), "WrapPrompt(prompts, '<tag>{{ wrapped_str }}</tag>')"
    ),
    "Access": {
        **dict.fromkeys(("tokens", "token", "keys", "api_keys"), "add_token(path, name, tenant), then Access(path)"),
        "file": "Access(path)",
    },
    "Runs.list_runs": {
        **dict.fromkeys(("status", "states"), "state='waiting'"),
        "user_id": "user=...",
        "agent_name": "agent=...",
    },
    "Server": {
        **dict.fromkeys(("tokens", "token", "auth", "api_key", "api_keys"), _TOKENS),
        **dict.fromkeys(("host", "port"), "serve(server, host=..., port=...)"),
        "path": "access=Access(path)",
    },
    "serve": {
        **dict.fromkeys(
            ("tokens", "token", "auth", "access", "api_key"),
            "serve(Server([agent], access=Access(path))) after add_token(path, name, tenant)",
        ),
        **dict.fromkeys(
            ("memory", "runs", "options", "store"), "serve(Server([agent], ...)) with the options of Server"
        ),
    },
    **dict.fromkeys(_MODELS, _SETTINGS),
    "Agent": {
        **_LIMITS,
        **_SETTINGS,
        **dict.fromkeys(("handoffs", "sub_agents"), "tools=[agent.as_tool(name=..., description=..., final=True)]"),
        **dict.fromkeys(("retries", "output_retries", "max_retries"), "limits=Limits(repairs=...)"),
        "deps_type": "deps=TYPE in the constructor, and run(deps=value)",
        **dict.fromkeys(("toolsets", "mcp_servers"), "tools=MCPToolset(server), or tools=[function]"),
        "callbacks": "agent.run(text, on_event=function)",
        "input_guardrails": "Agent(Chain(model, redact=check)), which checks each prompt before it is sent",
        "middleware": "Agent(Chain(model, redact=function)) to change prompts, or agentkit.observe() to record runs",
        "output_guardrails": "output=OutputSpec(type, output_validator=check)",
        "verbose": "agent.run(text, on_event=print)",
    },
    "Documents.add": {
        **dict.fromkeys(("user", "user_id", "scope"), f"{_WITHIN}.documents.add(text)"),
        **dict.fromkeys(("id", "name", "path", "doc_id"), "source=..."),
        "text": "the first argument",
    },
    "IngestOptions": dict.fromkeys(
        ("chunk_size", "chunk_overlap"), "documents.add(text, source=...) for each chunk of a custom size"
    ),
    "Memory.recall": {
        **dict.fromkeys(("top_k", "k", "n", "n_results", "max_results"), "limit=..."),
        **dict.fromkeys(
            ("filter", "filters", "metadata"),
            "where=RecallFilter(...), such as RecallFilter(metadata={'key': 'value'})",
        ),
        **dict.fromkeys(("user", "user_id", "scope", "namespace", "tenant"), f"{_WITHIN}.recall(...)"),
    },
    **dict.fromkeys(("run", "compose"), _RUN),
    **dict.fromkeys(("resume", "with_changes", "override"), _CHANGES),
    "start": {
        **_DURABLE,
        **dict.fromkeys(("session_id", "thread_id"), "session=memory.session(name)"),
        "user_id": "user=...",
    },
    "map": _DURABLE,
    "Memory.ingest": {
        **dict.fromkeys(
            ("glob", "pattern", "include"), "a list of paths, such as memory.ingest([*Path(folder).glob('*.md')])"
        ),
        **dict.fromkeys(("user", "scope", "tenant"), f"{_WITHIN}.ingest(...)"),
    },
    "Memory.erase": dict.fromkeys(("user", "user_id", "tenant", "scope"), "memory.erase(Scope(tenant, user=...))"),
    "Memory.session": dict.fromkeys(("user", "user_id", "scope", "tenant"), f"{_WITHIN}.session(id)"),
    "Facts.add": dict.fromkeys(("user", "user_id", "scope"), f"{_WITHIN}.facts.add(text)"),
    "RecallFilter": {
        **dict.fromkeys(("key", "filter", "equals", "category", "type", "tags"), "metadata={'key': 'value'}"),
        "kind": "metadata={'kind': value} for data of documents, 'kinds' for chunk, image, turn and fact",
    },
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
        **dict.fromkeys(
            ("additional_kwargs", "kwargs", "variables"), "user_input=UserInput(text, additional_kwargs={...})"
        ),
    },
    "Size": {"limit": "max=...", "tokens": "max=..."},
    "ToolPolicy": {
        "args_schema": "type hints of the function, or Tool.from_json_schema(...)",
        "max_retries": "retries=...",
        **dict.fromkeys(
            ("requires_approval", "needs_approval", "require_approval", "requires_confirmation"), "approval='always'"
        ),
        **dict.fromkeys(("args", "command"), "MCPToolset([command, argument, ...])"),
        "return_direct": "final=True",
        "strict": "tool.strict()",
    },
}
"""Class or function -> keyword argument that it does not take -> what to write."""

CALLS: Mapping[str, str] = {
    **dict.fromkeys(
        ("BasePrompt.render", "ExamplesPrompt.render", "WrapPrompt.render"),
        "prompt.render(PromptContext(user_input=UserInput(text, additional_kwargs={...})))",
    ),
    "Documents.add": "documents.add(text, source=name)",
    "MCPToolset": "MCPToolset([command, argument, ...]) or MCPToolset(address)",
    "Memory.recall": "memory.recall(text, limit=3)",
    "Runs": "Runs(url), then runs.add(agent)",
    "Runs.start": "agent.start(text) after runs.add(agent), or runs.start(agent, text)",
}
"""Function, or class for its constructor -> the right call, for arguments that do not fit."""
