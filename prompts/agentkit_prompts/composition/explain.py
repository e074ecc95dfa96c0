"""Questions about a composition: what each layer costs, and what changed since another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from agentkit_prompts.composition.contents import Contents, Status
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, Text, neutralise_markers
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.templates.spans import Segment
from agentkit_prompts.tokens.counter import (
    MESSAGE_OVERHEAD,
    TokenCounter,
    media_tokens,
    message_tokens,
    thinking_tokens,
    tool_tokens,
)
from agentkit_prompts.tree.prompt import BasePrompt

if TYPE_CHECKING:
    from agentkit_prompts.composition.sections import Section

__all__ = [
    "Diff",
    "LayerRow",
    "LayerTable",
    "diff",
    "layer_table",
    "names_read",
    "tokens_until",
    "tool_text",
]


_MAX_NAMED = 3
"""Tools with a time limit of their own that the table names."""


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One line of the layer table."""

    layer: str
    """Path of the prompt, or `conversation`, `intermediate`, each with a `.thinking`, `tools`, `output`, `overhead`,
    or `chat template` in place of that where one writes the text: all it adds, less what it leaves out."""
    prompt: str
    """Name of the prompt or of what the layer holds."""
    source: str
    """Where the text is from: the template file, or the context names it reads; of tools also how long a call may
    take."""
    tokens: int
    share: float
    """Part of all tokens, 0 to 1."""
    status: Status = "kept"
    why: str = ""
    """Why it was trimmed or dropped."""


class LayerTable(tuple[LayerRow, ...]):
    """The rows in the order they are sent. `str()` draws them for a terminal, `to_dicts()` gives plain data."""

    __slots__ = ()

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts that `json` can write."""
        return [asdict(row) for row in self]

    def __str__(self) -> str:
        cells = [("layer", "prompt", "tokens", "share", "status", "source", "why")]
        cells += [
            (row.layer, row.prompt, f"{row.tokens:,}", f"{row.share:6.1%}", row.status, row.source, row.why)
            for row in self
        ]
        cells.append(("total", "", f"{sum(row.tokens for row in self):,}", "", "", "", ""))
        widths = [max(len(cell[column]) for cell in cells) for column in range(7)]
        lines = [
            "  ".join(
                f"{text:{'>' if column in (2, 3) else '<'}{width}}"
                for column, (text, width) in enumerate(zip(cell, widths, strict=True))
            ).rstrip()
            for cell in cells
        ]
        rule = "-" * max(len(line) for line in lines)
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])


def layer_table(composition: Contents) -> LayerTable:
    """Return what each layer costs, where it is from, and what the budget did to it; tokens add up to the total."""
    counter, per_message = composition.counter, message_tokens(composition.counter)
    rows: list[tuple[str, str, str, int]] = []
    kept = composition.context.kept_kwargs

    def fragments(section: Section) -> None:
        for path, prompt, rendered, _ in section.fragments:
            source = prompt.template.file or ", ".join(dict.fromkeys(names_read(prompt))) or "text"
            if kept and (shown := [name for name in kept if _shows_kwarg(prompt, name)]):
                source += f" ({', '.join(shown)}: kept by the session)"
            rows.append((path, prompt.label, source, rendered.tokens(counter)))

    def messages(name: str, history: Conversation) -> None:
        if len(history) or name in composition.trims:
            thoughts = sum(thinking_tokens(message, counter) for message in history if message.thinking)
            rows.append((name, f"{len(history)} messages", name, history.total(per_message) - thoughts))
            if thoughts:
                rows.append((f"{name}.thinking", "what the model thought", name, thoughts))

    fragments(composition.sections[0])
    messages("conversation", composition.conversation)
    fragments(composition.sections[1])
    messages("intermediate", composition.intermediate)
    if len(composition.intermediate):
        fragments(composition.sections[2])
    tools, schema, _ = composition.declarations.tokens(counter)
    if composition.tools:
        rows.append(("tools", f"{len(composition.tools)} tools", f"tools{_time_limits(composition.tools)}", tools))
    if composition.output_schema is not None:
        rows.append(("output", "answer schema", "output type", schema))
    total = composition.tokens
    framing = total - sum(row[3] for row in rows)
    if framing:
        layer, what = ("overhead", "message framing")
        if composition.text_tokens is not None:
            layer, what = ("chat template", "what it adds")
        rows.append((layer, what, "", framing))
    return LayerTable(LayerRow(*row, row[3] / (total or 1), *_fate(composition, row[0], row[3])) for row in rows)


def _time_limits(tools: Iterable[ToolSpec]) -> str:
    """Return how long a call may take, as most tools have it, and the names of some that have it otherwise."""
    known = [(tool.name, tool.timeout) for tool in tools if tool.timeout is not None]
    if not known:
        return ""
    (usual, _), *_ = Counter(limit for _, limit in known).most_common(1)
    others = [f"{name}: {_seconds(limit)}" for name, limit in known if limit != usual]
    if len(others) > _MAX_NAMED:
        others[_MAX_NAMED:] = [f"{len(others) - _MAX_NAMED} others"]
    return f" ({', '.join([f'{_seconds(usual)} a call', *others])})"


def _seconds(limit: float) -> str:
    return "any time" if limit == inf else f"{limit:g} s"


def _fate(composition: Contents, layer: str, tokens: int) -> tuple[Status, str]:
    """Return what became of a layer and why: by the budget, or because the context has the end of a conversation."""
    trim = composition.trims.get(layer)
    before = composition.context.conversation.start if layer == "conversation" else 0
    why = [f"the first {before} messages were left out before"] if before else []
    if trim is not None:
        why.append(trim.why)
    if not why:
        return "kept", ""
    return "trimmed" if tokens or trim is None else trim.status, "; ".join(why)


def _shows_kwarg(prompt: BasePrompt, name: str) -> bool:
    """Whether a prompt, or one inside it, shows an additional kwarg: by its name, or all of them."""
    for one in (prompt, *(child for _, child in prompt.children)):
        asked = (one.additional_kwargs_schema or {}).get("properties", {})
        if name in asked or name in one.template.names or (not asked and "additional_kwargs" in one.template.names):
            return True
    return False


def names_read(prompt: BasePrompt) -> Iterator[str]:
    """Yield the context names that the templates of a prompt and of those inside it read."""
    yield from (name for name in prompt.template.names if name not in prompt.supplies)
    for _, child in prompt.children:
        yield from names_read(child)


@dataclass(frozen=True, slots=True)
class Diff:
    """Where a composition first differs from an earlier one. What comes before can come from a prompt cache."""

    layer: str | None
    """The first layer that differs; None when nothing does."""
    message: int
    """Index of the message in which it differs."""
    offset: int
    """Characters of that message that are the same."""
    tokens: int
    """Tokens before the difference: the part that stays the same."""
    before: str
    """What stood there, cut short."""
    after: str
    """What stands there now, cut short."""

    def __str__(self) -> str:
        if self.layer is None:
            return f"the same, all {self.tokens} tokens"
        return f"{self.layer} differs after {self.tokens} tokens: {self.before!r} -> {self.after!r}"


_EXCERPT = 40


def diff(composition: Contents, previous: Contents) -> Diff:
    """Return where `composition` first differs from `previous`, tools before messages, as they are sent."""
    counter = composition.counter
    if composition.tools != previous.tools:
        return _tools_diff(composition, previous)
    per_message = message_tokens(counter)
    tokens = composition.declarations.tokens(counter)[0]
    ours, theirs = list(composition.walk()), list(previous.walk())
    for number, (message, segments) in enumerate(ours):
        if number >= len(theirs):
            return Diff(_layer_at(composition, number, segments), number, 0, tokens, "", _excerpt(_whole_text(message)))
        other = theirs[number][0]
        if message == other:
            stored = not segments or segments[0].prompt in ("conversation", "intermediate")
            tokens += per_message(message) if stored else MESSAGE_OVERHEAD + tokens_until(segments, None, counter)
            continue
        if message.role != other.role:
            layer = _layer_at(composition, number, segments)
            return Diff(layer, number, 0, tokens, _excerpt(_whole_text(other)), _excerpt(_whole_text(message)))
        text, old = "".join(part.text for part in segments), "".join(part.text for part in theirs[number][1])
        same = _same(text, old)
        tokens += MESSAGE_OVERHEAD + tokens_until(segments, same, counter)
        layer = _layer_at(composition, number, segments, same)
        if text == old:  # the calls or the name
            text, old, same = _whole_text(message), _whole_text(other), len(text)
        return Diff(layer, number, same, tokens, _excerpt(old[same:]), _excerpt(text[same:]))
    if len(theirs) > len(ours):
        message, segments = theirs[len(ours)]
        return Diff(_layer_at(previous, len(ours), segments), len(ours), 0, tokens, _excerpt(_whole_text(message)), "")
    return Diff(None, len(ours), 0, tokens, "", "")


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how long the beginning is that both have."""
    differing = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


