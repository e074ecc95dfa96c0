"""Check for parts of a conversation that a chat template leaves out.

The check renders the conversation again with a unique word for every value. It runs once per shape of a conversation,
because dropped parts depend on roles, forms and places, and rarely on the words of a message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from agentkit_prompts.errors import ChatTemplateError, Problem, Problems
from agentkit_prompts.limits import MAX_CACHED

WORD = "7305128946"
"""Text that no template contains. It has no letters with case, so a template cannot change it."""
_END_OF_THOUGHT = "</think>"
_MAX_GAP = 200
"""Maximum characters between two messages in most templates."""
_MAX_SINGLE = 16
"""Maximum number of values that are tried one by one."""
_NAMING_KEYS = ("role", "type")
"""Keys whose text belongs to the shape of a message."""


class Conversation(NamedTuple):
    """Messages and tools as a template receives them."""

    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]] | None


class _Value(NamedTuple):
    """One text of a conversation."""

    kind: Literal["content", "call", "tool"]
    problem: Problem
    """Place and name of the text in errors."""
    text: str


_Render: TypeAlias = Callable[[Conversation], str]
_Change: TypeAlias = Callable[[_Value], str]


class ContentCheck:
    """Check of the texts of one template, which caches the shapes of complete conversations."""

    def __init__(self) -> None:
        # Store hashes, because a shape is as long as its conversation.
        self._whole: dict[int, None] = {}

    def lost(self, conversation: Conversation, text: str, render: _Render, options: object) -> Problems:
        """Return the messages, tool calls, tools and media that `text` lacks. Missing reasoning is accepted.

        Args:
            conversation: The messages and tools.
            text: The text of the conversation.
            render: Renders a changed conversation with the same options.
            options: Other inputs of the template; anything with a `repr`.
        """
        messages, tools = conversation
        if not tools and _has_texts_in_order(text, messages):
            return []
        shape = hash((_shape(messages), len(tools or ()), repr(options)))
        if shape in self._whole:
            return []
        problems = _Trial(conversation, text, render).lost()
        if any(map(_has_media, messages)) and _render_without_media(conversation, render) == text:
            problems.append(Problem("messages", "the media"))
        if not problems:
            # Clear all shapes: simpler than removing the oldest shape, and each costs one more check.
            if len(self._whole) >= MAX_CACHED:
                self._whole.clear()
            self._whole[shape] = None
        return list(dict.fromkeys(problems))


def _has_texts_in_order(text: str, messages: Sequence[dict[str, Any]]) -> bool:
    """True if messages are text only, and the text contains all their texts in order.

    False can also mean that the template changed a text.
    """
    end = 0
    gaps: dict[str, int] = {}
    for message in messages:
        if "tool_calls" in message:
            return False
        content = message["content"]
        if type(content) is str:
            # Most templates write the whole content, and the same text before each message of a role. Comparing at
            # the expected place costs a third of a search.
            role = message["role"]
            start = end + gaps.get(role, 0)
            if not text.startswith(content, start):
                start = text.find(content, end, end + len(content) + _MAX_GAP)
            if start >= 0:
                gaps[role] = start - end
                end = start + len(content)
                continue
        elif _has_media(message):
            return False
        for spoken in _spoken_texts(message):
            start = text.find(spoken, end)
            if start < 0:
                return False
            end = start + len(spoken)
    return True


def _shape(value: Any, key: str = "") -> object:
    """Return a hashable description of a value that leaves out its texts and numbers."""
    if isinstance(value, dict):
        return tuple([(name, _shape(item, name)) for name, item in value.items()])
    if isinstance(value, list | tuple):
        return tuple([_shape(item) for item in value])
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        if key in _NAMING_KEYS:
            return value
        return not value or value.isspace(), _END_OF_THOUGHT in value
    return type(value)


def _spoken_texts(message: dict[str, Any]) -> list[str]:
    """Return the texts of a message without reasoning stripped of white space."""
    content = message["content"]
    if type(content) is str:
        texts = [_without_thought(message, content)]
    else:
        texts = [part["text"] for part in content if isinstance(part.get("text"), str)]
    return [text.strip() for text in texts if text and not text.isspace()]


def _without_thought(message: dict[str, Any], content: str) -> str:
    if message["role"] != "assistant":
        return content
    return content.rpartition(_END_OF_THOUGHT)[2]


def _has_media(message: dict[str, Any]) -> bool:
    content = message["content"]
    return type(content) is list and any(part.get("type", "text") != "text" for part in content)


def _render_without_media(conversation: Conversation, render: _Render) -> str | None:
    messages: list[dict[str, Any]] = []
    for message in conversation.messages:
        content = message["content"]
        if type(content) is list:
            message = {**message, "content": [part for part in content if part.get("type", "text") == "text"]}
        messages.append(message)
    return render(conversation._replace(messages=messages))


class _Trial:
    """A conversation that is rendered with words instead of some of its values. Values are numbered."""

    def __init__(self, conversation: Conversation, text: str, render: _Render) -> None:
        self._conversation = conversation
        self._text = text
        self._render = render
        self._values: list[_Value] = []

        def note(value: _Value) -> str:
            self._values.append(value)
            return value.text

        _changed(conversation, note)
        self._digits = len(str(len(self._values)))

    def lost(self) -> Problems:
        """Return the values that the template leaves out."""
        every = range(len(self._values))
        with_words = self._rendered(every)
        if with_words is not None:
            return self._missing(every, with_words)
        # The template fails because it reads some values. Try each kind separately, and only contents that the text
        # does not contain: other contents were written, or are words of the template.
        problems: Problems = []
        # Replacing one kind leaves the other values unchanged, so fewer templates fail.
        for kind in ("content", "call", "tool"):
            numbers = self._numbers_of(kind)
            with_words = self._rendered(numbers)
            if with_words is not None:
                problems += self._missing(numbers, with_words)
        return problems

    def _numbers_of(self, kind: str) -> list[int]:
        """Return the numbers of the values of a kind; of contents, only values that the text does not contain."""
        numbers = [number for number, value in enumerate(self._values) if value.kind == kind]
        if kind == "content":
            return [number for number in numbers if not self._is_written(number)]
        return numbers

    def _missing(self, numbers: Collection[int], with_words: str) -> Problems:
        """Return the lost values among the values that were replaced by words in `with_words`."""
        missing = [number for number in numbers if self._word(number) not in with_words]
        written = [number for number in missing if self._is_written(number)]
        # A value that is also written at another place, such as the name of a tool, is lost if a change at its place
        # has no effect.
        effective = set(written) - set(self._without_effect(written))
        return [self._values[number].problem for number in missing if number not in effective]

    def _without_effect(self, numbers: Sequence[int]) -> Sequence[int]:
        if not numbers or self._rendered(numbers) == self._text:
            return numbers
        return [number for number in numbers[:_MAX_SINGLE] if self._rendered([number]) == self._text]

    def _is_written(self, number: int) -> bool:
        value = self._values[number].text
        return value in self._text or json.dumps(value, ensure_ascii=False)[1:-1] in self._text

    def _word(self, number: int) -> str:
        return f"{WORD}{number:0{self._digits}}"

    def _rendered(self, numbers: Collection[int]) -> str | None:
        """Return the text with words for these values; None if the template fails with them."""
        replaced = frozenset(numbers)
        order = iter(range(len(self._values)))

        def replace(value: _Value) -> str:
            number = next(order)
            if number in replaced:
                return self._word(number)
            return value.text

        try:
            return self._render(_changed(self._conversation, replace))
        except ChatTemplateError:
            return None


def _changed(conversation: Conversation, change: _Change) -> Conversation:
    """Return a conversation with each of its values changed. Values are visited in a fixed order.

    A value that `change` leaves alone keeps the white space and the reasoning around it.
    """
    messages = [
        _changed_message(message, f"messages[{at}]", change) for at, message in enumerate(conversation.messages)
    ]
    if conversation.tools is None:
        return Conversation(messages, None)
    tools = [_changed_tool(tool, f"tools[{at}]", change) for at, tool in enumerate(conversation.tools)]
    return Conversation(messages, tools)


def _changed_message(message: dict[str, Any], place: str, change: _Change) -> dict[str, Any]:
    problem = Problem(place, f"the content of the {message['role']}")

    def changed(content: str, spoken: str) -> Any:
        if not spoken.strip():
            return content
        return _swapped(content, _Value("content", problem, spoken.strip()), change)

    content = message["content"]
    result = {**message}
    if type(content) is str:
        result["content"] = changed(content, _without_thought(message, content))
    else:
        result["content"] = [
            {**part, "text": changed(part["text"], part["text"])} if isinstance(part.get("text"), str) else part
            for part in content
        ]
    if "tool_calls" in message:
        result["tool_calls"] = [_changed_call(call, place, change) for call in message["tool_calls"]]
    return result


def _swapped(original: Any, value: _Value, change: _Change) -> Any:
    text = change(value)
    return original if text == value.text else text


def _changed_call(call: dict[str, Any], place: str, change: _Change) -> dict[str, Any]:
    function = call["function"]
    title = f"the tool call {function['name']!r}"
    name = change(_Value("call", Problem(place, title), function["name"]))
    problem = Problem(place, f"the arguments of {title}")
    arguments = _changed_arguments(function.get("arguments"), problem, change)
    return {**call, "function": {**function, "name": name, "arguments": arguments}}


def _changed_arguments(arguments: Any, problem: Problem, change: _Change) -> Any:
    parsed = _parsed(arguments)
    if isinstance(parsed, dict | list):
        result = _changed_leaves(parsed, problem, change)
        # Unchanged arguments keep their layout.
        return arguments if result == parsed else json.dumps(result, ensure_ascii=False)
    if not arguments or (isinstance(arguments, str) and arguments.isspace()):
        return arguments
    return _changed_leaves(arguments, problem, change)


def _changed_leaves(value: Any, problem: Problem, change: _Change) -> Any:
    if isinstance(value, dict):
        return {key: _changed_leaves(item, problem, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_changed_leaves(item, problem, change) for item in value]
    text = value if isinstance(value, str) else json.dumps(value)
    return _swapped(value, _Value("call", problem, text), change)


def _parsed(arguments: object) -> object:
    """Return the value of arguments that are JSON text, else None."""
    if not isinstance(arguments, str):
        return None
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return None


def _changed_tool(tool: dict[str, Any], place: str, change: _Change) -> dict[str, Any]:
    function = tool.get("function", tool)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        return tool
    result = {**function, "name": change(_Value("tool", Problem(place, f"the tool {name!r}"), name))}
    if "function" in tool:
        return {**tool, "function": result}
    return result
