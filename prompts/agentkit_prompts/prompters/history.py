"""Readers of the history and the tools that a caller passes. An error names all problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.context.wire.wire_tools import read_tools as wire_tools
from agentkit_prompts.errors import MessageError, Problem, Problems, PrompterError, raise_problems

History: TypeAlias = Conversation | Sequence[Message | Mapping[str, Any] | Sequence[str]]
"""Messages or `[question, answer]` pairs, also mixed."""


class SpecifiedTool(Protocol):
    """A tool with a spec, such as the result of `@tool`."""

    @property
    def spec(self) -> ToolSpec:
        """The name, description and parameters of the tool for a model."""
        ...


GivenTool: TypeAlias = Mapping[str, Any] | ToolSpec | SpecifiedTool
Tools: TypeAlias = Sequence[GivenTool]
"""Tools; each is an object with a spec, a spec, or a dict `{"type": "function", "function": {"name": ...,
"description": ..., "parameters": {...}}}`."""


def read_history(history: History | None) -> list[Message]:
    """Return the messages of a history; empty for None.

    Raises:
        PrompterError: Items are neither messages nor pairs, or a tool call lacks its result; names all problems.
    """
    if history is None:
        return []
    if isinstance(history, str | Mapping) or not isinstance(history, Sequence):
        text = f"expected a list of [question, answer] pairs or of messages, got {type(history).__name__}"
        raise_problems(PrompterError, "", [Problem("history", text)], name="history")
    problems: Problems = []
    cause: MessageError | None = None
    # Answers by the `id` of the question. An index would not stay valid, because a message in the form of a provider
    # can become several messages.
    answers: dict[int, Message] = {}
    items = [*history]
    for index, item in enumerate(items):
        if isinstance(item, list | tuple):
            items[index] = _question(item, f"history[{index}]", answers, problems)
    try:
        read = read_messages(items, where="history", is_linked=False)
    except MessageError as error:
        cause = error
        problems += error.problems
        read = ()
    messages = _with_answers(read, answers)
    raise_problems(PrompterError, "", problems, name="history", cause=cause)
    _require_complete(messages)
    return messages


def _require_complete(messages: Sequence[Message]) -> None:
    # A provider refuses calls without results, and `compose` would drop such calls without an error.
    if len(Conversation(messages).complete()) != len(messages):
        text = "a tool call lacks its result, or a tool result its call; pass both or neither"
        raise_problems(PrompterError, "", [Problem("history", text)], name="history")


def _with_answers(questions: Sequence[Message], answers: Mapping[int, Message]) -> list[Message]:
    messages: list[Message] = []
    for message in questions:
        messages.append(message)
        if id(message) in answers:
            messages.append(answers[id(message)])
    return messages


def _question(pair: Sequence[Any], place: str, answers: dict[int, Message], problems: Problems) -> Message:
    """Return the question of a pair as a message, and add the answer to `answers` under the `id` of this message."""
    if len(pair) != 2 or not all(isinstance(text, str) for text in pair):
        problems.append(Problem(place, _expected_pair(pair)))
        # An empty message instead of the invalid pair, so that the indices of later items are right.
        return Message("user")
    question = Message("user", pair[0])
    answers[id(question)] = Message("assistant", pair[1])
    return question


def _expected_pair(item: Sequence[object]) -> str:
    kinds = [type(text).__name__ for text in item[:4]]
    if len(item) > 4:
        kinds.append("...")
    return f"expected two texts, [question, answer], got [{', '.join(kinds)}]"


def read_tools(tools: Tools | None) -> list[Mapping[str, Any]]:
    """Return copies of the tools in the form of a chat-completions request; empty for None.

    Raises:
        PrompterError: Values are not tools or not JSON, or names are repeated; names all problems.
    """
    problems: Problems = []
    items: Any = () if tools is None else tools
    if isinstance(items, list | tuple):
        items = [_specified(tool) for tool in items]
    copies: list[Mapping[str, Any]] = [*wire_tools(items, problems)]
    # `wire_tools` also accepts the function of a tool alone, but a prompter does not.
    if isinstance(items, list):
        problems += _problems_of_tools(items)
    problems += _repeated_names(copies)
    raise_problems(PrompterError, "", problems, name="tools")
    return copies


def _repeated_names(tools: Sequence[Mapping[str, Any]]) -> Problems:
    counts = Counter([str(tool.get("function", tool).get("name")) for tool in tools])
    repeated = sorted([repr(name) for name, count in counts.items() if count > 1])
    if not repeated:
        return []
    return [Problem("tools", f"{', '.join(repeated)} is passed more than once")]


def _problems_of_tools(tools: Sequence[object]) -> Problems:
    text = "expected a ToolSpec, or a mapping with a 'function'"
    without = [index for index, tool in enumerate(tools) if isinstance(tool, Mapping) and "function" not in tool]
    return [Problem(f"tools[{index}]", text) for index in without]


def _specified(tool: object) -> object:
    """Return the spec of an object with a spec; return any other value unchanged."""
    spec = getattr(tool, "spec", None)
    if isinstance(spec, ToolSpec):
        return spec
    return tool


def tool_spec(tool: Mapping[str, Any]) -> ToolSpec:
    """Return the spec of a tool that `read_tools` returned.

    The LazyLLM document writes `required` next to `parameters`; the spec contains it inside the parameters.
    """
    function = tool["function"]
    description = function.get("description")
    return ToolSpec(
        function["name"],
        description if isinstance(description, str) else "",
        _parameters(function),
        strict=function.get("strict") is True,
    )


def _parameters(function: Mapping[str, Any]) -> Any:
    parameters = function.get("parameters")
    if "required" not in function or "required" in (parameters or {}):
        return parameters
    return {"type": "object", "properties": {}, **(parameters or {}), "required": function["required"]}
