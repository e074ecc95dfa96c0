"""Tools, messages and documents of other frameworks are accepted, or refused with the alternative."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, TypeAdapter

from agentkit import Agent, Message, ScriptedModel, Session, ToolCall
from agentkit.agent_files import load_agent
from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.memory import Memory
from agentkit.prompts import ContextError, Document, MessageError, PromptContext, PromptError
from agentkit.tools import Tool, ToolContext, ToolDefinitionError, Toolset
from tests.raising import raises

PNG = base64.b64encode(b"\x89PNG1234").decode()


class LangChainMessage:
    """Shaped as a message of LangChain."""

    def __init__(self, type: str, content: Any, **fields: Any) -> None:
        self.type, self.content = type, content
        self.additional_kwargs: dict[str, Any] = {}
        self.response_metadata: dict[str, Any] = {}
        vars(self).update(fields)


class LangChainDocument:
    """Shaped as a document of LangChain."""

    def __init__(self, page_content: str = "At noon.", **metadata: Any) -> None:
        self.page_content, self.metadata, self.id = page_content, metadata, "d1"


class Retriever:
    def invoke(self, query: str, config: object = None) -> list[LangChainDocument]:
        return [LangChainDocument(source="times.md")]


class Place(BaseModel):
    city: str


class OldPlace:
    """Shaped as a class of pydantic 1."""

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return {"title": "Place", "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class LangChainTool:
    """Shaped as a tool of LangChain."""

    description = "Tell the weather."
    name = "weather"
    return_direct = False

    def __init__(self, answer: Any = "sunny", **fields: Any) -> None:
        self.answer = answer
        self.args_schema: Any = Place
        self.tool_call_schema: Any = Place
        self.calls: list[Any] = []
        vars(self).update(fields)

    async def ainvoke(self, call: Any) -> Any:
        self.calls.append(call)
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, str):
            return SimpleNamespace(content=self.answer, tool_call_id=call["id"], status="success", artifact=None)
        return self.answer


class LlamaIndexTool:
    """Shaped as a tool of LlamaIndex."""

    def __init__(self, answer: Any, **fields: Any) -> None:
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        self.metadata = SimpleNamespace(
            name="weather", description="Tell the weather.", return_direct=False, get_parameters_dict=lambda: schema
        )
        self.answer = answer
        vars(self).update(fields)

    def __call__(self, input: Any = None, **arguments: Any) -> Any:
        return self.answer

    async def acall(self, **arguments: Any) -> Any:
        return self(**arguments)


class LlamaIndexOutput(SimpleNamespace):
    def __str__(self) -> str:
        return str(self.content)


@dataclass
class PydanticAITool:
    """Shaped as a tool of pydantic-ai."""

    function: Any
    takes_ctx: bool = False
    name: str = "weather"
    description: str = "Tell the weather."
    max_retries: int | None = None
    prepare: Any = None
    strict: bool | None = None
    sequential: bool = False
    requires_approval: bool = False
    timeout: float | None = None

    @property
    def function_schema(self) -> Any:
        async def call(values: Any, context: Any) -> Any:
            return self.function(context, **values) if self.takes_ctx else self.function(**values)

        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        return SimpleNamespace(json_schema=schema, validator=TypeAdapter(dict[str, Any]).validator, call=call)


@dataclass
class Request:
    """Shaped as a request of pydantic-ai."""

    parts: list[Any]
    instructions: str | None = None
    kind: str = "request"


@dataclass
class Response:
    """Shaped as a response of pydantic-ai."""

    parts: list[Any]
    model_name: str | None = None
    kind: str = "response"


@dataclass
class Part:
    """Shaped as a part of pydantic-ai."""

    part_kind: str
    content: Any = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    args: Any = None
    metadata: Any = None
    provider_name: str | None = None
    signature: str | None = None


@dataclass
class LlamaIndexMessage:
    """Shaped as a chat message of LlamaIndex."""

    role: str
    blocks: list[Any]
    additional_kwargs: dict[str, Any] = field(default_factory=dict)


def text(words: str) -> SimpleNamespace:
    return SimpleNamespace(block_type="text", text=words)


async def result_of(tool: Any, deps: Any = None) -> Any:
    (made,) = Toolset([tool])
    return await made.call(ToolCall("c1", made.name, '{"city": "Bern"}'), ToolContext(deps, call_id="c1"))


# --- messages

BINARY = SimpleNamespace(kind="binary", data=b"\x89PNG1234", media_type="image/png")
CALL = {"name": "weather", "args": {"city": "Bern"}, "id": "c1"}
CONVERSATIONS: dict[str, list[Any]] = {
    "langchain": [
        LangChainMessage("system", "Be brief."),
        LangChainMessage("human", [{"type": "text", "text": "See"}, {"type": "image", "base64": PNG}], id="m1"),
        LangChainMessage("ai", [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}], tool_calls=[CALL]),
        LangChainMessage("tool", "sunny", tool_call_id="c1", artifact={"degrees": 20}, status="success"),
    ],
    "llama-index": [
        LlamaIndexMessage("system", [text("Be brief.")]),
        LlamaIndexMessage("user", [text("See"), SimpleNamespace(block_type="image", image=PNG.encode())], {"id": "m1"}),
        LlamaIndexMessage(
            "assistant",
            [SimpleNamespace(block_type="tool_call", tool_name="weather", tool_call_id="c1", tool_kwargs=CALL["args"])],
        ),
        LlamaIndexMessage("tool", [text("sunny")], {"tool_call_id": "c1", "degrees": 20}),
    ],
    "pydantic-ai": [
        Request(
            [
                Part("system-prompt", "Be brief."),
                Part("user-prompt", ["See", BINARY]),
            ],
            instructions="m1",
        ),
        Response([Part("tool-call", tool_name="weather", tool_call_id="c1", args=CALL["args"])], "gpt"),
        Request([Part("tool-return", "sunny", "weather", "c1", metadata={"degrees": 20})]),
    ],
}


@pytest.mark.parametrize("library", CONVERSATIONS)
def test_messages_of_other_libraries_keep_their_calls_results_media_and_ids(library: str) -> None:
    conversation = Session(conversation=CONVERSATIONS[library]).conversation
    system, user, reply, result = conversation
    assert [message.role for message in conversation] == ["system", "user", "assistant", "tool"]
    assert (system.text, user.parts[0]) == ("Be brief.", user.parts[0])
    assert user.parts[1].read() == b"\x89PNG1234"  # type: ignore[union-attr]
    assert reply.tool_calls == (ToolCall("c1", "weather", CALL["args"]),)  # type: ignore[arg-type]
    assert (result.text, result.tool_call_id, result.name) == ("sunny", "c1", "weather")
    kept = [str(message.opaque.get(library)) for message in conversation]
    assert "m1" in f"{kept[0]}{kept[1]}"
    assert "20" in kept[3]


@pytest.mark.parametrize("library", CONVERSATIONS)
def test_data_without_a_counterpart_is_stored_and_never_sent(library: str) -> None:
    composition = Agent(ScriptedModel([])).compose("And now?", session=Session(conversation=CONVERSATIONS[library]))
    for payload in (composition.to_openai(), composition.to_anthropic(), composition.to_responses()):
        assert "degrees" not in str(payload)


def thought(provider: str) -> Response:
    return Response([Part("thinking", "why", provider_name=provider, signature="s"), Part("text", "so")])


def test_only_signed_thinking_of_a_known_provider_is_sent_back() -> None:
    messages = PromptContext("", conversation=[thought("anthropic"), thought("google")]).conversation
    assert [message.thinking[0].provider for message in messages] == ["anthropic", "pydantic-ai:google"]
    assert [message.reasoning for message in messages] == ["why", "why"]


REFUSED_MESSAGES: dict[str, Any] = {
    "[0]": LangChainMessage("remove", "", id="m1"),
    "[0] ": LangChainMessage("function", "sunny", name="weather"),
    "[0].artifact": LangChainMessage("tool", "x", tool_call_id="c1", artifact=object()),
    "[0].content[0]": LangChainMessage("human", [{"type": "image", "url": "http://10.0.0.1/a.png"}]),
    "[0].content[0].text": LangChainMessage("human", [{"type": "text"}]),
    "[0].content[0].image_url.url": LangChainMessage("human", [{"type": "image_url", "image_url": {"url": 5}}]),
    "[0].blocks[0]": LlamaIndexMessage("user", [SimpleNamespace(block_type="hologram")]),
    "[0].parts[0]": Request([Part("instruction-delta", "x")]),
    "[0].parts[0].content": Request([Part("tool-return", object(), "weather", "c1")]),
}


def test_messages_that_cannot_be_converted_are_refused_with_their_place() -> None:
    wrong = []
    for place, message in REFUSED_MESSAGES.items():
        with pytest.raises(MessageError) as caught:
            Session(conversation=[message])
        if caught.value.problems[0].place != f"Session{place.strip()}":
            wrong.append((place, caught.value.problems))
    assert not wrong


MALFORMED: list[dict[str, Any]] = [
    {"type": "human", "content": 5},
    {"type": "human", "data": {}},
    {"type": "ai", "content": "", "tool_calls": 5},
    {"type": "ai", "content": "", "additional_kwargs": [1]},
    {"type": "ai", "content": [{"type": "reasoning", "summary": 5}]},
    {"type": "human", "content": [{"type": "text-plain", "text": 5}]},
    {"role": "user", "blocks": [5]},
    {"role": 5, "blocks": []},
    {"role": "user", "blocks": [{"block_type": []}]},
    {"role": "user", "blocks": [], "additional_kwargs": 5},
    {"role": "user", "blocks": [{"block_type": "image", "url": 5}]},
    {"kind": "request", "parts": 5},
    {"kind": "response", "parts": [5]},
    {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": [{"kind": "binary"}]}]},
    {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": [{"kind": []}]}]},
]


def test_malformed_dicts_of_other_libraries_are_message_errors() -> None:
    accepted = []
    for given in MALFORMED:
        try:
            Session(conversation=[given])
            accepted.append(given)
        except MessageError:
            pass
    assert not accepted


def test_all_problems_of_foreign_messages_are_listed_at_once() -> None:
    with pytest.raises(MessageError) as caught:
        Session(conversation=[*REFUSED_MESSAGES.values()])
    assert len(caught.value.problems) >= len(REFUSED_MESSAGES)


def test_a_session_can_start_with_messages_in_the_form_of_a_provider() -> None:
    session = Session(conversation=[{"role": "user", "content": "Hi"}, Message("assistant", "Hello")])
    assert [message.text for message in session.conversation] == ["Hi", "Hello"]
    model = ScriptedModel(["You said hi."])
    Agent(model).run_sync("What did I say?", session=session)
    assert [message.text for message in model.requests[0].conversation] == ["Hi", "Hello"]


@pytest.mark.parametrize("given", [[5], "Hi", 5, [{"role": "none"}], [LangChainDocument()]])
def test_a_value_that_is_not_a_message_is_refused_by_the_constructor_of_a_session(given: Any) -> None:
    with pytest.raises(MessageError):
        Session(conversation=given)


# --- documents


class Node(SimpleNamespace):
    """Shaped as a node of LlamaIndex."""

    def get_content(self) -> str:
        return str(self.words)


NODE = Node(words="At noon.", node_id="d1", metadata={"file_name": "times.md", "page": 3})


@pytest.mark.parametrize("given", [LangChainDocument(source="times.md", page=3), NODE])
def test_documents_of_other_libraries_are_untrusted_documents(given: Any) -> None:
    (document,) = PromptContext("When?", documents=[given]).documents
    assert (document.text, document.id, document.source) == ("At noon.", "d1", "times.md")
    assert (document.metadata["page"], document.trust) == (3, "untrusted")


def test_a_node_with_a_score_keeps_score_and_image() -> None:
    inner = Node(**{**vars(NODE), "image": PNG, "image_mimetype": "image/png"})
    scored = Node(words="At noon.", node=inner, score=0.5, metadata={}, node_id="d1")
    (document,) = PromptContext("When?", documents=[scored]).documents
    assert document.score == 0.5
    assert document.image is not None
    assert document.image.read() == b"\x89PNG1234"


@pytest.mark.parametrize("part", [{"image_path": "/etc/passwd"}, {"image_url": "http://10.0.0.1/a"}, {"image": "?"}])
def test_an_image_of_a_node_that_cannot_be_stored_is_refused_with_its_place(part: dict[str, str]) -> None:
    with pytest.raises(ContextError) as caught:
        PromptContext("When?", documents=["a", Node(**{**vars(NODE), **part})])
    assert caught.value.problems[0].place == "documents[1].image"


def test_a_retriever_is_refused_with_the_method_to_pass_and_its_method_is_a_memory() -> None:
    with raises(AgentDefinitionError, name="memory", value="Retriever"):
        Agent(ScriptedModel([]), memory=Retriever())  # type: ignore[arg-type]
    with raises(AgentDefinitionError, name="memory", value="str"):
        Agent(ScriptedModel([]), memory="notes")  # type: ignore[arg-type]
    model = ScriptedModel(["At noon [times.md#d1]."])
    result = Agent(model, memory=Retriever().invoke).run_sync("When?")
    assert [citation.document.source for citation in result.citations if citation.document] == ["times.md"]


def test_documents_of_other_libraries_can_be_added_to_a_memory(tmp_path: Any) -> None:
    with Memory(tmp_path) as memory:
        assert memory.documents.add(LangChainDocument(source="times.md")).source == "times.md"
        with pytest.raises(Exception, match="content"):
            memory.documents.add(5)  # type: ignore[arg-type]


def test_other_values_of_a_memory_are_refused() -> None:
    agent = Agent(ScriptedModel([]), memory=lambda query: [5])  # type: ignore[arg-type,return-value,list-item]
    with pytest.raises(TypeError):
        agent.run_sync("When?")


# --- tools


def message(content: Any, **fields: Any) -> Any:
    return SimpleNamespace(
        **{"content": content, "tool_call_id": "c1", "status": "success", "artifact": None, **fields}
    )


IMAGE = {"type": "image", "base64": PNG, "mime_type": "image/png"}
RESULTS: list[tuple[Any, str, Any]] = [
    (LangChainTool("sunny"), "success", "sunny"),
    (LangChainTool(message("sunny", artifact={1})), "success", {1}),
    (LangChainTool(message("no city", status="error")), "error", "no city"),
    (LangChainTool(ValueError("boom")), "error", None),
    (LangChainTool(SimpleNamespace(goto="x", update={})), "error", None),
    (LangChainTool(message([{"type": "image", "url": "file:///etc/passwd"}])), "error", None),
    (LangChainTool("sunny", args_schema=OldPlace, tool_call_schema=OldPlace), "success", "sunny"),
    (LangChainTool("sunny", args_schema=OldPlace.schema(), tool_call_schema=None), "success", "sunny"),
    (LlamaIndexTool(LlamaIndexOutput(content="sunny", raw_output=7)), "success", 7),
    (LlamaIndexTool(LlamaIndexOutput(content="no", raw_output=None, is_error=True)), "error", None),
    (LlamaIndexTool(LlamaIndexOutput(content="sunny", raw_output=7), acall=None), "success", 7),
    (PydanticAITool(lambda city: f"sunny in {city}"), "success", "sunny in Bern"),
    (PydanticAITool(lambda ctx, city: ctx.deps, takes_ctx=True), "success", 5),
    (PydanticAITool(lambda ctx, city: ctx.model, takes_ctx=True), "error", None),
    (
        PydanticAITool(
            lambda city: SimpleNamespace(kind="tool-return", return_value="sunny", content="Warm.", metadata={"k": 1})
        ),
        "success",
        {"k": 1},
    ),
]


async def test_tools_of_other_libraries_run_with_their_results_artifacts_and_errors() -> None:
    wrong = []
    for tool, status, value in RESULTS:
        result = await result_of(tool, deps=5)
        if (result.status, result.value, result.call_id) != (status, value, "c1"):
            wrong.append(result)
    assert not wrong


@pytest.mark.parametrize(
    "tool",
    [
        LangChainTool(message([{"type": "text", "text": "See"}, IMAGE])),
        LlamaIndexTool(
            LlamaIndexOutput(
                raw_output=1, blocks=[text("See"), SimpleNamespace(block_type="image", image=PNG.encode())]
            )
        ),
        PydanticAITool(lambda city: ["See", BINARY]),
    ],
)
async def test_media_of_results_are_parts(tool: Any) -> None:
    result = await result_of(tool)
    assert result.content[0].text == "See"
    assert result.content[1].read() == b"\x89PNG1234"


async def test_a_tool_of_langchain_receives_the_id_of_its_call() -> None:
    tool = LangChainTool()
    await result_of(tool)
    assert tool.calls == [{"name": "weather", "args": {"city": "Bern"}, "id": "c1", "type": "tool_call"}]


class Record(BaseModel):
    """A class of pydantic is iterable: it yields its fields."""

    name: str = "weather"


class ListRecord(Record):
    def __iter__(self) -> Any:
        return iter([Message("user", "Hi")])


def test_a_single_object_is_not_a_list_of_its_fields() -> None:
    takers: list[Any] = [
        lambda given: Agent(ScriptedModel([]), tools=given),
        lambda given: Toolset(given),
        lambda given: Session(conversation=given),
        lambda given: PromptContext("When?", documents=given),
        lambda given: PromptContext(given),
        lambda given: Agent(ScriptedModel([]), memory=lambda query: given).run_sync("When?"),
    ]
    for number, take in enumerate(takers):
        with pytest.raises((ToolDefinitionError, PromptError, TypeError)) as caught:
            take(Record())
            pytest.fail(str(number))
        assert "tuple" not in str(caught.value), number
    assert len(Session(conversation=ListRecord()).conversation) == 1  # type: ignore[arg-type]


KITS: dict[str, Any] = {
    "tools=[*toolkit.get_tools()]": SimpleNamespace(get_tools=list),
    "tools=[*spec.to_tool_list()]": SimpleNamespace(to_tool_list=list),
    "tools=[*toolset.tools.values()]": SimpleNamespace(tools={}, get_tools=list, call_tool=list),
    "tools=[*toolset.tools_by_name.values()]": SimpleNamespace(tools_by_name={}),
    "DynamicToolset": SimpleNamespace(get_tools=list, call_tool=list),
}


def test_an_object_with_tools_is_refused_with_the_way_to_pass_them() -> None:
    for advice, kit in KITS.items():
        for given in (kit, [kit]):
            with pytest.raises(ToolDefinitionError) as caught:
                Agent(ScriptedModel([]), tools=given)
            assert advice in str(caught.value)


def injected(name: str, module: str) -> Any:
    return type(name, (), {"__module__": module})


def test_the_model_does_not_write_a_context_that_another_library_injects() -> None:
    annotations: list[Any] = [
        injected("RunContext", "pydantic_ai._run_context"),
        injected("RunContextWrapper", "agents.run_context"),
        injected("ToolRuntime", "langgraph.prebuilt.tool_node"),
        injected("Context", "workflows.context.context"),
        Annotated[dict[str, int], injected("InjectedState", "langgraph.prebuilt.tool_node")],
        Annotated[str, injected("InjectedToolCallId", "langchain_core.tools.base")()],
    ]
    for annotation in annotations:

        def weather(city: str, ctx: Any) -> str:
            """Tell the weather."""
            return city

        weather.__annotations__["ctx"] = annotation
        with raises(ToolDefinitionError, names=("ctx",), tool="weather"):
            Agent(ScriptedModel([]), tools=[weather])
    own = injected("Context", "shop.models")
    own.__get_pydantic_core_schema__ = classmethod(lambda cls, source, handler: handler(str))
    weather.__annotations__["ctx"] = own
    assert [*Toolset([weather])[0].spec.parameters["properties"]] == ["city", "ctx"]


def test_return_direct_ends_the_run() -> None:
    tool = LangChainTool("sunny", return_direct=True)
    result = Agent(ScriptedModel([ToolCall(name="weather", arguments={"city": "Bern"})]), tools=[tool]).run_sync("?")
    assert result.output == "sunny"


def test_the_policy_of_a_tool_of_pydantic_ai_is_preserved() -> None:
    given = PydanticAITool(str, requires_approval=True, sequential=True, timeout=3, max_retries=2, strict=True)
    (tool,) = Toolset([given])
    policy = tool.policy
    assert (policy.approval, policy.sequential, policy.timeout) == ("always", True, 3.0)
    assert (policy.max_consecutive_failures, tool.spec.strict) == (3, True)


class WithState(Place):
    state: dict[str, Any]


@pytest.mark.parametrize(
    ("tool", "names"),
    [
        (LangChainTool(args_schema=WithState), ("state",)),
        (LangChainTool(extras={"defer_loading": True}), ("extras",)),
        (LlamaIndexTool("", requires_context=True, ctx_param_name="ctx"), ("ctx",)),
        (PydanticAITool(str, prepare=str), ("prepare",)),
    ],
)
def test_a_tool_that_needs_its_library_is_refused_with_the_names_of_its_parts(tool: Any, names: tuple[str]) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Agent(ScriptedModel([]), tools=[tool])
    assert caught.value.names == names
    assert caught.value.tool == "weather"


@pytest.mark.parametrize("given", [LangChainTool(), LlamaIndexTool(""), PydanticAITool(str)])
def test_a_foreign_tool_is_not_the_function_of_a_tool(given: Any) -> None:
    with raises(ToolDefinitionError, names=("function",)):
        Tool(given)


KIT = """
from types import SimpleNamespace

