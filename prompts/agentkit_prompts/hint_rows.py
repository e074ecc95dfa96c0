"""Rows of the hints about names and attributes of other libraries. The text follows the word "use"."""

from __future__ import annotations

from collections.abc import Mapping

from agentkit_prompts.hint_calls import CALLS, VALIDATOR, WITHIN

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
        "agentkit.PromptContext(text, documents=[...])"
    ),
    # Evaluation
    **dict.fromkeys(
        ("evaluate", "Evaluator", "Dataset", "Case"),
        "agentkit.prompts.evaluation.run for a model with a dataset; for an agent, a loop over agent.run_sync(row)",
    ),
    # Chat templates
    **dict.fromkeys(
        ("chat_template", "get_chat_template", "get_template", "load_template"),
        "CHAT_TEMPLATES.get(name)(), with CHAT_TEMPLATES of agentkit.prompts.chat_templates",
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
    **{
        name: f"agentkit.model('{provider}:NAME')"
        for provider, names in {
            "azure": ("AzureChatOpenAI", "AzureOpenAI"),
            "bedrock": ("BedrockConverseModel", "ChatBedrock", "ChatBedrockConverse"),
            "cerebras": ("CerebrasModel", "ChatCerebras"),
            "deepseek": ("ChatDeepSeek", "DeepSeekModel"),
            "gemini": ("ChatGoogleGenerativeAI", "GeminiModel", "GoogleModel"),
            "groq": ("ChatGroq", "GroqModel"),
            "huggingface": ("ChatHuggingFace", "HuggingFaceModel"),
            "litellm": ("ChatLiteLLM", "LitellmModel"),
            "mistral": ("ChatMistralAI", "MistralModel"),
            "ollama": ("ChatOllama", "OllamaModel"),
            "openrouter": ("ChatOpenRouter", "OpenRouterModel"),
            "vertex": ("ChatVertexAI",),
            "xai": ("ChatXAI", "XaiModel"),
        }.items()
        for name in names
    },
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
_SESSION_OF = f"agent.run_sync(text, session=session) with Session(id), or {WITHIN}.session(id)"
_PAUSED = "`except Paused as paused`, with paused.calls and paused.journal: a run that waits for approval raises it"
_WORKER = "`with runs.worker():` around the code that waits, or the command `agentkit worker MODULE`"
_SYNC = "handle = runs.handle(run_id), whose methods are async: asyncio.run(handle.{}())"
_TOTAL_TOKENS = "usage.input_tokens + usage.output_tokens"

ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "Agent": {
        **dict.fromkeys(("tool", "tool_plain", "register_tool", "add_tool"), _TOOLS),
        **dict.fromkeys(("system_prompt", "instructions"), _INSTRUCTIONS),
        **dict.fromkeys(("output_validator", "result_validator"), f"Agent(model, {VALIDATOR})"),
        **dict.fromkeys(
            ("start_sync", "submit", "enqueue"), "await agent.start(text), or asyncio.run(agent.start(text))"
        ),
        **dict.fromkeys(("invoke", "chat", "kickoff", "generate", "complete"), "agent.run_sync(text)"),
        **dict.fromkeys(("ainvoke", "arun", "achat"), "await agent.run(text)"),
        **dict.fromkeys(("iter", "run_stream", "run_streamed", "astream", "stream_events"), _STREAM),
        **dict.fromkeys(("run_stream_sync", "stream_sync_text"), "agent.stream_text_sync(text)"),
        **dict.fromkeys(("batch", "abatch", "run_batch"), CALLS["Agent.map"]),
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
        **dict.fromkeys(
            (
                "approvals",
                "interruptions",
                "pending",
                "pending_approvals",
                "pending_calls",
                "requests",
                "tool_calls",
                "waiting",
            ),
            "paused.calls",
        ),
        **dict.fromkeys(
            ("approve", "resume", "approve_all"),
            "agent.resume(paused.journal, approve={call.id: True for call in paused.calls})",
        ),
        **dict.fromkeys(("deny", "reject"), "agent.resume(paused.journal, approve={call.id: False})"),
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
        **dict.fromkeys(("pending_approvals", "interruptions", "waiting", "calls"), "journal.unfinished"),
    },
    "Runs": {
        **dict.fromkeys(("get", "get_run", "run"), "runs.handle(run_id)"),
        **dict.fromkeys(("list", "all"), "await runs.list_runs()"),
        **dict.fromkeys(
            ("submit", "enqueue", "start_sync", "run_sync"),
            "await agent.start(text), or asyncio.run(agent.start(text)), after runs.add(agent)",
        ),
        **dict.fromkeys(("start_worker", "run_worker", "work", "run_forever", "serve"), _WORKER),
        **dict.fromkeys(("register", "add_agent", "register_agent"), "runs.add(agent)"),
        **{f"{name}_sync": _SYNC.format(name) for name in ("approve", "deny", "cancel", "resume", "result", "info")},
        **dict.fromkeys(("wait", "wait_sync", "get_sync"), _SYNC.format("result")),
        "list_runs_sync": "asyncio.run(runs.list_runs())",
        **dict.fromkeys(
            ("approve", "deny", "cancel", "resume", "result", "events", "info"),
            "runs.handle(run_id), whose methods are async: approve, deny, cancel, resume, result, events, info",
        ),
    },
    "RunHandle": {
        **dict.fromkeys(("status", "state"), "(await handle.info()).state"),
        **dict.fromkeys(("wait", "get", "get_result"), "await handle.result()"),
        **dict.fromkeys(("pending_approvals", "pending", "waiting", "interruptions"), "(await handle.info()).waiting"),
        **{
            f"{name}_sync": f"asyncio.run(handle.{name}())"
            for name in ("approve", "deny", "cancel", "resume", "result", "info")
        },
        "wait_sync": "asyncio.run(handle.result())",
        "id": "handle.run_id",
        "output": "(await handle.result()).output",
    },
    "Worker": {
        **dict.fromkeys(("run", "run_forever", "serve", "work", "run_sync"), _WORKER),
        **dict.fromkeys(("close", "shutdown"), "worker.stop()"),
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
        **dict.fromkeys(("requests", "calls", "turns"), "result.steps"),
        **dict.fromkeys(("total_tokens", "tokens"), f"usage = result.usage, then {_TOTAL_TOKENS}"),
        "last_agent": "result.trace",
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
        **dict.fromkeys(("openai", "to_messages", "as_openai", "to_dict", "model_dump"), "composition.to_openai()"),
        **dict.fromkeys(("anthropic", "as_anthropic"), "composition.to_anthropic()"),
        **dict.fromkeys(("prompt", "to_string", "to_str"), "composition.text, or composition.to_text(chat_template)"),
        "total": "composition.tokens",
    },
    "Tool": {
        **dict.fromkeys(
            ("parameters", "schema", "args_schema", "json_schema", "params_json_schema"), "tool.spec.parameters"
        ),
        **dict.fromkeys(("invoke", "run", "execute"), "tool(argument) like the function"),
    },
    "ToolResult": {
        **dict.fromkeys(
            ("text", "output", "result", "data"), "tool_result.content for the model, tool_result.value for Python"
        ),
        **dict.fromkeys(("is_error", "failed"), "tool_result.ok"),
        **dict.fromkeys(("tool_name", "tool"), "tool_result.name"),
    },
    "Toolset": {
        **dict.fromkeys(("tools", "list_tools", "get_tools"), "the toolset itself: `for tool in toolset`"),
        **dict.fromkeys(("names", "keys", "tool_names"), "[tool.name for tool in toolset]"),
        **dict.fromkeys(("with_prefix", "add_prefix", "prefix"), "toolset.prefixed('math_')"),
        **dict.fromkeys(("add", "append", "add_tool", "extend"), "toolset + Toolset([function])"),
        "connect": "the toolset in Agent(model, tools=toolset), which opens the connection",
    },
    "TextDelta": dict.fromkeys(("delta", "content", "value", "data"), "event.text"),
    "ThinkingDelta": dict.fromkeys(("delta", "content", "value", "data"), "event.text"),
    "ToolStarted": {
        **dict.fromkeys(("name", "tool", "tool_name"), "event.call.name"),
        **dict.fromkeys(("arguments", "args", "input"), "event.call.arguments"),
    },
    "ToolFinished": {
        **dict.fromkeys(("call", "name", "tool", "tool_name"), "event.result.name"),
        **dict.fromkeys(("content", "output", "text"), "event.result.content"),
    },
    "ScriptedModel": {
        **dict.fromkeys(("calls", "prompts", "compositions", "received"), "model.requests"),
    },
    "Recall": {
        **dict.fromkeys(("facts", "memories"), "recall.knowledge"),
        **dict.fromkeys(("hits", "results", "items", "chunks"), "the recall itself: `for item in recall`"),
        "texts": "[item.text for item in recall]",
    },
    "StoredDocument": {
        "title": (
            "document.source; chunks have titles: memory.documents.chunks(source)[0].title, or the title of a recalled "
            "document"
        ),
        **dict.fromkeys(("name", "path", "uri"), "document.source"),
        **dict.fromkeys(
            ("text", "content", "page_content"),
            "memory.recall(text): a document is stored as chunks, which a recall returns",
        ),
    },
    "Conversation": {
        **dict.fromkeys(("messages", "items", "turns"), "the conversation itself: `for message in conversation`"),
        **dict.fromkeys(("add", "add_message"), "conversation.append(message), which returns a new conversation"),
    },
    "Template": {
        **dict.fromkeys(("format", "invoke", "format_prompt"), "template.render({'name': value})"),
        **dict.fromkeys(("variables", "input_variables", "params"), "template.names"),
    },
    "TextPrompt": {
        **dict.fromkeys(("text", "content"), "prompt.template.text"),
    },
    "Media": {
        **dict.fromkeys(("from_file", "from_path", "open"), "Image(path), Audio(path), Video(path) or File(path)"),
        **dict.fromkeys(("from_url", "from_uri"), "Image(Url(address))"),
        **dict.fromkeys(("from_bytes", "from_base64", "from_data"), "Image(data, media_type='image/png')"),
        **dict.fromkeys(("data", "path", "url"), "media.source"),
    },
    "LayerTable": {
        **dict.fromkeys(("rows", "layers", "entries", "items"), "the table itself: `for row in composition.explain()`"),
        **dict.fromkeys(("to_dict", "to_list", "as_dicts", "model_dump"), "table.to_dicts()"),
        **dict.fromkeys(("tokens", "total", "total_tokens"), "composition.tokens"),
    },
    "LayerRow": {
        **dict.fromkeys(("path", "place"), "row.layer"),
        "name": "row.layer for the place, row.prompt for the class",
        "reason": "row.why",
        "text": "''.join([span.text for span in row.spans])",
        **dict.fromkeys(("trimmed", "dropped", "is_trimmed", "is_dropped"), "row.status"),
    },
    "Usage": {
        **dict.fromkeys(("requests", "calls", "request_count"), "result.steps"),
        **dict.fromkeys(("total_tokens", "tokens", "total"), _TOTAL_TOKENS),
        **dict.fromkeys(("prompt_tokens", "request_tokens"), "usage.input_tokens"),
        **dict.fromkeys(("completion_tokens", "response_tokens"), "usage.output_tokens"),
        **dict.fromkeys(("cost", "price", "total_cost"), "usage.money"),
    },
    "Message": {
        **dict.fromkeys(
            ("to_dict", "model_dump", "dict"), "pydantic.TypeAdapter(Message).dump_python(message, mode='json')"
        ),
        **dict.fromkeys(("model_dump_json", "to_json"), "pydantic.TypeAdapter(Message).dump_json(message)"),
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
    "Facts": {"__call__": ("is not callable", f"memory.facts.list(), or {WITHIN}.facts.list() for a user")},
    "Usage": {"__call__": ("is not callable", "result.usage without parentheses")},
}
"""Class -> special method that it does not have -> the problem, and what to write."""
