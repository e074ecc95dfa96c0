"""Rows of the hints about calls: arguments in other libraries, and the right call. The text follows the word "use"."""

from __future__ import annotations

from collections.abc import Mapping

WITHIN = "memory.within(memory.scope.narrow(user=...))"
"""The tenant of the memory stays: a reader of another tenant finds nothing."""
INPUT = "UserInput(text, additional_kwargs={...}) as the input"
VALIDATOR = "output=OutputSpec(type, output_validator=check)"

_SETTINGS = {
    name: f"settings=ModelSettings({name}=...)"
    for name in ("temperature", "top_p", "top_k", "max_tokens", "stop", "seed", "effort", "tool_choice")
}
_SETTINGS["reasoning_effort"] = _SETTINGS["effort"]
_LIMITS = dict.fromkeys(("max_turns", "max_steps", "max_iterations", "usage_limits"), "limits=Limits(steps=...)")
_CHANGES = {**_LIMITS, **_SETTINGS}
_APPROVE = dict.fromkeys(
    ("approver", "approvals", "decisions", "on_approval", "approval", "approved"),
    "approve=..., a function of a call or a mapping of call ids to True or False",
)
_CONTEXT = dict.fromkeys(
    ("documents", "knowledge", "facts", "context", "examples"),
    "PromptContext(text, documents=[...]) as the input, with a prompt that shows the field, such as MemoPrompt()",
)
_RUN = {
    **_CHANGES,
    **_APPROVE,
    **_CONTEXT,
    **dict.fromkeys(("message_history", "messages", "chat_history"), "history=[...]"),
    "user_id": "scope=memory.scope.narrow(user=...), or a session of memory.within(scope)",
    **dict.fromkeys(("kwargs", "additional_kwargs", "variables"), INPUT),
}

_MODELS = (
    "AnthropicModel",
    "CompletionModel",
    "OpenAIModel",
    "OpenAIResponsesModel",
    "model",
)

_DURABLE = {name: f"Agent(model, {text}), and add the agent to runs" for name, text in _CHANGES.items()}

