"""What changed between two compositions: layer by layer, message by message, and word by word inside of a message."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from agentkit.inspector.composition_view import clipped
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.diff import tool_text
from agentkit_prompts.context.messages import Message

__all__ = ["diff_view"]

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_MAX_WORDS = 3_000
"""Words of two texts that are compared word by word, once the ends that both have are off."""
_MAX_MESSAGES = 1_500
"""Messages that are aligned, once the ends that both have are off."""

Json = dict[str, Any]


def diff_view(composition: Composition, previous: Composition) -> Json:
    """Return what is different in `composition` from `previous`, as JSON data.

    `first` is the first difference and the tokens before it; `layers` has each layer of either with its tokens in both;
    `messages` are the messages in order: `same` ones are counted, others have `pieces` of kind `same`, `added` and
    `removed`.
    """
    found = composition.diff(previous)
    first = None
    if found.layer is not None:
        first = {"layer": found.layer, "message": found.message, "before": found.before, "after": found.after}
    return {
        "tokens": composition.tokens,
        "tokens_before": previous.tokens,
        "same_tokens": found.tokens,
        "first": first,
        "layers": _layers(composition, previous),
        "messages": list(_messages(composition.messages, previous.messages)),
    }


def _layers(composition: Composition, previous: Composition) -> list[Json]:
    ours, theirs = ({row.layer: row for row in one.explain()} for one in (composition, previous))
    texts, old = _texts(composition), _texts(previous)
    found = []
    for name in dict.fromkeys((*ours, *theirs)):
        now, before = ours.get(name), theirs.get(name)
        if now is None or before is None:
            change = "added" if before is None else "removed"
        else:
            same = texts.get(name) == old.get(name) and now.tokens == before.tokens
            change = "same" if same else "changed"
        row = now or before
        found.append(
            {
                "layer": name,
                "prompt": row.prompt if row else "",
                "tokens": now.tokens if now else 0,
                "tokens_before": before.tokens if before else 0,
                "change": change,
            }
        )
    return sorted(found, key=lambda row: row["layer"] != "tools")  # first, as a provider reads them


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
    ours, theirs = [_key(one) for one in now], [_key(one) for one in before]
    for kind, i1, i2, j1, j2 in _aligned(theirs, ours, _MAX_MESSAGES):
        if kind == "equal":
            yield {"change": "same", "count": i2 - i1, "from": j1}
            continue
        old, new = list(before[i1:i2]), list(now[j1:j2])
        while old and new and old[0].role == new[0].role:
            one, other = old.pop(0), new.pop(0)
            pieces = list(_words(_whole(one), _whole(other)))
            yield {"change": "changed", "role": other.role, "pieces": pieces}
        for change, messages in (("removed", old), ("added", new)):
            for message in messages:
                pieces = [{"change": change, "text": clipped(_whole(message))}]
                yield {"change": change, "role": message.role, "pieces": pieces}


def _words(before: str, now: str) -> Iterator[Json]:
    old, new = _WORDS.findall(before), _WORDS.findall(now)
    for kind, i1, i2, j1, j2 in _aligned(old, new, _MAX_WORDS):
        if kind == "equal":
            yield {"change": "same", "text": clipped("".join(new[j1:j2]))}
            continue
        if i2 > i1:
            yield {"change": "removed", "text": clipped("".join(old[i1:i2]))}
        if j2 > j1:
            yield {"change": "added", "text": clipped("".join(new[j1:j2]))}


def _aligned(old: Sequence[Hashable], new: Sequence[Hashable], most: int) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield the steps from one sequence to the other; what is too long is replaced as a whole."""
    limit = min(len(old), len(new))
    start = next((at for at in range(limit) if old[at] != new[at]), limit)
    limit -= start
    end = next((at for at in range(limit) if old[-1 - at] != new[-1 - at]), limit)
    last_old, last_new = len(old) - end, len(new) - end
    if start:
        yield "equal", 0, start, 0, start
    middle, other = old[start:last_old], new[start:last_new]
    if middle and other and len(middle) + len(other) <= most:
        steps = SequenceMatcher(None, middle, other, autojunk=False).get_opcodes()
        yield from ((kind, start + i1, start + i2, start + j1, start + j2) for kind, i1, i2, j1, j2 in steps)
    elif middle or other:
        yield "replace", start, last_old, start, last_new
    if end:
        yield "equal", last_old, len(old), last_new, len(new)


def _key(message: Message) -> Hashable:
    return message.role, _whole(message)


def _whole(message: Message) -> str:
    calls = "".join(f"\n-> {call.name}({call.arguments})" for call in message.tool_calls)
    return f"{message.text}{calls}"
