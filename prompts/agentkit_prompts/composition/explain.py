"""Questions about a composition: what each layer costs, and what changed since another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from agentkit_prompts.composition.trims import Status
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.tokens.counter import (
    message_tokens,
    thinking_tokens,
)
from agentkit_prompts.tree.prompt import BasePrompt

if TYPE_CHECKING:
    from agentkit_prompts.composition.contents import Contents
    from agentkit_prompts.composition.sections import Section

__all__ = [
    "LayerRow",
    "LayerTable",
    "layer_table",
    "names_read",
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
        for path, prompt, rendered in section.fragments:
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
