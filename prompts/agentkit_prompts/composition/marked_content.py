"""The composition for an endpoint that applies a chat template: untrusted text cannot form a token of the template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

from agentkit_prompts.chat_templates.guard.token_marks import TokenMarks, changed_texts
from agentkit_prompts.chat_templates.tokens_of_models import BRACKETS
from agentkit_prompts.composition.call_content import CallContent
from agentkit_prompts.composition.sections import Fragment, Section
from agentkit_prompts.composition.tools_and_output import ToolsAndOutput
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Text
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.limits import MAX_CACHED
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import Segment, insert_breaks

__all__ = ["has_brackets", "marked_content"]

Content = TypeVar("Content", bound=CallContent)


def marked_content(composition: Content, marks: TokenMarks) -> tuple[Content, frozenset[str]]:
    """Return a composition with marks in the control tokens of its untrusted text, and these tokens."""
    tokens: set[str] = set()
    mark = _message_marker(marks)
    changes = {
        "sections": [_section(section, marks, tokens) for section in composition.sections],
        "conversation": _conversation(composition.conversation, mark, tokens),
        "intermediate": _conversation(composition.intermediate, mark, tokens),
        "tools_and_output": _tools(composition.tools_and_output, marks, tokens),
    }
    if not tokens:
        return composition, frozenset()
    return composition.evolve(text_tokens=None, **changes), frozenset(tokens)


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
    texts = [message.text, *[call.arguments for call in message.tool_calls], *[item.text for item in message.thinking]]
    # An escape, such as `\u003c` in the arguments of a call, can be a bracket.
    return int(any("\\u" in text or _contains_bracket(text) for text in texts))


class _MarkedMessage(NamedTuple):
    """A stored message with marks."""

    message: Message
    tokens: frozenset[str]


@lru_cache(maxsize=MAX_CACHED)
def _message_marker(marks: TokenMarks) -> Callable[[Message], _MarkedMessage]:
    """Return the function that marks a message: one object per object of marks, because it is a cache key."""

    def mark(message: Message) -> _MarkedMessage:
        return _message(message, marks)

    return mark


def _conversation(
    conversation: Conversation, mark: Callable[[Message], _MarkedMessage], tokens: set[str]
) -> Conversation:
    rows = conversation.derive(mark)
    own = frozenset[str]().union(*[row.tokens for row in rows if row.tokens])
    if not own:
        # The same object keeps its cached wire forms.
        return conversation
    tokens |= own
    return Conversation([row.message for row in rows])


def _message(message: Message, marks: TokenMarks) -> _MarkedMessage:
    """Return a message with marks in its text, the arguments of its calls and its thinking without a signature."""
    tokens: set[str] = set()
    content = message.content
    if isinstance(content, str):
        content = marks.add(content, tokens)
    else:
        content = tuple(
            [Text(marks.add(part.text, tokens), kind=part.kind) if isinstance(part, Text) else part for part in content]
        )
    calls = tuple([replace(call, arguments=marks.add_in_json(call.arguments, tokens)) for call in message.tool_calls])
    thinking = tuple([_thinking(thought, marks, tokens) for thought in message.thinking])
    if not tokens:
        return _MarkedMessage(message, frozenset())
    marked = replace(message, content=content, tool_calls=calls, thinking=thinking)
    return _MarkedMessage(marked, frozenset(tokens))


def _thinking(thought: Thinking, marks: TokenMarks, tokens: set[str]) -> Thinking:
    if thought.is_sealed:
        return thought
    return replace(thought, text=marks.add(thought.text, tokens))


def _section(section: Section, marks: TokenMarks, tokens: set[str]) -> Section:
    fragments: list[Fragment] = []
    for fragment in section.fragments:
        rendered = fragment.rendered
        # The tokens of the developer's texts stay: the segments are read only if a text has tokens.
        if next(marks.offsets(rendered.text), None) is not None:
            rendered = _rendered(rendered, marks, tokens)
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
    marked: list[Segment] = []
    start = 0
    for segment in segments:
        end = start + len(segment.text)
        inside = [offset - start for offset in offsets if start < offset <= end]
        marked.append(segment._replace(text=insert_breaks(segment.text, inside)) if inside else segment)
        start = end
    return Rendered.from_segments(marked)


def _is_untrusted(segment: Segment) -> bool:
    return segment.trust == "untrusted" and segment.media is None


def _tools(tools_and_output: ToolsAndOutput, marks: TokenMarks, tokens: set[str]) -> ToolsAndOutput:
    tools = tuple([_tool(tool, marks, tokens) for tool in tools_and_output.context_tools])
    if all(new is old for new, old in zip(tools, tools_and_output.context_tools, strict=True)):
        return tools_and_output
    return ToolsAndOutput(tools, tools_and_output.output)


def _tool(tool: ToolSpec, marks: TokenMarks, tokens: set[str]) -> ToolSpec:
    """Return an untrusted tool, such as the tool of a server, with marks in its texts."""
    if tool.trust == "trusted":
        return tool
    own: set[str] = set()

    def mark(text: str) -> str:
        return marks.add(text, own)

    parameters = changed_texts(dict(tool.parameters), mark)
    description = mark(tool.description)
    if not own:
        return tool
    tokens |= own
    return replace(tool, description=description, parameters=parameters)
