"""Attributes of values in the vocabulary of other libraries: the message names the right call, which works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

import agentkit
from agentkit import (
    Agent,
    Memory,
    Message,
    ModelSettings,
    ScriptedModel,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolStarted,
    tool,
)
from agentkit.errors import UnknownOption
from agentkit.prompts import Conversation, Image, Layers, Template, TextPrompt, Url, compose
from agentkit.prompts.chat_templates import CHAT_TEMPLATES
from agentkit.testing import Delayed
from agentkit.tools import Tool, ToolResult, Toolset, calculate, http_tool
from tests.wrong_calls import check_right_way


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


tools: Any = Toolset([add])
adder: Any = add
composition: Any = compose(Layers(system=["Be brief."]), "Hi")
conversation: Any = Conversation([Message("user", "Hi")])
message: Any = Message("user", "Hi")
template: Any = Template("Hello {{ name }}")
image: Any = Image
from_schema: Any = Tool.from_json_schema
http: Any = http_tool
result: Any = ToolResult("1", "add", "3", value=3)
model: Any = agentkit.model
script: Any = ScriptedModel
delta: Any = TextDelta(0, "Hi")
started: Any = ToolStarted(0, ToolCall("1", "add", {"a": 1}))
finished: Any = ToolFinished(0, result)


def _requests() -> bool:
    scripted = ScriptedModel(["4"])
    Agent(scripted, "Be brief.").run_sync("2+2?")
    return scripted.requests[0].messages[-1].text == "2+2?"


WRONG: list[tuple[Callable[[], object], type[Exception], str, Callable[[], object]]] = [
    (lambda: adder.parameters, AttributeError, "tool.spec.parameters", lambda: add.spec.parameters["properties"]),
    (lambda: adder.invoke({"a": 1}), AttributeError, "tool(argument) like the function", lambda: add(1, 2) == 3),
    (lambda: tools.list_tools(), AttributeError, "`for tool in toolset`", lambda: [tool.name for tool in tools]),
    (
        lambda: result.text,
        AttributeError,
        "tool_result.content for the model",
        lambda: result.content == "3",
    ),
    (lambda: tools.names, AttributeError, "[tool.name for tool in toolset]", lambda: [tool.name for tool in tools]),
    (lambda: tools.with_prefix("m_"), AttributeError, "toolset.prefixed(", lambda: tools.prefixed("m_")["m_add"]),
    (
        lambda: tools.append(add),
        AttributeError,
        "toolset + Toolset([function])",
        lambda: len(tools + Toolset([calculate])) == 2,
    ),
    (
        lambda: from_schema("echo", {"type": "object"}, str),
        TypeError,
        "Tool.from_json_schema(name, description, parameters, function)",
        lambda: from_schema("echo", "Return the text.", {"type": "object"}, str),
    ),
    (
        lambda: from_schema(name="echo", description="Return the text.", schema={}, function=str),
        TypeError,
        "parameters=..., the JSON Schema of the arguments",
        lambda: from_schema(name="echo", description="Return the text.", parameters={"type": "object"}, function=str),
    ),
    (lambda: http(["example.org"]), TypeError, "http_tool(hosts=[...])", lambda: http_tool(hosts=["example.org"])),
    (lambda: result.is_error, AttributeError, "use tool_result.ok", lambda: result.ok),
    (lambda: delta.delta, AttributeError, "use event.text", lambda: delta.text == "Hi"),
    (lambda: started.name, AttributeError, "use event.call.name", lambda: started.call.name == "add"),
    (lambda: started.args, AttributeError, "use event.call.arguments", lambda: started.call.arguments),
    (lambda: finished.output, AttributeError, "use event.result.content", lambda: finished.result.content == "3"),
    (lambda: composition.to_messages(), AttributeError, "composition.to_openai()", lambda: composition.to_openai()),
    (lambda: composition.prompt, AttributeError, "use composition.text", lambda: composition.text),
    (lambda: composition.total, AttributeError, "use composition.tokens", lambda: composition.tokens),
    (lambda: conversation.messages, AttributeError, "`for message in conversation`", lambda: [*conversation]),
    (
        lambda: conversation.add_message(message),
        AttributeError,
        "conversation.append(message)",
        lambda: len(conversation.append(message)) == 2,
    ),
    (
        lambda: message.model_dump(),
        AttributeError,
        "pydantic.TypeAdapter(Message).dump_python(message, mode='json')",
        lambda: TypeAdapter(Message).dump_python(message, mode="json")["role"] == "user",
    ),
    (
        lambda: template.render(name="Ann"),
        TypeError,
        "use template.render({'name': value})",
        lambda: template.render({"name": "Ann"}) == "Hello Ann",
    ),
    (lambda: template.format(name="Ann"), AttributeError, "template.render({", lambda: template.render({"name": "A"})),
    (lambda: template.input_variables, AttributeError, "use template.names", lambda: [*template.names] == ["name"]),
    (lambda: TextPrompt("Hi").text, AttributeError, "prompt.template.text", lambda: TextPrompt("Hi").template.text),  # type: ignore[attr-defined]
    (lambda: image.from_file("a.png"), AttributeError, "use Image(path)", lambda: Image(Path("a.png"))),
    (
        lambda: image.from_url("https://a.org/a.png"),
        AttributeError,
        "Image(Url(",
        lambda: Image(Url("https://a.org/a.png")),
    ),
    (lambda: image(b"").data, AttributeError, "use media.source", lambda: Image(b"1").source == b"1"),
    (lambda: script(["4"]).calls, AttributeError, "use model.requests", _requests),
    (
        lambda: script(["4"], delay=1),
        TypeError,
        "use Delayed(seconds, reply)",
        lambda: ScriptedModel([Delayed(1, "4")]),
    ),
    (
        lambda: model("openai:gpt-4o", temperature=0),
        UnknownOption,
        "settings=ModelSettings(temperature=...)",
        lambda: model("openai:gpt-4o", settings=ModelSettings(temperature=0)),
    ),
]


@pytest.mark.parametrize(("wrong", "error", "message", "right"), WRONG)
def test_the_message_names_a_way_that_works(
    wrong: Callable[[], object], error: type[Exception], message: str, right: Callable[[], object]
) -> None:
    check_right_way(wrong, error, message, right)


def test_modules_name_evaluations_and_chat_templates() -> None:
    with pytest.raises(ImportError, match=r"agentkit\.prompts\.evaluation\.run for a model"):
        exec("from agentkit import evaluate")
    with pytest.raises(ImportError, match=r"CHAT_TEMPLATES\.get\(name\)\(\)"):
        exec("from agentkit.prompts.chat_templates import chat_template")
    assert CHAT_TEMPLATES.get("qwen")().render([message])


def test_a_memory_has_the_parts_that_the_messages_name(tmp_path: Path) -> None:
    with Memory(tmp_path / "memory") as memory:
        stored: Any = memory.documents.add("The tower is 300 m high.", source="tower.md")
        memory.facts.add("The tower is red.")
        recall: Any = memory.recall("tower")
        for owner, attribute, message in (
            (memory.documents.get("tower.md"), "text", "memory.recall(text)"),
            (recall, "facts", "recall.knowledge"),
            (recall, "results", "`for item in recall`"),
        ):
            with pytest.raises(AttributeError) as caught:
                getattr(owner, attribute)
            assert message in str(caught.value)
        assert [fact.text for fact in recall.knowledge] == ["The tower is red."]
        assert [item.text for item in recall] == ["The tower is 300 m high."]
        folder: Any = memory
        with pytest.raises(TypeError) as raised:
            folder.ingest(tmp_path, recursive=True)
        assert "which reads all folders inside" in str(raised.value)
        assert stored is not None
