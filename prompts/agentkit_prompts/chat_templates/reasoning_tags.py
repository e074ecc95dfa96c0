"""Tags around thinking in the text of a reply."""

from __future__ import annotations

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
    ("<mm:think>", "</mm:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
)
"""Texts that open and close thinking. The prompt often ends with the opening text, and the model writes only the
closing text."""
TRUSTED_TAGS = (
    *_COMMON,
    ("<thought>", "</thought>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""Tags that a chat template can parse in an earlier reply, as trusted text of the model."""


def opens_thought(prompt: str) -> bool:
    """True if a prompt ends with the opening text of thinking."""
    return prompt.rstrip().endswith(tuple([opening for opening, _ in REASONING_TAGS]))
