"""Input messages of chat templates: checked plain dicts with a role and text.

Changed messages are new dicts; the caller's messages are only read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypeAlias, TypedDict, cast

from agentkit_prompts.chat_templates.normalise import template_message
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.json_form import strict_json
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.wire.read_parts import PartReader, plain_text_of
from agentkit_prompts.context.wire.wire_tools import read_tools
from agentkit_prompts.errors import ChatTemplateError, Problem, Problems, raise_problems
from agentkit_prompts.names import nearest

Messages: TypeAlias = Sequence[Message | Mapping[str, Any]]
Tools: TypeAlias = Sequence[ToolSpec | Mapping[str, Any]]


class Turn(TypedDict):
    """One message: `tool_calls` in wire form, content is text."""

    role: str
    content: str
    name: NotRequired[str]
    tool_call_id: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, Any]]]
    reasoning_content: NotRequired[str]
    is_silent: NotRequired[bool]
    """With `first_text`: True if a message with tool calls has no content. LMDeploy distinguishes it from empty
    content."""


def plain_turns(messages: object, roles: Container[str] | None) -> list[Turn] | None:
    """Return the messages if each is a plain dict with only a role and text, else None.

    `roles` are the accepted roles; None for any.
    """
    if type(messages) is not list and type(messages) is not tuple:
        return None
    for message in messages:
        # Inlined, because it runs for every message of every rendering.
        if type(message) is not dict or len(message) != 2:
            return None
        role, content = message.get("role"), message.get("content")
        if type(content) is not str or type(role) is not str:
            return None
        if roles is not None and role not in roles:
            return None
    return cast("list[Turn]", list(messages))


def has_tool_traffic(turn: Turn) -> bool:
    """True if a message has tool calls or is a tool result."""
    return "tool_calls" in turn or turn["role"] == "tool"


def read_prompt(prompt: object, template: str) -> str:
    """Check that a prompt is text, and return it.

    Raises:
        ChatTemplateError: The prompt is not text.
    """
    if not isinstance(prompt, str):
        kind = type(prompt).__name__
        raise ChatTemplateError(
            f"{template}: expected a prompt as text, got {kind}; pass messages to messages2prompt", template=template
        )
    return prompt


def no_messages(template: str) -> ChatTemplateError:
    """Return the error for an empty conversation."""
    return ChatTemplateError(
        f"{template}: the conversation is empty; pass at least one message",
        template=template,
        problems=[Problem("messages", "empty")],
    )


def read_turns(
    messages: Messages, template: str, roles: Collection[str] | None = None, *, first_text: bool = False
) -> list[Turn]:
    """Return the messages as turns, each a new dict.

    Args:
        messages: Messages, or mappings in the form of the chat-completions API.
        template: Name of the template, for errors.
        roles: Accepted roles; None for any role.
        first_text: Use only the first text of a list of content parts, as in LMDeploy; otherwise all parts are joined,
            and media are replaced by their alt text.

    Raises:
        ChatTemplateError: Names every message that cannot be read.
    """
    if isinstance(messages, str | bytes | Mapping | Message) or not isinstance(messages, Iterable):
        kind = type(messages).__name__
        raise ChatTemplateError(
            f"{template}: expected a list of messages, got {kind}; wrap it in a list",
            template=template,
            problems=[Problem("messages", f"expected a list, got {kind}")],
        )
    problems: Problems = []
    reader = _TurnReader(problems, roles, first_text)
    turns: list[Turn] = []
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        try:
            turns.append(reader.turn(message, place))
        # A custom mapping can raise any exception.
        except Exception as error:
            problems.append(Problem(place, f"cannot be read: {type(error).__name__}: {error}"))
    raise_problems(ChatTemplateError, template, problems, template=template)
    return turns


def read_functions(tools: Tools, template: str) -> list[dict[str, Any]]:
    """Return the tools as function objects (name, description, parameters, ...).

    Raises:
        ChatTemplateError: Names every tool that cannot be read.
    """
    problems: Problems = []
    functions = [tool.get("function", tool) for tool in read_tools(tools, problems)]
    raise_problems(ChatTemplateError, template, problems, template=template)
    return functions


def calls_of(turn: Turn) -> list[tuple[str, Any]]:
    """Return the name and the arguments of each tool call.

    The arguments are the object of their JSON text; text that is not JSON stays text.
    """
    functions = [call["function"] for call in turn.get("tool_calls", ())]
    return [(function["name"], _arguments(function["arguments"])) for function in functions]


def call_text(call: ToolCall) -> str:
    """Return a call as JSON text; arguments that are not JSON are a string."""
    return json_text({"name": call.name, "arguments": _arguments(call.arguments)})


def json_text(value: object, indent: int | None = None) -> str:
    """Return `value` as the JSON of training data: characters outside ASCII are not escaped."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def runs_of_results(roles: Sequence[str]) -> list[tuple[int, int]]:
    """Return the first and the last index of each run of tool messages."""
    runs: list[tuple[int, int]] = []
    for at, role in enumerate(roles):
        if role != "tool":
            continue
        start = at
        if runs and runs[-1][1] == at - 1:
            start, _ = runs.pop()
        runs.append((start, at))
    return runs


