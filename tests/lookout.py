"""`Lookout`: an agent whose tool waits until the test ends it."""

from __future__ import annotations

import threading
from typing import Any

from agentkit import Agent, ScriptedModel, tool
from tests.waiting import LONG


class Lookout:
    """An agent whose tool waits."""

    def __init__(self, *replies: Any) -> None:
        self.calls, self.go = threading.Event(), threading.Event()

        @tool
        def look() -> str:
            """Look."""
            self.calls.set()
            assert self.go.wait(LONG)
            return "there"

        @tool(approval="always")
        def pay() -> str:
            """Pay."""
            return "paid"

        self.agent = Agent(ScriptedModel(replies), "You look.", tools=[look, pay], name="lookout")
