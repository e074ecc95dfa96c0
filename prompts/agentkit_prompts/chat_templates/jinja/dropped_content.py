"""What a rendered conversation does not hold of what it was made from: nothing is lost without a word."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jinja2 import nodes

from agentkit_prompts.chat_templates.jinja.calls import MARK
from agentkit_prompts.chat_templates.jinja.probe import WORD
from agentkit_prompts.errors import ChatTemplateError

__all__ = ["covers", "holds_all", "losses"]

_THOUGHT = "</think>"
_MAX_GAP = 200
"""Characters that mostly stand between two messages, at the most."""


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


def losses(
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None,
    text: str,
    again: Callable[[Sequence[dict[str, Any]]], str],
) -> list[str]:
    """Return what the text lacks: messages, tool calls, tools, media; what models thought may be left out.

    A message that is not in the text word for word may have been rewritten by the template, so the conversation is
    rendered `again` with one plain word in its place: a message is lost when that word does not come out either.
    """
    absent: list[tuple[int, str]] = []
    found: list[str] = []
    at = 0
    media = False
    for index, message in enumerate(messages):
        content = message["content"]
        if type(content) is str:
            end = at + len(content)
            place = text.find(content, at, end + _MAX_GAP)
            if place >= 0:
                at = place + len(content)
                if len(message) == 2:
                    continue
                content = ""
        else:
            media = media or any(part.get("type", "text") != "text" for part in content)
        for written in _texts(message, content):
            place = text.find(written, at)
            if place >= 0:
                at = place + len(written)
            elif written not in text and json.dumps(written, ensure_ascii=False)[1:-1] not in text:
                absent.append((index, written))
        for call in message.get("tool_calls") or ():
            name = str(call["function"]["name"])
            if name not in text:
                found.append(f"messages[{index}]: the tool call {name!r}")
    for tool in tools or ():
        name = str(tool.get("function", tool).get("name", ""))
        if name and name not in text:
            found.append(f"the tool {name!r}")
    if absent:
        found += _dropped(messages, absent, again)
    if media and again([_without_media(message) for message in messages]) == text:
        found.append("the media of the messages")
    return found


def _texts(message: dict[str, Any], content: Any) -> list[str]:
    if type(content) is str:
        written = content.rpartition(_THOUGHT)[2] if message["role"] == "assistant" else content
        written = written.strip()
        return [written] if written else []
    return [part["text"].strip() for part in content if part.get("text")]


def _dropped(
    messages: Sequence[dict[str, Any]],
    absent: Sequence[tuple[int, str]],
    again: Callable[[Sequence[dict[str, Any]]], str],
) -> list[str]:
    replaced = list(messages)
    words = [f"{WORD}{number:04}" for number in range(len(absent))]
    for word, (index, written) in zip(words, absent, strict=True):
        content = replaced[index]["content"]
        changed: Any = word
        if type(content) is list:
            changed = [{**part, "text": word} if str(part.get("text")).strip() == written else part for part in content]
        replaced[index] = {**replaced[index], "content": changed}
    try:
        text = again(replaced)
    except ChatTemplateError:
        return []  # the template reads the content, or it would not mind the word
    lost = [index for word, (index, _) in zip(words, absent, strict=True) if word not in text]
    return [f"messages[{index}]: what the {messages[index]['role']} says" for index in dict.fromkeys(lost)]


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