def last_question(turns: Sequence[Turn]) -> int:
    """Return the position of the last message of the user; the number of messages if no user message exists."""
    for position in reversed(range(len(turns))):
        if turns[position]["role"] == "user":
            return position
    return len(turns)


class _TurnReader(NamedTuple):
    """Reader of messages, which adds problems to a list."""

    problems: Problems
    roles: Collection[str] | None
    first_text: bool

    def turn(self, message: object, place: str) -> Turn:
        """Return a message as a turn."""
        if isinstance(message, Message):
            message = template_message(message)
        if not isinstance(message, Mapping):
            self._add(place, f"expected a Message or a mapping, got {type(message).__name__}")
            return Turn(role="", content="")
        role = self._role(message.get("role"), place)
        content = message.get("content")
        calls = PartReader(self.problems).calls(message.get("tool_calls"), f"{place}.tool_calls")
        if "content" not in message and not message.get("tool_calls"):
            self._add(f"{place}.content", "missing")
        turn = Turn(role=role, content=self._text(content, f"{place}.content"))
        if calls:
            turn["tool_calls"] = [_wire(call) for call in calls]
            if self.first_text and content is None:
                # LMDeploy writes a line break after empty content, but not without content.
                turn["is_silent"] = True
        return cast("Turn", {**turn, **self._more_texts(message, place)})

    def _more_texts(self, message: Mapping[str, Any], place: str) -> dict[str, str]:
        texts: dict[str, str] = {}
        for key in ("name", "tool_call_id", "reasoning_content"):
            value = message.get(key)
            if isinstance(value, str):
                texts[key] = str.__str__(value)
            elif value is not None:
                self._add(f"{place}.{key}", f"expected text, got {type(value).__name__}")
        return texts

    def _role(self, role: object, place: str) -> str:
        if role is None:
            self._add(f"{place}.role", "missing")
        elif not isinstance(role, str):
            self._add(f"{place}.role", f"expected text, got {type(role).__name__}")
        elif self.roles is not None and role not in self.roles:
            self._add(place, f"unknown role {role!r:.80}{nearest(role, self.roles)}")
        else:
            return str.__str__(role)
        return ""

    def _text(self, content: object, place: str) -> str:
        if content is None:
            return ""
        if isinstance(content, str):
            return str.__str__(content)
        if not isinstance(content, list | tuple):
            self._add(place, f"expected text or a list of parts, got {type(content).__name__}")
            return ""
        texts: list[str] = []
        for index, part in enumerate(content):
            plain = plain_text_of(part, f"{place}[{index}]", self.problems)
            if plain.is_text and self.first_text:
                return plain.text
            texts.append(plain.text)
        return "".join(texts)

    def _add(self, place: str, problem: str) -> None:
        self.problems.append(Problem(place, problem))


def _wire(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id or None, "type": "function", "function": function}


def _arguments(arguments: str) -> Any:
    if not arguments.strip():
        return {}
    try:
        return strict_json(arguments)
    except (ValueError, RecursionError):
        return arguments
