"""`why`: where a prompt, or a part of the context, shows up in a composition, or why it does not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from agentkit_prompts.composition.explain import layer_table, names_read
from agentkit_prompts.context.items import Document, Example, Fact
from agentkit_prompts.context.prompt_context import CONTEXT_NAMES, PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.names import nearest, similar
from agentkit_prompts.templates.spans import Span
from agentkit_prompts.tree.examples import ExamplesPrompt, StaticSelector
from agentkit_prompts.tree.layers import PLACES
from agentkit_prompts.tree.prompt import BasePrompt, render_prompt

if TYPE_CHECKING:
    from agentkit_prompts.composition.contents import Contents

__all__ = ["Why", "why"]

_Path: TypeAlias = tuple[str | int, ...]
_Shown: TypeAlias = Sequence[tuple[Span, Sequence[_Path]]]
"""Spans, each with the parts of the context it shows."""
_STEP = re.compile(r"""\.?([^\W\d]\w*)|\[(\d+)\]|\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""")
_KWARGS = "additional_kwargs"
_OURS = "agentkit_prompts."
_MAX_SHOWN = 80
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Why:
    """Where one part of a composition, or of its context, ended up."""

    pointer: str
    spans: tuple[Span, ...]
    """Every place in the messages that shows it; empty when none does."""
    reason: str
    """In words: what shows it, or why nothing does."""

    def __str__(self) -> str:
        return f"{self.pointer}: {self.reason}"


def why(composition: Contents, pointer: str) -> Why:
    """Return what `Composition.why` does."""
    if not isinstance(pointer, str):
        got = type(pointer).__name__
        raise PromptError(f"why: expected a path such as 'documents[0]', got {got}", name="pointer", value=got)
    path = _path(pointer)
    if path is None or path[0] not in CONTEXT_NAMES:
        found = _of_prompts(composition, pointer) or _of_row(composition, pointer)
        if found is not None:
            return Why(pointer, *found)
        if path is not None and path[0] in _kwargs_read(composition):
            path = (_KWARGS, *path)  # some templates read a kwarg by its own name
    if path is not None:
        prompts = dict(composition.layers.walk())
        examples = composition.context.examples
        places = {_content(examples[at]): at for at in reversed(range(len(examples)))}
        shown = [
            (span, [*_paths(span, prompts.get(span.prompt), composition.context, places)])
            for span in composition.spans
            if span.pointer
        ]
        spans = tuple([span for span, paths in shown if any(_is_below(one, path) for one in paths)])
        value = _value(composition.context.view, path)
        is_kwarg = path[:-1] == (_KWARGS,) and path[-1] in _kwargs_read(composition)
        if spans or value is not _MISSING or is_kwarg:
            reason = _reason(composition, path, spans, value, shown)
            return Why(pointer, spans, f"{reason}{_source(composition.context.view, path)}")
    row = _of_row(composition, pointer)
    if row is not None:
        return Why(pointer, *row)
    advice = _advice(composition, pointer, path)
    raise PromptError(
        f"why: there is no {pointer[:_MAX_SHOWN]!r}{advice.text}",
        name=pointer[:_MAX_SHOWN],
        suggestion=advice.suggestion,
    )


def _path(pointer: str) -> _Path | None:
    """Return the steps of a path; None when it is not written as one. Additional kwargs have two ways to them."""
    steps: list[str | int] = []
    at = 0
    while at < len(pointer):
        found = _STEP.match(pointer, at)
        if (
            found is None
            or (not steps and (found[1] is None or pointer[0] == "."))
            or (steps and pointer[at] not in ".[")
        ):
            return None
        steps.append(found[1] if found[1] is not None else int(found[2]) if found[2] else ast.literal_eval(found[3]))
        at = found.end()
    return tuple(steps[1:] if steps[:2] == ["user_input", _KWARGS] else steps) or None


def _paths(
    span: Span, prompt: BasePrompt | None, ctx: PromptContext, places: Mapping[tuple[str, ...], int]
) -> Iterator[_Path]:
    """Yield the parts of the context that a span of a prompt shows; examples by their place in the context."""
    path = _path(span.pointer)
    paths = [path] if path is not None else [_path(one) for one in span.pointer.split(", ") if one]
    for path in paths:
        if path is None:
            continue
        if path[0] == "examples" and len(path) > 1 and isinstance(prompt, ExamplesPrompt) and not prompt.examples:
            at = places.get(_content(prompt.chosen(ctx)[int(path[1])]))
            if at is not None:
                yield ("examples", at, *path[2:])
        else:
            yield path


def _content(example: Example) -> tuple[str, ...]:
    """Return what an example is known by in the context: a selector may return it with a score."""
    return example.input, example.output, example.id


def _is_below(path: _Path, top: _Path) -> bool:
    return path[: len(top)] == top


def _value(values: Mapping[str, Any], path: _Path) -> Any:
    """Return what stands at a path of the context, `_MISSING` where nothing does."""
    found: Any = values.get(str(path[0]), _MISSING)
    for step in path[1:]:
        try:
            if isinstance(found, Mapping):
                found = found.get(step, _MISSING)
            elif isinstance(step, int):
                found = found[step] if isinstance(found, Sequence) and not isinstance(found, str | bytes) else _MISSING
            elif step.startswith("_") or isinstance(found, Sequence):
                return _MISSING
            else:
                found = getattr(found, step, _MISSING)
                found = _MISSING if callable(found) else found
        except Exception:  # of an object of the developer's own
            return _MISSING
    return found


# --- prompts and rows of the table


def _of_prompts(composition: Contents, name: str) -> tuple[tuple[Span, ...], str] | None:
    """Return the spans of the prompts of a path, name, file or place, and what became of them."""
    every = [*composition.layers.walk()]
    chosen = (
        [(path, prompt) for path, prompt in every if path == name]
        or ([(path, prompt) for path, prompt in composition.layers.prompts(name)] if name in PLACES else [])
        or [(path, prompt) for path, prompt in every if name and name in (prompt.label, prompt.template.file)]
    )
    if not chosen:
        return ((), "not sent: no prompt stands there") if name in PLACES else None
    paths = [name] if name in PLACES else [path for path, _ in chosen]
    spans = tuple(span for span in composition.spans if any(_inside(span.prompt, path) for path in paths))
    reasons = [_of_prompt(composition, path, prompt) for path, prompt in chosen]
    if len(chosen) == 1 and chosen[0][0] == name:
        return spans, reasons[0]
    return spans, "; ".join(f"{path}: {reason}" for (path, _), reason in zip(chosen, reasons, strict=True))


def _of_prompt(composition: Contents, path: str, prompt: BasePrompt) -> str:
    trim = next((trim for at, trim in composition.trims.items() if _inside(path, at)), None)
    spans = [span for span in composition.spans if _inside(span.prompt, path)]
    if spans:
        size = sum(span.end - span.start for span in spans)
        sent = f"sent in {_messages(composition, {span.message for span in spans})}, {size} characters; {_trust(spans)}"
        return f"{sent}; {trim.why}" if trim is not None else sent
    if trim is not None:
        return f"not sent; {trim.why}"
    if path.startswith("after_intermediate") and not len(composition.intermediate):
        return "not sent: it stands after tool traffic, and this turn has no tool traffic"
    outer = path.rpartition(".")[0]
    try:
        has_text = bool(outer and render_prompt(prompt, composition.context).text)
    except PromptError:
        has_text = True
    return f"no span of its own: {outer} shows it changed, or not at all" if has_text else "not sent: its text is empty"


def _inside(path: str, top: str) -> bool:
    return path == top or path.startswith((f"{top}.", f"{top}["))


def _of_row(composition: Contents, name: str) -> tuple[tuple[Span, ...], str] | None:
    """Return what a row of the table is that is no prompt, and no part of the context."""
    row = next((row for row in layer_table(composition) if row.layer == name), None)
    if row is None:
        return None
    if name == "output":
        return (), f"sent as the schema of the answer, {row.tokens} tokens; not in the text of a message"
    if name == "overhead":
        return (), f"what messages take beside their text, {row.tokens} tokens; it shows no part of the context"
    return (), f"sent beside the text of the messages, {row.tokens} tokens: {row.prompt}"


def _messages(composition: Contents, numbers: Iterable[int]) -> str:
    found = [f"message {number} ({composition.messages[number].role})" for number in sorted(numbers)]
    return ", ".join(found) if len(found) <= 3 else f"{len(found)} messages"


# --- the context


def _reason(composition: Contents, path: _Path, spans: Sequence[Span], value: Any, shown: _Shown) -> str:
    root = str(path[0])
    is_spec = root == "tools" and bool(composition.tools)
    if spans:
        return f"shown by {_places(spans)}; {_trust(spans)}{'; sent as a tool spec too' if is_spec else ''}"
    if is_spec:
        return "sent as a tool spec, not in the text of a message"
    if root in ("conversation", "intermediate") and (found := _of_messages(composition, path)):
        return found
    for length in range(len(path) - 1, 1, -1):
        if beside := [span for span, paths in shown if any(_is_below(one, path[:length]) for one in paths)]:
            return f"not in the text: {_places(beside)} shows other parts of {_written(path[:length])}"
    readers = [at for at, prompt in composition.layers.prompts() if any(_is_read(path, one) for one in _reads(prompt))]
    cut = [f"{at}: {composition.trims[at].why}" for at in readers if at in composition.trims]
    has_items = any(one[0] == root and len(one) > 1 for _, paths in shown for one in paths)
    around = [span for span, paths in shown if any(_is_below(path, one) for one in paths)]
    if around and not (cut and has_items):  # where items have spans, the whole is no more than their number
        return "; ".join([f"no span of its own: {_places(around)} shows {root} as a whole", *cut])
    if cut:
        return f"not sent; {'; '.join(cut)}"
    if own := [at for at, prompt in composition.layers.walk() if _has_own_code(prompt)]:
        return f"not known: {', '.join(own)} renders with code of its own, which may show it"
    if not readers:
        return f"not sent: no prompt reads {root}"
    if value is None or (isinstance(value, Sequence | Mapping) and not value):
        return f"not sent: it is empty, though {', '.join(readers)} reads {root}"
    return f"not in the text, though {', '.join(readers)} reads {root}"


def _source(view: Mapping[str, Any], path: _Path) -> str:
    """Return where the item is from that a path leads to, or into."""
    item = _value(view, path[:2])
    if not isinstance(item, Document | Fact) or not item.source:
        return ""
    return f"; from {item.label if isinstance(item, Document) else item.source[-_MAX_SHOWN:]}"


def _of_messages(composition: Contents, path: _Path) -> str | None:
    """Return what became of stored messages without a span: sent without text, cut, incomplete, or not sent at all."""
    root: Any = path[0]
    if root == "conversation" and not composition.layers.conversation:
        return None
    first = int(composition.sends_system)
    if root == "intermediate":
        first += len(composition.conversation) + composition.sends_user
    sent = {index: number for number, (_, index) in enumerate(composition.placed(root), first)}
    at = path[1] if len(path) > 1 else None
    given = getattr(composition.context, root)
    if at is None:
        if sent:
            return f"sent as {_messages(composition, sent.values())}, without text"
        if not len(given):
            return "not sent: it is empty"
    elif at in sent:
        what = "sent as" if len(path) == 2 else "a part of"
        return f"{what} {_messages(composition, [sent[at]])}; not in its text"
    elif at not in given.complete_at():
        return "not sent: a tool call without its result, or a result without its call"
    trim = composition.trims.get(root)
    if trim is not None:
        return f"not sent; {root}: {trim.why}"
    return "not sent: tool calls without results, or results without calls"


def _reads(prompt: BasePrompt) -> Iterator[_Path]:
    """Yield what a prompt and those inside it read: what their templates name, and what decides about the text."""
    for name in names_read(prompt):
        yield (name,) if name in CONTEXT_NAMES else (_KWARGS, name)
    todo = [prompt]
    while todo:
        one = todo.pop()
        todo += [child for _, child in one.children]
        if isinstance(one.template.text, Mapping):
            yield ("locale",)
        if isinstance(one, ExamplesPrompt) and type(one.selector) is not StaticSelector:
            yield ("user_input",)


def _is_read(path: _Path, read: _Path) -> bool:
    return _is_below(path, read) or _is_below(read, path)


def _kwargs_read(composition: Contents) -> set[str]:
    """Return the names of the kwargs that prompts read, given or not."""
    return {str(path[1]) for _, prompt in composition.layers.prompts() for path in _reads(prompt) if len(path) > 1}


def _has_own_code(prompt: BasePrompt) -> bool:
    """Whether a class of the developer's own renders it, so that nobody knows what it reads."""
    definer = next(kind for kind in type(prompt).__mro__ if not {"render", "values"}.isdisjoint(vars(kind)))
    return not definer.__module__.startswith(_OURS)


