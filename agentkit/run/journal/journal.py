"""`Journal`: the results of the steps of a run, in order. A run is resumed from its journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any, Self

from agentkit.errors import FailedCall, JournalError
from agentkit.models.model import Usage
from agentkit.run.journal.failed_call import RecordedError, failed_calls
from agentkit.run.journal.journal_lines import (
    check_format,
    checked_text,
    context_adapter,
    entry_line,
    head_line,
    invalid_line,
    read_entry,
    read_objects,
    unreadable_line,
)
from agentkit.run.journal.journal_steps import Entry, JournalStep, journal_steps, unfinished_calls
from agentkit.run.journal.sent_layers import SentLayers
from agentkit.run.journal.trace import TraceSpan, run_attributes, trace, usage_attributes
from agentkit.run.parts.agent_version import AgentVersion, RecordedVersion
from agentkit.run.parts.decisions import Decision
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.hints import Hinted
from agentkit_prompts.system.regular_files import read_regular
from agentkit_tools.calling.tool_result import ToolResult

_MAX_DEPTH = 100
"""Maximum depth of journals inside of each other."""
_UNKNOWN_VERSION = RecordedVersion()
_new = tuple.__new__
_FILE_ADVICE = "; a file is read with Journal.read(path)"


def inner_id(outer: str, call: str) -> str:
    """Return the id in the outer run of a call that an inner agent makes; `outer`: id of the call of that agent."""
    return f"{outer}/{call}"


def inner_line(line: str, calls: Sequence[str]) -> str:
    """Return a line of an inner journal as a line of the outer journal; see `Journal.write_to`.

    Args:
        line: The line of the inner journal.
        calls: Ids of the calls that lead to the inner agent, the outermost first.
    """
    for call in reversed(calls):
        line = f'{{"call":{json.dumps(call)},"line":{line.rstrip()}}}\n'
    return line


class Journal(metaclass=Hinted):
    """The results of the steps of a run: plain data, which `dumps` writes as lines of JSON.

    Attributes:
        agent: Name of the agent.
        run_id: Id of the run.
        session: Id of the session; None without a session.
        continues_session: True if the run had no input, and answers the conversation of its session.
        scope: Names of the scope of the memory; None if the memory has no scopes.
        tags: Tags of the run, by which lists of runs are filtered.
        context: Context of the run before its first step, without the conversation of a session.
        entries: Results so far.
        inner: Journals of agents that run as tools, by the ids of their calls.
        file: File that contains the whole journal, and receives the lines of a resumed run; None without a file.
        lines: Number of lines in the file.
        has_layers: True if entries of model calls have the tokens of each layer.
        is_guarded: True if guards check replies or tool results: the values in the entries are not accepted yet.
    """

    __slots__ = (
        "_pickling_problem",
        "_version",
        "_write",
        "agent",
        "context",
        "continues_session",
        "entries",
        "file",
        "has_layers",
        "inner",
        "is_guarded",
        "lines",
        "run_id",
        "scope",
        "session",
        "tags",
    )

    def __init__(
        self,
        agent: str,
        run_id: str,
        context: PromptContext,
        session: str | None = None,
        continues_session: bool = False,
        scope: tuple[str, ...] | None = None,
        version: AgentVersion | RecordedVersion = _UNKNOWN_VERSION,
        tags: tuple[str, ...] = (),
    ) -> None:
        self.agent = agent
        self.run_id = run_id
        self.session = session
        self.continues_session = continues_session
        self.scope = scope
        self.tags = tags
        self.context = context
        self.entries: list[Entry] = []
        self.inner: dict[str, Journal] = {}
        self.file: Path | None = None
        self.lines = 0
        self.has_layers = False
        self.is_guarded = False
        self._version = version
        self._write: Callable[[str, tuple[str, ...]], object] | None = None
        self._pickling_problem = ""

    def check(self) -> None:
        """Refuse a journal whose entries another process could not send to this process.

        Raises:
            JournalError: JSON cannot represent the journal.
        """
        if self._pickling_problem:
            raise JournalError(self._pickling_problem, value="left behind")

    def add(self, effect: str, answer: Any, layers: SentLayers | None = None) -> None:
        """Add the result of a step, after the writer of the journal received its line."""
        entry = _new(Entry, (effect, answer, time(), layers))  # `Entry(...)` takes twice as long
        # The line first: a result that JSON cannot represent must not become part of the run.
        if self._write is not None:
            self._write(entry_line(entry), ())
        self.entries.append(entry)

    def add_inner(self, call: str, journal: Journal, *, is_new: bool) -> None:
        """Add the journal of an agent that runs as a tool; the writer of this journal receives its lines too."""
        self.inner[call] = journal
        write = self._write
        if write is not None:
            journal.write_to(lambda line, calls: write(line, (call, *calls)), is_new=is_new)

    def write_to(self, write: Callable[[str, tuple[str, ...]], object], *, is_new: bool) -> None:
        """Pass each new line to a function.

        Args:
            write: Receives a line, and the ids of the calls that lead to the inner agent whose line it is, the
                outermost first; no ids for a line of this run.
            is_new: True if the first line has not been written yet.
        """
        self._write = write
        self.has_layers = True
        if is_new:
            write(self._head(), ())

    def copy(self) -> Journal:
        """Return a copy; entries that are added to the copy do not change this journal."""
        copied = Journal(
            self.agent,
            self.run_id,
            self.context,
            session=self.session,
            continues_session=self.continues_session,
            scope=self.scope,
            version=self._version,
            tags=self.tags,
        )
        copied.entries = [*self.entries]
        copied.is_guarded = self.is_guarded
        copied.inner = {call: journal.copy() for call, journal in self.inner.items()}
        return copied

    @property
    def version(self) -> str:
        """Version of the agent: a hash of its prompts, tools, output type, model and settings; see `Runs.add`."""
        return self._version.id

    @property
    def parts(self) -> Mapping[str, str]:
        """Hash of each prompt and of each tool schema, by the name of the part, such as `system.persona` or
        `tools.search`. Tools that each run creates are left out.
        """
        return self._version.hashes

    @property
    def unfinished(self) -> tuple[ToolCall, ...]:
        """Calls of the latest reply without a result, in order; empty if the run waits for no tool.

        The calls of a paused run, which `Paused.calls` and a stored journal name: calls that wait for a decision, and
        calls of the same reply that run after it. The calls of an agent that runs as a tool replace the call of the
        agent, with ids such as `c1/c7`.
        """
        calls: list[ToolCall] = []
        inner = self.unfinished_agents
        for call in unfinished_calls(self.entries):
            if call.id not in inner:
                calls.append(call)
                continue
            inner_calls = inner[call.id].unfinished
            calls += [replace(each, id=inner_id(call.id, each.id)) for each in inner_calls] or [call]
        return tuple(calls)

    @property
    def unfinished_agents(self) -> dict[str, Journal]:
        """Journals of agents that run as tools and have no result yet, by the ids of their calls."""
        if not self.inner:
            return {}
        finished = {result.call_id for result in self.tool_results}
        return {call: journal for call, journal in self.inner.items() if call not in finished}

    @property
    def messages(self) -> tuple[Message, ...]:
        """Messages that the run added to the conversation so far."""
        return tuple([message for entry in self.entries if entry.effect == "Append" for message in entry.answer])

    @property
    def has_received(self) -> bool:
        """True if messages were sent to the run while it ran."""
        return any(entry.effect == "Receive" for entry in self.entries)

    @property
    def decisions(self) -> dict[str, Decision]:
        """Decisions so far, by the ids of the calls; a call of an inner agent has the id `outer/inner`."""
        decisions: dict[str, Decision] = {}
        for entry in self.entries:
            if entry.effect == "AskApproval":
                decisions.update(entry.answer)
        for outer, journal in self.inner.items():
            decisions.update({inner_id(outer, call): decision for call, decision in journal.decisions.items()})
        return decisions

    @property
    def tool_results(self) -> list[ToolResult]:
        """Results of tool calls so far."""
        return [entry.answer[0] for entry in self.entries if entry.effect == "CallTools"]

    @property
    def tool_errors(self) -> tuple[FailedCall, ...]:
        """Tool calls that failed so far, in the order of their ends, with the calls of agents that ran as tools."""
        return tuple(failed_calls(self.steps()))

    def remove_tracebacks(self) -> None:
        """Remove the tracebacks of failed calls, if this journal was read from text."""
        for result in self.tool_results:
            if isinstance(result.error, RecordedError):
                result.error.traceback = ""
        for inner in self.inner.values():
            inner.remove_tracebacks()

    @property
    def usage(self) -> Usage:
        """Tokens and money so far, including the model calls of agents that ran as tools."""
        return sum([step.usage for step in self.steps() if step.usage is not None], Usage())

    def steps(self) -> list[JournalStep]:
        """Return the entries as steps, with their times and calls; calls of agents without a result come last."""
        return journal_steps(self.entries, self.inner)

    @property
    def trace(self) -> TraceSpan:
        """The run as spans, as JSON data, with the attribute names of OpenTelemetry; see `TraceSpan`."""
        attributes = run_attributes(self.agent, self.run_id, self.session, self.tags) | usage_attributes(self.usage)
        return trace(f"invoke_agent {self.agent}", attributes, self.steps())

    def dumps(self) -> str:
        """Return the journal as lines of JSON: one for the run, one for each entry, and the lines of inner journals.

        Raises:
            JournalError: The context of the run, or a result, has values that JSON cannot represent.
        """
        self.check()
        lines = [entry_line(entry) for entry in self.entries]
        for call, journal in self.inner.items():
            lines += [inner_line(line, (call,)) for line in journal.dumps().splitlines(keepends=True)]
        return self._head() + "".join(lines)

    def _head(self) -> str:
        context = self.context
        if self.session is not None:
            context = context.evolve(conversation=())  # the session stores it
        names: dict[str, Any] = {
            "agent": self.agent,
            "run_id": self.run_id,
            "session": self.session,
            "continues_session": self.continues_session,
            "scope": self.scope,
            "version": self.version,
            "parts": dict(self.parts),
        }
        if self.tags:
            names["tags"] = self.tags
        if self.is_guarded:
            names["guarded"] = True
        return head_line(names, context)

    @classmethod
    def loads(cls, text: str | bytes) -> Self:
        """Return the journal in the text that `dumps` wrote.

        A last line that was cut short is ignored: a resumed run performs the step of this line again.

        Raises:
            JournalError: The text is no journal, has a newer format, or has a line that cannot be read.
        """
        if not isinstance(text, str | bytes):
            raise _no_text(type(text).__name__)
        data = text
        if isinstance(data, str):
            data = data.encode("utf-8", "surrogatepass")
        # A line without its line break was cut short when the process ended.
        *lines, rest = data.split(b"\n")
        objects = list(read_objects(lines))
        if not objects:
            if rest and rest[:1] != b"{":
                raise _no_text(f"{text!r:.40}")
            problem = "the line is cut short" if rest else "the text is empty"
            raise invalid_line(1, f"{problem}: the run cannot be resumed; start a new run")
        journal = cls._from_lines(list(enumerate(objects, 1)))
        journal.lines = len(objects)
        return journal

    @classmethod
    def _from_lines(cls, lines: list[tuple[int, Any]], depth: int = 0) -> Self:
        """Build a journal from its lines, each with its number in the text."""
        first, head = lines[0]
        check_format(first, head)
        try:
            journal = cls._without_entries(head)
        except (KeyError, ValueError, TypeError) as error:
            raise unreadable_line(first, error) from error
        inner: dict[str, list[tuple[int, Any]]] = {}
        for number, entry in lines[1:]:
            try:
                if "call" in entry:
                    line, call = entry["line"], checked_text(entry["call"])
                    # A tool that failed was called again: its agent started a new journal.
                    if "journal" in line:
                        inner.pop(call, None)
                    inner.setdefault(call, []).append((number, line))
                else:
                    journal.entries.append(read_entry(entry))
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise unreadable_line(number, error) from error
        # Each level is a recursive call, and the depth of recursion is limited.
        if inner and depth >= _MAX_DEPTH:
            raise invalid_line(first, f"more than {_MAX_DEPTH} agents inside of each other", value=_MAX_DEPTH)
        journal.inner = {call: cls._from_lines(rows, depth + 1) for call, rows in inner.items()}
        return journal

    @classmethod
    def _without_entries(cls, head: Mapping[str, Any]) -> Self:
        """Build a journal from its first line."""
        context = context_adapter().validate_python(head["context"])
        session, scope = head["session"], head["scope"]
        if session is not None:
            session = checked_text(session)
        if scope is not None:
            scope = tuple([checked_text(name) for name in scope])
        hashes = dict(head.get("parts", {}))
        journal = cls(
            checked_text(head["agent"]),
            checked_text(head["run_id"]),
            context,
            session=session,
            continues_session=bool(head["continues_session"]),
            scope=scope,
            version=RecordedVersion(
                checked_text(head.get("version", "")),
                {checked_text(name): checked_text(part_hash) for name, part_hash in hashes.items()},
            ),
            tags=tuple([checked_text(tag) for tag in head.get("tags", ())]),
        )
        journal.is_guarded = bool(head.get("guarded", False))
        return journal

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the journal in a file. A run that is resumed from this journal adds its lines to the file.

        Raises:
            OSError: The file cannot be read.
            JournalError: The text of the file is no journal, see `loads`; or `path` is no path.
        """
        is_text = isinstance(path, str) and path.startswith('{"journal"')
        if is_text or not isinstance(path, str | Path):
            got = f"{path!r:.40}"
            if is_text:
                got = "its text: read that with Journal.loads"
            problem = f"expected a Journal, such as `error.journal`, or its file, got {got}"
            raise JournalError(f"journal: {problem}", name="journal", value=type(path).__name__)
        try:
            text = read_regular(path)
        except OSError as error:
            if error.filename is not None:
                raise
            raise OSError(f"journal {str(path)!r:.200}: {error}") from error
        journal = cls.loads(text)
        journal.file = Path(path).absolute()
        return journal

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the journal as its text.

        A journal that JSON cannot represent arrives in the other process without entries, and its `check` raises.
        """
        try:
            return Journal.loads, (self.dumps(),), (None, {"file": self.file, "lines": self.lines})
        except JournalError as error:
            problem = (
                self._pickling_problem
                or f"journal of run {self.run_id!r:.80}: it cannot be sent to another process: {error}"
            )
            return _unpickled_without_entries, (self.agent, self.run_id, self.session, problem)

    def __repr__(self) -> str:
        return f"Journal({self.agent!r}, {self.run_id!r}, {len(self.entries)} entries)"


def tool_error_count(journal: Journal | None) -> int:
    """Return the number of failed tool calls in a journal; 0 without a journal."""
    if journal is None:
        return 0
    return len(journal.tool_errors)


def _no_text(got: str) -> JournalError:
    return JournalError(
        f"journal: expected its text, as `dumps` writes it, got {got}{_FILE_ADVICE}", name="text", value=got
    )


def _unpickled_without_entries(agent: str, run_id: str, session: str | None, problem: str) -> Journal:
    """Return a journal without entries, whose `check` raises `problem`."""
    journal = Journal(agent, run_id, PromptContext(user_input=""), session=session)
    journal._pickling_problem = problem
    return journal
