"""Calls that a new user writes from the names alone work, or fail with an error that names the right call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentkit import Agent, Document, Message, OfflineModel, ToolCall
from agentkit.errors import AgentDefinitionError
from agentkit.prompts import (
    ContextError,
    Conversation,
    Example,
    ExamplesPrompt,
    Fact,
    Layers,
    MemoPrompt,
    MessageError,
    PromptContext,
    PromptError,
    PromptFolder,
    Size,
    TemplateError,
    TextPrompt,
    TiktokenCounter,
    UserInputPrompt,
    WrapPrompt,
    compose,
)
from agentkit.tools import Tool, ToolDefinitionError, Toolset, tool


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_wrappers_and_examples_take_their_items_first() -> None:
    assert WrapPrompt([UserInputPrompt()], "<q>{{ wrapped_str }}</q>").format_2_str(PromptContext("hi")) == "<q>hi</q>"
    assert ExamplesPrompt([Example("a", "b")]).format_2_str(PromptContext("hi")) == "Input: a\nOutput: b"
    assert ExamplesPrompt(pair for pair in [("a", "b")]).examples == (Example("a", "b"),)
    with pytest.raises(PromptError, match="at most 2 positional arguments"):
        WrapPrompt([UserInputPrompt()], "x", "y")  # type: ignore[misc]


def test_prompts_and_text_compose() -> None:
    composition = compose([TextPrompt("Be brief.")], "hi")
    assert str(composition) == "system: Be brief.\n\nuser: hi"
    assert repr(composition) == "Composition('system: Be brief.\\n\\nuser: hi')"
    assert compose("Be brief.", PromptContext("hi")).messages == composition.messages


def test_the_repr_of_a_long_rendering_is_cut() -> None:
    rendered = TextPrompt("a" * 5_000).render(PromptContext("hi"))
    assert str(rendered) == "a" * 5_000
    assert repr(rendered).startswith("Rendered('aaa") and len(repr(rendered)) < 1_100


def test_the_class_tool_is_equivalent_to_the_decorator() -> None:
    assert Tool(add).spec == tool(add).spec
    tools = Toolset([add])
    assert tools["add"].name == "add" and "add" in tools and "sub" not in tools
    with pytest.raises(KeyError, match="did you mean 'add'"):
        _ = tools["addd"]


HINTS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: Document(page_content="a"), ContextError, r"use text=\.\.\."),  # type: ignore[call-arg]
    (lambda: Document(content="a"), ContextError, r"use text=\.\.\."),  # type: ignore[call-arg]
    (lambda: Fact(content="a"), ContextError, r"use text=\.\.\."),  # type: ignore[call-arg]
    (lambda: PromptContext("q", documents=[{"page_content": "a"}]), ContextError, r"use text=\.\.\."),
    (lambda: PromptContext("q", history=[]), ContextError, r"use conversation=\[\.\.\.\]"),  # type: ignore[call-arg]
    (lambda: Message("hi"), MessageError, r"Message\('user', 'hi'\)"),  # type: ignore[arg-type]
    (lambda: Tool(add, return_direct=True), ToolDefinitionError, "use final=True"),  # type: ignore[call-overload]
    (lambda: Conversation() + Message("user", "hi"), TypeError, "'Conversation' and 'Message'"),  # type: ignore[operator]
    (lambda: TextPrompt("a", "b"), PromptError, r"at most 1 positional argument \(template\)"),  # type: ignore[misc]
    (lambda: ToolCall("1", "add", 5), MessageError, "a mapping or JSON text"),  # type: ignore[arg-type]
    (lambda: compose("a", "b").diff("c"), PromptError, "expected a Composition, got str"),  # type: ignore[arg-type]
    (lambda: WrapPrompt([MemoPrompt()], "<docs></docs>"), TemplateError, r"write \{\{ wrapped_str \}\}"),
]


@pytest.mark.parametrize(("call", "error", "message"), HINTS)
def test_an_error_names_the_right_call(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


MEMO = "got the class MemoPrompt, not an instance"
CLASSES: list[tuple[Callable[..., object], Any, type[Exception], str]] = [
    (Layers, MemoPrompt, PromptError, MEMO),
    (Layers, [MemoPrompt], PromptError, rf"system\[0\]: .*{MEMO}"),
    (lambda given: Layers("a", before_input=["b", given]), MemoPrompt, PromptError, rf"before_input\[1\]: .*{MEMO}"),
    (WrapPrompt, [MemoPrompt], PromptError, rf"wrapped_prompts\[0\]: .*{MEMO}"),
    (lambda given: compose(given, "q"), MemoPrompt, PromptError, MEMO),
    (lambda given: Agent(OfflineModel(), given), MemoPrompt, AgentDefinitionError, MEMO),
    (lambda given: Agent(OfflineModel(), layers=given), Layers, AgentDefinitionError, "the class Layers"),
    (lambda given: Agent(OfflineModel(), layers=given), PromptFolder, AgentDefinitionError, r"path\)\.layers\(\)"),
    (lambda given: MemoPrompt(size=given), Size, PromptError, "the class Size"),
    (lambda given: compose("a", "q", counter=given), TiktokenCounter, PromptError, "TiktokenCounter"),
    (lambda given: PromptContext("q", documents=given), Document, ContextError, "documents: .*the class Document"),
    (lambda given: PromptContext("q", documents=[given]), Document, ContextError, r"s\[0\]: .*the class Document"),
    (lambda given: PromptContext("q", conversation=[given]), Message, ContextError, r"n\[0\]: .*the class Message"),
    (lambda given: PromptContext("q", conversation=given), Conversation, ContextError, "the class Conversation"),
]


@pytest.mark.parametrize(("call", "given", "error", "message"), CLASSES)
def test_the_error_names_a_class_instead_of_an_instance(
    call: Callable[..., object], given: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(given)
