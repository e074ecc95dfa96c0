"""Rendering conversations through chat templates, against the same text joined by hand.

Workloads: `role_markers`, a conversation of 1,000 turns (2,000 messages) as plain dicts.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness import Figure, figures, interleave, main

from agentkit.prompts import CHAT_TEMPLATES, Message

TURNS = 1000


def role_markers(rounds: int) -> Iterable[Figure]:
    """1,000 turns through templates that are fields only, and through those that are code."""
    messages = [
        message
        for number in range(TURNS)
        for message in (
            {"role": "user", "content": f"Question {number}: what is {number} plus {number}?"},
            {"role": "assistant", "content": f"It is {2 * number}."},
        )
    ]
    messages.append({"role": "user", "content": "And the sum of all of them?"})
    typed = [Message(message["role"], message["content"]) for message in messages]  # type: ignore[arg-type]
    begins = {"user": "<|im_start|>user\n", "assistant": "<|im_start|>assistant\n"}
    system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"

    def by_hand() -> str:
        said = [f"{begins[message['role']]}{message['content']}<|im_end|>\n" for message in messages]
        return f"{system}{''.join(said)}<|im_start|>assistant\n"

    qwen = CHAT_TEMPLATES.get("qwen")()
    assert qwen.render(messages) == qwen.render(typed) == by_hand()
    candidates = {"by hand": lambda n: [by_hand() for _ in range(n)]}
    for name in ("qwen", "internlm2", "llama3_1", "qwen2d5", "chatglm"):
        template = CHAT_TEMPLATES.get(name)()
        candidates[name] = lambda n, template=template: [template.render(messages) for _ in range(n)]  # type: ignore[misc]
    candidates["qwen, Message"] = lambda n: [qwen.render(typed) for _ in range(n)]
    goals = {name: 3.0 for name in candidates if name not in ("by hand", "qwen, Message")}
    yield from figures("role markers, 1,000 turns", interleave(candidates, 20, rounds), goals=goals)


if __name__ == "__main__":
    main(__doc__, {"role_markers": role_markers})
