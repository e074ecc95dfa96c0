"""The layer table of `Composition.explain`: tokens, origin and spans of each layer, and the effect of a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkit_prompts.composition.rows import HistoryRow, PromptRow, Row, rows_of
from agentkit_prompts.composition.trims import Status, Trim
from agentkit_prompts.context.parts import Media, Text
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.hints import Hinted
from agentkit_prompts.templates.spans import Span
from agentkit_prompts.tokens.counter import media_tokens, thinking_tokens
from agentkit_prompts.tree.prompt import BasePrompt

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import CallContent

_MAX_NAMED = 3
"""Maximum number of tools with an unusual time limit that the table names."""


@dataclass(frozen=True, slots=True)
class LayerRow(metaclass=Hinted):
    """One line of the layer table."""

    layer: str
    """Path of the prompt, or `conversation`, `intermediate`, each also with `.thinking` and `.cleared`, `tools`,
    `output` or `overhead`. If a chat template writes the text, `chat template` replaces `overhead`: the tokens that the
    template adds, minus the tokens that it omits."""
    prompt: str
    """Name of the prompt; for other layers their content, such as `3 messages`."""
    source: str
    """Origin of the text: the file of the template, or the context names that the template reads; for tools also their
    time limit."""
    tokens: int
    share: float
    """Share of all tokens, 0 to 1."""
    status: Status = "kept"
    why: str = ""
    """Reason if the layer was trimmed or dropped, else empty."""
    trim: Trim | None = field(default=None, repr=False, compare=False)
    """Effect of the budget; None if the budget removed nothing."""
    row: Row | None = field(default=None, repr=False, compare=False)
    """The prompt or the stored messages; None for layers without text in the messages."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """Spans of the text of the layer in the messages."""
        if self.row is None:
            return ()
        return self.row.spans


class LayerTable(tuple[LayerRow, ...], metaclass=Hinted):
    """Rows of a composition in the order they are sent. `str()` formats a table, `to_dicts()` returns plain data."""

    __slots__ = ()

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts of JSON values."""
        names = [column.name for column in fields(LayerRow) if column.name not in ("trim", "row")]
        return [{name: getattr(row, name) for name in names} for row in self]

    def __str__(self) -> str:
        cells = [("layer", "prompt", "tokens", "share", "status", "source", "why")]
        for row in self:
            tokens, share = f"{row.tokens:,}", f"{row.share:6.1%}"
            cells.append((row.layer, row.prompt, tokens, share, row.status, row.source, row.why))
        cells.append(("total", "", f"{sum(row.tokens for row in self):,}", "", "", "", ""))
        columns = [_column(texts) for texts in zip(*cells, strict=True)]
        head, *lines, total = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
        rule = "-" * max(map(len, (head, *lines, total)))
        return "\n".join([head, rule, *lines, rule, total])


def _column(texts: Sequence[str]) -> list[str]:
    """Return the texts of a column, padded to one width; numbers are aligned to the right."""
    width = max(map(len, texts))
    if texts[0] in ("tokens", "share"):
        return [text.rjust(width) for text in texts]
    return [text.ljust(width) for text in texts]


class _Layer(NamedTuple):
    """Content of a row, collected before the total of tokens and the shares are known."""

    name: str
    label: str
    source: str
    tokens: int
    row: Row | None = None
    trim: Trim | None = None
    """Results that were cleared; None for other layers."""
    names_of_media: Sequence[Media] = ()
    """Media of which the text of a chat template contains only the names."""


def layer_table(composition: CallContent) -> LayerTable:
    """Return the layer table of a composition; the tokens of its rows add up to `composition.tokens`."""
    layers = [*_layers(composition)]
    total = composition.tokens
    framing = total - sum(layer.tokens for layer in layers)
    if framing and composition.text_tokens is None:
        layers.append(_Layer("overhead", "message framing", "", framing))
    elif framing:
        layers.append(_Layer("chat template", "text that the template adds", "", framing))
    return LayerTable([_table_row(composition, layer, total) for layer in layers])


def _layers(composition: CallContent) -> Iterator[_Layer]:
    """Yield the layers in the order they are sent, then the tools and the requested output."""
    for row in rows_of(composition):
        if isinstance(row, PromptRow):
            yield _prompt_layer(composition, row)
        else:
            yield from _history_layers(composition, row)
    tokens = composition.tools_and_output.tokens(composition.counter)
    if composition.tools:
        source = f"tools{_time_limits(composition.tools)}"
        yield _Layer("tools", f"{len(composition.tools)} tools", source, tokens.tools)
    if composition.output_schema is not None:
        yield _Layer("output", "answer schema", "output type", tokens.schema)


def _prompt_layer(composition: CallContent, row: PromptRow) -> _Layer:
    prompt = row.prompt
    source = prompt.template.file or ", ".join(dict.fromkeys(names_read(prompt))) or "text"
    stored = [name for name in composition.context.kept_kwargs if _shows_kwarg(prompt, name)]
    if stored:
        source += f" ({', '.join(stored)}: kept by the session)"
    tokens, media = row.rendered.tokens(composition.counter), row.rendered.media
    if composition.text_tokens is not None and media:
        tokens = composition.counter.count(row.rendered.plain)
        return _Layer(row.layer, prompt.label, source, tokens, row, names_of_media=media)
    return _Layer(row.layer, prompt.label, source, tokens, row=row)