_TITLED = "memory.documents.add(Document(text, title=..., source=...))"
_RUNS = "runs = Runs('sqlite:///jobs.db') and runs.add(agent)"
_WITHOUT_RUNS = "without a database: [agent.run_sync(text) for text in inputs]"
_TOKENS = "access=Access(path) with a file that add_token(path, name, tenant) or the command `agentkit token` writes"
_SHOWN = {
    prompt: f"PromptContext(text, {field}=[...]) as the context, and {prompt}() without arguments{more}"
    for prompt, field, more in (
        ("ConversationPrompt", "conversation", ""),
        ("KnowledgePrompt", "knowledge", "; for documents PromptContext(text, documents=[...]) and MemoPrompt()"),
        ("MemoPrompt", "documents", ""),
        ("RecalledPrompt", "recalled", ""),
        ("ToolPrompt", "tools", ""),
    )
}
"""Prompts that show a field of the context."""
_MEDIA = {
    **dict.fromkeys(
        ("alt", "alt_text", "caption", "title", "description"), "name=..., the name in the text that replaces the part"
    ),
    **dict.fromkeys(("mime", "mime_type", "content_type", "type", "format"), "media_type=..."),
    **dict.fromkeys(("path", "url", "data", "file", "content", "bytes", "base64"), "the first argument"),
    "filename": "name=...",
}
_FIELDS = ("documents", "docs", "facts", "knowledge", "messages", "conversation", "recalled", "tools", "items")
OPTIONS: Mapping[str, Mapping[str, str]] = {
    **{prompt: dict.fromkeys(_FIELDS, advice) for prompt, advice in _SHOWN.items()},
    "Budget": {
        **dict.fromkeys(("total", "max_tokens", "max", "tokens", "size", "context_window", "max_input"), "limit=..."),
        **dict.fromkeys(("answer", "output", "reserved", "output_tokens", "max_output_tokens"), "reserve=..."),
    },
    "ExamplesPrompt": {
        **dict.fromkeys(
            ("title", "header", "prefix"), r"WrapPrompt([ExamplesPrompt(examples)], 'Title\n{{ wrapped_str }}')"
        ),
        **dict.fromkeys(
            ("limit", "k", "n", "max_examples", "top_k", "count"),
            "selector=StaticSelector(n), imported from agentkit.prompts.example_selectors",
        ),
        **dict.fromkeys(("max_tokens", "budget"), "size=Size(max=..., cut='items')"),
    },
    **dict.fromkeys(("Image", "Audio", "Video", "File"), _MEDIA),
    "FactDraft": dict.fromkeys(("user", "scope"), f"{WITHIN}.facts.add(text)"),
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
        **dict.fromkeys(("output_guardrails", "output_validator", "output_validators", "result_validators"), VALIDATOR),
        **dict.fromkeys(
            ("session", "session_id"), "agent.run(text, session=session), with Session(id) or memory.session(id)"
        ),
        "verbose": "agent.run(text, on_event=print)",
    },
    "Documents.add": {
        **dict.fromkeys(("user", "user_id", "scope"), f"{WITHIN}.documents.add(text)"),
        **dict.fromkeys(("id", "name", "path", "doc_id"), "source=..."),
        "title": _TITLED,
        "text": "the first argument",
    },
    "IngestOptions": {
        **dict.fromkeys(
            ("chunk_size", "chunk_overlap"), "documents.add(text, source=...) for each chunk of a custom size"
        ),
        **dict.fromkeys(("record_key", "record_id"), "record_metadata=('key',) to store a field with each record"),
    },
    "Memory.recall": {
        **dict.fromkeys(("top_k", "k", "n", "n_results", "max_results"), "limit=..."),
        **dict.fromkeys(
            ("filter", "filters", "metadata"),
            "where=RecallFilter(...), such as RecallFilter(metadata={'key': 'value'})",
        ),
        **dict.fromkeys(("user", "user_id", "scope", "namespace"), f"{WITHIN}.recall(...)"),
        "tenant": "memory.within(tenant).recall(...)",
    },
    "run": _RUN,
    "compose": {
        **_RUN,
        **dict.fromkeys(("max_tokens", "tokens", "limit"), "budget=..."),
        "tokenizer": "counter=...",
    },
    "resume": {**_CHANGES, **_APPROVE},
    **dict.fromkeys(("with_changes", "override"), _CHANGES),
    "start": {
        **_DURABLE,
        **dict.fromkeys(("session_id", "thread_id"), "session=memory.session(name)"),
        "user_id": "user=...",
    },
    "map": _DURABLE,
    "Memory.ingest": {
        "recursive": "memory.ingest(folder), which reads all folders inside",
        **dict.fromkeys(
            ("glob", "pattern", "include"), "a list of paths, such as memory.ingest([*Path(folder).glob('*.md')])"
        ),
        **dict.fromkeys(("user", "scope"), f"{WITHIN}.ingest(...)"),
        "tenant": "memory.within(tenant).ingest(...)",
        **dict.fromkeys(("title", "source", "text", "content"), _TITLED),
        "metadata": "memory.documents.add(text, source=..., metadata=...)",
    },
    "Memory.erase": {
        **dict.fromkeys(("user", "user_id", "scope"), "memory.erase(memory.scope.narrow(user=...))"),
        "tenant": "memory.erase(tenant)",
        **dict.fromkeys(("source", "document"), "memory.documents.forget(source)"),
    },
    "Memory.within": {
        **dict.fromkeys(("user", "user_id", "name"), WITHIN),
        "tenant": "memory.within(tenant)",
        **dict.fromkeys(("session", "agent"), "memory.within(memory.scope.narrow(session=...))"),
    },
    "Memory.session": {
        **dict.fromkeys(("user", "user_id", "scope"), f"{WITHIN}.session(id)"),
        "tenant": "memory.within(tenant).session(id)",
    },
    "Memory.sessions": dict.fromkeys(("user", "user_id", "scope"), f"{WITHIN}.sessions()"),
    "Memory.delete_session": dict.fromkeys(("user", "user_id", "scope"), f"{WITHIN}.delete_session(id)"),
    "Facts.add": dict.fromkeys(("user", "user_id", "scope"), f"{WITHIN}.facts.add(text)"),
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
        **dict.fromkeys(
            ("budget", "max_tokens", "limit"), "compose(layers, context, budget=...), or the option budget of a run"
        ),
        **dict.fromkeys(("facts", "memory", "memories"), "knowledge=[...]"),
        "context": "documents=[...]",
        "history": "conversation=[...]",
        "input": "user_input=...",
        "messages": "conversation=[...]",
        "query": "user_input=...",
        **dict.fromkeys(
            ("additional_kwargs", "kwargs", "variables"), "user_input=UserInput(text, additional_kwargs={...})"
        ),
    },
    "ScriptedModel": {
        "delay": "Delayed(seconds, reply) of agentkit.testing as a reply",
        **dict.fromkeys(("repeat", "cycle", "loop"), "ScriptedModel.repeat(reply, reply)"),
        **dict.fromkeys(("responses", "messages", "outputs", "script", "answers", "turns"), "ScriptedModel([...])"),
    },
    "Size": {"limit": "max=...", "tokens": "max=...", "max_tokens": "max=...", "min_tokens": "min=..."},
    "Tool.from_json_schema": dict.fromkeys(
        ("schema", "json_schema", "input_schema", "args_schema"), "parameters=..., the JSON Schema of the arguments"
    ),
    "http_tool": dict.fromkeys(("domains", "allowed_hosts", "allowed_domains", "host"), "hosts=[...]"),
    "ToolPolicy": {
        "args_schema": "type hints of the function, or Tool.from_json_schema(...)",
        "max_retries": "retries=...",
        **dict.fromkeys(
            ("requires_approval", "needs_approval", "require_approval", "requires_confirmation"), "approval='always'"
        ),
        **dict.fromkeys(("args", "command"), "MCPToolset([command, argument, ...])"),
        "return_direct": "final=True",
        "policy": "the fields of the policy, such as @tool(approval='always', retries=2)",
        "strict": "tool.strict()",
    },
}
"""Class or function -> keyword argument that it does not take -> what to write."""

