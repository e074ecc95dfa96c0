"""What a rendered conversation does not hold of what it was made from: nothing is lost without a word."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from jinja2 import nodes

from agentkit_prompts.chat_templates.jinja.counted_calls import MARK
from agentkit_prompts.chat_templates.jinja.probe import WORD
from agentkit_prompts.chat_templates.jinja.written_forms import WrittenForms
from agentkit_prompts.errors import ChatTemplateError

__all__ = ["covers", "holds_all", "losses"]

_THOUGHT = "</think>"
_MAX_RENDERED = 16
"""Renderings that find out which of several values make no difference."""
Again: TypeAlias = Callable[[Sequence[dict[str, Any]], Sequence[dict[str, Any]] | None], str]
"""Renders a changed conversation: its messages and tools."""


def holds_all(text: str, messages: Sequence[dict[str, Any]]) -> bool:
    """Tell whether a text holds what all messages say word for word, in order; False may mean one was rewritten."""
    at = gap = other = 0
    for message in messages:
        content = message["content"]
        # What stands between two messages is mostly as long as it was the turn before.
        start = at + gap
        at = start + len(content)
        if text[start:at] == content:
            gap, other = other, gap
            continue
        place = text.find(content, start - gap)
        if place < 0:
            return False
        gap, other = other, place - (start - gap)
        at = place + len(content)
    return True


class _Value(NamedTuple):
    """A text that a conversation consists of."""

    kind: Literal["content", "call", "tool"]
    what: str
    """What it is, for an error message."""
    text: str


def losses(
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None,
    text: str,
    again: Again,
    forms: Callable[[], WrittenForms],
) -> list[str]:
    """Return what the text lacks: messages, tool calls, tools, media; what models thought may be left out.

    That a value is in the text does not show where it is from: the name of a call is in the declaration of its tool as
    well. Where not all is written in the `forms` of this template, the conversation is rendered `again` with a word of
    its own in every place. A value is lost when its word does not come out, and it is not in the text either, or makes
    no difference to it.
    """
    found: list[str] = []
    if not forms().written_in(text, messages, tools, _texts):
        words = _Words(messages, tools, text, again)
        every = range(len(words.values))
        with_words = words.rendered(every)
        if with_words is not None:
            found += words.lost(every, with_words)
        else:  # the template reads some of them: each kind alone, and of contents those only that are not in the text
            for kind in ("content", "call", "tool"):
                some = [at for at in every if words.values[at].kind == kind]
                some = [at for at in some if kind != "content" or not words.is_written(at)]
                found += words.lost(some, words.rendered(some) if some else None)
    if any(map(_has_media, messages)) and again([_without_media(message) for message in messages], tools) == text:
        found.append("messages: the media")
    return list(dict.fromkeys(found))


def _is_in(value: str, text: str) -> bool:
    return value in text or json.dumps(value, ensure_ascii=False)[1:-1] in text


def _texts(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    if type(content) is str:
        written = _spoken(message, content)
        return [written] if written else []
    return [part["text"].strip() for part in content if part.get("text")]


def _spoken(message: dict[str, Any], content: str) -> str:
    return (content.rpartition(_THOUGHT)[2] if message["role"] == "assistant" else content).strip()


class _Words:
    """A conversation with words in the place of its values, by their numbers in `values`."""

    def __init__(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None, text: str, again: Again
    ) -> None:
        self._given = messages, tools
        self._text = text
        self._again = again
        self._left = _MAX_RENDERED
        self.values: list[_Value] = []
        _changed(messages, tools, self._read)
        self._digits = len(str(len(self.values)))

    def _read(self, value: _Value) -> str:
        self.values.append(value)
        return value.text

    def _word(self, number: int) -> str:
        return f"{WORD}{number:0{self._digits}}"

    def is_written(self, number: int) -> bool:
        """Whether a value is somewhere in the text."""
        return _is_in(self.values[number].text, self._text)

    def rendered(self, numbers: Collection[int]) -> str | None:
        """Return the text with words in the place of these values; None where the template fails with them."""
        chosen = frozenset(numbers)
        at = iter(range(len(self.values)))

        def change(value: _Value) -> str:
            number = next(at)
            return self._word(number) if number in chosen else value.text

        try:
            return self._again(*_changed(*self._given, change))
        except ChatTemplateError:
            return None

    def lost(self, numbers: Collection[int], text: str | None) -> list[str]:
        """Return what of these values the text lacks; `text` has words in their place."""
        if text is None:  # the template reads them, or it would not mind the words
            return []
        missing = [number for number in numbers if self._word(number) not in text]
        lost = {number for number in missing if not self.is_written(number)}
        lost.update(self._without_effect([number for number in missing if number not in lost]))
        return [self.values[number].what for number in missing if number in lost]

    def _without_effect(self, numbers: Sequence[int]) -> list[int]:
        """Return those of the values that make no difference to the text, found by halves."""
        if not numbers or self._left == 0:
            return []
        self._left -= 1
        if self.rendered(numbers) == self._text:
            return [*numbers]
        half = len(numbers) // 2
        return [*self._without_effect(numbers[:half]), *self._without_effect(numbers[half:])] if half else []


def _changed(
    messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None, change: Callable[[_Value], str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Return a conversation with each of its values changed, visited always in the same order.

    What `change` leaves as it is stays so to the character, with white space at its ends and thoughts in front.
    """
    made: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        what = f"messages[{index}]: the content of the {message['role']}"
        content = message["content"]
        if type(content) is str:
            spoken = _spoken(message, content)
            content = _swapped(content, _Value("content", what, spoken), change) if spoken else content
        else:
            content = [
                {**part, "text": _swapped(part["text"], _Value("content", what, part["text"].strip()), change)}
                if (part.get("text") or "").strip()
                else part
                for part in content
            ]
        message = {**message, "content": content}
        if "tool_calls" in message:
            message["tool_calls"] = [_call(call, f"messages[{index}]: ", change) for call in message["tool_calls"]]
        made.append(message)
    if tools is None:
        return made, None
    return made, [_tool(tool, f"tools[{index}]: ", change) for index, tool in enumerate(tools)]


