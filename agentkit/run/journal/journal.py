"""`Journal`: what a run asked for and what it was answered, in order. A run goes on from its journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from time import time
from typing import Any, Self

from pydantic import TypeAdapter

from agentkit.errors import JournalError
from agentkit.models.model import Reply, Usage
from agentkit.output.output_validators import Checked
from agentkit.run.journal.journal_steps import Entry, JournalStep, journal_steps
from agentkit.run.journal.sent_layers import SentLayers
from agentkit.run.journal.trace import TraceSpan, run_attributes, trace, usage_attributes
from agentkit.run.parts.compaction import Compacted
from agentkit.run.parts.decisions import Decision, decision_data, read_decision
from agentkit.run.parts.recaller import Found
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, Selection, ToolSpec
from agentkit_prompts.system.regular_files import read_regular
from agentkit_tools.calling.result_content import Content
from agentkit_tools.calling.tool_result import ToolResult, ToolStatus

__all__ = ["Journal", "inner_id", "inner_line"]

_FORMAT = 1
_MAX_DEPTH = 100
"""How deep journals may be inside of each other."""
_NOT_JSON = (ValueError, TypeError, RecursionError)
"""What is raised for a value that JSON cannot hold."""
_new = tuple.__new__
_READ = "; a file is read with Journal.read(path)"


def inner_id(outer: str, call: str) -> str:
    """Return the id that a call of an agent has in the run around it, where the agent runs as the tool of `outer`."""
    return f"{outer}/{call}"


def inner_line(line: str, calls: Sequence[str]) -> str:
    """Return a line of the journal of an agent inside as one of the run around it; see `Journal.kept_by`."""
    for call in reversed(calls):
        line = f'{{"call":{json.dumps(call)},"line":{line.rstrip()}}}\n'
    return line


class Journal:
    """What a run asked for and what it was answered: plain data, which `dumps` writes as lines of JSON.

    Attributes:
        agent: Name of the agent.
        run_id: Id of the run.
        session: Id of the session; None without one.
        continues_session: True if the run has no input and answers the conversation of its session.
        scope: The names of the scope whose memory was read; None where memory has no scopes.
        context: The context it was asked with; the conversation of a session is not stored with it.
        entries: What was answered so far.
        inner: The journals of agents that run as tools, by the ids of their calls.
        file: The file that holds all of it: a run that goes on from it is kept there. None where it is in no file.
        lines: How many lines that has.
        has_layers: Whether model calls are noted with the tokens of each layer.
    """

    __slots__ = (
        "_lost",
        "_write",
        "agent",
        "context",
        "continues_session",
        "entries",
        "file",
        "has_layers",
        "inner",
        "lines",
        "run_id",
        "scope",
        "session",
    )

    def __init__(
        self,
        agent: str,
        run_id: str,
        context: PromptContext,
        session: str | None = None,
        continues_session: bool = False,
        scope: tuple[str, ...] | None = None,
    ) -> None:
        self.agent = agent
        self.run_id = run_id
        self.session = session
        self.continues_session = continues_session
        self.scope = scope
        self.context = context
        self.entries: list[Entry] = []
        self.inner: dict[str, Journal] = {}
        self.file: Path | None = None
        self.lines = 0
        self.has_layers = False
        self._write: Callable[[str, tuple[str, ...]], object] | None = None
        self._lost = ""

    def check(self) -> None:
        """Refuse to go on from what is left of a journal in another process.

        Raises:
            JournalError: JSON could not hold it, so that it could not come here.
        """
        if self._lost:
            raise JournalError(self._lost, value="left behind")

    def add(self, effect: str, answer: Any, layers: SentLayers | None = None) -> None:
        """Add what an effect was answered; who keeps the journal gets it before the run goes on."""
        entry = _new(Entry, (effect, answer, time(), layers))  # `Entry(...)` takes twice as long
        if self._write is not None:
            self._write(_entry_line(entry), ())  # before it is part of the run
        self.entries.append(entry)

    def add_inner(self, call: str, journal: Journal, *, is_new: bool) -> None:
        """Add the journal of an agent that runs as a tool; who keeps this one gets its lines too."""
        self.inner[call] = journal
        if (write := self._write) is not None:
            journal.kept_by(lambda line, calls: write(line, (call, *calls)), is_new=is_new)

    def kept_by(self, write: Callable[[str, tuple[str, ...]], object], *, is_new: bool) -> None:
        """Pass every line on as soon as there is one; those until now are kept already, unless the run is a new one.

        With each line come the ids of the calls whose agent wrote it, the outermost first: none where the run did.
        """
        self._write = write
        self.has_layers = True
        if is_new:
            write(self._head(), ())

    def copy(self) -> Journal:
        """Return a journal that goes on by itself."""
        copied = Journal(
            self.agent,
            self.run_id,
            self.context,
            session=self.session,
            continues_session=self.continues_session,
            scope=self.scope,
        )
        copied.entries = [*self.entries]
        copied.inner = {call: journal.copy() for call, journal in self.inner.items()}
        return copied

    @property
    def unfinished(self) -> dict[str, Journal]:
        """The journals of agents that run as tools and have not answered, by the ids of their calls."""
        if not self.inner:
            return {}
        ended = {result.call_id for result in self.tool_results}
        return {call: journal for call, journal in self.inner.items() if call not in ended}

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the run added to the conversation so far."""
        return tuple([message for entry in self.entries if entry.effect == "Append" for message in entry.answer])

    @property
    def decisions(self) -> dict[str, Decision]:
        """What was decided about calls so far, by their ids: those of agents inside are behind the id of their call."""
        asked = [entry.answer for entry in self.entries if entry.effect == "AskApproval"]
        made = {call: one for answer in asked for call, one in answer.items()}
        for outer, journal in self.inner.items():
            made.update({inner_id(outer, call): one for call, one in journal.decisions.items()})
        return made

    @property
    def tool_results(self) -> list[ToolResult]:
        """How tool calls ended so far."""
        return [entry.answer[0] for entry in self.entries if entry.effect == "CallTools"]

    @property
    def usage(self) -> Usage:
        """What the run used so far: its model calls, and those of agents that its tools ran."""
        return sum([step.usage for step in self.steps() if step.usage is not None], Usage())

    def steps(self) -> list[JournalStep]:
        """Return the entries with their places in the run; calls of agents without a result come last."""
        return journal_steps(self.entries, self.inner)

    def trace(self) -> TraceSpan:
        """Return the run as spans, as JSON data, with the attribute names of OpenTelemetry; see `TraceSpan`."""
        attributes = run_attributes(self.agent, self.run_id, self.session) | usage_attributes(self.usage)
        return trace(f"invoke_agent {self.agent}", attributes, self.steps())

    def dumps(self) -> str:
        """Return the journal as lines of JSON: the run, an entry a line, and the lines of the journals inside.

        Raises:
            JournalError: The context of the run, or an answer, has values that JSON cannot hold; names them.
        """
        self.check()
        lines = [_entry_line(entry) for entry in self.entries]
        for call, journal in self.inner.items():
            lines += [inner_line(line, (call,)) for line in journal.dumps().splitlines(keepends=True)]
        return self._head() + "".join(lines)

    def _head(self) -> str:
        kept = self.context if self.session is None else self.context.evolve(conversation=())
        head: dict[str, Any] = {
            "journal": _FORMAT,
            "agent": self.agent,
            "run_id": self.run_id,
            "session": self.session,
            "continues_session": self.continues_session,
            "scope": self.scope,
        }
        try:
            head["context"] = _context().dump_python(kept, mode="json", exclude={"session_key"})
            return _line(head)
        except _NOT_JSON as error:
            raise JournalError(f"the context cannot be stored as JSON: {_why(error)}", name="context") from error

    @classmethod
    def loads(cls, text: str | bytes) -> Self:
        """Read what `dumps` wrote. A last line that was cut is left out: what it would tell is done again.

        Raises:
            JournalError: It is no journal, one of a newer version, or a line of it cannot be read.
        """
        if not isinstance(text, str | bytes):
            raise _no_text(type(text).__name__)
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        *lines, rest = data.split(b"\n")
        found = list(_read(lines))
        if not found:
            if rest and rest[:1] != b"{":
                raise _no_text(f"{text!r:.40}")
            what = "it was cut" if rest else "there is none"
            raise _invalid(1, f"{what}: nothing of the run is known, start it anew")
        journal = cls._built(list(enumerate(found, 1)))
        journal.lines = len(found)
        return journal

    @classmethod
    def _built(cls, lines: list[tuple[int, Any]], depth: int = 0) -> Self:
        """Build a journal from its lines, each with its number in the text."""
        first, head = lines[0]
        version = head.get("journal") if isinstance(head, Mapping) else None
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            problem = "expected an object with `journal`, the number of its format, 1 or more"
            raise _invalid(first, problem, name="journal", value=version if isinstance(version, int) else None)
        if version > _FORMAT:
            problem = f"format {version} was written by a newer agentkit; this one reads up to {_FORMAT}: upgrade it"
            raise _invalid(first, problem, name="journal", value=version)
        try:
            context = _context().validate_python(head["context"])
            names = head["scope"]
            journal = cls(
                _text(head["agent"]),
                _text(head["run_id"]),
                context,
                session=None if head["session"] is None else _text(head["session"]),
                continues_session=bool(head["continues_session"]),
                scope=None if names is None else tuple(names),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise _unreadable(first, error) from error
        inner: dict[str, list[tuple[int, Any]]] = {}
        for number, entry in lines[1:]:
            try:
                if "call" in entry:
                    line, call = entry["line"], _text(entry["call"])
                    if "journal" in line:  # begun anew, as a tool is that is called once more after it failed
                        inner.pop(call, None)
                    inner.setdefault(call, []).append((number, line))
                else:
                    journal.entries.append(_read_entry(entry))
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise _unreadable(number, error) from error
        if inner and depth >= _MAX_DEPTH:
            raise _invalid(first, f"more than {_MAX_DEPTH} agents inside of each other", value=_MAX_DEPTH)
        journal.inner = {call: cls._built(found, depth + 1) for call, found in inner.items()}
        return journal

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file, in which a run that goes on from this journal is kept.

        Raises:
            OSError: There is no such file.
            JournalError: As `loads` does; or it is no path.
        """
        is_text = isinstance(path, str) and path.startswith('{"journal"')
        if is_text or not isinstance(path, str | Path):
            got = "its text: read that with Journal.loads" if is_text else f"{path!r:.40}"
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
        """Go to another process as text. One that JSON cannot hold arrives as one that says so when it is used."""
        try:
            return Journal.loads, (self.dumps(),), (None, {"file": self.file, "lines": self.lines})
        except JournalError as error:
            lost = self._lost or f"journal of run {self.run_id!r:.80}: it was left behind in its process, as {error}"
            return _left_behind, (self.agent, self.run_id, self.session, lost)

    def __repr__(self) -> str:
        return f"Journal({self.agent!r}, {self.run_id!r}, {len(self.entries)} entries)"


def _invalid(line: int, problem: str, *, name: str | None = None, value: str | int | None = None) -> JournalError:
    return JournalError(f"journal, line {line}: {problem}", line=line, name=name, value=value)


def _no_text(got: str) -> JournalError:
    return JournalError(f"journal: expected its text, as `dumps` writes it, got {got}{_READ}", name="text", value=got)


def _left_behind(agent: str, run_id: str, session: str | None, lost: str) -> Journal:
    """Return what is left in another process of a journal that JSON cannot hold."""
    journal = Journal(agent, run_id, PromptContext(user_input=""), session=session)
    journal._lost = lost
    return journal


def _read(lines: list[bytes]) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _invalid(number, f"not JSON ({error})") from error
        if not isinstance(found, dict):
            kind = type(found).__name__
            raise _invalid(number, f"expected an object, got {kind}", value=kind)
        yield found


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")) + "\n"


def _entry_line(entry: Entry) -> str:
    try:
        data = {"effect": entry.effect, "answer": _forms()[entry.effect][0](entry.answer)}
        if entry.at is not None:
            data["at"] = entry.at
        if entry.layers is not None:
            data["layers"] = entry.layers._asdict()
        return _line(data)
    except _NOT_JSON as error:
        raise JournalError(
            f"the answer to {entry.effect} cannot be stored as JSON: {_why(error)}", name=entry.effect
        ) from error


def _why(error: BaseException) -> str:
    """Return what has no JSON form; pydantic puts words of its own before what raised it."""
    return str(error.__cause__ or error)


def _unreadable(line: int, error: Exception) -> JournalError:
    if isinstance(error, KeyError):
        return _invalid(line, f"{error} is missing", name=str(error.args[0]))
    return _invalid(line, f"{type(error).__name__}: {error}", value=type(error).__name__)


def _read_entry(data: Mapping[str, Any]) -> Entry:
    effect, at, layers = data["effect"], data.get("at"), data.get("layers")
    if not isinstance(effect, str) or effect not in _forms():
        raise TypeError(f"effect: expected one of {', '.join(_forms())}, got {effect!r:.40}")
    if not (at is None or type(at) in (int, float)):
        raise TypeError(f"at: expected seconds, got {type(at).__name__}")
    answer = _forms()[effect][1](data["answer"])
    return Entry(effect, answer, at, None if layers is None else SentLayers.of_data(layers))


@lru_cache(maxsize=1)
def _context() -> TypeAdapter[PromptContext]:
    return TypeAdapter(PromptContext)


_Form = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""What writes an answer as JSON data, and what reads it."""


@lru_cache(maxsize=1)
def _forms() -> Mapping[str, _Form]:
    def of(kind: Any) -> _Form:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        return lambda answer: adapter.dump_python(answer, mode="json"), adapter.validate_python

    write_usage, read_usage = of(Usage | None)
    write_content, read_content = of(Content)
    read_status = of(ToolStatus)[1]

    def write_result(answer: tuple[ToolResult, Usage | None]) -> dict[str, Any]:
        result, usage = answer
        return {
            "call_id": result.call_id,
            "name": result.name,
            "content": write_content(result.content),
            "status": result.status,
            "whole": result.whole,
            "usage": write_usage(usage),
        }

    def read_result(data: Mapping[str, Any]) -> tuple[ToolResult, Usage | None]:
        content = read_content(data["content"])
        whole = None if data["whole"] is None else _text(data["whole"])
        status = read_status(data["status"])
        result = ToolResult(_text(data["call_id"]), _text(data["name"]), content, status, whole=whole)
        return result, read_usage(data["usage"])

    return {
        "Begin": of(tuple[int, int]),
        "Compact": of(Compacted),
        "Equip": of(tuple[ToolSpec, ...]),
        "SelectExamples": of(tuple[Selection, ...]),
        "Recall": of(Found),
        "Append": of(tuple[Message, ...]),
        "CallModel": of(Reply),
        "AskApproval": (
            lambda made: {call: decision_data(one) for call, one in made.items()},
            lambda data: {call: read_decision(one) for call, one in data.items()},
        ),
        "CallTools": (write_result, read_result),
        "CheckOutput": (lambda made: made.problem, lambda data: Checked(None, None if data is None else _text(data))),
    }


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value
