"""`time_tool`: the time of a clock, in any zone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agentkit.prompts import ToolCall
from agentkit.tools import ToolContext, ToolError, time_tool

MOMENT = datetime(2024, 2, 29, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "Thursday, 2024-02-29 23:30:00+00:00"),
        ("utc", "Thursday, 2024-02-29 23:30:00+00:00"),
        ("Asia/Tokyo", "Friday, 2024-03-01 08:30:00+09:00"),
        ("America/St_Johns", "Thursday, 2024-02-29 20:00:00-03:30"),
    ],
)
def test_the_time_of_a_clock_is_returned_for_a_zone(zone: str, text: str) -> None:
    assert time_tool(lambda: MOMENT)(zone) == text


def test_without_a_clock_the_clock_of_the_machine_is_used() -> None:
    stamp = time_tool()().partition(", ")[2]
    assert abs((datetime.fromisoformat(stamp) - datetime.now(UTC)).total_seconds()) < 60


@pytest.mark.parametrize("zone", ["Nowhere", "", "../../etc/passwd", "/etc/passwd", "a\0b", "Europe", "x" * 300])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ToolError):
        time_tool()(zone)


async def test_a_clock_without_a_zone_is_an_error_and_not_the_zone_of_the_machine() -> None:
    one = time_tool(lambda: datetime(2024, 1, 1))
    result = await one.call(ToolCall("c", one.name, "{}"), ToolContext(None))
    assert result.status == "error"
    assert "without a time zone" in str(result.content)
