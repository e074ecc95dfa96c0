"""A composition as JSON: its layers, and its messages in pieces, each with its origin.

Text is split into pieces here, because JavaScript counts offsets in other units than Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentkit.inspector.item_names import ITEM_FIELDS, item_names
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.prefix import prefix
from agentkit_prompts.context.messages import Message
from agentkit_prompts.errors import PromptError, start_of
from agentkit_prompts.templates.spans import Segment
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, message_tokens
from agentkit_prompts.tree.volatility import volatility_of

MAX_PIECE = 4_000
"""Maximum characters of a piece of text; `message_view` returns the whole text of a message."""
MAX_MESSAGES = 50
"""Maximum messages of one answer; the page requests more when it scrolls."""
_FIRST, _LAST = 30, 20
"""Numbers of first and last messages in a view, if the composition has more than `MAX_MESSAGES`."""
_MAX_REASONS = 40
"""Maximum unsent parts of the context for which the reason is computed."""
_LAYER = re.compile(r"\w+(\[\d+\])?")

_ITEM_POINTER = re.compile(rf"\b({'|'.join(ITEM_FIELDS)})\[(\d+)\]")

Json = dict[str, Any]


def composition_view(composition: Composition) -> Json:
    """Return the content of a composition as JSON data.

    - `layers` are the rows of the layer table, tools first, as a provider reads the tools first. `message` is the index
      of the first message of the layer.
    - `messages` have `pieces`. A piece has its text, the `prompt` that wrote it, the template `line`, a `pointer` into
      the context and `trust`; a piece with `cache` is a cache point. Of a long composition only the first and last
      messages are returned, each with its `index` from 0 to `count`; `messages_view` returns the other messages.
    - `names` has the name of each document, fact, recalled message and example by its pointer, such as
      `policies/shipping.md#1` for `documents[4]`.
    - `unsent` lists the parts of the context that no message contains.
    """
    budget: Json | None = None
    if composition.budget is not None:
        limits = composition.budget
        budget = {"limit": limits.limit, "reserve": limits.reserve, "tokens": limits.tokens}
    count = _count(composition)
    numbers = [at for at in range(count) if count <= MAX_MESSAGES or at < _FIRST or at >= count - _LAST]
    messages = list(composition.walk(set(numbers)))
    prefix_hash, prefix_tokens = prefix(composition)
    return {
        "tokens": composition.tokens,
        "counter": {"name": composition.counter.name, "estimated": composition.counter.estimated},
        "budget": budget,
        "prefix": {"hash": prefix_hash, "tokens": prefix_tokens},
        "layers": _layers(composition, messages),
        "tools": [
            {"name": tool.name, "description": _cut(tool.description, MAX_PIECE), "parameters": dict(tool.parameters)}
            for tool in composition.tools
        ],
        "output": composition.output_schema,
        "count": count,
        "messages": _messages(composition, messages, numbers, MAX_PIECE),
        "names": item_names(composition.context),
        "unsent": _unsent(composition, [segment for _, segments in messages for segment in segments]),
    }


def messages_view(composition: Composition, start: int) -> list[Json]:
    """Return messages as in `composition_view`, from number `start`, at most `MAX_MESSAGES`."""
    numbers = range(start, min(start + MAX_MESSAGES, _count(composition)))
    return _messages(composition, list(composition.walk(numbers)), numbers, MAX_PIECE)


def message_view(composition: Composition, number: int) -> Json:
    """Return one message as in `composition_view`, with its whole text.

    Raises:
        PromptError: The number is out of range.
    """
    for at, (message, segments) in enumerate(composition.walk({number})):
        if at == number:
            return _message(composition, number, message, segments, _points(composition).get(number, ()), None)
    raise PromptError(
        f"message: unknown message {number}; the composition has {len(composition.messages)} messages, from 0",
        name="message",
        value=number,
    )


def template_text(template: Template, locale: str | None = None) -> str:
    """Return the text of a template in a locale; in the first language of the template if the locale is missing."""
    text = template.text
    if isinstance(text, Mapping):
        return text.get(locale or "", next(iter(text.values())))
    return text


def prompt_views(composition: Composition) -> list[Json]:
    """Return the prompts of the tree with their templates, for the editor of the page."""
    locale = composition.context.locale
    rows: list[Json] = []
    for path, prompt in composition.layers.walk():
        template, size = prompt.template, prompt.size
        text = template_text(template, locale)
        cut = "callable"
        if isinstance(size.cut, str):
            cut = size.cut
        rows.append(
            {
                "path": path,
                "name": prompt.label,
                "kind": type(prompt).__name__,
                "text": text,
                "engine": template.engine,
                "file": template.file,
                "changes": volatility_of(prompt),
                "fence": prompt.fence,
                "size": {
                    "min": size.min,
                    "target": size.target,
                    "max": size.max,
                    "priority": size.priority,
                    "cut": cut,
                },
            }
        )
    return rows


def _points(composition: Composition) -> dict[int, list[Json]]:
    """Return the cache points by the number of their message."""
    points: dict[int, list[Json]] = {}
    for point in composition.breakpoints:
        points.setdefault(point.message, []).append(
            {"cache": point.after, "offset": point.offset, "tokens": point.tokens}
        )
    return points


_SegmentedMessages = Sequence[tuple[Message, Sequence[Segment]]]
"""Messages with their segments; only requested messages have segments."""


def _count(composition: Composition) -> int:
    """Return the number of messages, without composing them."""
    rendered = composition.sends_system + composition.sends_user + bool(composition.closing.text)
    return rendered + len(composition.conversation) + len(composition.intermediate)


def _messages(
    composition: Composition, messages: _SegmentedMessages, numbers: Iterable[int], max_piece: int | None
) -> list[Json]:
    points = _points(composition)
    return [_message(composition, at, *messages[at], points.get(at, ()), max_piece) for at in numbers]


def _first_messages(composition: Composition, messages: _SegmentedMessages) -> dict[str, int]:
    """Return the index of the first message that shows each layer."""
    first: dict[str, int] = {}
    for number, (_, segments) in enumerate(messages):
        if segments:
            for prompt in {segment.prompt for segment in segments if segment.text}:
                first.setdefault(prompt, number)
    # Most stored messages have no segments here: the first stored message with content is used.
    before = int(composition.sends_system)
    after = before + len(composition.conversation) + composition.sends_user
    for name, start in (("conversation", before), ("intermediate", after)):
        for number, message in enumerate(getattr(composition, name), start):
            if message.content:
                first[name] = number
                break
    layers: dict[str, int] = {}
    for prompt, number in first.items():
        match = _LAYER.match(prompt)
        if match is not None:
            layer = match[0]
            layers[layer] = min(number, layers.get(layer, number))
    return layers


def _layers(composition: Composition, messages: _SegmentedMessages) -> list[Json]:
    """Return the rows of the layer table, tools first; `cached` is True for layers before the last cache point."""
    first = _first_messages(composition, messages)
    rows = [
        {
            **row,
            "place": re.split(r"[\[.]", row["layer"], maxsplit=1)[0],
            "cached": False,
            "message": first.get(row["layer"]),
        }
        for row in composition.explain().to_dicts()
    ]
    # The sort is stable: tools first, and the other layers in their order.
    rows.sort(key=lambda row: row["place"] != "tools")
    if composition.breakpoints:
        _mark_cached(rows, composition)
    return rows


def _mark_cached(rows: list[Json], composition: Composition) -> None:
    """Set `cached` of the rows whose layers are before the last cache point."""
    last, end = composition.breakpoints[-1], 0
    is_after_system = last.message > 0 or last.after == "conversation"
    cached: dict[str, bool] = {}
    for path, _, rendered in composition.sections[0].fragments:
        if end and rendered.text:
            end += 2  # the empty line between two prompts
        end += len(rendered.text)
        cached[path] = is_after_system or (last.message == 0 and end <= last.offset)
    for row in rows:
        if row["place"] == "tools" or (row["place"] == "conversation" and last.after == "conversation"):
            row["cached"] = True
        elif row["layer"] in cached:
            row["cached"] = cached[row["layer"]] and bool(row["tokens"])


def _message(
    composition: Composition,
    number: int,
    message: Message,
    segments: Sequence[Segment],
    points: Sequence[Json],
    max_piece: int | None,
) -> Json:
    view: Json = {
        "index": number,
        "role": message.role,
        "tokens": _tokens(composition, message, segments),
        "pieces": _pieces(segments, points, max_piece),
    }
    if message.name:
        view["name"] = message.name
    if message.tool_call_id is not None:
        view["answers"] = message.tool_call_id
    if message.tool_calls:
        view["calls"] = [
            {"id": call.id, "name": call.name, "arguments": _cut(call.arguments, max_piece)}
            for call in message.tool_calls
        ]
    if message.reasoning:
        view["thinking"] = _cut(message.reasoning, max_piece)
    return view


def _tokens(composition: Composition, message: Message, segments: Sequence[Segment]) -> int:
    counter = composition.counter
    if not segments or segments[0].prompt in ("conversation", "intermediate"):
        return message_tokens(counter)(message)
    return MESSAGE_OVERHEAD + counter.count("".join(segment.text for segment in segments))


def _pieces(segments: Sequence[Segment], points: Sequence[Json], max_piece: int | None) -> list[Json]:
    """Return the pieces of a message, split at cache points; adjacent segments with the same origin are one piece."""
    pieces: list[Segment | Json] = []
    for piece in _split_segments(segments, points):
        last = None
        if pieces:
            last = pieces[-1]
        if isinstance(last, Segment) and isinstance(piece, Segment) and _is_same_origin(last, piece):
            pieces[-1] = last._replace(text=last.text + piece.text)
        else:
            pieces.append(piece)
    views: list[Json] = []
    for piece in pieces:
        if isinstance(piece, Segment):
            views.append(_piece_view(piece, max_piece))
        else:
            views.append({"cache": piece["cache"], "tokens": piece["tokens"]})
    return views


def _is_same_origin(segment: Segment, other: Segment) -> bool:
    return segment.media is None is other.media and segment[1:5] == other[1:5]


def _split_segments(segments: Sequence[Segment], points: Sequence[Json]) -> Iterator[Segment | Json]:
    """Yield the segments that have text, split at cache points, and the cache points between them."""
    cuts = sorted(points, key=lambda point: point["offset"])
    at = 0
    for segment in segments:
        text = segment.text
        while text and cuts and cuts[0]["offset"] <= at + len(text):
            until = cuts[0]["offset"] - at
            if until:
                yield segment._replace(text=text[:until])
            yield cuts.pop(0)
            at, text = at + until, text[until:]
        if text:
            at += len(text)
            yield segment._replace(text=text)
    yield from cuts


def _piece_view(segment: Segment, max_piece: int | None) -> Json:
    media = segment.media
    text = segment.text
    if media is not None:
        text = media.alt
    piece: Json = {"text": _cut(text, max_piece), "prompt": segment.prompt, "trust": segment.trust}
    if max_piece is not None and len(text) > max_piece:
        piece["omitted"] = len(text) - max_piece
    if segment.line is not None:
        piece["line"] = segment.line
    if segment.pointer:
        piece["pointer"] = segment.pointer
    if media is not None:
        piece["media"] = media.kind
    return piece


def clipped(text: str) -> str:
    """Return a text; of a long text the first `MAX_PIECE` characters, and the number of the other characters."""
    return start_of(text, MAX_PIECE)


def _cut(text: str, max_piece: int | None) -> str:
    return text[:max_piece]  # the whole text for None


def _unsent(composition: Composition, segments: Sequence[Segment]) -> list[Json]:
    """Return the documents, facts, recalled messages and examples of the context that no message contains."""
    if not any(getattr(composition.context, name) for name in ITEM_FIELDS):
        return []
    pointers = [segment.pointer for segment in segments if segment.pointer and segment.text]
    sent = {(name, int(index)) for pointer in pointers for name, index in _ITEM_POINTER.findall(pointer)}
    unsent: list[Json] = []
    for name in ITEM_FIELDS:
        for index, item in enumerate(getattr(composition.context, name)):
            if (name, index) in sent:
                continue
            pointer, reason = f"{name}[{index}]", ""
            if len(unsent) < _MAX_REASONS:
                why = composition.why(pointer)
                if why.spans:
                    continue
                reason = why.reason
            text = getattr(item, "title", "") or getattr(item, "text", "") or getattr(item, "input", "")
            unsent.append({"pointer": pointer, "text": _cut(str(text), 200), "why": reason})
    return unsent