def _swapped(held: Any, value: _Value, change: Callable[[_Value], str]) -> Any:
    changed = change(value)
    return held if changed == value.text else changed


def _call(call: dict[str, Any], where: str, change: Callable[[_Value], str]) -> dict[str, Any]:
    function = call["function"]
    what = f"{where}the tool call {function['name']!r}"
    name = change(_Value("call", what, function["name"]))

    def argument(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: argument(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [argument(item) for item in value]
        text = value if isinstance(value, str) else json.dumps(value)
        named = f"{where}the arguments of the tool call {function['name']!r}"
        return _swapped(value, _Value("call", named, text), change)

    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = argument(arguments) if arguments else arguments
    elif isinstance(read := _json(arguments), dict | list):
        made = argument(read)
        arguments = arguments if made == read else json.dumps(made, ensure_ascii=False)
    elif arguments.strip():
        arguments = argument(arguments)
    return {**call, "function": {**function, "name": name, "arguments": arguments}}


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _tool(tool: dict[str, Any], where: str, change: Callable[[_Value], str]) -> dict[str, Any]:
    function = tool.get("function", tool)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        return tool
    named = {**function, "name": change(_Value("tool", f"{where}the tool {name!r}", name))}
    return {**tool, "function": named} if "function" in tool else named


def _has_media(message: dict[str, Any]) -> bool:
    content = message["content"]
    return type(content) is list and any(part.get("type", "text") != "text" for part in content)


def _without_media(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    if type(content) is not list:
        return message
    return {**message, "content": [part for part in content if part.get("type", "text") == "text"]}


def covers(tree: nodes.Template, roles: Iterable[str]) -> bool:
    """Whether a template always prints the text of these roles: a top-level loop over `messages` says it for each.

    Nothing is proved when the loop can be left early or its names mean something else.
    """
    stored = [node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"]
    loops = [
        (loop.body, loop.target.name)
        for loop in tree.body
        if isinstance(loop, nodes.For)
        and isinstance(loop.iter, nodes.Name)
        and isinstance(loop.target, nodes.Name)
        and loop.iter.name == "messages"
        and loop.test is None
        and "messages" not in stored
        and stored.count(loop.target.name) == 1
        and next(loop.find_all((nodes.Break, nodes.Continue)), None) is None
    ]
    return all(any(_says(body, name, role) for body, name in loops) for role in roles)


def _says(body: Sequence[nodes.Node], name: str, role: str) -> bool:
    """Whether one of the statements prints the text of a message of this role."""
    return any(_statement(node, name, role) for node in body)


def _statement(node: nodes.Node, name: str, role: str) -> bool:
    if isinstance(node, nodes.Output):
        return any(_prints(one, name) for one in node.nodes)
    if isinstance(node, nodes.FilterBlock) and node.filter.name == MARK:
        return _says(node.body, name, role)
    if not isinstance(node, nodes.If):
        return False
    for branch in (node, *node.elif_):
        tested = _role_tested(branch.test, name)
        if tested == role:
            return _says(branch.body, name, role)
        if tested is None and not _says(branch.body, name, role):  # which this message may end up in
            return False
    return _says(node.else_, name, role)


def _role_tested(test: nodes.Node, name: str) -> str | None:
    """Return `X` of `message.role == X`."""
    if isinstance(test, nodes.Compare) and len(test.ops) == 1 and test.ops[0].op == "eq":
        value = test.ops[0].expr
        if _reads(test.expr, name, "role") and isinstance(value, nodes.Const) and isinstance(value.value, str):
            return value.value
    return None


def _prints(node: nodes.Node, name: str) -> bool:
    """Tell whether an expression is the content, white space around it aside, or a sum of texts that has it."""
    if isinstance(node, nodes.Add):
        return _prints(node.left, name) or _prints(node.right, name)
    if isinstance(node, nodes.Concat):
        return any(_prints(one, name) for one in node.nodes)
    if isinstance(node, nodes.Filter) and node.name == "trim" and node.node is not None and not node.args:
        return _prints(node.node, name)
    return _reads(node, name, "content")


def _reads(node: nodes.Node, name: str, key: str) -> bool:
    if isinstance(node, nodes.Getattr):
        read: object = node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        read = node.arg.value
    else:
        return False
    return read == key and isinstance(node.node, nodes.Name) and node.node.name == name