def _history_layers(composition: CallContent, row: HistoryRow) -> Iterator[_Layer]:
    name, history = row.layer, row.history
    if not len(history) and name not in composition.trims:
        return
    counter = composition.counter
    thinking = sum(thinking_tokens(message, counter) for message in history if message.thinking)
    tokens = history.total(composition.tools_and_output.tokens(counter).of_message)
    media: list[Media] = []
    if composition.text_tokens is not None and history.may_have_media:
        media = [part for message in history for part in message.parts if not isinstance(part, Text)]
        tokens += sum([counter.count(part.alt) for part in media]) - media_tokens(media)
    cleared = _cleared_layer(composition, row)
    if cleared is not None:
        tokens -= cleared.tokens
    yield _Layer(name, f"{len(history)} messages", name, tokens - thinking, row, names_of_media=media)
    if thinking:
        yield _Layer(f"{name}.thinking", "thinking of the model", name, thinking)
    if cleared is not None:
        yield cleared


def _cleared_layer(composition: CallContent, row: HistoryRow) -> _Layer | None:
    """Return the layer of the placeholders in a history; None without cleared results."""
    # Most programs clear no results.
    if composition.context.clearing is None:
        return None
    from agentkit_prompts.composition.cleared_results import cleared_in_row

    cleared = cleared_in_row(composition, row)
    if not cleared:
        return None
    count = composition.tools_and_output.tokens(composition.counter).of_message
    placeholders = [row.history[number - row.message] for index, number in row.numbers.items() if index in cleared]
    tokens = sum(map(count, placeholders))
    results = sum(message.role == "tool" for message in row.history)
    saved = sum(map(count, cleared.values())) - tokens
    why = f"{len(cleared)} of {results} results cleared, {saved:,} tokens less"
    trim = Trim(results - len(cleared), results, why)
    return _Layer(f"{row.layer}.cleared", f"{len(cleared)} placeholders", row.layer, tokens, trim=trim)


def _table_row(composition: CallContent, layer: _Layer, total: int) -> LayerRow:
    """Return a row with its share of tokens, and the reason if a budget or compaction removed a part of it."""
    trim = layer.trim or composition.trims.get(layer.name)
    reasons: list[str] = []
    status: Status = "kept"
    # Compaction replaces the start of a conversation by a summary, so the view of the context starts later.
    if layer.name == "conversation" and composition.context.conversation.start:
        reasons.append(f"the first {composition.context.conversation.start} messages were left out before")
        status = "trimmed"
    if trim is not None:
        reasons.append(trim.why)
        status = trim.status
        # A wrapper whose children were all dropped can still have the text of its template.
        if layer.tokens:
            status = "trimmed"
    if layer.names_of_media:
        status = "trimmed"
        reasons.append(media_as_names(layer.names_of_media))
    share = layer.tokens / (total or 1)
    why = "; ".join(reasons)
    return LayerRow(layer.name, layer.label, layer.source, layer.tokens, share, status, why, trim, layer.row)


def media_as_names(media: Sequence[Media]) -> str:
    """Return the reason why a model that reads text only does not receive media."""
    kinds = " and ".join(dict.fromkeys([part.kind for part in media]))
    return f"the model reads text only: {kinds} as text, such as {media[0].alt}"


def _time_limits(tools: Iterable[ToolSpec]) -> str:
    """Describe the most frequent time limit of a call, and name some tools with another limit; empty if unknown."""
    limits = {tool.name: tool.timeout for tool in tools if tool.timeout is not None}
    if not limits:
        return ""
    [(usual, _)] = Counter(limits.values()).most_common(1)
    unusual = [f"{name}: {_seconds(limit)}" for name, limit in limits.items() if limit != usual]
    if len(unusual) > _MAX_NAMED:
        unusual[_MAX_NAMED:] = [f"{len(unusual) - _MAX_NAMED} others"]
    return f" ({', '.join([f'{_seconds(usual)} a call', *unusual])})"


def _seconds(limit: float) -> str:
    if limit == inf:
        return "any time"
    return f"{limit:g} s"


def _shows_kwarg(prompt: BasePrompt, name: str) -> bool:
    """True if a prompt, or a prompt inside it, shows an additional kwarg by its name, or shows all kwargs."""
    if any(_shows_kwarg(child, name) for _, child in prompt.children):
        return True
    names = prompt.template.names
    schema = prompt.additional_kwargs_schema or {}
    properties = schema.get("properties", {})
    return name in properties or name in names or (not properties and "additional_kwargs" in names)


def names_read(prompt: BasePrompt) -> Iterator[str]:
    """Yield the context names that the templates of a prompt and of the prompts inside it read."""
    yield from (name for name in prompt.template.names if name not in prompt.supplies)
    for _, child in prompt.children:
        yield from names_read(child)
