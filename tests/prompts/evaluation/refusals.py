"""Errors of calls, warnings, and markers of a prompt list."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentkit.prompts.evaluation import InContextError, InContextWarning


def refused(call: Callable[[], object]) -> InContextError:
    """Return the error that `call` raises."""
    with pytest.raises(InContextError) as caught:
        call()
    return caught.value


def places(call: Callable[[], object]) -> tuple[str, ...]:
    """Return the places of all problems that the error of `call` lists."""
    return tuple([place for place, _ in refused(call).problems])


def warned(call: Callable[[], object]) -> list[str | None]:
    """Return the names in the warnings that `call` causes."""
    with pytest.warns(InContextWarning) as caught:
        call()
    return [one.message.name for one in caught if isinstance(one.message, InContextWarning)]


def is_marker(item: object) -> bool:
    """True if an item of a prompt list only marks the begin or the end of a section."""
    return isinstance(item, dict) and "section" in item
