"""What stands around the thoughts that models write into their text."""

from __future__ import annotations

__all__ = ["THOUGHT_TAGS", "opens_thought"]

THOUGHT_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|thought_start|>", "<|thought_end|>"),
    ("◁think▷", "◁/think▷"),
)
"""What opens a thought, and what ends it. The first is often the end of the prompt, and the second alone is written."""


def opens_thought(prompt: str) -> bool:
    """Return whether a prompt ends in what opens a thought."""
    return prompt.rstrip().endswith(tuple([opening for opening, _ in THOUGHT_TAGS]))
