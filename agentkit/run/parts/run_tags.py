"""`checked_tags`: the tags of a run, by which lists of runs are filtered."""

from __future__ import annotations

from collections.abc import Iterable

from agentkit.errors import AgentDefinitionError, named_problems
from agentkit_prompts.errors import brief

_MAX_TAGS = 50
"""Maximum number of tags of a run."""
_MAX_TAG = 100
"""Maximum characters of a tag."""


def checked_tags(tags: object) -> tuple[str, ...]:
    """Return the tags of a run, each once, in their order.

    Raises:
        AgentDefinitionError: The value is not a list of texts, has too many tags, or a tag is empty, too long, or has
            line breaks, other characters that cannot be printed, or white space at its ends. The error lists all
            problems.
    """
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise AgentDefinitionError(
            f"tags: expected a list of texts, such as ['vip', 'release-7'], got {brief(tags, 40)}", name="tags"
        )
    names: list[str] = []
    problems: list[str] = []
    for at, tag in enumerate(tags):
        if not isinstance(tag, str) or not _is_valid(tag):
            problems.append(
                f"tags[{at}]: expected 1 to {_MAX_TAG} printable characters without white space at the ends, got "
                f"{brief(tag, 40)}"
            )
        elif tag not in names:
            names.append(tag)
        if len(problems) > _MAX_TAGS or len(names) > _MAX_TAGS:
            problems.append(f"tags: at most {_MAX_TAGS} tags can be stored")
            break
    if problems:
        raise AgentDefinitionError("; ".join(problems), **named_problems(problems))
    return tuple(names)


def _is_valid(tag: str) -> bool:
    return 1 <= len(tag) <= _MAX_TAG and tag.isprintable() and tag == tag.strip()
