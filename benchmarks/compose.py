"""W1: the whole prompt of a turn, as messages, as one string and by a chat template; trimming of a long history.

Each workload has two variants: default templates, and custom templates with settings, as users write them. Each turn
contains a new question, as in a conversation; system text, tools, facts, documents, examples and history are
the same. Warm: with a cache of renderings; cold: without. The timed call includes the creation of the context. Spans,
trust and the budget check are on.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from typing import Any

from harness import Figure, figures, interleave, main
from peer_prompts import jinja2_prompt, peer_prompts
from turns import QWEN, TOOLS, WORDS, CustomTurn, Turn, numbers

from agentkit.prompts import Conversation, Layers, Message, PromptContext, ToolCall, compose


def repeat(work: Callable[[], object]) -> Callable[[int], None]:
    """Return a function that calls `work` n times."""

    def times(n: int) -> None:
        for _ in range(n):
            work()

    return times


def messages(turn_class: type[Turn], size: int) -> Callable[[int], Iterable[Figure]]:
    """Measure the chat payload with a history of `size` turns."""

    def measure(rounds: int) -> Iterable[Figure]:
        turn = turn_class(size)
        assert _sizes(turn.payload(None)) == _sizes(turn.messages_by_hand())
        candidates = {
            "limit": turn.messages_by_hand,
            "ours warm": lambda: turn.payload(turn.render_cache),
            "ours cold": lambda: turn.payload(None),
            **peer_prompts(turn),
        }
        seconds = interleave({name: repeat(work) for name, work in candidates.items()}, 200, rounds)
        return figures(f"{turn.name} messages, N={size}", seconds)

    return measure


def string(turn_class: type[Turn], size: int) -> Callable[[int], Iterable[Figure]]:
    """Measure the raw string with a history of `size` turns."""

    def measure(rounds: int) -> Iterable[Figure]:
        turn = turn_class(size)
        candidates = {
            "limit": turn.string_by_hand,
            "ours warm": lambda: turn.composed(turn.render_cache).to_text(),
            "ours cold": lambda: turn.composed(None, Conversation(turn.messages)).to_text(),
        }
        assert len(turn.composed(None).to_text()) == len(turn.string_by_hand())
        seconds = interleave({name: repeat(work) for name, work in candidates.items()}, 4000 // size, rounds)
        return figures(f"{turn.name} string, N={size}", seconds)

    return measure


def chat(turn_class: type[Turn], size: int) -> Callable[[int], Iterable[Figure]]:
    """Measure the text of a chat template with guarded control tokens; cold also builds a new `Conversation`."""

    def measure(rounds: int) -> Iterable[Figure]:
        turn = turn_class(size)
        candidates = {
            "limit": turn.chat_by_hand,
            "ours warm": lambda: turn.composed(turn.render_cache).to_text(QWEN),
            "ours cold": lambda: turn.composed(None, Conversation(turn.messages)).to_text(QWEN),
            "jinja2 by hand": chat_by_jinja(turn),
        }
        assert len({len(work()) for work in candidates.values()}) == 1
        seconds = interleave({name: repeat(work) for name, work in candidates.items()}, 4000 // size, rounds)
        return figures(f"{turn.name} chat template, N={size}", seconds)

    return measure


def chat_by_jinja(turn: Turn) -> Callable[[], str]:
    """Return a function that renders the chat template with plain jinja2, compiled once, without guards."""
    import jinja2

    template = jinja2.Environment(keep_trailing_newline=True).from_string(
        "<|im_start|>system\n{{ system }}{{ head }}{% for t in tools %}\n"
        '{"type": "function", "function": {{ t.json }}}{% endfor %}{{ tail }}<|im_end|>\n'
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "<|im_start|>user\n{{ user }}<|im_end|>\n<|im_start|>assistant\n"
    )
    payload = jinja2_prompt(turn)

    def text() -> str:
        system, *_, user = payload()["messages"]
        return template.render(
            system=system["content"],
            user=user["content"],
            head=QWEN.tools,
            tail=QWEN.eotools,
            tools=TOOLS,
            messages=turn.messages,
        )

    return text


def _sizes(payload: Any) -> list[int]:
    return [len(message["content"]) for message in payload["messages"]]


def trimming(rounds: int) -> Iterable[Figure]:
    """Trim 2,000 messages to a budget without splitting pairs of call and result; the peer is `trim_messages`."""
    if importlib.util.find_spec("langchain_core") is None:
        return []
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, trim_messages

    ours: list[Message] = []
    theirs: list[BaseMessage] = []
    for number in range(500):
        text, call = f"{number} {WORDS}", f"c{number}"
        ours += [
            Message("user", text),
            Message("assistant", "", (ToolCall(call, "find", "{}"),)),
            Message("tool", text, tool_call_id=call),
            Message("assistant", text),
        ]
        theirs += [
            HumanMessage(text),
            AIMessage("", tool_calls=[{"id": call, "name": "find", "args": {}}]),
            ToolMessage(text, tool_call_id=call),
            AIMessage(text),
        ]
    layers, limit = Layers("You are helpful."), 8_000

    def trim_ours() -> Any:
        ctx = PromptContext(user_input=f"and {next(numbers)}?", conversation=Conversation(ours))
        return compose(layers, ctx, budget=limit).to_openai()

    def trim_theirs() -> Any:
        return trim_messages(
            [*theirs, HumanMessage(f"and {next(numbers)}?")],
            max_tokens=limit,
            strategy="last",
            token_counter="approximate",
            start_on="human",
        )

    candidates = {"langchain-core": repeat(trim_theirs), "ours, nothing known": repeat(trim_ours)}
    seconds = interleave(candidates, 5, rounds)
    return figures("trim 2,000 messages", seconds, unit="ms")


if __name__ == "__main__":
    main(
        __doc__,
        {
            "messages": messages(Turn, 40),
            "custom": messages(CustomTurn, 40),
            "long": messages(Turn, 1000),
            "custom_long": messages(CustomTurn, 1000),
            "string": string(Turn, 40),
            "custom_string": string(CustomTurn, 40),
            "string_long": string(Turn, 1000),
            "custom_string_long": string(CustomTurn, 1000),
            "chat": chat(Turn, 40),
            "custom_chat": chat(CustomTurn, 40),
            "chat_long": chat(Turn, 1000),
            "custom_chat_long": chat(CustomTurn, 1000),
            "trimming": trimming,
        },
    )
