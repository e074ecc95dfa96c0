"""Limits of a tree of prompts: its depth, its number of prompts, and no prompt inside itself."""

from __future__ import annotations

from typing import NamedTuple

from agentkit_prompts.errors import PromptError
from agentkit_prompts.limits import MAX_DEPTH
from agentkit_prompts.tree.prompt import BasePrompt

_MAX_PROMPTS = 100_000


class _Extent(NamedTuple):
    """Size of the tree of a prompt."""

    height: int
    """Number of levels of prompts."""
    prompts: int
    """Number of prompts; a shared prompt counts once per use."""


def check_extent(path: str, prompt: BasePrompt) -> None:
    """Refuse a prompt that contains itself, nests too deeply, or contains too many prompts.

    Raises:
        PromptError: The prompt exceeds a limit; names the limit.
    """
    _measure(path, prompt, (), {})


def _measure(path: str, prompt: BasePrompt, outer_ids: tuple[int, ...], extents: dict[int, _Extent]) -> _Extent:
    """Return the extent of a prompt; `extents` caches extents by `id`, so that a shared prompt is visited once.

    `outer_ids` contains the ids of the prompts around this prompt.
    """
    if id(prompt) in outer_ids:
        raise PromptError(f"{path}: {prompt.label} contains itself", name=path)
    extent = extents.get(id(prompt), _Extent(1, 1))
    if id(prompt) not in extents and len(outer_ids) < MAX_DEPTH:
        for step, child in prompt.children:
            inner = _measure(f"{path}.{step}", child, (*outer_ids, id(prompt)), extents)
            extent = _Extent(max(extent.height, inner.height + 1), extent.prompts + inner.prompts)
        extents[id(prompt)] = extent
    if len(outer_ids) + extent.height > MAX_DEPTH:
        raise PromptError(
            f"{prompt.label}: prompts nest deeper than {MAX_DEPTH} levels; place some of them on the same level",
            name="depth",
            value=MAX_DEPTH,
        )
    if extent.prompts > _MAX_PROMPTS:
        raise PromptError(
            f"{prompt.label} contains more than {_MAX_PROMPTS:,} prompts; a shared prompt counts once per use",
            name="prompts",
            value=_MAX_PROMPTS,
        )
    return extent
