"""`Chat`: a conversation with an agent at a terminal or in a pipe."""

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
from agentkit.cli.asked_form import filled_form
from agentkit.cli.commands.run_command import note_cut, result_form
from agentkit.cli.commands.typed_messages import typed_messages
from agentkit.cli.options import memory_with, text_session
from agentkit.cli.screen import (
    calls_shown,
    complain,
    degraded_note,
    is_cut,
    layer_table,
    layers_form,
    library_errors,
    note,
    note_call,
    put,
    tool_line,
    why_form,
)
from agentkit.errors import Paused
from agentkit.models.model import NO_USAGE, Usage
from agentkit.run.engine.events import Event, PromptComposed, Recalled, TextDelta, ToolFinished, ToolStarted
from agentkit.run.engine.run_result import RunResult
from agentkit.run.parts.decisions import Approved, Decision, Denied
from agentkit.run.parts.run_inbox import Inbox
from agentkit.server.served_runs.event_form import output_form, usage_form
from agentkit_memory import Memory
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import UserInput
from agentkit_tools.form import is_form

_HELP = {
    "/layers": "shows the last prompt",
    "/why": "PLACE shows the layer and the source of a part of it, such as /why documents[0]",
    "/undo": "removes the last turn",
    "/fork": "NAME continues in a copy of the conversation",
    "/cost": "shows tokens and money of this chat",
    "/help": "shows the commands",
    "/quit": "exits",
}
_HELP_TEXT = ", ".join(f"{name} {description}" for name, description in _HELP.items())
_WAKE_SECONDS = 0.1
"""Seconds between two interruptions of `input`."""


