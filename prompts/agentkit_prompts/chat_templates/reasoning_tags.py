"""The tags around what a model thinks, which it writes into the text of its reply."""

from __future__ import annotations

__all__ = ["REASONING_TAGS", "TRUSTED_TAGS", "opens_thought"]

_COMMON = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
)
REASONING_TAGS = (
    *_COMMON,
    ("<|thought_start|>", "<|thought_end|>"),
    ("◁think▷", "◁/think▷"),
)
"""The texts that open and end a thought. The first is often the end of the prompt, and the second alone is written."""
TRUSTED_TAGS = (
    *_COMMON,
    ("<thought>", "</thought>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""Those that a chat template may read out of an earlier reply: they are the model's own there, not untrusted text."""


def opens_thought(prompt: str) -> bool:
    """Return True if a prompt ends with the opening of a thought."""
    return prompt.rstrip().endswith(tuple([opening for opening, _ in REASONING_TAGS]))
