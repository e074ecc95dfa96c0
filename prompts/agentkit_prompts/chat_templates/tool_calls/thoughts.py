"""What stands around the thoughts that models write into their text."""

from __future__ import annotations

__all__ = ["THOUGHT_TAGS"]

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
