"""`Journal`: what a run asked for and what it was answered, in order. A run goes on from its journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import TypeAdapter

from agentkit.compaction import Compacted
from agentkit.errors import JournalError
from agentkit.models.model import Reply, Usage
from agentkit.recaller import Found
from agentkit.run.decisions import Approved, Decision, Denied
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, Selection, ToolSpec
from agentkit_tools.calling.result_content import Content
from agentkit_tools.calling.tool_result import ToolResult, ToolStatus

__all__ = ["Entry", "Journal"]

_FORMAT = 1


class Entry(NamedTuple):
    """An effect, by the name of its class, and its answer."""

    effect: str
    answer: Any


class Journal:
    """What a run asked for and what it was answered: plain data, which `dumps` writes as lines of JSON.

    Attributes:
        agent: Name of the agent.
        run_id: Id of the run.
        session: Id of the session; None without one.
        goes_on: Whether the run had no input of its own.
        scope: The names of the scope whose memory was read; None where memory has no scopes.
        context: The context it was asked with; the conversation of a session is not stored with it.
        entries: What was answered so far.
    """

    __slots__ = ("_write", "_written", "agent", "context", "entries", "goes_on", "run_id", "scope", "session")

    def __init__(
        self,
        agent: str,
        run_id: str,
        context: PromptContext,
        *,
        session: str | None = None,
        goes_on: bool = False,
        scope: tuple[str, ...] | None = None,
    ) -> None:
        self.agent = agent
        self.run_id = run_id
        self.session = session
        self.goes_on = goes_on
        self.scope = scope
        self.context = context
        self.entries: list[Entry] = []
        self._write: Callable[[str], object] | None = None
        self._written = 0

    def add(self, effect: str, answer: Any) -> None:
        """Add what an effect was answered; who keeps the journal gets it before the run goes on."""
        self.entries.append(Entry(effect, answer))
        if self._write is not None and len(self.entries) > self._written:
            self._write(_line({"effect": effect, "answer": _forms()[effect][0](answer)}))

    def kept_by(self, write: Callable[[str], object], *, lines: int = 0) -> None:
        """Pass every line on as soon as there is one, except for the first `lines`, which are kept already."""
        self._write, self._written = write, lines - 1
        if not lines:
            write(self._head())

    def anew(self) -> Self:
        """Return a journal of the same run without entries."""
        return type(self)(
            self.agent, self.run_id, self.context, session=self.session, goes_on=self.goes_on, scope=self.scope
        )

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the run added to the conversation so far."""
        return tuple([message for entry in self.entries if entry.effect == "Append" for message in entry.answer])

    @property
    def decisions(self) -> dict[str, Decision]:
        """What was decided about calls so far, by their ids."""
        return {call: made for name, answer in self.entries if name == "AskApproval" for call, made in answer.items()}

    @property
    def tool_results(self) -> list[ToolResult]:
        """How tool calls ended so far."""
        return [answer[0] for name, answer in self.entries if name == "CallTools"]

    @property
    def usage(self) -> Usage:
        """What the run used so far: its model calls, and those of agents that its tools ran."""
        spent = Usage()
        for name, answer in self.entries:
            if name in ("CallModel", "Compact"):
                spent += answer.usage
            elif name == "CallTools" and answer[1] is not None:
                spent += answer[1]
        return spent

    def dumps(self) -> str:
        """Return the journal as lines of JSON: the run, then an entry a line."""
        forms = _forms()
        lines = [_line({"effect": name, "answer": forms[name][0](answer)}) for name, answer in self.entries]
        return self._head() + "".join(lines)

    def _head(self) -> str:
        kept = self.context if self.session is None else self.context.evolve(conversation=())
        context = _context().dump_python(kept, mode="json", exclude={"session_key"})
        return _line(
            {
                "journal": _FORMAT,
                "agent": self.agent,
                "run_id": self.run_id,
                "session": self.session,
                "goes_on": self.goes_on,
                "scope": self.scope,
                "context": context,
            }
        )

    @classmethod
    def loads(cls, text: str | bytes) -> Self:
        """Read what `dumps` wrote. A last line that was cut is left out: what it would tell is done again.

        Raises:
            JournalError: It is no journal, one of a newer version, or a line of it cannot be read.
        """
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        *lines, rest = data.split(b"\n")
        found = list(_read(lines))
        if not found:
            what = "its first line was cut" if rest[:1] == b"{" else "it has no first line"
            raise JournalError(f"journal: {what}: nothing of the run is known, start it anew")
        head = found[0]
        if not isinstance(version := head.get("journal"), int):
            raise JournalError("journal, line 1: expected an object with `journal`, the number of its format")
        if version > _FORMAT:
            raise JournalError(
                f"journal: format {version} was written by a newer agentkit; this one reads up to {_FORMAT}: upgrade it"
            )
        try:
            context = _context().validate_python(head["context"])
            names = head["scope"]
            journal = cls(
                _text(head["agent"]),
                _text(head["run_id"]),
                context,
                session=None if head["session"] is None else _text(head["session"]),
                goes_on=bool(head["goes_on"]),
                scope=None if names is None else tuple(names),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise JournalError(f"journal, line 1: {type(error).__name__}: {error}") from error
        for number, entry in enumerate(found[1:], 2):
            try:
                journal.entries.append(Entry(entry["effect"], _forms()[entry["effect"]][1](entry["answer"])))
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise JournalError(f"journal, line {number}: {type(error).__name__}: {error}") from error
        return journal

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file.

        Raises:
            OSError: There is no such file.
            JournalError: As `loads` does; or it is no path.
        """
        if not isinstance(path, str | Path):
            raise JournalError(f"journal: expected a Journal, such as `error.journal`, or its file, got {path!r:.40}")
        if isinstance(path, str) and path.startswith('{"journal"'):
            raise JournalError("journal: expected a Journal or its file, got its text: read that with Journal.loads")
        return cls.loads(Path(path).read_bytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return Journal.loads, (self.dumps(),)

    def __repr__(self) -> str:
        return f"Journal({self.agent!r}, {self.run_id!r}, {len(self.entries)} entries)"


def _read(lines: list[bytes]) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise JournalError(f"journal, line {number}: not JSON ({error})") from error
        if not isinstance(found, dict):
            raise JournalError(f"journal, line {number}: expected an object, got {type(found).__name__}")
        yield found


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")) + "\n"


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
            lambda made: {call: _write_decision(one) for call, one in made.items()},
            lambda data: {call: _read_decision(one) for call, one in data.items()},
        ),
        "CallTools": (write_result, read_result),
    }


def _write_decision(made: Decision) -> dict[str, Any]:
    if isinstance(made, Denied):
        return {"denied": made.reason}
    return {"approved": None if made.arguments is None else dict(made.arguments)}


def _read_decision(data: Mapping[str, Any]) -> Decision:
    if "denied" in data:
        return Denied(_text(data["denied"]))
    arguments = data["approved"]
    if arguments is not None and not isinstance(arguments, Mapping):
        raise TypeError(f"expected the approved arguments as an object, got {type(arguments).__name__}")
    return Approved(arguments)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value
