"""`time_tool`: the current date and time in any time zone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo

from agentkit_tools.errors import ToolError
from agentkit_tools.tool import Tool


def _system_clock() -> datetime:
    return datetime.now(UTC)


def time_tool(clock: Callable[[], datetime] = _system_clock) -> Tool:
    """Return a tool `current_time`, which returns the current date and time.

    The tool only reads `clock`. It cannot wait, set a timer, or convert another time.

    Args:
        clock: Function that returns the current time with its time zone; the clock of the machine by default.
    """

    def current_time(zone: Annotated[str, "Name of a time zone, such as Europe/Berlin."] = "UTC") -> str:
        now = clock()
        # A time without a zone would be read in the zone of the machine.
        if now.utcoffset() is None:
            raise TypeError("the clock of this tool returned a time without a time zone")
        now = now.astimezone(_zone(zone))
        return f"{now:%A}, {now.isoformat(sep=' ', timespec='seconds')}"

    about = "Return the current date and time. Cannot wait, set timers, or convert another time."
    return Tool(current_time, description=about)


def _zone(name: str) -> tzinfo:
    if name.upper() == "UTC":
        # UTC works without a time zone database.
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError) as error:
        raise ToolError(f"unknown time zone {name!r}: use a name such as Europe/Berlin, or UTC") from error