def _trust(spans: Iterable[Span]) -> str:
    return " and ".join(sorted({span.trust for span in spans}))


def _places(spans: Iterable[Span]) -> str:
    places: dict[str, int] = {}
    for span in spans:
        places[span.prompt] = places.get(span.prompt, 0) + span.end - span.start
    return ", ".join(f"{prompt} ({size} characters)" for prompt, size in places.items())


def _written(path: _Path) -> str:
    made = str(path[0])
    for step in path[1:]:
        made += f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]"
    return made


# --- what is nearest to a name that there is not


class _Advice(NamedTuple):
    """End of the message about an unknown name."""

    text: str
    suggestion: str | None = None
    """The nearest valid name."""


def _nearest(name: str, names: Iterable[str]) -> _Advice:
    known = [*dict.fromkeys(names)]
    return _Advice(nearest(name, known), similar(name, known))


def _advice(composition: Contents, pointer: str, path: _Path | None) -> _Advice:
    if path is not None and path[0] in CONTEXT_NAMES:
        return _advice_in_context(composition.context.view, path)
    names = [*composition.layers.walk()]
    known = [
        *(row.layer for row in layer_table(composition)),
        *(at for at, _ in names),
        *PLACES,
        *sorted(CONTEXT_NAMES),
    ]
    place = pointer.partition("[")[0]
    beside = [at for at in known if at.partition("[")[0] == place and "[" in at]
    if beside:
        close = similar(pointer, beside) or beside[-1]
        count = len(getattr(composition.layers, place))
        return _Advice(f"; did you mean {close!r}? {place} has {count} prompts", close)
    return _nearest(pointer, known)


def _advice_in_context(view: Mapping[str, Any], path: _Path) -> _Advice:
    end = next(at for at in range(1, len(path) + 1) if _value(view, path[:at]) is _MISSING)
    above, step = _written(path[: end - 1]), path[end - 1]
    value = _value(view, path[: end - 1])
    if isinstance(value, Mapping):
        return _nearest(str(step), map(str, value)) if value else _Advice(f": {above} is empty")
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if not len(value):
            return _Advice(f": {above} is empty")
        last = f"{above}[{len(value) - 1}]"
        return _Advice(f": {above} has {len(value)} items; did you mean {last!r}?", last)
    if is_dataclass(value):
        names = [name for name in dir(value) if _value({"value": value}, ("value", name)) is not _MISSING]
        return _nearest(str(step), names)
    return _Advice(f": {above} is {type(value).__name__}, which has no parts")
