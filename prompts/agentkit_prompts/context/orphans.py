"""Orphans: tool calls that lack a result, and results that lack a call. No provider accepts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentkit_prompts.context.messages import Message


def without_orphans(messages: Sequence[Message]) -> Iterator[tuple[int, Message]]:
    """Yield the messages without orphans, each with its index.

    A message with calls is complete if all its calls have results, which follow it directly: providers require that,
    so messages between a call and its result follow the result. Of other messages with calls only the text is yielded.
    """
    results = _results_by_call(messages)
    for index, message in enumerate(messages):
        if message.role == "tool":
            continue
        if not message.tool_calls:
            yield index, message
            continue
        answers = results.get(index, [])
        if len(answers) == len({call.id for call in message.tool_calls}):
            yield index, message
            yield from answers
        elif message.content:
            yield index, Message("assistant", message.content)


def _results_by_call(messages: Sequence[Message]) -> dict[int, list[tuple[int, Message]]]:
    """Return the first result of each call with its index, by the index of the message with the call."""
    results: dict[int, list[tuple[int, Message]]] = {}
    waiting: dict[str, int] = {}
    for index, message in enumerate(messages):
        # Models use ids again: a later result belongs to the later call.
        waiting.update({call.id: index for call in message.tool_calls})
        if message.role == "tool":
            called = waiting.pop(message.tool_call_id or "", None)
            if called is not None:
                results.setdefault(called, []).append((index, message))
    return results
