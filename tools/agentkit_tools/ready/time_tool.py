"""`time_tool`: the date and time in any time zone, from a clock that is given."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo

from agentkit_tools.errors import ToolError
from agentkit_tools.tool import Tool

__all__ = ["time_tool"]


def _system_clock() -> datetime:
    return datetime.now(UTC)


def time_tool(clock: Callable[[], datetime] = _system_clock) -> Tool:
    """Return a tool, `current_time`, which answers with the date and time.

    It reads `clock` and nothing else. It cannot wait, set a timer, or convert a time that somebody names.

    Args:
        clock: Returns the moment it is, with its time zone; the clock of the machine when not given.
    """

    def current_time(zone: Annotated[str, "Name of a time zone, such as Europe/Berlin."] = "UTC") -> str:
        now = clock()
        # A time without a zone would be read in the zone of the machine.
        if now.utcoffset() is None:
            raise TypeError("the clock of this tool gave a time without a time zone")
        now = now.astimezone(_zone(zone))
        return f"{now:%A}, {now.isoformat(sep=' ', timespec='seconds')}"

    about = "Return the date and time now. Cannot wait, set timers, or know the time of another moment."
    return Tool(current_time, description=about)


def _zone(name: str) -> tzinfo:
    if name.upper() == "UTC":
        # UTC works without a time zone database.
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError) as error:
        raise ToolError(f"{name!r} is not a time zone known here: give one such as Europe/Berlin, or UTC") from error