CALLS: Mapping[str, str] = {
    **_SHOWN,
    "AdditionalInfoPrompt": "UserInput(text, additional_kwargs={...}) as the input, and AdditionalInfoPrompt()",
    "SummaryPrompt": "PromptContext(text, summary=...) as the context, and SummaryPrompt() without arguments",
    "TextPrompt": "WrapPrompt([prompt, prompt]) for several prompts",
    "UserInputPrompt": "PromptContext(text) as the context, and UserInputPrompt() without arguments",
    **dict.fromkeys(
        ("BasePrompt.render", "ExamplesPrompt.render", "WrapPrompt.render"),
        "prompt.render(PromptContext(user_input=UserInput(text, additional_kwargs={...})))",
    ),
    "Documents.add": "documents.add(text, source=name)",
    "Layers": "Layers([prompt, prompt]); the input of the user follows these prompts, without a UserInputPrompt()",
    "MCPToolset": "MCPToolset([command, argument, ...]) or MCPToolset(address)",
    "Memory.recall": "memory.recall(text, limit=3)",
    "Memory.within": WITHIN,
    **{name: f"{WITHIN}.{name.removeprefix('Memory.')}(...)" for name in ("Memory.sessions", "Memory.delete_session")},
    "FactDraft": "memory.facts.add(text) for a fact without an extractor",
    "Agent.map": f"{_RUNS}, then await agent.map(inputs, name=..., out=path); {_WITHOUT_RUNS}",
    "Runs.map": "await runs.map(agent, inputs, name=..., out=path)",
    "Runs.schedule": "await runs.schedule(agent, text, name=..., cron='0 8 * * *')",
    "Tool.call": (
        "tool(name=value) like the function; for a call of a model "
        "await tool.call(ToolCall(name=..., arguments={...}), ToolContext(deps=None))"
    ),
    "compose": f"{INPUT} for values of templates",
    "observe": "agent.run(text, on_event=function) for the events of a run; observe() records spans of OpenTelemetry",
    "select_examples": (
        "ExamplesPrompt(examples, selector=StaticSelector(n)) for the first n examples; "
        "await select_examples(layers, PromptContext(text)) runs the selectors of layers"
    ),
    "ScriptedModel": "ScriptedModel([reply, reply])",
    "Tool.from_json_schema": "Tool.from_json_schema(name, description, parameters, function)",
    "http_tool": "http_tool(hosts=[...])",
    "Template.render": "template.render({'name': value})",
    "Runs": "Runs(url), then runs.add(agent), with a url such as 'sqlite:///runs.db'",
    "Runs.start": "agent.start(text) after runs.add(agent), or runs.start(agent, text)",
}
"""Function, or class for its constructor -> the right call, for arguments that do not fit."""
