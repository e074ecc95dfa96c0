"""A composition as plain JSON: its layers, and every message with where each piece of its text is from.

Text is cut into pieces here, so that no offset has to be counted in the units of another language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain as joined
from typing import Any

from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.prefix import prefix
from agentkit_prompts.context.messages import Message
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.spans import Segment
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, message_tokens
from agentkit_prompts.tree.volatility import volatility_of

__all__ = ["clipped", "composition_view", "message_view", "messages_view", "prompt_views"]

MAX_PIECE = 4_000
"""Characters of one piece of text that a view holds; `message_view` gives all of a message."""
MAX_MESSAGES = 50
"""Messages that are shown at once; whoever scrolls asks for more."""
_FIRST, _LAST = 30, 20
"""Of more, those that a view begins and ends with."""
_MAX_REASONS = 40
"""Parts of the context that are not sent and for which a reason is worked out at once."""
_LAYER = re.compile(r"\w+(\[\d+\])?")
_LISTED = ("documents", "knowledge", "recalled", "examples")
_POINTED = re.compile(rf"\b({'|'.join(_LISTED)})\[(\d+)\]")

Json = dict[str, Any]


def composition_view(composition: Composition) -> Json:
    """Return everything that would be sent, as JSON data.

    `layers` are the rows of the layer table, tools first as a provider reads them; `messages` have `pieces`, each with
    the `prompt` that wrote it, template `line`, `pointer` into the context and `trust`; a piece with `cache` is a
    point up to which a provider can keep the prompt. Of many messages the first and the last are there, each with its
    `index` out of `count`; `messages_view` gives the others, and `message` of a layer is the first that shows it.
    `unsent` lists what the context holds and no message shows.
    """
    budget = composition.budget
    count = _count(composition)
    shown = [at for at in range(count) if count <= MAX_MESSAGES or at < _FIRST or at >= count - _LAST]
    walked = list(composition.walk(set(shown)))
    prefix_hash, prefix_tokens = prefix(composition)
    return {
        "tokens": composition.tokens,
        "counter": {"name": composition.counter.name, "estimated": composition.counter.estimated},
        "budget": None
        if budget is None
        else {"limit": budget.limit, "reserve": budget.reserve, "tokens": budget.tokens},
        "prefix": {"hash": prefix_hash, "tokens": prefix_tokens},
        "layers": _layers(composition, walked),
        "tools": [
            {"name": tool.name, "description": _cut(tool.description, MAX_PIECE), "parameters": dict(tool.parameters)}
            for tool in composition.tools
        ],
        "output": composition.output_schema,
        "count": count,
        "messages": _messages(composition, walked, shown, MAX_PIECE),
        "unsent": _unsent(composition, [segment for _, segments in walked for segment in segments]),
    }


def messages_view(composition: Composition, start: int) -> list[Json]:
    """Return the messages behind the first `start` as in `composition_view`, at most `MAX_MESSAGES` of them."""
    shown = range(start, min(start + MAX_MESSAGES, _count(composition)))
    return _messages(composition, list(composition.walk(shown)), shown, MAX_PIECE)


def message_view(composition: Composition, number: int) -> Json:
    """Return one message whole: the same pieces as in `composition_view`, none of them cut.

    Raises:
        PromptError: There is no message of this number.
    """
    for at, (message, segments) in enumerate(composition.walk({number})):
        if at == number:
            return _message(composition, number, message, segments, _points(composition).get(number, ()), None)
    raise PromptError(
        f"message: there is no message {number}, the composition has {len(composition.messages)}",
        name="message",
        value=number,
    )


def prompt_views(composition: Composition) -> list[Json]:
    """Return the prompts of the tree with their templates, for whoever wants to edit them."""
    locale = composition.context.locale
    found: list[Json] = []
    for path, prompt in composition.layers.walk():
        template, size = prompt.template, prompt.size
        text = template.text
        if isinstance(text, Mapping):
            text = text.get(locale or "", next(iter(text.values())))
        cut = size.cut if isinstance(size.cut, str) else "callable"
        found.append(
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
    return found


def _points(composition: Composition) -> dict[int, list[Json]]:
    """Return the cache points by the message they lie in."""
    points: dict[int, list[Json]] = {}
    for point in composition.breakpoints:
        points.setdefault(point.message, []).append(
            {"cache": point.after, "offset": point.offset, "tokens": point.tokens}
        )
    return points


_Walked = Sequence[tuple[Message, Sequence[Segment]]]


def _count(composition: Composition) -> int:
    own = composition.sends_system + composition.sends_user + bool(composition.closing.text)
    return own + len(composition.conversation) + len(composition.intermediate)


def _messages(composition: Composition, walked: _Walked, numbers: Iterable[int], max_piece: int | None) -> list[Json]:
    points = _points(composition)
    return [_message(composition, at, *walked[at], points.get(at, ()), max_piece) for at in numbers]


def _first_messages(composition: Composition, walked: _Walked) -> dict[str, int]:
    """Return the first message that shows each layer."""
    first: dict[str, int] = {}
    for number, (_, segments) in enumerate(walked):
        if segments:
            for prompt in {segment.prompt for segment in segments if segment.text}:
                first.setdefault(prompt, number)
    before = int(composition.sends_system)  # of stored messages some have no segments here
    behind = before + len(composition.conversation) + composition.sends_user
    for name, start in (("conversation", before), ("intermediate", behind)):
        for number, message in enumerate(getattr(composition, name), start):
            if message.content:
                first[name] = number
                break
    layers: dict[str, int] = {}
    for prompt, number in first.items():
        if (layer := _LAYER.match(prompt)) is not None:
            layers[layer[0]] = min(number, layers.get(layer[0], number))
    return layers


def _layers(composition: Composition, walked: _Walked) -> list[Json]:
    """Return the rows of the layer table in the order in which a provider reads them, and what of them is cached."""
    first = _first_messages(composition, walked)
    rows = [
        {
            **row,
            "place": re.split(r"[\[.]", row["layer"], maxsplit=1)[0],
            "cached": False,
            "message": first.get(row["layer"]),
        }
        for row in composition.explain().to_dicts()
    ]
    rows.sort(key=lambda row: row["place"] != "tools")
    points = composition.breakpoints
    last = points[-1] if points else None
    if last is None:
        return rows
    end = 0
    for path, _, rendered in composition.sections[0].fragments:
        end += len(rendered.text) + (2 if end and rendered.text else 0)
        whole = last.message > 0 or last.after == "conversation" or (last.message == 0 and end <= last.offset)
        for row in rows:
            if row["layer"] == path:
                row["cached"] = whole and bool(row["tokens"])
    for row in rows:
        if row["place"] == "tools" or (row["place"] == "conversation" and last.after == "conversation"):
            row["cached"] = True
    return rows


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
    """Return the pieces of a message, cut where a cache point lies; neighbours of one origin are one piece."""
    found: list[Segment | Json] = []
    for piece in _parted(segments, points):
        last = found[-1] if found else None
        if isinstance(last, Segment) and isinstance(piece, Segment) and _is_same_origin(last, piece):
            found[-1] = last._replace(text=last.text + piece.text)
        else:
            found.append(piece)
    return [
        _shown(one, max_piece) if isinstance(one, Segment) else {"cache": one["cache"], "tokens": one["tokens"]}
        for one in found
    ]


def _is_same_origin(one: Segment, other: Segment) -> bool:
    return one.media is None is other.media and one[1:5] == other[1:5]


def _parted(segments: Sequence[Segment], points: Sequence[Json]) -> Iterator[Segment | Json]:
    """Yield the segments that have text, and between them, or between parts of them, the cache points."""
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


def _shown(segment: Segment, max_piece: int | None) -> Json:
    media = segment.media
    text = segment.text if media is None else media.alt
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
    """Return a text that is not longer than a piece, and how much was left out."""
    return text if len(text) <= MAX_PIECE else f"{text[:MAX_PIECE]}... ({len(text) - MAX_PIECE:,} more characters)"


def _cut(text: str, max_piece: int | None) -> str:
    return text if max_piece is None or len(text) <= max_piece else text[:max_piece]


def _unsent(composition: Composition, segments: Sequence[Segment]) -> list[Json]:
    """Return the documents, facts, recalled messages and examples of the context that no message shows."""
    if not any(getattr(composition.context, name) for name in _LISTED):
        return []
    pointers = joined.from_iterable(_POINTED.findall(one.pointer) for one in segments if one.pointer and one.text)
    shown = {(name, int(index)) for name, index in pointers}
    found: list[Json] = []
    for name in _LISTED:
        for index, item in enumerate(getattr(composition.context, name)):
            if (name, index) in shown:
                continue
            pointer, reason = f"{name}[{index}]", ""
            if len(found) < _MAX_REASONS:
                why = composition.why(pointer)
                if why.spans:
                    continue
                reason = why.reason
            text = getattr(item, "title", "") or getattr(item, "text", "") or getattr(item, "input", "")
            found.append({"pointer": pointer, "text": _cut(str(text), 200), "why": reason})
    return found
