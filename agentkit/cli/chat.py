"""`agentkit chat`: turns typed at a terminal, piped in, or given once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator

from agentkit.agent import Agent
from agentkit.cli.screen import LIBRARY_ERRORS, complain, layer_table, note, put
from agentkit.run.events import Event, PromptComposed, Recalled, TextDelta, ToolFinished, ToolStarted
from agentkit_memory import StoredSession
from agentkit_prompts.composition.composition import Composition

__all__ = ["Chat"]

_COMMANDS = "/layers shows what was sent last, /quit leaves"
_MAX_SHOWN = 300
"""Characters of a tool's arguments or result that are shown; the model gets all of them."""
_WAKE_SECONDS = 0.1


class Chat:
    """One conversation with an agent. Answers go to stdout, what happens on the way to stderr."""

    def __init__(self, agent: Agent, session: StoredSession) -> None:
        self.agent = agent
        self.session = session
        self._sent: Composition | None = None
        self._line_is_open = False

    def ask(self, text: str) -> None:
        """Answer once."""
        with asyncio.Runner() as runner:
            runner.run(self._turn(text))

    def talk(self) -> None:
        """Answer line by line until the input ends.

        At a terminal an error ends the turn, and Ctrl-C the answer; from a pipe either ends the conversation.
        """
        at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if at_terminal:
            note(f"{_COMMANDS}; so does Ctrl-D, and Ctrl-C stops an answer")
        with asyncio.Runner() as runner:  # one event loop, so that the connection to the model is kept
            for line in _typed() if at_terminal else filter(None, map(str.strip, sys.stdin)):
                if not line.startswith("/") or " " in line:
                    try:
                        runner.run(self._turn(line))
                    except LIBRARY_ERRORS as error:
                        if not at_terminal:
                            raise
                        complain(str(error))
                    except KeyboardInterrupt:
                        if not at_terminal:
                            raise
                        note("\nstopped")
                elif line == "/quit":
                    return
                elif line != "/layers":
                    note(f"{line} is not a command: {_COMMANDS}")
                elif self._sent is None:
                    note("nothing was sent yet")
                else:
                    layer_table(self._sent)

    async def _turn(self, text: str) -> None:
        self.session.refresh()  # somebody else may have gone on with the conversation
        try:
            await self.agent.run(text, session=self.session, on_event=self._show)
        finally:
            self._end_line()

    def _show(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            put(event.text, end="")
            self._line_is_open = True
            return
        self._end_line()
        if isinstance(event, PromptComposed):
            self._sent = event.composition
        elif isinstance(event, Recalled):
            note(_chunks(event))
            for problem in event.degraded:
                note(f"  {problem}")
        elif isinstance(event, ToolStarted):
            note(f"calls {event.call.name} {_short(event.call.arguments)}")
        elif isinstance(event, ToolFinished):
            note(f"  {event.result.status}: {_short(event.result.message.text)}")

    def _end_line(self) -> None:
        if self._line_is_open:
            put("")
        self._line_is_open = False


def _chunks(event: Recalled) -> str:
    """Return which chunks and messages were recalled: each file with its lines, each conversation with numbers."""
    lines: dict[str, list[str]] = {}
    for document in event.documents:
        lines.setdefault(document.source, []).append(str(document.metadata.get("line", "")))
    for message in event.recalled:
        lines.setdefault(f"conversation {message.session}", []).append(str(message.position))
    found = ", ".join(f"{source}:{','.join(numbers)}" for source, numbers in lines.items())
    return f"recalled {found or 'nothing'}"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _typed() -> Iterator[str]:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() a history and the arrow keys
    while True:
        try:
            with _waking():
                line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            put("")
            return
        if line:
            yield line


@contextlib.contextmanager
def _waking() -> Iterator[None]:
    """Wake `input` several times a second: it does not see a Ctrl-C that came just before it began to wait."""
    if sys.platform == "win32":
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _WAKE_SECONDS, _WAKE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