class Chat:
    """A conversation with an agent. Answers go to stdout, notes to stderr.

    Args:
        agent: The agent.
        memory: Store of the conversation.
        name: Name of the conversation.
        kwargs: Additional kwargs of every turn.
        locale: Language tag of every turn.
        as_json: True to print each answer and each result of a command as a line of JSON.
    """

    def __init__(
        self,
        agent: Agent,
        memory: Memory,
        name: str,
        kwargs: Mapping[str, Any] = MappingProxyType({}),
        *,
        locale: str | None = None,
        as_json: bool = False,
    ) -> None:
        self.agent = agent
        self.session = text_session(memory, name)
        self._memory = memory
        self._kwargs = dict(kwargs)
        self._locale = locale
        self._as_json = as_json
        self._composition: Composition | None = None
        self._usage = NO_USAGE
        self._turns = 0
        self._printed_notes: set[str] = set()
        """Printed notes about degraded recalls."""
        self._line_is_open = False
        self._has_answer = False
        """True if text of the model arrived after the start of the run, its last pause and its last tool call."""
        self._at_terminal = False
        self._later: list[str] = []
        """Lines that were typed while a run worked, and that the run did not receive."""

    def ask(self, text: str) -> None:
        """Run one turn."""
        self._at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        with asyncio.Runner() as runner:
            self._answer(runner, text)

    def talk(self) -> None:
        """Run a turn per line until the end of the input.

        At a terminal, an error or Ctrl-C ends the turn; in a pipe, it ends the conversation.
        """
        self._at_terminal = at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        lines: Iterator[str] = filter(None, map(str.strip, sys.stdin))
        if at_terminal:
            note(f"{_HELP_TEXT}; Ctrl-D exits too, and Ctrl-C stops an answer")
            lines = _typed_lines(self._later)
        # One event loop for all turns keeps the connection to the model.
        with asyncio.Runner() as runner:
            for line in lines:
                try:
                    if not self._handle(runner, line):
                        return
                except library_errors() as error:
                    if not at_terminal:
                        raise
                    complain(str(error))
                except KeyboardInterrupt:
                    if not at_terminal:
                        raise
                    note("\nstopped")

    def _handle(self, runner: asyncio.Runner, line: str) -> bool:
        """Run the command or the turn of a line; return False to exit."""
        word, _, rest = line.partition(" ")
        if word == "/quit":
            return False
        if word in _HELP:
            self._command(word, rest.strip())
        elif line.startswith("/") and not rest:
            self._refuse(word, f"unknown command {line}; commands: {_HELP_TEXT}")
        else:
            self._answer(runner, line)
        return True

    def _command(self, word: str, rest: str) -> None:
        if word == "/undo":
            self._undo()
        elif word == "/cost":
            self._cost()
        elif word == "/fork":
            self._fork(rest)
        elif word == "/help":
            self._report(word, {"commands": _HELP}, lambda: put(_HELP_TEXT.replace(", /", "\n/")))
        elif self._composition is None:
            self._refuse(word, "nothing was sent yet")
        elif word == "/layers" and self._as_json:
            self._report(word, layers_form(self._composition))
        elif word == "/layers":
            layer_table(self._composition)
        elif rest:
            why = self._composition.why(rest)
            self._report(word, why_form(why), lambda: put(str(why)))
        else:
            self._refuse(
                word, "expected a place: a row of /layers, a prompt, or a value such as documents[0] or user_input"
            )

    def _report(self, word: str, data: Mapping[str, Any], show: Callable[[], object] = lambda: None) -> None:
        """Print the result of a command as a line of JSON, or call `show`."""
        if self._as_json:
            put(json.dumps({"session": self.session.id, "command": word[1:], **data}))
        else:
            show()

    def _refuse(self, word: str, problem: str) -> None:
        self._report(word, {"error": problem}, lambda: note(problem))

    def _fork(self, name: str) -> None:
        """Continue in a copy of the conversation."""
        if not name:
            self._refuse("/fork", "expected the name of the copy: /fork NAME")
            return
        if memory_with(self._memory, name).sessions(name=name):
            self._refuse("/fork", f"the conversation {name!r} already exists: choose another name")
            return
        source, before = self.session, self.session.id
        self.session = self._memory.session(name)
        self.session.append(*source.conversation)
        if source.additional_kwargs:
            self.session.keep_kwargs(source.additional_kwargs)
        count = len(self.session.conversation)
        self._report(
            "/fork",
            {"copy_of": before, "messages": count},
            lambda: note(f"continues in {name!r}, a copy of {before!r} with {count} messages"),
        )

    def _undo(self) -> None:
        """Remove the last turn."""
        conversation = self.session.refresh()
        inputs = [index for index, message in enumerate(conversation) if message.role == "user"]
        if not inputs:
            self._refuse("/undo", "the conversation has no turn to remove")
            return
        last = inputs[-1]
        self.session.rewind(last)
        count = len(conversation) - last
        self._report(
            "/undo",
            {"messages": count},
            lambda: note(f"removed {count} messages; effects of tools are not undone"),
        )

    def _cost(self) -> None:
        usage = self._usage
        money = "unknown price"
        if usage.money is not None:
            money = f"{usage.money:.4f} US dollars"
        tokens = f"{usage.input_tokens:,} tokens in ({usage.cached_tokens:,} cached), {usage.output_tokens:,} out"
        self._report(
            "/cost",
            {"turns": self._turns, "usage": usage_form(usage)},
            lambda: put(f"{self._turns} turns: {tokens}; {money}"),
        )

    def _answer(self, runner: asyncio.Runner, text: str) -> None:
        """Run a turn. Calls that need approval are approved at a terminal, and denied without a terminal."""
        # Another process may have continued the conversation.
        self.session.refresh()
        user_input = UserInput(text, additional_kwargs=self._kwargs)
        inbox = None
        if self._at_terminal:
            inbox = Inbox()
        options: dict[str, Any] = {"session": self.session, "on_event": self._show, "inbox": inbox}
        work = self.agent.run(user_input, locale=self._locale, **options)
        self._turns += 1
        while True:
            self._has_answer = False
            try:
                result = runner.run(self._turn(work, inbox))
            except Paused as paused:
                decisions = {call.id: self._decision(call) for call in paused.calls}
                work = self.agent.resume(paused.journal, approve=decisions, **options)
                continue
            except BaseException as error:
                # A failed run has used tokens too.
                usage = getattr(error, "usage", None)
                if isinstance(usage, Usage):
                    self._usage += usage
                if inbox is not None:
                    for sent in inbox.unread:
                        note(f"the run did not receive: {sent.message.text}")
                raise
            self._usage += result.usage
            self._put_result(result)
            return

    def _put_result(self, result: RunResult[Any]) -> None:
        if self._as_json:
            put(json.dumps({"session": self.session.id, **result_form(result)}))
            return
        # Text is printed while it arrives; an answer that a person approved, or the result of a tool, does not arrive.
        if not self._has_answer:
            output = output_form(result.output)
            if not isinstance(output, str):
                output = json.dumps(output, ensure_ascii=False, indent=2)
            put(output)
        note_cut(result)

    def _decision(self, call: ToolCall) -> Decision:
        if not is_form(call):
            note_call(call)
        if not self._at_terminal:
            note(f"{call.name} needs approval and is denied, because this is not a terminal")
            return Denied("the chat has no terminal to approve the call.")
        if is_form(call):
            return filled_form(call, _answer_to)
        note(f"{call.name} needs your approval")
        question = "approve it? [y/N] "
        if is_cut(call):
            question = "approve it? [y/N, or show: the whole arguments] "
        answer = _answer_to(question)
        while answer.lower() == "show":
            note_call(call, is_whole=True)
            answer = _answer_to(question)
        if answer.lower() in ("y", "yes"):
            return Approved()
        if answer.lower() in ("", "n", "no"):
            return Denied("")
        # Any other answer is the reason, which the model receives.
        return Denied(answer)

    async def _turn(self, work: Coroutine[Any, Any, RunResult[Any]], inbox: Inbox | None) -> RunResult[Any]:
        try:
            with calls_shown():
                if inbox is None:
                    return await work
                with typed_messages(inbox, self._later):
                    return await work
        finally:
            self._end_line()

    def _show(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            if self._as_json or self.agent.chain.output is not str:
                return
            put(event.text, end="")
            self._line_is_open = self._has_answer = True
            return
        self._end_line()
        if isinstance(event, PromptComposed):
            self._composition = event.composition
        elif isinstance(event, Recalled):
            note(_recall_note(event))
            for problem in map(degraded_note, event.degraded):
                if problem not in self._printed_notes:
                    note(f"  {problem}")
                    self._printed_notes.add(problem)
        elif isinstance(event, ToolStarted | ToolFinished):
            self._has_answer = False
            note(tool_line(event))

    def _end_line(self) -> None:
        if self._line_is_open:
            put("")
        self._line_is_open = False


def _recall_note(event: Recalled) -> str:
    """Return a note with the recalled files and their lines, and the conversations and their message numbers."""
    lines: dict[str, list[str]] = {}
    for document in event.documents:
        lines.setdefault(document.source, []).append(str(document.metadata.get("line", "")))
    for message in event.recalled:
        lines.setdefault(f"conversation {message.session}", []).append(str(message.position))
    sources = ", ".join(f"{source}:{','.join(numbers)}" for source, numbers in lines.items())
    return f"recalled {sources or 'nothing'}"


def _answer_to(question: str) -> str:
    """Return the answer of a person; an empty text after Ctrl-C or Ctrl-D."""
    try:
        with _waking():
            return input(question).strip()
    except (EOFError, KeyboardInterrupt):
        put("")
        return ""


def _typed_lines(earlier: list[str]) -> Iterator[str]:
    """Yield the lines of a person; first the lines that were typed while a run worked."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() a history and the arrow keys
    while True:
        while earlier:
            yield earlier.pop(0)
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
    """Interrupt `input` several times per second, so that it notices a Ctrl-C that arrived just before its start."""
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
