"""Lines that a person types at a terminal while a run works."""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from agentkit.cli.screen import note
from agentkit.errors import RunEnded
from agentkit.run.parts.run_inbox import Inbox


@contextmanager
def typed_messages(inbox: Inbox, later: list[str]) -> Iterator[None]:
    """Send each typed line to a run, in a `with` block in its event loop.

    Args:
        inbox: The inbox of the run.
        later: Receives the lines for the time after the run: commands, and messages that the run did not receive.
    """
    loop = asyncio.get_running_loop()
    terminal = sys.stdin.fileno()

    def read() -> None:
        line = sys.stdin.readline()
        text = line.strip()
        # Ctrl-D at the start of a line ends the input.
        if not line:
            loop.remove_reader(terminal)
            later.append("/quit")
        elif text.startswith("/"):
            later.append(text)
        elif text:
            try:
                inbox.send(text)
            except RunEnded:
                later.append(text)
            else:
                note("sent to the run, which reads it before its next step")

    # Lines that were typed before the run started are the next turns, or answers to questions about its calls.
    if sys.platform == "win32" or select.select([terminal], [], [], 0)[0]:
        yield
        return
    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
