"""Short tracebacks: frames of this library tell a user nothing, except the frame that raised the error."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

_OWN_PACKAGES = frozenset(("agentkit", "agentkit_tools", "agentkit_prompts", "agentkit_memory", "asyncio"))
"""Packages whose frames are left out; asyncio calls the functions of this library."""


def _is_own_frame(trace: TracebackType) -> bool:
    module = trace.tb_frame.f_globals.get("__name__")
    return isinstance(module, str) and module.partition(".")[0] in _OWN_PACKAGES


def shorten_traceback(error: BaseException) -> None:
    """Remove frames of this library from the traceback of an error and of its causes, except the last frame of each."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.__traceback__ = without_own_frames(current.__traceback__)
        following = current.__cause__
        if following is None and not current.__suppress_context__:
            following = current.__context__
        current = following


def without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without frames of this library, except the last frame."""
    entries = [each for each in _entries(trace) if each.tb_next is None or not _is_own_frame(each)]
    short: TracebackType | None = None
    for each in reversed(entries):
        short = TracebackType(short, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return short


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next
