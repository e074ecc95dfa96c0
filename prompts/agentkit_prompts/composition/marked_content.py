"""Compositions with changed texts for a model: marks in control tokens, or placeholders of personal data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from agentkit_prompts.chat_templates.guard.token_marks import TokenMarks, changed_texts
from agentkit_prompts.chat_templates.tokens_of_models import BRACKETS
from agentkit_prompts.composition.call_content import CallContent
from agentkit_prompts.composition.sections import Fragment, Section
from agentkit_prompts.composition.tools_and_output import ToolsAndOutput
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Part, Text
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.limits import MAX_CACHED
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import Segment, broken_at

Content = TypeVar("Content", bound=CallContent)
Item = TypeVar("Item", bound=Hashable)


class TextChange(Protocol[Item]):
    """A change of texts that the reply of the model undoes. Each method adds the changed items to `items`."""

    changes_trusted: bool
    """True if the texts of the developer are changed too."""

    def __hash__(self) -> int:
        """Return the hash of the object: it is a cache key."""
        ...

    def add(self, text: str, items: set[Item]) -> str:
        """Return a changed text."""
        ...

    def add_to_parts(self, texts: Sequence[str], items: set[Item]) -> Sequence[str]:
        """Return the changed texts of neighbouring parts of a message, which a server can join to one text."""
        ...

    def add_in_json(self, text: str, items: set[Item]) -> str:
        """Return the JSON text of arguments with changed texts."""
        ...

    def add_in_name(self, text: str, items: set[Item]) -> str:
        """Return the changed id of a call, or the changed name of a tool."""
        ...

    def in_rendered(self, rendered: Rendered, items: set[Item]) -> Rendered:
        """Return a rendering with changed untrusted texts; the same object without a change."""
        ...


def marked_content(composition: Content, marks: TokenMarks) -> tuple[Content, frozenset[str]]:
    """Return a composition with marks in the control tokens of its untrusted text, and these tokens."""
    marked, tokens = changed_content(composition, _marking(marks))
    if not tokens:
        return composition, tokens
    return marked.evolve(text_tokens=None), tokens


def changed_content(composition: Content, change: TextChange[Item]) -> tuple[Content, frozenset[Item]]:
    """Return a composition with changed texts, and the changed items; the same object without a change."""
    items: set[Item] = set()
    of_message = _message_changer(change)
    changes = {
        "sections": [_section(section, change, items) for section in composition.sections],
        "conversation": _conversation(composition.conversation, of_message, items),
        "intermediate": _conversation(composition.intermediate, of_message, items),
        "tools_and_output": _tools(composition.tools_and_output, change, items),
    }
    if not items:
        return composition, frozenset()
    return composition.evolve(**changes), frozenset(items)


class _Marking:
    """Marks in control tokens as a change of texts."""

    changes_trusted = False

    def __init__(self, marks: TokenMarks) -> None:
        self._marks = marks

    def add(self, text: str, items: set[str]) -> str:
        return self._marks.add(text, items)

    def add_to_parts(self, texts: Sequence[str], items: set[str]) -> Sequence[str]:
        return self._marks.add_to_parts(texts, items)

    def add_in_json(self, text: str, items: set[str]) -> str:
        return self._marks.add_in_json(text, items)

    def add_in_name(self, text: str, items: set[str]) -> str:
        return self._marks.add(text, items)

    def in_rendered(self, rendered: Rendered, items: set[str]) -> Rendered:
        # The tokens of the developer's texts stay: the segments are read only if a text has tokens.
        if next(self._marks.offsets(rendered.text), None) is None:
            return rendered
        return _rendered(rendered, self._marks, items)


@lru_cache(maxsize=MAX_CACHED)
def _marking(marks: TokenMarks) -> _Marking:
    return _Marking(marks)


def has_brackets(composition: CallContent) -> bool:
    """True if a text of a composition contains the first character of a token in brackets (fast)."""
    if any(map(_contains_bracket, [section.text for section in composition.sections])):
        return True
    if composition.conversation.total(_count_brackets) or composition.intermediate.total(_count_brackets):
        return True
    return any(tool.trust == "untrusted" and _contains_bracket(tool.json) for tool in composition.tools)


def _contains_bracket(text: str) -> bool:
    return any(bracket in text for bracket in BRACKETS)


def _count_brackets(message: Message) -> int:
    """Return 1 if a text of a message contains a bracket, otherwise 0."""
    texts = [message.text, message.name or "", message.tool_call_id or "", *[item.text for item in message.thinking]]
    for call in message.tool_calls:
        texts += call.id, call.name, call.arguments
    # An escape, such as `\u003c` in the arguments of a call, can be a bracket.
    return int(any("\\u" in text or _contains_bracket(text) for text in texts))


class _ChangedMessage(NamedTuple):
    """A stored message with changed texts."""

    message: Message
    items: frozenset[Any]


@lru_cache(maxsize=MAX_CACHED)
def _message_changer(change: TextChange[Any]) -> Callable[[Message], _ChangedMessage]:
    """Return the function that changes a message: one object per change, because it is a cache key."""

    def changed(message: Message) -> _ChangedMessage:
        return _message(message, change)

    return changed


def _conversation(
    conversation: Conversation, changed: Callable[[Message], _ChangedMessage], items: set[Any]
) -> Conversation:
    rows = conversation.derive(changed)
    own = frozenset[Any]().union(*[row.items for row in rows if row.items])
    if not own:
        # The same object keeps its cached wire forms.
        return conversation
    items |= own
    return Conversation([row.message for row in rows])


def _message(message: Message, change: TextChange[Any]) -> _ChangedMessage:
    """Return a message with changes in its text, names, ids, calls and thinking without a signature."""
    items: set[Any] = set()
    content = _content(message.content, change, items)
    name, answered = message.name, message.tool_call_id
    if name is not None and message.role == "tool":
        name = change.add_in_name(name, items)
    elif name is not None:
        name = change.add(name, items)
    if answered is not None:
        answered = change.add_in_name(answered, items)
    calls = tuple([_call(call, change, items) for call in message.tool_calls])
    thinking = tuple([_thinking(thought, change, items) for thought in message.thinking])
    if not items:
        return _ChangedMessage(message, frozenset())
    changed = replace(message, content=content, tool_calls=calls, tool_call_id=answered, name=name, thinking=thinking)
    return _ChangedMessage(changed, frozenset(items))


def _content(content: str | tuple[Part, ...], change: TextChange[Any], items: set[Any]) -> str | tuple[Part, ...]:
    if isinstance(content, str):
        return change.add(content, items)
    parts: list[Part] = []
    for kind, neighbours in groupby(content, attrgetter("kind")):
        group = [*neighbours]
        if kind in ("text", "refusal"):
            texts = change.add_to_parts([part.text for part in group if isinstance(part, Text)], items)
            # A placeholder can replace the text of a whole part, and servers refuse empty parts.
            group = [Text(text, kind=kind) for text in texts if text]
        parts += group
    return tuple(parts)


def _call(call: ToolCall, change: TextChange[Any], items: set[Any]) -> ToolCall:
    return replace(
        call,
        id=change.add_in_name(call.id, items),
        name=change.add_in_name(call.name, items),
        arguments=change.add_in_json(call.arguments, items),
    )


def _thinking(thought: Thinking, change: TextChange[Any], items: set[Any]) -> Thinking:
    if thought.is_sealed:
        return thought
    return replace(thought, text=change.add(thought.text, items))


def _section(section: Section, change: TextChange[Any], items: set[Any]) -> Section:
    fragments: list[Fragment] = []
    for fragment in section.fragments:
        rendered = change.in_rendered(fragment.rendered, items)
        fragments.append(fragment._replace(rendered=rendered))
    if all(new.rendered is old.rendered for new, old in zip(fragments, section.fragments, strict=True)):
        return section
    return Section(fragments, section.label)


def _rendered(rendered: Rendered, marks: TokenMarks, tokens: set[str]) -> Rendered:
    """Return a rendering with a mark in each token that has an untrusted character."""
    segments = rendered.segments()
    untrusted = "".join([segment.text if _is_untrusted(segment) else "\0" * len(segment.text) for segment in segments])
    offsets: list[int] = []
    for start, end, token in marks.offsets(rendered.text):
        if untrusted[start:end].strip("\0"):
            offsets.append(start + 1)
            tokens.add(token)
    if not offsets:
        return rendered
    return Rendered.from_segments(broken_at(segments, [segment.text for segment in segments], offsets))


def _is_untrusted(segment: Segment) -> bool:
    return segment.trust == "untrusted" and segment.media is None


def _tools(tools_and_output: ToolsAndOutput, change: TextChange[Any], items: set[Any]) -> ToolsAndOutput:
    tools = tuple([_tool(tool, change, items) for tool in tools_and_output.context_tools])
    if all(new is old for new, old in zip(tools, tools_and_output.context_tools, strict=True)):
        return tools_and_output
    return ToolsAndOutput(tools, tools_and_output.output)


def _tool(tool: ToolSpec, change: TextChange[Any], items: set[Any]) -> ToolSpec:
    """Return an untrusted tool, such as the tool of a server, with changes in its texts."""
    if tool.trust == "trusted" and not change.changes_trusted:
        return tool
    own: set[Any] = set()

    def changed(text: str) -> str:
        return change.add(text, own)

    parameters = changed_texts(dict(tool.parameters), changed)
    description = changed(tool.description)
    if not own:
        return tool
    items |= own
    return replace(tool, description=description, parameters=parameters)