metadata = SimpleNamespace(name="weather", description="Tell it.", return_direct=False, get_parameters_dict=dict)
weather = SimpleNamespace(metadata=metadata)
"""


def test_an_agent_file_can_name_a_foreign_tool(tmp_path: Path) -> None:
    (tmp_path / "foreign_kit.py").write_text(KIT)
    (tmp_path / "agent.yaml").write_text("name: guide\nmodel: offline\ntools: ['foreign_kit.py:weather']\n")
    assert [*load_agent(tmp_path / "agent.yaml").agent.tools] == ["weather"]


def test_arguments_are_checked_before_a_foreign_tool_is_called() -> None:
    tool = LangChainTool()
    model = ScriptedModel([ToolCall(name="weather", arguments={"town": "Bern"}), "Sorry."])
    Agent(model, tools=[tool]).run_sync("?")
    assert tool.calls == []
    assert "city" in model.requests[1].messages[-1].text


def test_the_thread_of_a_run_is_a_session() -> None:
    agent = Agent(ScriptedModel([]))
    with raises(UnknownOption, name="config", meant={"config": None}):
        agent.run_sync("Hi", config={"configurable": {"thread_id": "1"}})  # type: ignore[call-arg]


def test_documents_of_this_library_are_unchanged() -> None:
    given = Document("At noon.")
    assert PromptContext("When?", documents=(given,)).documents[0] is given
