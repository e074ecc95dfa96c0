"""Differences between two compositions: of layers, of messages, and of words inside of a message."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from agentkit.inspector.composition_view import clipped
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.diff import tool_text
from agentkit_prompts.context.messages import Message

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_MAX_WORDS = 3_000
"""Maximum number of words of two texts, without equal starts and ends, that are compared word by word."""
_MAX_MESSAGES = 1_500
"""Maximum number of messages, without equal starts and ends, that are aligned."""

Json = dict[str, Any]


def diff_view(composition: Composition, previous: Composition) -> Json:
    """Return the differences of `composition` from `previous`, as JSON data.

    - `first` is the first difference and the number of tokens before it.
    - `layers` has the layers of both compositions, with their tokens in each composition.
    - `messages` has the messages in order: a count of equal messages, or a changed message with `pieces` of the kinds
      `same`, `added` and `removed`.
    """
    diff = composition.diff(previous)
    first = None
    if diff.layer is not None:
        first = {"layer": diff.layer, "message": diff.message, "before": diff.before, "after": diff.after}
    return {
        "tokens": composition.tokens,
        "tokens_before": previous.tokens,
        "same_tokens": diff.tokens,
        "first": first,
        "layers": _layers(composition, previous),
        "messages": list(_messages(composition.messages, previous.messages)),
    }


def reply_diff(reply: Message | None, previous: Message | None) -> list[Json]:
    """Return the pieces of two replies, as `diff_view` has the pieces of messages; a missing reply is an empty text."""
    texts = [_text_with_calls(message) if message is not None else "" for message in (previous, reply)]
    return list(_words(*texts))


def _layers(composition: Composition, previous: Composition) -> list[Json]:
    rows = {row.layer: row for row in composition.explain()}
    rows_before = {row.layer: row for row in previous.explain()}
    texts, texts_before = _texts(composition), _texts(previous)
    views: list[Json] = []
    for name in dict.fromkeys((*rows, *rows_before)):
        row, before = rows.get(name), rows_before.get(name)
        view: Json = {"layer": name, "prompt": "", "tokens": 0, "tokens_before": 0, "change": "changed"}
        if before is not None:
            view.update(prompt=before.prompt, tokens_before=before.tokens)
        if row is not None:
            view.update(prompt=row.prompt, tokens=row.tokens)
        if before is None:
            view["change"] = "added"
        elif row is None:
            view["change"] = "removed"
        elif texts.get(name) == texts_before.get(name) and row.tokens == before.tokens:
            view["change"] = "same"
        views.append(view)
    # A provider reads the tools first.
    return sorted(views, key=lambda view: view["layer"] != "tools")


def _texts(composition: Composition) -> dict[str, object]:
    texts: dict[str, object] = {
        path: rendered.text for section in composition.sections for path, _, rendered in section.fragments
    }
    texts["conversation"] = tuple(composition.conversation)
    texts["intermediate"] = tuple(composition.intermediate)
    texts["tools"] = tuple(tool_text(tool) for tool in composition.tools)
    texts["output"] = composition.output_schema
    return texts


def _messages(now: Sequence[Message], before: Sequence[Message]) -> Iterator[Json]:
    keys, keys_before = list(map(_key, now)), list(map(_key, before))
    for kind, i1, i2, j1, j2 in _edits(keys_before, keys, _MAX_MESSAGES):
        if kind == "equal":
            yield {"change": "same", "count": i2 - i1, "from": j1}
            continue
        old, new = list(before[i1:i2]), list(now[j1:j2])
        # Messages of equal roles are compared word by word; other messages were added or removed.
        while old and new and old[0].role == new[0].role:
            message_before, message = old.pop(0), new.pop(0)
            pieces = list(_words(_text_with_calls(message_before), _text_with_calls(message)))
            yield {"change": "changed", "role": message.role, "pieces": pieces}
        for change, messages in (("removed", old), ("added", new)):
            for message in messages:
                pieces = [{"change": change, "text": clipped(_text_with_calls(message))}]
                yield {"change": change, "role": message.role, "pieces": pieces}


def _words(before: str, now: str) -> Iterator[Json]:
    old, new = _WORDS.findall(before), _WORDS.findall(now)
    for kind, i1, i2, j1, j2 in _edits(old, new, _MAX_WORDS):
        if kind == "equal":
            yield {"change": "same", "text": clipped("".join(new[j1:j2]))}
            continue
        if i2 > i1:
            yield {"change": "removed", "text": clipped("".join(old[i1:i2]))}
        if j2 > j1:
            yield {"change": "added", "text": clipped("".join(new[j1:j2]))}


def _edits(old: Sequence[Hashable], new: Sequence[Hashable], maximum: int) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield the edits from `old` to `new`: the kind, the range in `old` and the range in `new`.

    If the parts that differ have more than `maximum` items, the edit is one replacement.
    """
    # The matcher takes quadratic time, and most changes are local: equal starts and ends are skipped first.
    limit = min(len(old), len(new))
    start = next((at for at in range(limit) if old[at] != new[at]), limit)
    limit -= start
    end = next((at for at in range(limit) if old[-1 - at] != new[-1 - at]), limit)
    last_old, last_new = len(old) - end, len(new) - end
    if start:
        yield "equal", 0, start, 0, start
    middle, other = old[start:last_old], new[start:last_new]
    if middle and other and len(middle) + len(other) <= maximum:
        steps = SequenceMatcher(None, middle, other, autojunk=False).get_opcodes()
        yield from ((kind, start + i1, start + i2, start + j1, start + j2) for kind, i1, i2, j1, j2 in steps)
    elif middle or other:
        yield "replace", start, last_old, start, last_new
    if end:
        yield "equal", last_old, len(old), last_new, len(new)


def _key(message: Message) -> Hashable:
    return message.role, _text_with_calls(message)


def _text_with_calls(message: Message) -> str:
    calls = "".join(f"\n-> {call.name}({call.arguments})" for call in message.tool_calls)
    return f"{message.text}{calls}"
