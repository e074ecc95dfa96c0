"""`Chat`: turns typed at a terminal, piped in, or given once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.cli.commands.run_command import note_cut, result_form
from agentkit.cli.options import own_session
from agentkit.cli.screen import (
    complain,
    degraded_note,
    layer_table,
    layers_form,
    library_errors,
    note,
    put,
    short,
    tool_line,
    why_form,
)
from agentkit.errors import Paused
from agentkit.models.model import NO_USAGE, Usage
from agentkit.run.engine.events import Event, PromptComposed, Recalled, TextDelta, ToolFinished, ToolStarted
from agentkit.run.engine.run_result import RunResult
from agentkit.run.parts.decisions import Approved, Decision, Denied
from agentkit.server.served_runs.event_form import output_form, usage_form
from agentkit_memory import Memory
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import UserInput

__all__ = ["Chat"]

_HELP = {
    "/layers": "shows what was sent last",
    "/why": "PLACE says which layer shows it, where it is from, or what is in it, such as /why documents[0]",
    "/undo": "takes the last turn back",
    "/fork": "NAME goes on in a copy; the conversation stays as it is",
    "/cost": "shows what this chat took",
    "/help": "shows this",
    "/quit": "leaves",
}
_ALL = ", ".join(f"{name} {what}" for name, what in _HELP.items())
_WAKE_SECONDS = 0.1


class Chat:
    """One conversation with an agent. Answers go to stdout, what happens on the way to stderr.

    Args:
        agent: The agent.
        memory: Where its conversations are.
        name: The conversation.
        kwargs: Additional kwargs of every turn.
        as_json: Whether an answer is a line of JSON, once it is whole; so is what a command shows.
    """

    def __init__(
        self,
        agent: Agent,
        memory: Memory,
        name: str,
        kwargs: Mapping[str, Any] = MappingProxyType({}),
        *,
        as_json: bool = False,
    ) -> None:
        self.agent = agent
        self.session = own_session(memory, name)
        self._memory = memory
        self._kwargs = dict(kwargs)
        self._as_json = as_json
        self._sent: Composition | None = None
        self._usage = NO_USAGE
        self._turns = 0
        self._noted: set[str] = set()
        """What kept recalls from their best, as it was shown already."""
        self._line_is_open = False
        self._at_terminal = False

    def ask(self, text: str) -> None:
        """Answer once."""
        self._at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        with asyncio.Runner() as runner:
            self._answer(runner, text)

    def talk(self) -> None:
        """Answer line by line until the input ends.

        At a terminal an error ends the turn, and Ctrl-C the answer; from a pipe either ends the conversation.
        """
        self._at_terminal = at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if at_terminal:
            note(f"{_ALL}; so does Ctrl-D, and Ctrl-C stops an answer")
        # One event loop for all turns keeps the connection to the model.
        with asyncio.Runner() as runner:
            lines: Iterator[str] = filter(None, map(str.strip, sys.stdin))
            if at_terminal:
                lines = _typed()
            for line in lines:
                word, _, rest = line.partition(" ")
                try:
                    if word == "/quit":
                        return
                    if word in _HELP:
                        self._command(word, rest.strip())
                    elif line.startswith("/") and not rest:
                        self._refuse(word, f"{line} is not a command: {_ALL}")
                    else:
                        self._answer(runner, line)
                except library_errors() as error:
                    if not at_terminal:
                        raise
                    complain(str(error))
                except KeyboardInterrupt:
                    if not at_terminal:
                        raise
                    note("\nstopped")

    def _command(self, word: str, rest: str) -> None:
        if word == "/undo":
            self._undo()
        elif word == "/cost":
            self._cost()
        elif word == "/fork":
            self._fork(rest)
        elif word == "/help":
            self._tell(word, {"commands": _HELP}, lambda: put(_ALL.replace(", /", "\n/")))
        elif self._sent is None:
            self._refuse(word, "nothing was sent yet")
        elif word == "/layers" and self._as_json:
            self._tell(word, layers_form(self._sent))
        elif word == "/layers":
            layer_table(self._sent)
        elif rest:
            found = self._sent.why(rest)
            self._tell(word, why_form(found), lambda: put(str(found)))
        else:
            self._refuse(word, "name a place: a row of /layers, a prompt, or something like documents[0] or user_input")

    def _tell(self, word: str, data: Mapping[str, Any], show: Callable[[], object] = lambda: None) -> None:
        """Show what a command did: as a line of JSON, or in words."""
        if self._as_json:
            put(json.dumps({"session": self.session.id, "command": word[1:], **data}))
        else:
            show()

    def _refuse(self, word: str, why: str) -> None:
        self._tell(word, {"error": why}, lambda: note(why))

    def _fork(self, name: str) -> None:
        """Go on in a copy, which is a conversation of its own: it can be opened by its name."""
        if not name:
            self._refuse("/fork", "name the copy: /fork NAME")
            return
        if self._memory.sessions(name=name, limit=1):
            self._refuse("/fork", f"there is a conversation {name!r} already: choose another name")
            return
        source, before = self.session, self.session.id
        self.session = self._memory.session(name)
        self.session.append(*source.conversation)
        if source.additional_kwargs:
            self.session.keep_kwargs(source.additional_kwargs)
        count = len(self.session.conversation)
        self._tell(
            "/fork",
            {"copy_of": before, "messages": count},
            lambda: note(f"goes on in {name!r}, a copy of {before!r} with {count} messages"),
        )

    def _undo(self) -> None:
        """Take back the last message of the user, and what was answered."""
        conversation = self.session.refresh()
        last = max((at for at, message in enumerate(conversation) if message.role == "user"), default=None)
        if last is None:
            self._refuse("/undo", "there is nothing to take back")
            return
        self.session.rewind(last)
        count = len(conversation) - last
        self._tell(
            "/undo",
            {"messages": count},
            lambda: note(f"took back {count} messages; what tools did is not undone"),
        )

    def _cost(self) -> None:
        used = self._usage
        money = "its price is not known"
        if used.money is not None:
            money = f"{used.money:.4f} US dollars"
        tokens = f"{used.input_tokens:,} tokens in ({used.cached_tokens:,} cached), {used.output_tokens:,} out"
        self._tell(
            "/cost",
            {"turns": self._turns, "usage": usage_form(used)},
            lambda: put(f"{self._turns} turns: {tokens}; {money}"),
        )

    def _answer(self, runner: asyncio.Runner, text: str) -> None:
        """Answer; calls that need a person are asked about, or denied where nobody is at a terminal."""
        # Another process may have continued the conversation.
        self.session.refresh()
        asked = UserInput(text, additional_kwargs=self._kwargs)
        work = self.agent.run(asked, session=self.session, on_event=self._show)
        self._turns += 1
        while True:
            try:
                result = runner.run(self._turn(work))
            except Paused as paused:
                decisions = {call.id: self._decision(call) for call in paused.calls}
                work = self.agent.resume(paused.journal, approve=decisions, session=self.session, on_event=self._show)
                continue
            except BaseException as error:
                # A run that failed has cost something, too.
                spent = getattr(error, "usage", None)
                if isinstance(spent, Usage):
                    self._usage += spent
                raise
            self._usage += result.usage
            if self._as_json:
                put(json.dumps({"session": self.session.id, **result_form(result)}))
            elif self.agent.chain.output is not str:
                put(json.dumps(output_form(result.output), ensure_ascii=False, indent=2))
            if not self._as_json:
                note_cut(result)
            return

    def _decision(self, call: ToolCall) -> Decision:
        shown = f"{call.name} {short(call.arguments)}"
        if not self._at_terminal:
            note(f"{shown} needs a person, and nobody is at a terminal: it is denied")
            return Denied("nobody is there to approve it.")
        note(f"{shown} needs your approval")
        try:
            with _waking():
                answer = input("run it? [y/N] ").strip()
        except (EOFError, KeyboardInterrupt):
            put("")
            answer = ""
        if answer.lower() in ("y", "yes"):
            return Approved()
        if answer.lower() in ("", "n", "no"):
            return Denied("")
        # Any other answer is the reason, which the model reads.
        return Denied(answer)

    async def _turn(self, work: Coroutine[Any, Any, RunResult[Any]]) -> RunResult[Any]:
        try:
            return await work
        finally:
            self._end_line()

    def _show(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            if self._as_json or self.agent.chain.output is not str:
                return
            put(event.text, end="")
            self._line_is_open = True
            return
        self._end_line()
        if isinstance(event, PromptComposed):
            self._sent = event.composition
        elif isinstance(event, Recalled):
            note(_chunks(event))
            for problem in map(degraded_note, event.degraded):
                if problem not in self._noted:
                    note(f"  {problem}")
                    self._noted.add(problem)
        elif isinstance(event, ToolStarted | ToolFinished):
            note(tool_line(event))

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