def _tools_diff(composition: Contents, previous: Contents) -> Diff:
    ours, theirs = ([tool_text(tool) for tool in one.tools] for one in (composition, previous))
    first = _same(ours, theirs)
    now, old = "\n".join(ours[first:]), "\n".join(theirs[first:])
    start = max(0, _same(now, old) - _EXCERPT // 2)
    tokens = tool_tokens(composition.tools[:first], composition.counter)
    return Diff("tools", 0, 0, tokens, _excerpt(old[start:]), _excerpt(now[start:]))


def tool_text(tool: ToolSpec) -> str:
    """Return everything of a tool that a model is given, as text."""
    return tool.json + (" strict" if tool.strict else "")


def _whole_text(message: Message) -> str:
    """Return everything of a message that is not its role: text, calls, what it answers, and its name."""
    calls = "".join(f" [calls {call.name}({call.arguments}) as {call.id}]" for call in message.tool_calls)
    answers = f" [answers {message.tool_call_id}]" if message.tool_call_id is not None else ""
    named = f" [named {message.name}]" if message.name is not None else ""
    parts = (neutralise_markers(part.text) if isinstance(part, Text) else part.marker for part in message.parts)
    thought = f" [thought {message.reasoning}]" if message.thinking else ""
    return f"{''.join(parts)}{calls}{answers}{named}{thought}"


def _layer_at(composition: Contents, number: int, segments: Sequence[Segment], offset: int = 0) -> str:
    """Return the layer of the character at `offset` of a message; the last one when the text ends there."""
    layer = ""
    for segment in segments:
        layer = segment.prompt
        offset -= len(segment.text)
        if offset < 0:
            break
    if layer:
        return layer
    before = composition.sends_system + len(composition.conversation)  # a message without content
    if number == before and composition.sends_user:
        return "input"
    if number == 0 and composition.sends_system:
        return "system"
    return "conversation" if number < before else "intermediate"


def tokens_until(segments: Iterable[Segment], offset: int | None, counter: TokenCounter) -> int:
    """Count the text before `offset`, and the media whose markers stand before it; all when there is no offset."""
    text: list[str] = []
    media: list[Media] = []
    for segment in segments:
        if segment.media is None:
            text.append(segment.text if offset is None else segment.text[: max(0, offset)])
        elif offset is None or len(segment.text) <= offset:
            media.append(segment.media)
        if offset is not None:
            offset -= len(segment.text)
    return counter.count("".join(text)) + media_tokens(media)


def _excerpt(text: str) -> str:
    return text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "\u2026"
